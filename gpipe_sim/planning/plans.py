"""Which plan, on my cluster? The fastest plans that fit, and why the others do not."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import islice

from gpipe_sim.core.device import Batch
from gpipe_sim.core.layers import Layer
from gpipe_sim.core.losses import Loss
from gpipe_sim.core.optimizers import Optimizer
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.timeline import number
from gpipe_sim.errors import MemoryLimitError, got, whole
from gpipe_sim.families import SCHEDULES
from gpipe_sim.memory.limit import in_bytes
from gpipe_sim.planning.candidates import OWNER, Candidate, Refused, Space, candidates, read_space
from gpipe_sim.planning.cluster import Cluster
from gpipe_sim.planning.fits import fewest_devices, smallest
from gpipe_sim.planning.layer_table import LayerTable, table_of
from gpipe_sim.planning.lower_bound import bound_of_all
from gpipe_sim.planning.one_plan import Plan
from gpipe_sim.planning.search import Tally, best_first

Report = Callable[[str], object] | None


def on_terminal(line: str) -> None:
    """Show progress on one line of the terminal; elsewhere, as in a notebook, show nothing."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()


def require_report(owner: str, report: Report) -> None:
    """TypeError unless it can be told of progress."""
    if report is not None and not callable(report):
        raise TypeError(f"{owner} needs report to be a function of a text, or None {got(report)}")


def plan(
    layers: Sequence[Layer],
    cluster: Cluster,
    batch: Batch,
    loss: Loss,
    optimizer: Optimizer | None = None,
    *,
    schedules: Sequence[type[Schedule]] = SCHEDULES,
    replicas: Sequence[int] | None = None,
    microbatches: Sequence[int] | None = None,
    stages_per_device: Sequence[int] = (2, 4),
    recompute: Sequence[bool] = (False, True),
    rows: int | None = 10,
    report: Report = on_terminal,
) -> "Plans":
    """The fastest plans for a model on a cluster, of all that fit; and for the others, why not.

    It searches schedules x pipeline length x replicas x microbatches x stages per device x two cuts x
    recompute. All devices are used, as pipelines times replicas; with ``Nodes``, either the stages of a
    pipeline or the copies of a stage are neighbours. Microbatches are equal, for each replica any number up
    to 4,096 that divides its share of the batch. ``stages_per_device`` are those of interleaved 1F1B and
    looped BFS; on a pipeline of one device they are buckets, whose rings run while the device computes the
    rest. In a cut the slowest stage is as fast as can be; where stages differ by a layer, the larger ones
    come first or last. A family with one mesh, with recompute or without, is one row: its fastest.

    Model and batch may be on paper, as for ``profile``. Times are computed: FLOPs by the accelerator,
    messages by the links, then a ring all-reduce for each stage; an optimizer's update takes no time. The
    bytes of each row are exactly those of ``train_step``, also while an action runs. That is on its clock of
    unit costs: on another, a message may wait longer or less. What is faster is simulated; the others only
    have a bound that is not as fast as the last row. ``rows=None`` simulates all. ``report`` gets a line of
    text from time to time; unless given, it shows on a terminal.

    MemoryLimitError if no plan fits, with what would; ValueError if there is none because of its sizes, or
    replicas do not divide the devices; TypeError for what is no model, cluster, schedule or number.
    """
    if rows is not None:
        rows = whole(OWNER, "rows", rows)
    require_report(OWNER, report)
    table = table_of(OWNER, layers, cluster, batch, loss, optimizer)
    space = read_space(cluster, schedules, replicas, microbatches, stages_per_device, recompute)
    plans = plans_of(table, tuple(layers), space, rows, report)
    if report is not None:
        report("")
    if not plans:
        raise no_plan(table, space)
    return plans


def plans_of(
    table: LayerTable, layers: tuple[Layer, ...], space: Space, rows: int | None, report: Report
) -> "Plans":
    """As many plans of a space as there are, but not more than so many rows."""
    found, tally = list(candidates(table, space)), Tally()
    tally.refused += [each for each in found if isinstance(each, Refused)]
    looked_at = [each for each in found if isinstance(each, Candidate)]
    search = best_first(table, looked_at, tally, _reporting(report, len(looked_at)))
    plans = tuple(Plan(each, layers, table) for each in islice(search, rows))
    return Plans(plans, tuple(tally.refused), len(found), tally.simulated, table, space)


def _reporting(report: Report, of: int) -> Callable[[Tally], object]:
    def tell(tally: Tally) -> None:
        if report is not None:
            report(
                f"{of:,} plans: {tally.simulated:,} simulated, {tally.found} found, "
                f"{of - tally.waiting:,} done or refused"
            )

    return tell


def no_plan(table: LayerTable, space: Space) -> ValueError:
    """Why there is no plan, and what would make one fit."""
    found = list(candidates(table, space))
    looked_at = [each for each in found if isinstance(each, Candidate)]
    if not looked_at:
        whys = "; ".join(f"{count} {why}: {each.says}" for why, count, each in counted(found))
        return ValueError(f"plan finds no plan at all for this model, batch and cluster. {whys}")
    limit, (size, least) = table.cluster.memory, smallest(table, looked_at)
    fewest = fewest_devices(table)
    longer = (
        f"A pipeline of {fewest} such devices fits: 1F1B with recompute, and microbatches of one sample."
        if fewest
        else "However many such devices there are, no pipeline of 1F1B with recompute fits."
    )
    return MemoryLimitError(
        f"plan finds no plan that fits {table.cluster.devices} devices of {in_bytes(limit)} each. "
        f"{least} holds least: it would fit devices of {in_bytes(size)}, {size:,} bytes. {longer}"
    )


def counted(refused: Sequence[Refused]) -> list[tuple[str, int, Refused]]:
    """(reason, how many plans are refused for it, one of them), the most frequent reason first."""
    counts = Counter(each.reason for each in refused)
    first = {each.reason: each for each in reversed(refused)}
    return [(reason, count, first[reason]) for reason, count in counts.most_common()]


@dataclass(frozen=True, repr=False, eq=False)
class Plans:
    """Plans that fit, fastest first. ``print`` shows the table.

    ``looked_at`` counts all combinations of sizes, ``simulated`` those whose time was computed.
    """

    plans: tuple[Plan, ...]
    refused: tuple[Refused, ...]
    looked_at: int
    simulated: int
    table: LayerTable
    space: Space

    def __iter__(self) -> Iterator[Plan]:
        return iter(self.plans)

    def __len__(self) -> int:
        return len(self.plans)

    def __getitem__(self, row: int) -> Plan:
        return self.plans[row]

    @property
    def best(self) -> Plan:
        return self.plans[0]

    @cached_property
    def bound(self) -> float:
        """What no step takes less than with these replicas and microbatches: see ``lower_bound``."""
        return bound_of_all(self.table, self.space.replicas, self.space.microbatches)

    @property
    def gap(self) -> float:
        """The share by which the best plan is at most slower than the best that there can be."""
        return max(0.0, float(self.best.time) / self.bound - 1)  # they may be equal but for rounding

    @property
    def frontier(self) -> tuple[Plan, ...]:
        """The rows that no other beats in time and in bytes, fastest first."""
        found: list[Plan] = []
        for each in self.plans:
            if not found or each.peak < found[-1].peak:
                found.append(each)
        return tuple(found)

    @property
    def why_refused(self) -> list[tuple[str, int, Refused]]:
        """(reason, how many plans are refused for it, one of them), the most frequent reason first."""
        return counted(self.refused)

    def __str__(self) -> str:
        rows = [("", "time", "bubble", "bytes", "limited by"), *map(_row, self.plans)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [_line(row, widths) for row in rows]
        lines.append(
            f"{self.looked_at:,} plans, {self.simulated:,} simulated, {len(self.refused):,} refused; "
            f"the best is at most {self.gap:.1%} slower than any can be ({number(self.bound)})"
        )
        whys = self.why_refused
        return "\n".join([*lines, *(f"{n:,} {why}: {each.what}: {each.says}" for why, n, each in whys)])

    def __repr__(self) -> str:
        return f"<Plans: {len(self.plans)} of {self.looked_at:,}, the best {self.best!r}>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def _row(plan: Plan) -> tuple[str, ...]:
    return plan.words, number(plan.time), f"{plan.bubble:.1%}", in_bytes(plan.peak), plan.limited_by


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    what, *numbers, limit = (f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
    return "  ".join([f"{what.strip():<{widths[0]}}", *numbers, limit.strip()])
