"""Lesson 02: one step on two devices."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

import numpy as np

from gpipe_sim.core.layers import Layer, mlp
from gpipe_sim.core.losses import MSE, Loss, cross_entropy
from gpipe_sim.core.optimizers import SGD, Optimizer
from gpipe_sim.core.split import split
from gpipe_sim.core.step import train_step
from gpipe_sim.core.training import train
from gpipe_sim.course import answers
from gpipe_sim.course.build import build, exercise
from gpipe_sim.course.called import called
from gpipe_sim.course.one_action import Work, first_wrong
from gpipe_sim.course.one_device import Trial
from gpipe_sim.course.reply import Reply, almost, correct, is_number, keep_working
from gpipe_sim.dataset import digits
from gpipe_sim.errors import Real
from gpipe_sim.families import Naive
from gpipe_sim.transformers.optimizers import Adam

#: (sizes, samples, dtype) of models that the notebook does not show; the smaller numbers come last.
HIDDEN = (
    ([64, 300, 20, 10], 12, np.float64),
    ([64, 7, 90, 33, 10], 50, np.float64),
    ([64, 300, 20, 10], 12, np.float32),
)
TIMES = 10  #: how many times too large a gradient is that is divided by the samples alone, for ten outputs
#: with rates with which they learn the digits
OPTIMIZERS: dict[str, Callable[[], Optimizer]] = {"SGD": partial(SGD, 1.0), "Adam": partial(Adam, 0.01)}
SMALL_RATE = 0.1
ANSWERS = ("SGD", "Adam", "both", "neither")
LISTED = ", ".join(f'"{name}"' for name in ANSWERS)
#: (widths between stages, samples) of the models on which a stage is tried. Where all widths are alike, the
#: shapes do not show that a matrix is turned the wrong way.
STAGES = (((5, 5, 5, 5), 5), ((7, 3, 6), 4), ((4, 9), 6), ((3, 8, 2, 6, 5, 4), 11))
STEPS = (((6, 4), 5), ((5, 9, 3, 4), 8), ((8, 3, 3, 7, 2, 5), 13), ((4, 4, 4, 4), 4))


@build("forward", "backward")
def forward_and_backward(forward: Work | None, backward: Work | None) -> Reply:
    """Check the forward and the backward of one stage, action by action, beside those in ``answers``."""
    if forward is None:
        return keep_working("there is a backward; now write forward, whose arrays it reads")
    for widths, samples in STAGES:
        first_wrong({"F": forward, "B": backward}, widths, samples)
    return correct(
        "after every action the stage keeps, and its links carry, what they should, for up to 5 stages of "
        "any width. No stage needed what another holds"
    )


@build("step")
def step(answer: Callable | None) -> Reply:
    """Check ``answer(stages, x, target)``: a step over all stages, which returns the loss."""
    for widths, samples in STEPS:
        trial, K = Trial.of(widths, samples), len(widths) - 1
        where = f"with {K} stage{'s' * (K > 1)} and {samples} samples,"
        with _noting(answer) as sent:
            handed = trial.stages, trial.x, trial.target
            loss = called(answer, *handed, copies=False, whole=("", "x", "target"), where=where)
        trial.unlike_one_device(where, loss)
        due = {("y", s, 0) for s in range(-1, K)} | {("dy", s, 0) for s in range(K)}
        if missing := due - set(sent):
            says = f"{where} all is right, but no links that the step makes carry {min(missing)}"
            return almost(f"{says}. How does that cross, and what if something is left there?")
        if left := [name for name, links in sent.items() if name in getattr(links, "arrays", ())]:
            return almost(f"{where} all is right, but {left[0]} is still on the links. Who takes it off?")
    return correct(
        "the loss and every gradient are one device's to 1e-12, for 1, 3 and 5 stages of any width"
    )


@contextmanager
def _noting(step: object) -> Iterator[dict[object, object]]:
    """What is sent on links that a student's step makes while this lasts: each name, and its links."""
    names, sent = getattr(step, "__globals__", {}), {}
    own = names.get("Links", answers.Links)

    def send(self: object, name: object, array: np.ndarray) -> None:
        sent[name] = self
        own.send(self, name, array)

    with patch.dict(names, {"Links": type("Links", (own,), {"send": send})}):
        yield sent


@exercise("write a function message_bytes(layers, cut, samples) and pass it in")
def message_bytes(answer: Callable | None) -> Reply:
    """Check ``answer(layers, cut, samples)``: the bytes of one message, if device 0 holds ``cut`` layers."""
    for sizes, samples, dtype in HIDDEN:
        layers = mlp(sizes, dtype=dtype)
        for cut in range(1, len(layers)):
            model = f"mlp({sizes}, dtype={np.dtype(dtype)})"
            where = f"for {model}, cut after {cut} of {len(layers)} layers, and {samples} samples"
            got = called(answer, layers, cut, samples, where=where)
            if not is_number(got) or got % 1:
                return keep_working(
                    f"{where} you say {got!r}; it should be a number of bytes. What comes after return?"
                )
            if got != measured_bytes(layers, cut, samples):
                return _what_is_wrong(f"{where} you say {int(got):,}", got, layers, cut, samples)
    return correct("on every model tried, every cut sends as many bytes as you say, each way")


def measured_bytes(layers: list[Layer], cut: int, samples: int) -> int:
    """The bytes of the activations that device 1 receives in one step on two devices."""
    dtype = layers[0].parameters["W"].dtype
    batch = np.ones((samples, 64), dtype), np.zeros(samples, int)
    partitions = split(layers, balance=[cut, len(layers) - cut])
    return train_step(partitions, Naive(devices=2), batch, cross_entropy).memory[1].peak("messages")


def _what_is_wrong(said: str, got: Real, layers: list[Layer], cut: int, samples: int) -> Reply:
    weights = [layer.parameters["W"] for layer in layers[:cut] if layer.parameters]
    read, made = weights[-1].shape
    each, measured = weights[-1].itemsize, measured_bytes(layers, cut, samples)
    if got == 2 * measured:
        if each == 4:
            return almost(f"{said}, twice what was measured. How many bytes has one number here?")
        return almost(f"{said}: that is both messages together, there and back. How many bytes has one?")
    if 2 * got == measured and each == 8:
        return almost(f"{said}, half of what was measured. How many bytes has one number here?")
    if got == samples * made:
        return almost(f"{said}: that many numbers cross. How many bytes has each?")
    if got == made * each:
        return almost(f"{said}: that is what one sample needs. How many samples cross together?")
    if got == samples * read * each:
        return almost(f"{said}: that is what the last Linear of device 0 reads. What does it hand on?")
    if got in {w.nbytes for w in weights} | {sum(w.nbytes for w in weights)}:
        return keep_working(f"{said}: that is the size of weights. Does device 1 ever read those?")
    return keep_working(f"{said}, measured: {measured:,}. Which array does device 0 make last?")


@exercise(f"answer with one of {LISTED}; what you claim is then trained")
def which_hides_it(answer: str | None) -> Reply:
    """Check the answer to: does SGD or Adam learn as well with a gradient that is ten times too large?"""
    known = {each.lower(): each for each in ANSWERS}
    if not isinstance(answer, str) or answer.strip().lower() not in known:
        return keep_working(f"{answer!r} is not an answer here; give one of {LISTED}")
    return REPLIES[known[answer.strip().lower()]]()


def _only_adam() -> Reply:
    slow = [accuracy(SGD(SMALL_RATE), loss) for loss in (OneHot(), OneHot(TIMES))]
    told = f"At rate {SMALL_RATE} SGD gets {slow[0]:.0%}, and with the error {slow[1]:.0%}"
    question = "Which comparison shows a wrong gradient, whatever the optimizer and its rate?"
    return correct(f"{'; '.join(map(_trained, OPTIMIZERS))}. {told}. {question}")


def _one_of_the_two(pick: Callable, gets: str, question: str) -> Reply:
    """The reply to a claim that both hide it, or neither: one of the two does something else."""
    other = pick(accuracy(optimizer(), OneHot(TIMES)) for optimizer in OPTIMIZERS.values())
    said = f"with the error one of the two {gets} {other:.0%} of new digits right"
    return keep_working(f"{said}. Write down one update of each{question}")


REPLIES = {
    "SGD": lambda: keep_working(f"{_trained('SGD')}. With which rate did it really train?"),
    "Adam": _only_adam,
    "both": lambda: _one_of_the_two(min, "gets only", f", with the {TIMES} in it: are both changed?"),
    "neither": lambda: _one_of_the_two(max, "still gets", f": where does the {TIMES} go?"),
}


def _trained(name: str) -> str:
    right, wrong = (accuracy(OPTIMIZERS[name](), loss) for loss in (OneHot(), OneHot(TIMES)))
    return f"{name} gets {right:.0%} of new digits right, and with the error {wrong:.0%}"


class OneHot(MSE):
    """The mean squared error against 1 for the right class, with a gradient ``times`` too large."""

    def __init__(self, times: float = 1):
        self.times = times

    def require(self, outputs: np.ndarray, targets: np.ndarray) -> None:
        """The targets are classes, which ``forward`` turns into rows."""

    def forward(self, outputs: np.ndarray, targets: np.ndarray) -> tuple[float, np.ndarray]:
        return super().forward(outputs, np.eye(outputs.shape[1])[targets])

    def backward(self, saved: np.ndarray, weight: float) -> np.ndarray:
        return super().backward(saved, self.times * weight)


def accuracy(optimizer: Optimizer, loss: Loss) -> float:
    """The accuracy on held-out digits, from 0 to 1, after five epochs on two devices."""
    partitions = split(mlp([64, 32, 10]), stages=2)
    run = partial(train, epochs=5, batch_size=32, report=None)
    with np.errstate(all="ignore"):  # a training that falls apart may overflow
        return run(partitions, Naive(devices=2), digits(), loss=loss, optimizer=optimizer).accuracies[-1]
