"""A cluster's numbers, and a factor for each shape of block, from steps that were measured.

Numbers that a cluster states are fitted together, in logarithms, so that no step counts more for being long;
what it leaves at 0 or infinite stays so, and what few rows tell stays near what was stated. Some steps of
every cluster take much longer than others like them, so a row that is far off hardly counts. Then, for each
shape of block, the factor that its rows need; the less they agree, the nearer to 1.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import exp, inf, log
from statistics import mean, median, variance
from typing import Any

import numpy as np

from gpipe_sim.errors import got, listed, require, require_flags
from gpipe_sim.links.links import Link, Nodes
from gpipe_sim.pricing.cluster import Cluster
from gpipe_sim.pricing.hardware import SHEET, Accelerator
from gpipe_sim.pricing.layout import Shape
from gpipe_sim.pricing.mixed import Mixed
from gpipe_sim.pricing.price import Priced
from gpipe_sim.pricing.rows import Row

OWNER = "calibrate"
NUMBERS = "flops", "hbm", "linear", "launch", "exposed", "call", "vocabulary", "microbatch", "step"
LINKS = "inside", "between"
APART = 20.0  #: times that a fitted number may be more or less than it was
REACHED = 0.93  #: of a data sheet; no product is known to reach more
WELL = 0.02  #: an error from which on a row counts ever less: Cauchy's loss
FAR = 0.2  #: in logarithms: a number so far from what was stated counts as a row that is off by WELL
PER_NUMBER = 3  #: rows for each number that is fitted
FOLDS = 4
ENOUGH = 1e-5  #: a share by which the loss gets less, at which a fit ends
TRIES, FEW_TRIES = 25, 6  #: steps of a fit; and of one that begins with what all rows gave
SLOPE = 1e-3  #: of a logarithm, changed to see what that does to times: far above their rounding
AT_BOUND = 0.01  #: in logarithms: a number so near a bound would go further
OFF_BOUND = 1e-6  #: in logarithms: a fit may not begin on a bound
MOST_EXPOSED = 0.99  #: a share, and rounding must not make it more than all
MORE, ROUNDS = 0.05, 3  #: a factor grows by a share to tell what it adds; a step is nearly linear in it
MOST_DOUBT = 10.0  #: rows
CONTRADICT = 0.2  #: share by which rows of one configuration may differ


@dataclass(frozen=True)
class Errors:
    """Shares by which predictions are off, without their signs."""

    mean: float
    median: float
    p90: float
    worst: float

    @classmethod
    def of(cls, errors: Sequence[float]) -> "Errors":
        """Of predicted / measured - 1."""
        off = np.abs(np.array(errors, float))
        return cls(float(off.mean()), float(np.median(off)), float(np.percentile(off, 90)), float(off.max()))

    def __str__(self) -> str:
        return f"mean {self.mean:.1%}, median {self.median:.1%}, p90 {self.p90:.1%}, worst {self.worst:.1%}"


@dataclass(frozen=True, eq=False, repr=False)
class Calibration:
    """What ``calibrate`` found. ``cluster`` has the numbers, ``factors`` one for each shape of block.

    ``fitted`` are the errors on the rows themselves, ``left_out`` on rows that were left out, a quarter at a
    time; ``at_bounds`` names what would be fitted further than is possible, ``wanted`` says of what there
    are too few rows.
    """

    cluster: Cluster
    factors: Mapping[Shape, float]
    fitted: Errors
    at_bounds: tuple[str, ...]
    wanted: tuple[str, ...]
    without: Callable[[], Errors | None]

    @cached_property
    def left_out(self) -> Errors | None:
        """Fits four times, when it is asked for first; None if there are too few rows."""
        return self.without()

    def price(self, row: Row) -> Priced:
        """A row of a table on this cluster, with what is known of the shape of its blocks."""
        return row.priced(self.cluster, self.factors)

    def __str__(self) -> str:
        left = f"left out: {self.left_out}" if self.left_out else "too few rows to leave some out"
        bounds = f"at bounds: {', '.join(self.at_bounds)}" if self.at_bounds else "nothing at bounds"
        return "\n".join([f"fitted: {self.fitted}", left, bounds, *self.wanted])

    def __repr__(self) -> str:
        return f"<Calibration with {len(self.factors)} factors, {self.fitted}>"


def calibrate(cluster: Cluster | Accelerator, rows: Sequence[Row], shapes: bool = True) -> Calibration:
    """The numbers of a cluster from measured steps, such as ``pricing.read_rows(path)`` gives.

    ``cluster`` says what to begin with, and what to fit: every rate and time that it states of its
    accelerator but an overhead, and the bandwidths of ``Nodes``. Latencies and a plain ``Link`` stay as they
    are. For rows of one device it may be an accelerator. A number ends within a twentieth and twenty times
    what it was; the rates of a card that says what its data sheet promises stay below that. With ``shapes``
    each shape of block, (samples, places, features, tensor degree), gets a factor, the median of its rows,
    nearer to 1 the less rows of one shape agree.

    It needs scipy: pip install "gpipe_sim[calibrate]". ValueError for too few rows, rows without a time, or
    rows of one configuration that contradict each other; ImportError without scipy.
    """
    if isinstance(cluster, Accelerator):
        cluster = Cluster(1, cluster, memory=inf)
    require(OWNER, cluster, Cluster, "a cluster, such as Cluster(8, pricing.A100, memory=80e9)")
    if isinstance(cluster, Mixed):
        raise ValueError(f"{OWNER} fits equal devices: give a cluster for each group of these, with its rows")
    require_flags(OWNER, shapes=shapes)
    rows = listed(OWNER, "rows, as read_rows(path) gives them", rows)
    for row in rows:
        require(OWNER, row, Row, "rows, as read_rows(path) gives them")
    names = _stated(cluster, rows)
    _require_rows(rows, names)
    found, bounds = _fit(cluster, rows, names)
    factors = _factors(found, rows) if shapes else {}
    fitted = [row.off(row.priced(found, factors).time) for row in rows]
    wanted = tuple(_wanted(rows, names, shapes))
    without = partial(_without, found, rows, names, shapes)
    return Calibration(found, factors, Errors.of(fitted), tuple(bounds), wanted, without)


def _without(cluster: Cluster, rows: Sequence[Row], names: Sequence[str], shapes: bool) -> Errors | None:
    if len(rows) < FOLDS * len(names):
        return None
    return Errors.of([*_left_out(cluster, rows, names, shapes)])


def _require_rows(rows: Sequence[Row], names: Sequence[str]) -> None:
    if len(rows) < len(names):
        raise ValueError(
            f"{OWNER} needs at least {len(names)} rows to fit {', '.join(names)} {got(len(rows))}; give more "
            "rows, or a cluster that states fewer numbers"
        )
    if any(row.time is None for row in rows):
        raise ValueError(f"{OWNER} needs rows with a time: the column ms is empty in one")
    alike = defaultdict(list)
    for row in rows:
        key = tuple(value for column, value in sorted(row.given.items()) if column != "ms")
        alike[key].append(row.seconds)
    for times in alike.values():
        if max(times) > (1 + CONTRADICT) * min(times):
            raise ValueError(
                f"{OWNER} needs rows that agree: one configuration took {min(times):.4g} s and "
                f"{max(times):.4g} s"
            )


def _stated(cluster: Cluster, rows: Sequence[Row]) -> list[str]:
    """What can be fitted: numbers that the cluster states and that some row depends on."""
    links = cluster.links if isinstance(cluster.links, Nodes) else None
    names = NUMBERS + LINKS if links else NUMBERS
    layouts = [row.layout for row in rows]
    per_node = links.devices_per_node if links else 0
    seen = {
        "call": any(each.tensor > 1 for each in layouts),
        "vocabulary": any(each.tensor == 1 for each in layouts),
        "inside": any(row.devices > 1 for row in rows),
        "between": any(row.devices > per_node for row in rows),
    }
    return [name for name in names if 0 < _number(cluster, name) < inf and seen.get(name, True)]


def _fit(
    cluster: Cluster, rows: Sequence[Row], names: Sequence[str], tries: int = TRIES
) -> tuple[Cluster, list[str]]:
    try:
        from scipy.optimize import least_squares  # type: ignore[import-untyped]
    except ImportError:
        raise ImportError(f'{OWNER} needs scipy: pip install "gpipe_sim[calibrate]"') from None
    start = [log(_number(cluster, name)) for name in names]
    promised = SHEET.get(cluster.accelerator.card, (inf, inf, inf))
    sheet = dict(zip(("flops", "hbm", "linear"), (REACHED * rate for rate in promised), strict=True))
    low = [each - log(APART) for each in start]
    high = [min(each + log(APART), log(_most(name, sheet))) for name, each in zip(names, start, strict=True)]
    start = [min(each, b - OFF_BOUND) for each, b in zip(start, high, strict=True)]
    measured = np.array([row.seconds for row in rows])

    def off(logs: np.ndarray) -> np.ndarray:
        changed = _changed(cluster, names, logs.tolist())
        rates = np.log([row.priced(changed).time for row in rows] / measured)
        return np.concatenate([rates, WELL / FAR * (logs - start)])

    found: Any = least_squares(
        off,
        start,
        bounds=(low, high),
        loss="cauchy",
        f_scale=WELL,
        diff_step=SLOPE,
        max_nfev=tries,
        ftol=ENOUGH,
    )
    ends = zip(names, found.x, low, high, strict=True)
    bounds = [name for name, x, a, b in ends if min(x - a, b - x) < AT_BOUND]
    return _changed(cluster, names, found.x.tolist()), bounds


def _most(name: str, sheet: Mapping[str, float]) -> float:
    return MOST_EXPOSED if name == "exposed" else sheet.get("flops" if name == "vocabulary" else name, inf)


def _number(cluster: Cluster, name: str) -> float:
    if name in LINKS:
        return float(getattr(cluster.links, name).bandwidth)
    return float(getattr(cluster.accelerator, name) or 0)


def _changed(cluster: Cluster, names: Sequence[str], logs: Sequence[float]) -> Cluster:
    new = {name: exp(each) for name, each in zip(names, logs, strict=True)}
    links: Any = cluster.links
    for name in LINKS:
        if name in new:
            links = replace(links, **{name: Link(getattr(links, name).latency, new[name])})
    numbers: dict[str, Any] = {name: value for name, value in new.items() if name not in LINKS}
    accelerator: Accelerator = replace(cluster.accelerator, **numbers)
    return replace(cluster, accelerator=accelerator, links=links)


def _factors(cluster: Cluster, rows: Sequence[Row]) -> dict[Shape, float]:
    """For each shape of block, what its rows need in the middle, as far as rows of one shape agree."""
    found = defaultdict(list)
    for row in rows:
        if len(row.layout.shapes) == 1:
            [shape] = row.layout.shapes
            found[shape].append(log(_needed(cluster, shape, row)))
    doubt = _doubt([*found.values()])
    return {shape: exp(median(each) * len(each) / (len(each) + doubt)) for shape, each in found.items()}


def _doubt(found: Sequence[Sequence[float]]) -> float:
    """How many rows that need no factor each shape gets: the variance in a shape for that between shapes."""
    inside = [variance(each) for each in found if len(each) > 1]
    scatter = mean(inside) if inside else 0.0
    between = mean(value**2 for each in found for value in each) - scatter if found else 0.0
    return min(scatter / between, MOST_DOUBT) if between > 0 else MOST_DOUBT * (scatter > 0)


def _needed(cluster: Cluster, shape: Shape, row: Row) -> float:
    """By which factor blocks take as long as measured: a step takes nearly a sum of them and the rest."""
    factor = 1.0
    for _ in range(ROUNDS):
        now, more = (row.priced(cluster, {shape: each}).time for each in (factor, factor * (1 + MORE)))
        slope = (more - now) / (MORE * factor)
        if slope <= 0:
            break
        factor = max(1 / APART, factor + (row.seconds - now) / slope)
    return factor


def _left_out(cluster: Cluster, rows: Sequence[Row], names: Sequence[str], shapes: bool) -> Iterator[float]:
    """The errors of rows that the fit had not seen."""
    for fold in range(FOLDS):
        seen = [row for i, row in enumerate(rows) if i % FOLDS != fold]
        found, _ = _fit(cluster, seen, names, tries=FEW_TRIES)
        factors = _factors(found, seen) if shapes else {}
        yield from (row.off(row.priced(found, factors).time) for row in rows[fold::FOLDS])


def _wanted(rows: Sequence[Row], names: Sequence[str], shapes: bool) -> Iterator[str]:
    if (few := PER_NUMBER * len(names)) > len(rows):
        yield f"{len(names)} numbers would like {few} rows: there are {len(rows)}"
    counts = Counter(shape for row in rows for shape in row.layout.shapes)
    if shapes and (single := sum(count == 1 for count in counts.values())):
        yield f"{single} of {len(counts)} shapes have one row alone: nobody knows how far off it is"
