"""Fill the gaps: where each W goes on a device whose F and I stay where they are."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from gpipe_sim.core.costs import Costs
from gpipe_sim.core.simulate import simulate
from gpipe_sim.course.called import result_of
from gpipe_sim.course.exercises.seeded import drawn_by, hidden, seeded
from gpipe_sim.course.reply import Reply, almost, correct, is_number, keep_working, quoted
from gpipe_sim.course.rows import done_on
from gpipe_sim.errors import Real
from gpipe_sim.families import GPipe, OneFOneB

Box = tuple[str, int, int, int]  #: F or I, its microbatch, when it begins and when it ends
RULER = 5  #: units between two numbers above the row


class Device(NamedTuple):
    """What a device does at fixed moments, in order, and how long each of its W takes."""

    busy: list[Box]
    w: int

    def __str__(self) -> str:
        until = self.busy[-1][3]
        row = ["  "] * until
        for kind, m, start, end in self.busy:
            row[start:end] = [f"{kind}{m}", *["──"] * (end - start - 1)]
        ruler = "".join(f"{moment:<{2 * RULER}}" for moment in range(0, until + 1, RULER))
        return f"{ruler}\n{''.join(row)}\n\neach W takes {self.w}"

    def done(self) -> dict[int, int]:
        """When the I of each microbatch ends, the first of them first."""
        return {m: end for kind, m, _, end in self.busy if kind == "I"}

    def places(self) -> dict[int, int]:
        """When each W begins, if it is the first that is ready and begins as soon as it fits."""
        found, free = {}, 0
        for m, ready in self.done().items():
            at = max(ready, free)
            for _, _, start, end in self.busy:
                at = end if start < at + self.w and at < end else at
            found[m], free = at, at + self.w
        return found


def task(seed: object = 0) -> Device:
    rng = drawn_by(seed, "gaps")
    while True:
        K, M, w = rng.randint(3, 4), rng.randint(4, 6), rng.randint(2, 3)
        forward, back = ([rng.randint(1, 4) for _ in range(K)] for _ in "FI")
        schedule, k = rng.choice((GPipe, OneFOneB))(K, M), rng.randrange(K - 1)
        timeline = simulate(schedule, Costs(forward, back, [0] * K))
        done = done_on(timeline, k)
        first = done[0][1]
        moments = [(action, int(start - first), int(end - first)) for action, start, end in done]
        busy = [("F" if kind == "F" else "I", m, start, end) for (_, kind, m), start, end in moments]
        device = Device(busy, w)
        last = device.busy[-1][3]
        inside = sum(start < last for start in device.places().values())
        narrow = sum(0 < b[2] - a[3] < w for a, b in pairwise(device.busy))
        if 1 < inside < M and narrow and last < 50:
            return device


EDGES = (
    Device([("F", 0, 0, 1), ("I", 0, 4, 5)], 2),
    Device([("F", 0, 0, 2), ("F", 1, 2, 4), ("I", 1, 4, 5), ("I", 0, 9, 10)], 4),  # just as long as the gap
    Device([("F", 0, 0, 1), ("I", 0, 1, 2), ("F", 1, 4, 5), ("I", 1, 5, 6)], 3),  # no gap is long enough
    Device([*[(kind, m, 4 * m + i, 4 * m + i + 1) for m in range(3) for i, kind in enumerate("FI")]], 1),
    Device(
        [("F", 0, 0, 1), ("I", 0, 1, 2), ("F", 1, 2, 3), ("I", 1, 3, 4), ("F", 2, 9, 10), ("I", 2, 10, 11)], 2
    ),
)


@seeded("write place in this cell, and run it again")
def check(answer: Callable, seed: object) -> Reply:
    """Check ``answer(busy, w)``: when the W of each microbatch begins, the last of them as soon as can be."""
    devices = [*map(task, hidden(seed)), *EDGES]
    for device in devices:
        moments = " ".join(f"{kind}{m} {start}-{end}" for kind, m, start, end in device.busy)
        where = f"for {moments} and w = {device.w},"
        got = result_of(answer, list(device.busy), device.w, where=where, whole=("busy",))
        _what_is_wrong(got, device, f"{where} you give {quoted(got)}")
    return correct(
        f"no F or I moves, and the last W ends as soon as can be, on {len(devices)} devices. "
        "What would change if a W could be cut in two?"
    )


def _what_is_wrong(got: object, device: Device, said: str) -> None:
    done, w = device.done(), device.w
    if not isinstance(got, list | tuple) or len(got) != len(done) or not all(map(is_number, got)):
        raise keep_working(f"{said}. At which moment does each of the {len(done)} W begin, in a list?")
    for m, ready in done.items():
        if got[m] < ready:
            raise keep_working(
                f"{said}: W{m} begins at {got[m]}, and I{m} ends at {ready}. What does W{m} read?"
            )
        for kind, other, start, end in device.busy:
            if got[m] < end and start < got[m] + w:
                says = f"W{m} runs from {got[m]} to {got[m] + w}, and {kind}{other} from {start} to {end}"
                free = f"How long is the gap that W{m} begins in?"
                asks = "What does the device do when it begins?" if start <= got[m] else free
                raise keep_working(f"{said}: {says}. {asks}")
    order = sorted(done, key=lambda m: got[m])
    for one, other in pairwise(order):
        if got[other] < got[one] + w:
            says = f"W{one} begins at {got[one]} and W{other} at {got[other]}"
            raise keep_working(f"{said}: {says}. When is the device free again?")
    _what_is_late(got, device, said)


def _what_is_late(got: Sequence[Real], device: Device, said: str) -> None:
    soonest = sorted(device.places().values())
    end, least = max(got) + device.w, soonest[-1] + device.w
    if end <= least:
        return
    own = sorted(got)
    i = next(i for i, (one, other) in enumerate(zip(own, soonest, strict=True)) if one > other)
    at = soonest[i]
    m = min(m for m, ready in device.done().items() if ready <= at and got[m] > at)
    until = min((start for _, _, start, _ in device.busy if start > at), default=None)
    room = f"no F or I begins before {until}" if until else "all F and I are done"
    says = f"the last W ends at {end}, and {least} is possible. At {at} the device is free, I{m} is done"
    late = sum(one != other for one, other in zip(own, soonest, strict=True))
    reply = almost if late == 1 else keep_working
    raise reply(f"{said}: {says}, and {room}. Your W{m} begins at {got[m]}. What does it wait for?")
