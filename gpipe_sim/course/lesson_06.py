"""Lesson 06: what a device holds, and until when."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.layers import Layer, Linear, mlp
from gpipe_sim.core.losses import cross_entropy
from gpipe_sim.core.memory import GRADIENTS
from gpipe_sim.core.split import split
from gpipe_sim.core.step import StepResult, train_step
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.course.build import exercise
from gpipe_sim.course.called import called
from gpipe_sim.course.reply import Reply, almost, apart, correct, keep_working
from gpipe_sim.errors import Real
from gpipe_sim.export.spans import from_spans
from gpipe_sim.families import GPipe

#: (sizes of the mlp, layers per stage, samples per microbatch, microbatches), and the layers' order if it is
#: another one. The last stage is not asked.
HIDDEN = (
    ((64, 48, 20, 36, 28, 44, 10), (3, 3, 3, 2), 6, 4),
    ((64, 12, 40, 24, 10), (2, 1, 3, 1), 5, 3),
    ((64, 30, 52, 18, 26, 10), (1, 4, 3, 1), 4, 7),
    ((64, 16, 16, 16, 16, 10), (3, 4, 1, 1), 2, 12),  # equal widths are different arrays
    ((64, 22, 14, 10), (4, 1), 3, 5, 0, 2, 1, 3, 4),  # two of a kind, one after the other
)
BYTES = 8


def first_device(timeline: Timeline) -> Timeline:
    """What device 0 did, as a timeline of its own: a chart of it has room for a large strip."""
    spans = timeline.on(0)
    return from_spans(Explicit([[span.action for span in spans]]), spans)


def account(step: StepResult) -> str:
    """What is on device 0 when the last layer of its first backward has run; its stages pass on 32 x 64."""
    memory = step.memory[0]
    first = next(
        each for each in memory.inside if isinstance(each.action, Action) and each.action.kind is Kind.B
    )
    lines = {
        f"there when {first.action} starts": sum(memory.at(first.start).values()),
        "gradients of its weights": memory.peak(GRADIENTS),
        "passes on, at the end dx": BYTES * 32 * 64,
        f"the meter, inside {first.action}": first.bytes,
    }
    return "\n".join(f"{words:<26} {size / 1000:>6.1f} kB" for words, size in lines.items())


class Stage(NamedTuple):
    """The arguments of the student's function, and the bytes that the meter found."""

    layers: tuple[Layer, ...]
    features: int
    samples: int
    microbatches: int
    measured: int

    def __str__(self) -> str:
        names = ", ".join(map(str, self.layers))
        return f"for {names} with {self.samples} samples in each of {self.microbatches} microbatches"


@exercise("write a function peak_bytes(layers, features, samples, microbatches), pass it in")
def peak_bytes(answer: Callable | None) -> Reply:
    """Check ``answer(layers, features, samples, microbatches)``: activation bytes at GPipe's peak."""
    given = []
    for stage in _stages():
        got = called(answer, *stage[:4], where=str(stage))
        if isinstance(got, bool) or not isinstance(got, Real):
            return keep_working(f"{stage} you say {got!r}; it should be a number of bytes")
        given.append(got)
    if given == [stage.measured for stage in _stages()]:
        return correct("as many bytes as the meter found, on every stage tried")
    return _what_is_wrong(given)


@lru_cache(maxsize=1)
def _stages() -> tuple[Stage, ...]:
    return tuple(stage for case in HIDDEN for stage in _measured(*case))


def _measured(sizes: tuple, balance: tuple, samples: int, microbatches: int, *order: int) -> Iterator[Stage]:
    """Every stage with what the meter of its device found; except the last, which also holds the loss."""
    layers = mlp(sizes)
    partitions = split([layers[i] for i in order] or layers, balance=balance)
    batch = np.zeros((samples * microbatches, sizes[0])), np.zeros(samples * microbatches, int)
    step = train_step(partitions, GPipe(len(balance), microbatches), batch, cross_entropy)
    features = sizes[0]
    for partition, held in list(zip(partitions, step.memory, strict=True))[:-1]:
        yield Stage(partition.layers, features, samples, microbatches, held.activation_peak)
        features = _widths(partition.layers, features)[-1]


def _what_is_wrong(given: list[Real]) -> Reply:
    """A usual mistake is recognised if it gives the student's number on every stage."""
    both = list(zip(_stages(), given, strict=True))
    stage, got = next((s, g) for s, g in both if g != s.measured)
    said = f"{stage} you say {_shown(got)}"
    for question in mistaken(stage):
        wrong = [(g, mistaken(s)[question]) for s, g in both]
        if all(apart(g, w) <= w / 10**9 for g, w in wrong):
            return almost(f"{said}, and the meter finds {stage.measured:,}. {question}")
    where = f"{said} bytes, and the meter finds {stage.measured:,}"
    per_sample, rest = divmod(got - stage.measured, _rows(stage))
    if rest:
        return keep_working(
            f"{where}. Which layer saves what, and how many microbatches are held at the turn?"
        )
    off = f"{int(abs(per_sample))} numbers for each sample too {'many' if per_sample > 0 else 'few'}"
    return keep_working(f"{where}: {off}. Which arrays make that up?")


def _shown(got: Real) -> str:
    if isinstance(got, int):
        return f"{got:,}"
    return f"{got:,.4g}" if isinstance(got, float) and abs(got) < 1e4 else repr(got)


def _widths(layers: tuple[Layer, ...], features: int) -> list[int]:
    """The numbers of features: of the input, then of each layer's output."""
    widths = [features]
    for layer in layers:
        widths.append(layer.parameters["W"].shape[1] if isinstance(layer, Linear) else widths[-1])
    return widths


def _saved(stage: Stage) -> list[int]:
    """How many features each layer saves: a Linear those of its input, a ReLU those of its output."""
    widths = _widths(stage.layers, stage.features)
    return [widths[i + (not isinstance(layer, Linear))] for i, layer in enumerate(stage.layers)]


def _rows(stage: Stage) -> int:
    return BYTES * stage.samples * stage.microbatches


def mistaken(stage: Stage) -> dict[str, Real]:
    """What one may count by mistake, by the question that it calls for."""
    right, M, rows = stage.measured, stage.microbatches, _rows(stage)
    reads, makes = (isinstance(layer, Linear) for layer in (stage.layers[0], stage.layers[-1]))
    widths = _widths(stage.layers, stage.features)
    return {
        "You have counted what each layer saves. Are these all different arrays?": rows * sum(_saved(stage)),
        "You have counted the output, which was sent away. Which layer here reads it again?": (
            right + rows * widths[-1] * makes
        ),
        "You have counted what came in everywhere. Does a ReLU in front read it again?": (
            right + rows * widths[0] * (not reads)
        ),
        "You have counted every array between the layers. Which of them does no backward read?": (
            rows * sum(widths)
        ),
        "That is what one microbatch leaves behind. How many are in flight at the turn?": right // M,
        "That is one microbatch less. How many have been freed at the turn?": right // M * (M - 1),
        "The samples are those of one microbatch. How often do you multiply by M?": right * M,
        "You have counted numbers. How many bytes has each?": right // BYTES,
        "The meter counts bytes. What are yours?": Fraction(right, 1000),
    }
