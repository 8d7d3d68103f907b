"""Training on older weights: trials for a student's loop in lesson 19, and what one may do by mistake.

Weights are numbered by the updates that made them: version 0 is what training begins with.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache
from typing import NamedTuple

import numpy as np

from gpipe_sim.core.losses import mse
from gpipe_sim.core.optimizers import SGD
from gpipe_sim.core.split import split
from gpipe_sim.core.step import train_step
from gpipe_sim.course import answers
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
        return mistaken(trial)
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


Version = Callable[[Sequence[int], int, int], int]


def _right(delays: Sequence[int], s: int, t: int) -> int:
    return t - delays[s]


def mistaken(
    trial: Trial,
    version: Version = _right,
    *,
    older_b: bool = True,
    onto: str = "newest",
    sums: bool = False,
    changes: Sequence[str] = "Wb",
    upwards: bool = False,
    rated: bool = True,
    waits: bool = False,
    ends: str = "newest",
) -> Trained:
    """A loop on older weights. Without options it is right; each option is one thing done by mistake.

    ``version`` is read by stage s for mini-batch t, with b always the newest unless ``older_b``. Gradients
    are subtracted from the newest weights or from those that were ``read``, for W, b or both, without the
    rate unless ``rated``, or added if ``upwards``. They are summed from mini-batch to mini-batch if ``sums``.
    ``waits``: no update while the history is still too short. ``ends``: which weights are left at the end.
    """
    stages, losses = trial.stages(), []
    far = (trial.rate if rated else 1) * (-1 if upwards else 1)
    history = [[{name: stage[name] for name in "Wb"}] for stage in stages]
    for t, (x, target) in enumerate(trial.batches()):
        for s, (stage, versions) in enumerate(zip(stages, history, strict=True)):
            read = versions[min(max(0, version(trial.delays, s, t)), t)]
            stage |= read if older_b else {"W": read["W"], "b": versions[-1]["b"]}
            if not sums:
                stage["dW"] = stage["db"] = 0
        losses.append(answers.step(stages, x, target))
        for s, (stage, versions) in enumerate(zip(stages, history, strict=True)):
            start = versions[-1] if onto == "newest" else {name: stage[name] for name in "Wb"}
            moved = {name: start[name] - far * stage["d" + name] * (name in changes) for name in "Wb"}
            versions.append(versions[-1] if waits and t < trial.delays[s] else moved)
    if ends == "newest":
        for stage, versions in zip(stages, history, strict=True):
            stage |= versions[-1]
    return Trained(losses, [(stage["W"], stage["b"]) for stage in stages])


#: Loops that one may write by mistake, and the question that each is asked.
MISTAKES: dict[str, dict] = {
    "It is as if every stage read the newest weights. Which version do you read, and are the older ones "
    "still what they were?": {"version": lambda delays, s, t: t},
    "Which stage has which delay?": {"version": lambda delays, s, t: t - delays[-1 - s]},
    "You take the same delay for all stages. Which entry of delays belongs to which?": {
        "version": lambda delays, s, t: t - delays[0]
    },
    "You take the longest delay for all stages. Does each have its own?": {
        "version": lambda delays, s, t: t - max(delays)
    },
    "You read a version that is one update too old. Before any update there is one version: which entry is "
    "that?": {"version": lambda delays, s, t: t - delays[s] - 1},
    "You read a version that is one update too new, where the delay is not 0. Which entry of a list is the "
    "last but one?": {"version": lambda delays, s, t: min(t, t - delays[s] + 1)},
    "With a delay of 0 you read version 0. Which entry of a list is number -0?": {
        "version": lambda delays, s, t: t - delays[s] + 1 if delays[s] else 0
    },
    "All mini-batches read version 0. Does your history grow?": {"version": lambda delays, s, t: 0},
    "You subtract from the weights that were read. From which version should you?": {"onto": "read"},
    "dW and db hold the gradients of all mini-batches so far. Who sets them back?": {"sums": True},
    "b never changes. Which parameters does a stage have?": {"changes": "W"},
    "W never changes. Which parameters does a stage have?": {"changes": "b"},
    "W is read from the history, b is the newest. Which version of b belongs to it?": {"older_b": False},
    "Your weights move up the gradient. In which direction does the loss fall?": {"upwards": True},
    "Your weights move by the whole gradient. What says how far they should?": {"rated": False},
    "In the beginning you do not update. Which version is read while the history is short, and which is "
    "changed?": {"waits": True},
    "They hold those that were read last. Which ones should they hold?": {"ends": "read"},
}
