"""Lesson 03: microbatches."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product, zip_longest

import numpy as np

from gpipe_sim.core.layers import mlp
from gpipe_sim.core.losses import cross_entropy
from gpipe_sim.core.step import single_device_step
from gpipe_sim.course import answers
from gpipe_sim.course.build import build, exercise
from gpipe_sim.course.called import called
from gpipe_sim.course.one_action import WORK
from gpipe_sim.course.one_device import Trial, is_close, off
from gpipe_sim.course.reply import Reply, almost, correct, is_array, keep_working, listed, shown
from gpipe_sim.course.rows import Step
from gpipe_sim.dataset import digits

Array = np.ndarray
SIZES = ((10, 4), (13, 6), (12, 4), (7, 7), (9, 1))  # digits and microbatches
#: (widths between stages, samples, microbatches) of the runs that are tried; most pieces are uneven.
RUNS = (((6, 5, 4), 8, 4), ((6, 5, 4), 10, 4), ((5, 7, 3, 4), 11, 3), ((7, 4), 5, 5), ((4, 4, 4, 4), 9, 1))
WAIT = "wait"  #: a kind of action that a student has never seen
Order = list[Step]


@build("run")
def run(answer: Callable | None) -> Reply:
    """Check ``answer(order, stages, x, target, M, work)``: a step in a given order; it returns the loss."""
    for (widths, samples, microbatches), name in product(RUNS, ORDERS):
        trial, K = Trial.of(widths, samples), len(widths) - 1
        order = ORDERS[name](K, microbatches)
        log = Log(order, trial.stages)
        where = f"with K = {K}, M = {microbatches} and {samples} samples, {name},"
        handed = list(order), trial.stages, trial.x, trial.target, microbatches, log.work()
        try:
            loss = called(answer, *handed, copies=False, whole=("order", "", "x", "target"), where=where)
        finally:
            log.astray(where)
        log.undone(where)
        trial.unlike_one_device(where, loss)
        if log.left:
            raise almost(f"{where} all is right, but {log.left}. Who takes it off, and when?")
        if sorted(log.sizes) != sorted(map(len, np.array_split(trial.x, microbatches))):
            cut = f"{where} all is right, but your microbatches have {listed(log.sizes)} samples"
            raise almost(f"{cut}. What does np.array_split make of {samples}?")
    return correct(
        f"one device's loss and gradients to 1e-12, in each of {len(ORDERS)} orders, even where 11 samples "
        "are 4, 4 and 3. By how many numbers was each piece divided?"
    )


@dataclass
class Log:
    """What a student's run has done: its ``work`` notes every action, and does it on the stage."""

    order: Order
    stages: list[dict]
    done: Order = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  #: samples that came to stage 0, microbatch by microbatch
    links: object = None
    left: str = ""

    def work(self) -> dict[str, Callable]:
        does = WORK | {WAIT: lambda stage, s, m, links: None}
        return {kind: self._noting(kind, do) for kind, do in does.items()}

    def _noting(self, kind: str, do: Callable) -> Callable:
        def noted(stage: dict, s: int, m: int, links: answers.Links) -> None:
            self.done.append((s, kind, m))
            self._left(links, f"when {s}{kind}{m} begins")
            self.links = links
            if not 0 <= s < len(self.stages) or stage is not self.stages[s]:
                self.strange.append(f"work[{kind!r}] gets stage number {s!r} with another stage's arrays")
            do(stage, s, m, links)
            if (s, kind) == (0, "F"):
                self.sizes.append(len(stage["kept"][m][0]))

        noted.__qualname__ = f"work[{kind!r}]"  # a TypeError calls it by this name
        return noted

    def _left(self, links: object, when: str) -> None:
        """Note an output of the last stage that nobody has taken off the links."""
        left = [name for name in getattr(links, "arrays", ()) if name[:2] == ("y", len(self.stages) - 1)]
        if left:
            self.left = self.left or f"{left[0]} is still on the links {when}"

    def astray(self, where: str) -> None:
        """Raise where it left the order, even if it stopped afterwards."""
        if self.strange:
            raise keep_working(f"{where} {self.strange[0]}. Which of `stages` belongs to it?")
        for place, (done, wanted) in enumerate(zip_longest(self.done, self.order[: len(self.done)])):
            if wanted is None:
                raise keep_working(f"{where} {done} is done after the order's end. Where does it come from?")
            if done != wanted:
                also = "" if wanted[1] in "FB" else f", and `work` has {wanted[1]!r},"
                told = f"{wanted} is number {place} in the order{also} but {done} is done then"
                raise keep_working(f"{where} {told}. What decides what comes next?")

    def undone(self, where: str) -> None:
        self._left(self.links, "at the end")
        if len(self.done) == len(self.order):
            return
        action = self.order[len(self.done)]
        says = f"work[{action[1]!r}] is not called for {action} of the order"
        raise keep_working(f"{where} {says}. Who does it?")


def stage_by_stage(K: int, M: int) -> Order:
    """All forwards, stage after stage, and then all backwards; on the way, stage 0 waits once."""
    forwards = [(s, "F", m) for s in range(K) for m in range(M)]
    return [*forwards, (0, WAIT, 0), *((s, "B", m) for s in reversed(range(K)) for m in range(M))]


def one_by_one(K: int, M: int) -> Order:
    there_and_back = [*((s, "F") for s in range(K)), *((s, "B") for s in reversed(range(K)))]
    return [(s, kind, m) for m in range(M) for s, kind in there_and_back]


def last_first(K: int, M: int) -> Order:
    forwards = [(s, "F", m) for m in range(M) for s in range(K)]
    return [*forwards, *((s, "B", m) for m in reversed(range(M)) for s in reversed(range(K)))]


ORDERS = {
    "microbatch by microbatch": one_by_one,
    "all forwards stage by stage": stage_by_stage,
    "the last microbatch back first": last_first,
}


@exercise("write a function accumulate(mean_gradient, x, y, microbatches) and pass it in")
def accumulate(answer: Callable | None) -> Reply:
    """Check ``answer(mean_gradient, x, y, microbatches)``: the batch's gradient, made from its microbatches'.

    ``mean_gradient(x, y)`` is the gradient of the mean loss over the samples that it is given.
    """
    for samples, microbatches in SIZES:
        x, y = (array[:samples] for array in digits()[:2])
        asked: list[tuple[int, Array]] = []

        def mean_gradient(x: Array, y: Array, asked=asked) -> Array:
            asked.append((len(x), one_device(x, y)))
            return asked[-1][1].copy()  # the student may add to it in place

        mean_gradient.__qualname__ = "mean_gradient"  # a TypeError calls it by this name
        where = f"for {samples} digits and M = {microbatches}"
        whole = "", "x", "y"
        got = called(answer, mean_gradient, x, y, microbatches, whole=whole, where=where)
        _what_is_wrong(where, got, asked, one_device(x, y), microbatches, samples)
    return correct(
        "the gradient of one device to 1e-12, for 10 digits in 4 microbatches and every other cut tried. "
        "Which weight has one sample in the end?"
    )


def one_device(x: Array, y: Array) -> Array:
    """The gradient of the weights of one linear layer, for the mean cross-entropy over x; (64, 10)."""
    return single_device_step(mlp([64, 10]), (x, y), cross_entropy).gradients[0, "W"]


def _what_is_wrong(
    where: str, got: object, asked: list[tuple[int, Array]], whole: Array, microbatches: int, samples: int
) -> None:
    sizes = [size for size, _ in asked]
    if not is_array(got) or got.shape != whole.shape:
        question = f"Where is the gradient, an array of shape {whole.shape}?"
        raise keep_working(f"{where} you return {shown(got)}. {question}")
    if sum(sizes) != samples:
        question = "Where are the others?" if sum(sizes) < samples else "Which come more than once?"
        have = f"{listed(sizes) or 'no'} digits, {sum(sizes)} together"
        raise keep_working(f"{where} your microbatches have {have}. {question}")
    cut, room = f"{where} your microbatches have {listed(sizes)} digits", -(-samples // microbatches)
    if max(sizes) > room:
        reply = almost if len(sizes) > 1 else keep_working
        raise reply(f"{cut}. The device has room for {room} at once: which of them does not fit?")
    if len(sizes) != microbatches:
        raise almost(f"{cut}. How many microbatches were asked for?")
    if is_close(got, whole):
        return
    raise _which_weights(where, got, asked, whole)


def _which_weights(where: str, got: Array, asked: list[tuple[int, Array]], whole: Array) -> Reply:
    sizes, gradients = zip(*asked, strict=True)
    cut = f"{where} the sizes are {listed(sizes)}"
    too_large = f"the gradient comes out {np.linalg.norm(got) / np.linalg.norm(whole):.1f} times too large"
    if is_close(got, np.mean(gradients, axis=0)):
        question = "What would make every *sample* count equally?"
        return almost(f"{cut} but every weight is 1/{len(sizes)}. {question}")
    if is_close(got, np.sum(gradients, axis=0)):
        return keep_working(f"{cut} and every weight is 1: {too_large}. What is the batch's loss a mean of?")
    if is_close(got, np.sum([size * gradient for size, gradient in asked], axis=0)):
        return almost(f"{cut} and so are the weights: {too_large}. What should weights add up to?")
    question = "With which weight does each microbatch come in?"
    return keep_working(f"{cut}; your gradient is off by {off(got, whole)} of its largest entry. {question}")
