"""How far the clocks of ranks are apart: no message comes before it was sent, in either direction.

Of two ranks, each message bounds the difference of their clocks on one side. If clocks that agree fit all
messages, they are taken to agree: machines keep the time of day. Otherwise each is moved into the middle of
what its messages allow; or, if that is wide since messages one way are slow, by as little as fits.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from gpipe_sim.core.actions import Action

DRIFT = 1.0  #: milliseconds by which clocks may drift apart within a recording
MOST = 16  #: ranks that a note names
WIDE = 1.5  #: milliseconds; if half of a round trip takes more, one direction is taken to be slow
ROUNDING = 0.02  #: milliseconds; a trace rounds to far less


class Crossing(NamedTuple):
    """A message: sent on one device's clock, received on another's, at the latest; in milliseconds."""

    action: Action
    source: int
    target: int
    sent: float
    received: float


class Clocks(NamedTuple):
    """For each device, what to add to its times to have those of device 0; at least, and at most."""

    shifts: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def align(devices: int, crossings: Iterable[Crossing], most: float, names: Sequence[str]) -> Clocks:
    """What puts all devices on the clock of device 0, by not more than ``most`` milliseconds.

    ``names`` says who each is. ValueError if no clocks fit the messages, or only clocks further apart.
    """
    ahead = np.full((devices, devices), np.inf)  # how far at most the column's clock is ahead of the row's
    np.fill_diagonal(ahead, 0)
    for _, source, target, sent, received in crossings:
        ahead[source, target] = min(ahead[source, target], received - sent)
    bounds = closed(ahead)
    if bounds.diagonal().min() < 0:
        bounds = closed(ahead + DRIFT * (1 - np.eye(devices)))
    if bounds.diagonal().min() < 0:
        raise ValueError(
            f"clocks of {few(names)} cannot be aligned: whatever is added to them, some message comes more "
            f"than {DRIFT:g} ms before it was sent. Are these files of one run? Record all ranks in the same "
            "run, with clocks that nobody sets meanwhile"
        )
    found = np.zeros(devices) if ahead.min() >= -ROUNDING else _moved(bounds, _usual(ahead))
    _require_near(found, most, names)
    return Clocks(*(tuple(map(float, each)) for each in (0 - found, 0 - bounds[0], bounds[:, 0])))


def closed(ahead: np.ndarray) -> np.ndarray:
    """The bounds that follow from all bounds together (Floyd and Warshall)."""
    found = ahead.copy()
    for middle in range(len(found)):
        np.minimum(found, found[:, middle, None] + found[middle], out=found)
    return found


def _usual(ahead: np.ndarray) -> float:
    """The usual round trip of a message and one back, in milliseconds."""
    trips = (ahead + ahead.T)[np.triu_indices(len(ahead), 1)]
    trips = trips[np.isfinite(trips)]
    return max(0.0, float(np.median(trips))) if len(trips) else 0.0


def _moved(bounds: np.ndarray, trip: float) -> np.ndarray:
    """How far each clock is ahead of device 0's: first those of which most is known."""
    ahead, fixed = np.zeros(len(bounds)), [0]
    while len(fixed) < len(bounds):
        rest = [device for device in range(len(bounds)) if device not in fixed]
        low = (ahead[fixed, None] - bounds[np.ix_(rest, fixed)].T).max(axis=0)
        high = (ahead[fixed, None] + bounds[np.ix_(fixed, rest)]).min(axis=0)
        at = int(np.argmin(high - low))
        half = (high[at] - low[at]) / 2
        inner = half if half <= max(trip, WIDE) else trip / 2
        ahead[rest[at]] = 0 if low[at] <= 0 <= high[at] else np.clip(0, low[at] + inner, high[at] - inner)
        fixed.append(rest[at])
    return ahead


def _require_near(ahead: np.ndarray, most: float, names: Sequence[str]) -> None:
    far = int(np.abs(ahead).argmax())
    if not abs(ahead[far]) <= most:
        raise ValueError(
            f"the clock of {names[far]} would be {ahead[far]:.0f} ms ahead of {names[0]}'s, more than the "
            f"{most:.0f} ms up to which it is clear which steps belong together. Are these files of one run, "
            "with a ProfilerStep# mark for each step on each rank? Record all ranks in the same run, with "
            "torch.profiler.schedule and prof.step()"
        )


def in_words(clocks: Clocks, names: Sequence[str]) -> str:
    """A note: whether clocks were moved, and what bounds messages set to the difference from the first."""
    ranges = [_range(*each) for each in list(zip(names, clocks.low, clocks.high, strict=True))[1:]]
    allowed = few(ranges, MOST)
    if not any(clocks.shifts):
        return (
            f"clocks are taken as they are; messages bound what may be added, in ms: {allowed or 'nothing'}"
        )
    moved = [f"{name} {shift:+.2f}" for name, shift in zip(names, clocks.shifts, strict=True) if shift]
    added = few(moved, MOST)
    return f"added to clocks so that no message comes before it is sent, in ms: {added}; possible: {allowed}"


def few(names: Sequence[str], most: int = 4) -> str:
    """The first of these, with dots if there are more."""
    return ", ".join(names if len(names) <= most else [*names[:most], "..."])


def _range(name: str, low: float, high: float) -> str:
    return f"{name} {low:+.1f} to {high:+.1f}".replace("-inf", "anything").replace("+inf", "anything")
