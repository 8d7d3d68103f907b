"""Lesson 10: choosing K and M."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from gpipe_sim.core.bubbles import idle_time
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.course.build import exercise
from gpipe_sim.course.called import result_of
from gpipe_sim.course.reply import Reply, almost, correct, is_whole, keep_working
from gpipe_sim.errors import Real
from gpipe_sim.families import GPipe


class Batch(NamedTuple):
    """A batch to be cut: a forward of n samples takes startup + n, a backward twice as long."""

    devices: int
    samples: int
    startup: int

    def __str__(self) -> str:
        return f"for {_devices(self.devices)}, {self.samples} samples and a start-up of {self.startup}"

    def cuts(self) -> list[int]:
        """The numbers of microbatches that make equal pieces."""
        return [m for m in range(1, self.samples + 1) if self.samples % m == 0]


HIDDEN_BATCHES = (
    Batch(4, 384, 7),
    Batch(7, 256, 11),
    Batch(8, 96, 2),
    Batch(2, 144, 1),
    Batch(3, 512, 0),
    Batch(6, 97, 3),
    Batch(5, 40, 100),
    Batch(1, 48, 1),
)


@exercise("write a function quickest(devices, samples, startup) and pass it in")
def quickest(answer: Callable | None) -> Reply:
    """Check ``answer(devices, samples, startup)``: the equal pieces that make the shortest GPipe step."""
    given = []
    for batch in HIDDEN_BATCHES:
        got = result_of(answer, *batch, where=str(batch))
        if not is_whole(got) or got < 1:
            return keep_working(f"{batch} you say {_shown(got)}. Which whole number of microbatches is that?")
        if batch.samples % int(got):
            return keep_working(
                f"{batch} you say {_shown(got)}. How many samples would each of these pieces have?"
            )
        given.append(int(got))
    wrong = [
        (batch, got) for batch, got in zip(HIDDEN_BATCHES, given, strict=True) if not _is_best(batch, got)
    ]
    if not wrong:
        return correct("no other number of equal pieces makes a shorter step, on every batch tried")
    said = _too_long(*wrong[0])
    nearly = all(_is_next_to_best(batch, got) for batch, got in wrong) and len(wrong) < len(given) / 2
    return almost(f"{said} Did you compare it with its neighbours?") if nearly else keep_working(said)


#: Devices, and how many updates each M needs until the network is good enough.
HIDDEN_NEEDS: tuple[tuple[int, dict[int, int]], ...] = (
    (4, {4: 200, 16: 60, 64: 31}),
    (8, {2: 300, 8: 100, 32: 50}),
    (16, {8: 90, 64: 24, 128: 17}),
    (6, {32: 10, 4: 21}),
    (1, {1: 50, 4: 13}),
    (4, {4: 180, 16: 70}),  # where twice the waiting would say 16
    (2, {4: 300, 16: 60, 64: 12}),  # the last is first, and in the next case the first
    (8, {2: 60, 8: 50, 32: 40}),
)


@exercise("write a function soonest(needed, devices) and pass it in")
def soonest(answer: Callable | None) -> Reply:
    """Check ``answer(needed, devices)``: the M whose updates are done first, under GPipe."""
    for devices, needed in HIDDEN_NEEDS:
        where = f"for {_devices(devices)} and {needed}"
        got = result_of(answer, needed, devices, where=where, whole=("needed",))
        if not is_whole(got) or got not in needed:
            return keep_working(f"{where} you say {_shown(got)}. Which of these M is that?")
        takes = {m: updates * simulate(GPipe(devices, m)).makespan for m, updates in needed.items()}
        if takes[int(got)] > min(takes.values()):
            said = f"{where} you say {_shown(got)}, whose {needed[int(got)]} updates take {takes[int(got)]}"
            return keep_working(f"{said}. Another M needs {min(takes.values())}. How long is one update?")
    return correct(f"no other M is there sooner, in {len(HIDDEN_NEEDS)} cases")


def _too_long(batch: Batch, got: int) -> str:
    timeline = timed(batch, got)
    starting, waits = 3 * batch.startup * got, idle_time(timeline) // batch.devices
    return (
        f"{batch} you say {got}. A step then takes {timeline.makespan}, and another M takes "
        f"{shortest(batch)}. In yours each device spends {starting} on "
        f"starting actions and {waits} on waiting. What does M do to each of the two?"
    )


def _is_best(batch: Batch, microbatches: int) -> bool:
    return timed(batch, microbatches).makespan == shortest(batch)


def _is_next_to_best(batch: Batch, microbatches: int) -> bool:
    cuts = batch.cuts()
    at = cuts.index(microbatches)
    return any(_is_best(batch, cut) for cut in cuts[max(0, at - 1) : at + 2])


@lru_cache(maxsize=64)
def shortest(batch: Batch) -> Real:
    """The shortest step, found by simulating every number of equal pieces."""
    return min(timed(batch, m).makespan for m in batch.cuts())


@lru_cache(maxsize=512)
def timed(batch: Batch, microbatches: int) -> Timeline:
    each = batch.startup + batch.samples // microbatches
    return simulate(GPipe(batch.devices, microbatches), Costs(each, each, each))


def _shown(got: object) -> str:
    return f"{got:.4g}" if isinstance(got, float) else repr(got)


def _devices(number: int) -> str:
    return f"{number} device{'s' * (number != 1)}"
