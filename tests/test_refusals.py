"""Inputs that once went through, or went wrong only after something had changed."""

from dataclasses import dataclass

import numpy as np
import pytest
from cases import overlapped

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


def test_a_layer_with_weights_stands_once():
    shared = gp.mlp([8, 8])[0]
    with pytest.raises(ValueError, match=r"layers 0 and 2 are the same Linear\(8, 8\)"):
        gp.split([shared, gp.core.Tanh(), shared], stages=3)


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


def test_training_updates_every_stage_or_none():
    some = gp.Explicit(["0F0 0F1 0B0 0B1 0U1", "1F0 1B0 1F1 1B1"])
    with pytest.raises(ValueError, match="stage 1 is never updated, but stage 0 is"):
        gp.train(
            gp.split(gp.mlp(SIZES), stages=2), some, batch(), loss=gp.cross_entropy, optimizer=gp.SGD(0.1),
            epochs=1, batch_size=4, report=None,
        )  # fmt: skip


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


def test_numpy_costs_are_plain_numbers():
    timeline = gp.simulate(gp.GPipe(2, 2), gp.Costs(forward=np.int8(100), input_grad=np.float32(1)))
    assert timeline.makespan == 3 * (100 + 1 + 1)
    assert "F0" in str(timeline)


def test_new_costs_give_a_new_timeline_for_the_same_schedule():
    partitions, schedule = gp.split(gp.mlp(SIZES), stages=2), gp.OneFOneB(2, 4)
    spans = [
        gp.train_step(partitions, schedule, batch(), gp.cross_entropy, costs=costs).timeline.makespan
        for costs in (None, gp.Costs(forward=2), gp.Costs(comm=1), None)
    ]
    assert spans == [
        gp.simulate(schedule, c).makespan for c in (None, gp.Costs(forward=2), gp.Costs(comm=1), None)
    ]


def test_shared_devices_take_turns_in_the_order_of_the_starts():
    """On devices of their own 0F1 starts beside 1F0, and 1B0 before 0F2: the rows merge by the clock."""
    schedule = gp.OneFOneB(2, 4)
    starts = {span.action: span.start for span in gp.simulate(schedule).spans}
    merged = colocate(schedule, ["a", "a"]).actions[0]
    assert [starts[action] for action in merged] == sorted(starts.values())
    assert merged != colocate(schedule, ["a", "b"]).actions[0] + colocate(schedule, ["a", "b"]).actions[1]


def test_each_step_of_a_training_draws_its_own_randomness():
    steps = []

    class Witness(Layer):
        def forward(self, x, ctx):
            if ctx.training:
                steps.append(ctx.step)
            return x, None

        def backward_input(self, saved, dy):
            return dy, None

    train(gp.split([Witness(), *gp.mlp(SIZES)], stages=2), batch(), epochs=2)
    assert sorted(set(steps)) == list(range(8))


def test_the_seed_of_a_training_is_the_seed_of_each_of_its_steps():
    """For layers that draw numbers, such as dropout: another seed, other numbers."""
    seeds = set()

    class Witness(Layer):
        def forward(self, x, ctx):
            seeds.add((ctx.training, ctx.seed))
            return x, None

        def backward_input(self, saved, dy):
            return dy, None

    train(gp.split([Witness(), *gp.mlp(SIZES)], stages=2), batch(), seed=7)
    assert {seed for training, seed in seeds if training} == {7}


def test_a_star_import_brings_names_and_hides_no_modules():
    names = {}
    exec("from gpipe_sim import *", names)
    assert {"GPipe", "simulate", "train_step", "formulas", "SCHEDULES"} <= set(names)
    assert not {"layers", "schedule", "costs", "partition", "memory", "training"} & set(names)


def test_an_overlapped_pair_still_runs():
    partitions = gp.split(gp.mlp(SIZES), stages=2)
    step = gp.train_step(partitions, overlapped(2, 4), batch(), gp.cross_entropy)
    alone = gp.single_device_step(gp.mlp(SIZES), batch(), gp.cross_entropy)
    assert all(abs(step.gradients[key] - alone.gradients[key]).max() < 1e-12 for key in alone.gradients)


def test_only_a_forward_and_a_backward_overlap():
    schedule = gp.Explicit([[OverlapFB(F(0, 0), F(0, 1)), B(0, 0), B(0, 1)]])
    assert [(found.rule, found.action) for found in gp.problems(schedule)] == [("pair", F(0, 0))]
    with pytest.raises(ScheduleError, match="is no pair: a forward and a backward overlap"):
        gp.simulate(schedule)


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


def test_a_row_stands_under_its_own_number():
    with pytest.raises(ValueError, match="row 0 is called device 1"):
        gp.Explicit.parse("device 1: 1F0 1B0\ndevice 0: 0F0 0B0")
    text = str(gp.ZBV(2, 4))
    assert gp.Explicit.parse(text, placement=gp.ZBV(2, 4).placement).actions == gp.ZBV(2, 4).actions


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


def test_mse_of_whole_numbers_cuts_no_targets():
    assert gp.mse(np.array([1, 2]), np.array([0.5, 1.5])) == gp.mse([1, 2], [0.5, 1.5]) == 0.25


@dataclass(frozen=True)
class Own(gp.core.Schedule):
    gives: object = None

    def order(self, device):
        return self.gives


@pytest.mark.parametrize(
    ("gives", "says"),
    [
        (None, "needs to list actions, such as [F(0, 0), B(0, 0)] or '0F0 0B0' (got None)"),
        (3, "needs to list actions, such as [F(0, 0), B(0, 0)] or '0F0 0B0' (got 3)"),
        (
            F(0, 0),
            f"needs to list actions, such as [F(0, 0), B(0, 0)] or '0F0 0B0' (got {gp.core.F(0, 0)!r})",
        ),
        ([0], "takes actions or their spelling, such as '0F0' (got 0)"),
        ([OverlapFB(F(0, 0), None)], "takes actions or their spelling, such as '0F0' (got "),
    ],
    ids=repr,
)
def test_a_schedule_of_ones_own_that_gives_no_actions_is_told_where(gives, says):
    for function in (gp.check, gp.simulate, gp.problems, str):
        with pytest.raises(TypeError) as refusal:
            function(Own(1, 1, gives))
        assert str(refusal.value).startswith(f"Own.order(0) {says}")


@pytest.mark.parametrize("label", [0.0, "0", None])
def test_a_label_is_a_whole_number(label):
    for order in ([F(0, label)], [F(label, 0)]):
        with pytest.raises(TypeError, match="is not an action"):
            gp.check(Own(1, 1, order))


def test_a_schedule_of_ones_own_may_spell_its_actions():
    for order in ("0F0 0B0", ["0F0", "0B0"], [F(np.int64(0), 0), B(0, np.int64(0))]):
        assert Own(1, 1, order).actions == gp.GPipe(1, 1).actions


@dataclass(frozen=True)
class Elsewhere(gp.OneFOneB):
    held: object = None

    @property
    def placement(self):
        return self.held


@pytest.mark.parametrize("held", [None, [0, 1], 3])
def test_a_placement_of_ones_own_lists_stages(held):
    with pytest.raises(TypeError, match="Elsewhere needs placement to list the stages of each device"):
        gp.simulate(Elsewhere(2, 2, held))


@pytest.mark.parametrize("wrong", ["99999999999F0 0B0", "0F0 0B99999999999", "12000F0 0F12000"])
def test_a_label_far_out_is_refused_before_memory_runs_out(wrong):
    with pytest.raises(ValueError, match=r"are far beyond 2 actions: is a label wrong\?"):
        gp.Explicit([wrong])
    with pytest.raises(ValueError, match="are far beyond 2 actions"):
        gp.Explicit(["0F0 0B0"], microbatches=10**12)
