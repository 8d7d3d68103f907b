"""Inputs that once went through, or went wrong only after something had changed."""

from dataclasses import dataclass

import numpy as np
import pytest

import gpipe_sim as gp
from gpipe_sim.balance import colocate
from gpipe_sim.core import (
    Action,
    B,
    F,
    Kind,
    Layer,
    OverlapFB,
    Partition,
)
from gpipe_sim.errors import ScheduleError

SIZES = [8, 8, 8, 8]


def batch(samples: int = 16):
    rng = np.random.default_rng(0)
    return rng.normal(size=(samples, 8)), rng.integers(0, 8, samples)


def weights(partitions) -> np.ndarray:
    return np.concatenate([a.ravel() for p in partitions for a in p.parameters.values()])


def train(partitions, data, **changes):
    options = {
        "loss": gp.cross_entropy,
        "optimizer": gp.SGD(0.1),
        "epochs": 1,
        "batch_size": 4,
        "report": None,
    }
    return gp.train(partitions, gp.OneFOneB(2, 2), data, **(options | changes))


@pytest.mark.parametrize("position", range(16))
def test_one_bad_label_is_refused_before_any_weight_has_changed(position):
    partitions, (x, y) = gp.split(gp.mlp(SIZES), stages=2), batch()
    before, y[position] = weights(partitions), 8
    with pytest.raises(ValueError, match=r"targets from 0 to 7, got \d to 8"):
        train(partitions, (x, y))
    assert (weights(partitions) == before).all()


@pytest.mark.parametrize(
    ("held_out", "words"),
    [
        (lambda x, y: (x[:, :5], y), "takes an input of shape"),
        (lambda x, y: (x, y[:, None]), "a class for each of 16 samples"),
        (lambda x, y: (x[:0], y[:0]), "at least one sample"),
        (lambda x, y: (x, y + 100), "targets from 0 to 7"),
    ],
)
def test_held_out_samples_that_do_not_fit_are_refused_before_training(held_out, words):
    partitions, (x, y) = gp.split(gp.mlp(SIZES), stages=2), batch()
    before = weights(partitions)
    with pytest.raises(ValueError, match=words):
        train(partitions, (x, y, *held_out(x, y)))
    assert (weights(partitions) == before).all()


def test_partitions_must_form_one_model_in_order():
    layers = gp.mlp(SIZES)
    halves = gp.split(layers, stages=2)
    for wrong in (halves[::-1], [halves[0]] * 2, [Partition(layers[:2]), Partition(layers[2:])]):
        with pytest.raises(ValueError, match=r"starts at layer \d, but those before it end at \d"):
            gp.train_step(wrong, gp.OneFOneB(2, 4), batch(), gp.cross_entropy)


@pytest.mark.parametrize(
    ("rows", "placement", "words"),
    [
        (["0F0 0B0 0U0 0F1 0B1"], None, "0B1 is behind the last update of stage 0"),
        (
            ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1 1U1 0U1"],
            [[0], [0, 1]],
            "0U1 has no gradient of microbatch 1 to apply on device 1",
        ),
        (
            [
                "0F0 0F1 1F2 1B2 1F3 1B3 0B0 0B1",
                "0F2 0F3 1F0 1B0 1F1 1B1 0B2 0B3 0U3 1U1",
            ],
            [[0, 1], [0, 1]],
            "its copy on device",
        ),
    ],
)
def test_an_update_needs_the_whole_gradient_of_its_stage(rows, placement, words):
    schedule = gp.Explicit(rows, placement=placement)
    partitions = gp.split(gp.mlp(SIZES), stages=schedule.stages)
    before = weights(partitions)
    with pytest.raises(ScheduleError, match=words):
        gp.train_step(partitions, schedule, batch(), gp.cross_entropy, optimizer=gp.SGD(1.0))
    assert (weights(partitions) == before).all()


def test_an_action_that_takes_no_time_hides_no_bytes():
    """The meter once kept only the last sample of a moment."""
    partitions = gp.split(gp.mlp(SIZES), stages=2)

    def peaks(costs):
        step = gp.train_step(partitions, gp.OneFOneB(2, 4), batch(), gp.cross_entropy, costs=costs)
        return [memory.activation_peak for memory in step.memory]

    assert peaks(gp.Costs()) == peaks(gp.Costs(input_grad=0, weight_grad=0)) == peaks(gp.Costs(0, 0, 0))


def test_an_optimizer_belongs_to_one_model():
    optimizer, small, large = gp.Adam(), Partition(gp.mlp([4, 4])), Partition(gp.mlp([8, 8]))
    for model, refused in ((small, False), (large, True)):
        gradients = {key: np.ones_like(array) for key, array in model.parameters.items()}
        before = weights([model])
        if refused:
            with pytest.raises(ValueError, match="another model's; make a new optimizer"):
                optimizer.step(model.parameters, gradients)
        else:
            optimizer.step(model.parameters, gradients)
        assert (weights([model]) == before).all() == refused


def test_shared_devices_take_turns_in_the_order_of_the_starts():
    """On devices of their own 0F1 starts beside 1F0, and 1B0 before 0F2: the rows merge by the clock."""
    schedule = gp.OneFOneB(2, 4)
    starts = {span.action: span.start for span in gp.simulate(schedule).spans}
    merged = colocate(schedule, ["a", "a"]).actions[0]
    assert [starts[action] for action in merged] == sorted(starts.values())
    assert merged != colocate(schedule, ["a", "b"]).actions[0] + colocate(schedule, ["a", "b"]).actions[1]


def test_each_step_of_a_training_draws_its_own_randomness_from_the_trainings_seed():
    """For layers that draw numbers, such as dropout: another seed or step, other numbers."""
    drawn_by = set()

    class Witness(Layer):
        def forward(self, x, ctx):
            if ctx.training:
                drawn_by.add((ctx.seed, ctx.step))
            return x, None

        def backward_input(self, saved, dy):
            return dy, None

    train(gp.split([Witness(), *gp.mlp(SIZES)], stages=2), batch(), epochs=2, seed=7)
    assert drawn_by == {(7, step) for step in range(8)}


@pytest.mark.parametrize("first", Kind)
@pytest.mark.parametrize("second", Kind)
def test_of_all_36_pairs_of_kinds_only_a_forward_with_a_backward_after_it_is_one(first, second):
    """The rest of the order is right: around the pair, microbatch 0 and 1 each do what is still to do."""
    before, after = zip(split_around(first, 0), split_around(second, 1), strict=True)
    pair = OverlapFB(Action(0, first, 0), Action(0, second, 1))
    schedule = gp.Explicit([[*before[0], *before[1], pair, *after[0], *after[1]]])
    rules = {problem.rule for problem in gp.problems(schedule)}
    if (first, second) == ("F", "B"):
        assert not rules and gp.simulate(schedule).makespan == 6
    else:
        assert "pair" in rules and rules <= {"pair"} | ({"update"} if "U" in (first, second) else set())
        with pytest.raises(ScheduleError, match="is no pair: a forward and a backward overlap"):
            gp.simulate(schedule)


def split_around(kind: str, microbatch: int) -> tuple[list[Action], list[Action]]:
    """What a microbatch has to do before and after an action of this kind."""
    chain = {"R": "FRB", "U": "FBU"}.get(kind, "FB" if kind in "FB" else "FIW")
    before, after = chain.split(kind)
    return tuple([Action(0, Kind(each), microbatch) for each in side] for side in (before, after))


def test_evaluate_scores_class_numbers_only():
    partitions, (x, y) = gp.split(gp.mlp(SIZES), stages=2), batch()
    assert gp.evaluate(partitions, x.tolist(), y.tolist()) == gp.evaluate(partitions, x, y)
    for wrong, error in ((y + 0.5, TypeError), (y + 8, ValueError), (y.astype(str), TypeError)):
        with pytest.raises(error, match=r"(cross_entropy|evaluate) needs (targets|y)"):
            gp.evaluate(partitions, x, wrong)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_training_wants_finite_inputs(bad):
    partitions, (x, y) = gp.split(gp.mlp(SIZES), stages=2), batch()
    x[5, 3] = bad
    before = weights(partitions)
    with pytest.raises(ValueError, match=r"train needs finite inputs \(sample 5 holds NaN or infinity\)"):
        train(partitions, (x, y))
    assert (weights(partitions) == before).all()


@dataclass(frozen=True)
class Own(gp.core.Schedule):
    gives: object = None

    def order(self, device):
        return self.gives


def test_a_schedule_of_ones_own_may_spell_its_actions():
    for order in ("0F0 0B0", ["0F0", "0B0"], [F(np.int64(0), 0), B(0, np.int64(0))]):
        assert Own(1, 1, order).actions == gp.GPipe(1, 1).actions
