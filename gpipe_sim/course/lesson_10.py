"""Lesson 10: choosing K and M."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeGuard

from gpipe_sim.core.bubbles import idle_time
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.course.build import exercise
from gpipe_sim.course.called import called
from gpipe_sim.course.reply import Reply, almost, correct, is_number, keep_working
from gpipe_sim.errors import Real
from gpipe_sim.families import GPipe

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
#: What other guesses at the accuracy with 16 times as many, in the same time, would say.
SAME_TIME = {
    "same": "It has seen more digits. Which of the two has made more updates?",
    "higher": "Eleven epochs are more than five. How many updates are there in each of them?",
}
#: What natural wrong guesses at the speed of 32 devices over that of 16, with 32 microbatches, would be.
DOUBLED = {
    0.67: "That is the other way round. Which of the two is faster?",
    1: "Does a device more not help at all? Put K = 16 and K = 32 into KM/(K+M-1).",
    1.34: "That is how K+M-1 grows. What stands above it?",
    2: "That is how many more there are. Do they wait as little as before?",
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
FEWER_STAGES = {"false": "Put K = 8 and K = 16 into (K-1)/(K-1+M). Which of the two is smaller?"}
LARGER_RATE = {"true": "How many updates are there in five epochs of 1438 digits, if each takes 512 of them?"}


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


def _whole(got: object) -> TypeGuard[Real]:
    return is_number(got) and got % 1 == 0


def _shown(got: object) -> str:
    return f"{got:.4g}" if isinstance(got, float) else repr(got)


def _devices(number: int) -> str:
    return f"{number} device{'s' * (number != 1)}"
