"""Lesson 10: choosing K and M."""

from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from itertools import count
from math import ceil
from typing import NamedTuple, TypeGuard

from gpipe_sim.core.bubbles import bubble_fraction, bubble_overhead, idle_time
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.course.build import exercise
from gpipe_sim.course.called import called
from gpipe_sim.course.lesson_04 import exact_gpipe
from gpipe_sim.course.reply import Reply, almost, correct, is_number, keep_working
from gpipe_sim.errors import Real
from gpipe_sim.families import GPipe

#: What natural wrong guesses at the M that halves the bubble of 8 devices and 8 microbatches would be.
HALVED = {
    4: "Fewer microbatches are less work for each device. Is the waiting less, too?",
    16: "Twice as many are twice as much work, so idle over work is halved. And idle over all time?",
    30: "That doubles the 15 in the denominator. How many of the 30 are microbatches?",
    32: "That is 4K. What should (K-1)/(K-1+M) be?",
}
#: What natural wrong guesses at the quickest M, for 4 devices, 256 samples and a start-up of 8, would be.
QUICKEST = {
    1: "Nothing is cut, so little is lost to starting. How long do three of four devices wait?",
    2: "How long does the last device wait for its first piece of 128 samples?",
    4: "At M = K, three of seven units of time are still waiting. What does one more piece cost?",
    16: "That is 4K, and close: the bubble is smaller. How much more starting do twice as many pieces take?",
    32: "The pieces are down to 8 samples. How long does starting each of them take?",
    64: "The pieces are down to 4 samples. How long does starting each of them take?",
    128: "The pieces are down to 2 samples. How long does starting each of them take?",
    256: "The bubble is smallest there. How much of each action is its start-up?",
}
#: What other guesses at the accuracy with eight times as many pieces of the same size would say.
ACCURACY = {
    "same": "The gradient is exact however a batch is cut. Is it the same batch here?",
    "higher": "Each gradient is averaged over more digits. How many updates are there in five epochs?",
}
#: What natural wrong guesses at the microbatches for 10% with 8 devices and V = 2 would be.
THINNER = {
    31: "That leaves a little over 10%. Which way must the quotient be rounded?",
    31.5: "Microbatches come in whole numbers. Which one?",
    63: "That is V = 1. Which part of (K-1)/(K-1+VM) does V make larger?",
    126: "Does V make the waiting longer or shorter?",
    16: "That is V = 4. By what is the waiting divided here?",
}
#: What natural wrong guesses at the percent of waiting of 16 devices and 64 microbatches would be.
NEGLIGIBLE = {
    0: "How long does device 15 wait for its first microbatch?",
    5: "For that M would have to be 19(K-1). How many are there?",
    20: "That is where M = 4K leads to for ever more devices. What is (K-1)/(K-1+M) here?",
    23.4: "That is idle over work. What is idle over all time?",
    25: "That is K/M. How many stages does a microbatch pass before the last, and what is all the time?",
}
#: What a wrong answer to the other two claims overlooks.
FEWER_STAGES = {"true": "Put K = 2 and K = 16 into (K-1)/(K-1+M). Which of the two is smaller?"}
CUT_OFF = {"true": "Try two devices and 15%. Which number does int leave of 17/3?"}
#: (devices, percent). At some of these the quotient is whole and a float is a little above it.
HIDDEN = ((3, 15), (4, 12), (6, 30), (7, 24), (10, 60), (12, 11), (22, 35), (5, 50), (3, 90), (1, 10), (2, 1))


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
    Batch(3, 100, 0),
    Batch(6, 97, 3),
    Batch(5, 40, 100),
    Batch(1, 48, 1),
)


@exercise("write a function microbatches_for(devices, percent) and pass it in")
def microbatches_for(answer: Callable | None) -> Reply:
    """Check ``answer(devices, percent)``: the fewest microbatches with at most that bubble fraction."""
    given = []
    for devices, percent in HIDDEN:
        got = called(answer, devices, percent)
        if not _whole(got):
            return keep_working(
                f"for {_devices(devices)} and {percent}% you say {_shown(got)}. "
                "Microbatches come in whole numbers. Which number of them would do?"
            )
        given.append(int(got))
    if given == [max(1, ceil((devices - 1) * Fraction(100, percent))) for devices, percent in HIDDEN]:
        return _bounds_the_overhead(*HIDDEN[0], given[0])
    wrong = [(size, got) for size, got in zip(HIDDEN, given, strict=True) if got != fewest(*size)]
    if not wrong:
        return correct("every target tried is met, and one microbatch fewer would miss it")
    close = all(abs(got - fewest(*size)) <= 1 for size, got in wrong)
    return _what_is_wrong(*wrong[0][0], wrong[0][1], close)


@lru_cache(maxsize=64)
def fewest(devices: int, percent: int) -> int:
    """The fewest microbatches, found by simulating, not from the formula: more of them are never worse."""

    def enough(microbatches: int) -> bool:
        return bubble_fraction(exact_gpipe(devices, microbatches)) <= Fraction(percent, 100)

    some = next(2**i for i in count() if enough(2**i))
    return 1 + bisect_left(range(1, some + 1), True, key=enough)


def _bounds_the_overhead(devices: int, percent: int, got: int) -> Reply:
    timeline = exact_gpipe(devices, got)
    return almost(
        f"for {_devices(devices)} and {percent}% you say {got}. There the bubble overhead is "
        f"{_percent(bubble_overhead(timeline))} and the fraction {_percent(bubble_fraction(timeline))}. "
        "Which of the two should meet the target?"
    )


def _what_is_wrong(devices: int, percent: int, got: int, close: bool) -> Reply:
    """The reply to one wrong number; ``close``: none of all those given is off by more than 1."""
    reply = almost if close else keep_working
    where = f"for {_devices(devices)} and {percent}% you say {got}"
    if got < 1:
        return reply(f"{where}. What would the device work on?")
    least = fewest(devices, percent)
    if got < least:
        asks = "Which way must the quotient be rounded?" if close else "What did you solve for M?"
        return reply(f"{where}; measured, that bubble is {_share(devices, got)}. {asks}")
    fewer = min(got - 1, 2 * least)
    asks = (
        f"What do you round or compare there, and why does it pass over {fewer}?"
        if close
        else "What did you solve for M?"
    )
    measured = f"but with {fewer} the bubble measures {_share(devices, fewer)}, not above {percent}%"
    return reply(f"{where}; {measured}. {asks}")


@exercise("write a function quickest(devices, samples, startup) and pass it in")
def quickest(answer: Callable | None) -> Reply:
    """Check ``answer(devices, samples, startup)``: the equal pieces that make the shortest GPipe step."""
    given = []
    for batch in HIDDEN_BATCHES:
        got = called(answer, *batch)
        if not _whole(got) or got < 1:
            return keep_working(f"{batch} you say {_shown(got)}. How many microbatches is that?")
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


def _share(devices: int, microbatches: int) -> str:
    return _percent(bubble_fraction(exact_gpipe(devices, microbatches)))


def _whole(got: object) -> TypeGuard[Real]:
    return is_number(got) and got % 1 == 0


def _shown(got: object) -> str:
    return f"{got:.4g}" if isinstance(got, float) else repr(got)


def _devices(number: int) -> str:
    return f"{number} device{'s' * (number != 1)}"


def _percent(share: Real) -> str:
    return f"{float(share):.1%}"
