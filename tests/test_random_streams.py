"""Any legal order with updates on the way does what its rows say, as a few plain functions read them."""

from collections import Counter
from functools import cache

import numpy as np
import pytest
from engine_cases import legal_streams
from hypothesis import example, given, settings
from hypothesis import strategies as st

import gpipe_sim as gp
from gpipe_sim.core import Action, F, Kind, Partition, Schedule
from gpipe_sim.core.layers import Context
from gpipe_sim.core.schedule import WEIGHTS
from gpipe_sim.core.step import kind_of_step

RATE, DIGITS = 0.3, gp.digits()
HALF = settings(max_examples=settings().max_examples // 2)
#: One copy is in its next mini-batch when the other makes its update: that sum is not to be made twice.
COPIES = gp.Explicit(
    ["0F0 0B0 0U0 0F2 0B2 0U2", "0F1 0B1 0F3 0F4 0F5 0F6 0U1 0B3 0B4 0B5 0B6 0U3"], placement=[[0], [0]]
)


class Plain:
    """The versions that each action uses, and the weights and losses that follow, by definition.

    ``weights(s, j)`` are those of stage s after j updates: those before, less the rate times the gradients of
    the microbatches in between. All else follows from asking for them.
    """

    def __init__(self, schedule: Schedule, mode: str, partitions: list[Partition], batch: tuple):
        self.mode, self.partitions, self.batch = mode, partitions, batch
        self.before, self.mini_batch = {}, {}
        for row in schedule.actions:
            updates = Counter()
            for action in row:
                self.before[action] = updates[action.stage]
                updates[action.stage] += action.kind is Kind.U
                if action.kind in (Kind.B, Kind.W):
                    self.mini_batch[action.stage, action.microbatch] = self.before[action]
        self.rows = [piece.rows for piece in kind_of_step(schedule).cut(schedule.program, len(batch[0]))]
        self.first = [{k: a.copy() for k, a in part.parameters.items()} for part in partitions]
        for name in ("weights", "forward", "backward"):
            setattr(self, name, cache(getattr(self, name)))

    def members(self, stage: int, j: int) -> list[int]:
        return [m for (s, m), own in self.mini_batch.items() if (s, own) == (stage, j)]

    def share(self, m: int) -> float:
        """Of the samples of its mini-batch, those of microbatch m."""
        rows = self.rows[m]
        together = (self.rows[other] for other in self.members(0, self.mini_batch[0, m]))
        return (rows.stop - rows.start) / sum(other.stop - other.start for other in together)

    def version(self, action: Action) -> int:
        stage, _, m = action
        if self.mode == "latest":
            return self.before[action]
        j = self.mini_batch[stage, m]
        if self.mode == "double":
            return max(j - 1, 0)
        asked = stage if self.mode == "stashed" else 0
        return min(self.before[F(asked, m)] for m in self.members(stage, j))

    def among(self, stage: int, m: int, kinds: str) -> Action:
        """The first of these kinds that the schedule has for this stage and microbatch."""
        return next(a for kind in kinds if (a := Action(stage, Kind(kind), m)) in self.before)

    def loaded(self, action: Action) -> Partition:
        found = self.weights(action.stage, self.version(action))
        for key, array in self.partitions[action.stage].parameters.items():
            array[...] = found[key]
        return self.partitions[action.stage]

    def weights(self, stage: int, j: int) -> dict:
        if not j:
            return self.first[stage]
        old, sums = self.weights(stage, j - 1), Counter()
        for m in self.members(stage, j - 1):
            for key, gradient in self.backward(stage, m)[1].items():
                sums[key] = sums[key] + gradient
        return {key: array - RATE * sums[key] for key, array in old.items()}

    def forward(self, stage: int, m: int, again: bool = False) -> tuple:
        """(output, saved): of F, or of what saved for the backward, R where there is one."""
        x = self.batch[0][self.rows[m]] if not stage else self.forward(stage - 1, m)[0]
        part = self.loaded(self.among(stage, m, "RF" if again else "F"))
        return part.forward(x, Context(True, 0, 0, m))

    def backward(self, stage: int, m: int) -> tuple:
        """(gradient of the input, gradients of the weights)."""
        saved, into = self.forward(stage, m, True)[1], {}
        if stage == len(self.partitions) - 1:
            dy = gp.cross_entropy.backward(self.loss(m, True)[1], self.share(m))
        else:
            dy = self.backward(stage + 1, m)[0]
        dx, pending = self.loaded(self.among(stage, m, "BI")).backward_input(saved, dy)
        self.partitions[stage].backward_weight(pending, into=into)
        return dx, into

    def loss(self, m: int, again: bool = False) -> tuple:
        y = self.forward(len(self.partitions) - 1, m, again)[0]
        return gp.cross_entropy.forward(y, self.batch[1][self.rows[m]])

    def losses(self, count: int) -> list[float]:
        shares = [[self.share(m) * self.loss(m)[0] for m in self.members(0, j)] for j in range(count)]
        return list(map(sum, shares))


def model(stages: int) -> list[Partition]:
    return gp.split(gp.mlp([64] + [5] * stages + [10], activation="tanh"), stages=stages)


@HALF
@example(COPIES, 0)
@given(legal_streams(), st.integers(0, 3))
def test_training_is_what_the_rows_say(schedule, more):
    assert gp.problems(schedule) == []
    samples = schedule.microbatches + more
    for mode in WEIGHTS:
        assert_trained(schedule, mode, (DIGITS.x[:samples], DIGITS.y[:samples]))


def assert_trained(schedule: Schedule, mode: str, batch: tuple) -> None:
    plain, partitions = Plain(schedule, mode, model(schedule.stages), batch), model(schedule.stages)
    how = {"optimizer": gp.SGD(RATE), "weights": mode}
    versions = {a: plain.version(a) for a in plain.before if a.kind is not Kind.U}
    if any(version > plain.before[action] for action, version in versions.items()):
        with pytest.raises(ValueError, match="which makes it, stands behind"):
            gp.train_step(partitions, schedule, batch, gp.cross_entropy, **how)
        return
    step = gp.train_step(partitions, schedule, batch, gp.cross_entropy, **how)
    updates = gp.staleness(schedule, mode).mini_batches
    if len(updates) > 1:
        assert {a: step.versions[a] for a in versions} == versions
    np.testing.assert_allclose(step.losses, plain.losses(len(updates)), rtol=1e-10)
    for stage, partition in enumerate(partitions):
        for key, array in partition.parameters.items():
            np.testing.assert_allclose(array, plain.weights(stage, len(updates))[key], rtol=1e-9, atol=1e-12)


@HALF
@given(legal_streams())
def test_bytes_are_predicted_and_versions_are_held_while_something_will_use_them(schedule):
    batch = DIGITS.x[:9], DIGITS.y[:9]
    profile = gp.profile(model(schedule.stages), batch, gp.cross_entropy, gp.Adam(0.01))
    for mode in WEIGHTS:
        plain = Plain(schedule, mode, model(schedule.stages), batch)
        try:
            held = gp.staleness(schedule, mode).held
        except ValueError:
            continue
        assert held == tuple(versions_held(plain, schedule, stage) for stage in range(schedule.stages))
        how = {"optimizer": gp.Adam(0.01), "weights": mode}
        step = gp.train_step(model(schedule.stages), schedule, batch, gp.cross_entropy, **how)
        assert gp.predict_memory(schedule, profile, weights=mode) == step.memory


def versions_held(plain: Plain, schedule: Schedule, stage: int) -> int:
    """The newest, and the older ones that some action further on in the row will use."""
    [own] = ([a for a in row if a.stage == stage] for row in schedule.actions if F(stage, 0) in row)
    most = 1
    for at, action in enumerate(own):
        newest = plain.before[action] + (action.kind is Kind.U)
        later = {plain.version(a) for a in own[at + 1 :] if a.kind is not Kind.U}
        most = max(most, 1 + len({version for version in later if version < newest}))
    return most
