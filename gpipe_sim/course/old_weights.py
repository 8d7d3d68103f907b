"""Training on older weights: trials for a student's loop in lesson 19, and what one may do by mistake.

Weights are numbered by the updates that made them: version 0 is what training begins with.
"""

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import NamedTuple

import numpy as np

from gpipe_sim.core.losses import mse
from gpipe_sim.core.optimizers import SGD
from gpipe_sim.core.split import split
from gpipe_sim.core.step import train_step
from gpipe_sim.course import answers
from gpipe_sim.course.mistakes import Swap
from gpipe_sim.course.one_device import biased, is_close
from gpipe_sim.dataset import digits
from gpipe_sim.families import PipeDream, PipeDream2BW

Array = np.ndarray


class Trained(NamedTuple):
    """The loss of each mini-batch, and of each stage W and b at the end."""

    losses: list[float]
    weights: list[tuple[Array, Array]]

    def equals(self, other: "Trained") -> bool:
        pairs = zip(self.weights, other.weights, strict=True)
        same = all(is_close(one, two) for mine, its in pairs for one, two in zip(mine, its, strict=True))
        return same and self.same_losses(other)

    def same_losses(self, other: "Trained") -> bool:
        return is_close(np.array(self.losses), np.array(other.losses))


class Trial(NamedTuple):
    """Digits to train on in mini-batches, and how old the weights of each stage are."""

    widths: tuple[int, ...]
    updates: int  #: one after each mini-batch
    samples: int  #: in each
    delays: tuple[int, ...]
    rate: float

    def __str__(self) -> str:
        return f"with delays {list(self.delays)} and {self.updates} mini-batches"

    def stages(self) -> list[dict]:
        return answers.stages_of(deepcopy(biased(self.widths)))

    def batches(self) -> list[tuple[Array, Array]]:
        x, target = self.stream()
        return list(zip(np.split(x, self.updates), np.split(target, self.updates), strict=True))

    def stream(self) -> tuple[Array, Array]:
        data, n = digits(), self.updates * self.samples
        return data.x[:n].copy(), np.eye(10)[data.y[:n]]

    def read(self, t: int) -> list[int]:
        """The version of each stage that mini-batch t reads."""
        return [max(0, t - delay) for delay in self.delays]


#: Weight stashing, vertical sync and 2BW at sizes that no notebook shows, one stage, and delays of no family.
TRIALS = (
    Trial((64, 9, 10), 7, 6, (1, 0), 0.3),
    Trial((64, 8, 7, 10), 8, 6, (2, 2, 2), 0.2),
    Trial((64, 8, 6, 10), 7, 5, (0, 3, 1), 0.3),
    Trial((64, 7, 6, 8, 10), 9, 4, (3, 2, 1, 0), 0.2),
    Trial((64, 7, 6, 8, 10), 6, 8, (1, 1, 1, 1), 0.25),
    Trial((64, 10), 4, 5, (0,), 0.4),
)


@cache
def trained(trial: Trial) -> Trained:
    """What the library's pipeline gives; the lesson's own loop for delays that no pipeline has."""
    schedule, weights = _pipeline(trial)
    if schedule is None:
        return run(answers.delayed, trial)
    one_linear_each = [2] * (len(trial.delays) - 1) + [1]
    stages, optimizer = split(biased(trial.widths), balance=one_linear_each), SGD(trial.rate)
    step = train_step(
        stages, schedule, trial.stream(), mse, optimizer=optimizer, weights=weights, meter=False
    )
    linear = [stage.layers[0].parameters for stage in stages]
    return Trained(list(step.losses), [(each["W"], each["b"]) for each in linear])


def _pipeline(trial: Trial) -> tuple:
    n = len(trial.delays)
    if trial.delays == tuple(range(n))[::-1]:
        return PipeDream(n, trial.updates), "stashed"
    if set(trial.delays) == {n - 1}:
        return PipeDream(n, trial.updates), "vertical"
    if set(trial.delays) == {1} and trial.samples % n == 0:
        return PipeDream2BW(n, n * trial.updates), "double"
    return None, ""


def run(loop: Callable, trial: Trial) -> Trained:
    """What a loop that is right in form gives: an answer of the lesson, or one with a mistake."""
    stages = trial.stages()
    with np.errstate(all="ignore"):  # a mistake may diverge
        losses = loop(stages, trial.batches(), list(trial.delays), trial.rate)
    return Trained(losses, [(stage["W"], stage["b"]) for stage in stages])


READ = "max(0, len(versions) - 1 - delay)"
NEWEST, MOVES = "W, b = versions[-1]\n", 'append((W - rate * stage["dW"], b - rate * stage["db"]))'
READS = f'stage["W"], stage["b"] = versions[{READ}]'
HOLDS = 'strict=True):\n        stage["W"], stage["b"] = versions[-1]'
#: What one may write by mistake in the loop, and the question that it is asked.
MISTAKES: dict[str, tuple[Swap, ...]] = {
    "It is as if every stage read the newest weights. Which version do you read, and are the older ones "
    "still what they were?": ((READ, "-1"),),
    "Which stage has which delay?": (("delays, strict", "delays[::-1], strict"),),
    "You take the same delay for all stages. Which entry of delays belongs to which?": (
        ("1 - delay)", "1 - delays[0])"),
    ),
    "You take the longest delay for all stages. Does each have its own?": (
        ("1 - delay)", "1 - max(delays))"),
    ),
    "You read a version that is one update too old. Before any update there is one version: which entry is "
    "that?": (("1 - delay", "2 - delay"),),
    "You read a version that is one update too new, where the delay is not 0. Which entry of a list is the "
    "last but one?": (("1 - delay)", "max(1, delay))"),),
    "With a delay of 0 you read version 0. Which entry of a list is number -0?": (
        (READ, "max(0, len(versions) - delay) if delay else 0"),
    ),
    "All mini-batches read version 0. Does your history grow?": ((READ, "0"),),
    "While your history is short you read the newest weights. Which are the ones before any update?": (
        (READ, "len(versions) - 1 - (delay if delay < len(versions) else 0)"),
    ),
    "You subtract from the weights that were read. From which version should you?": (
        (NEWEST, 'W, b = stage["W"], stage["b"]\n'),
    ),
    "dW and db hold the gradients of all mini-batches so far. Who sets them back?": (
        ('stage["dW"] = stage["db"] = 0', "pass"),
    ),
    "db holds the gradients of all mini-batches so far. Who sets it back?": (
        ('stage["dW"] = stage["db"] = 0', 'stage["dW"] = 0'),
    ),
    "dW holds the gradients of all mini-batches so far. Who sets it back?": (
        ('stage["dW"] = stage["db"] = 0', 'stage["db"] = 0'),
    ),
    "No weight ever changes. Do dW and db of these stages hold anything after the step?": (
        (MOVES, "append((W, b))"),
    ),
    "b never changes. Which parameters does a stage have?": (('b - rate * stage["db"]', "b"),),
    "W never changes. Which parameters does a stage have?": (('W - rate * stage["dW"]', "W"),),
    "W is read from the history, b is the newest. Which version of b belongs to it?": (
        (READS, f"{READS}[0], versions[-1][1]"),
    ),
    "Your weights move up the gradient. In which direction does the loss fall?": (("- rate", "+ rate"),),
    "Your weights move by the whole gradient. What says how far they should?": (("rate * ", ""),),
    "In the beginning you do not update. Which version is read while the history is short, and which is "
    "changed?": (
        (
            "for stage, versions in zip(stages, history, strict=True):\n            W",
            "for stage, versions, delay in zip(stages, history, delays, strict=True):\n            W",
        ),
        (MOVES, f"{MOVES} if len(versions) > delay else versions.append((W, b))"),
    ),
    "They hold those that were read last. Which ones should they hold?": (
        (HOLDS, "strict=True):\n        pass"),
    ),
}
