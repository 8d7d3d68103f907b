"""The answers of all lessons, joined: the times of the library exactly, its gradients to 1e-12."""

import ast
import inspect
from fractions import Fraction

import numpy as np
import pytest

import gpipe_sim as gp
from gpipe_sim.course import answers, mine
from gpipe_sim.course.answers import NEEDS, SPLIT

REMAT = NEEDS | {"R": [("F", 0)]}
WORK = {"F": answers.forward, "B": answers.backward}
SIZES = ((1, 1), (1, 4), (2, 3), (3, 7), (4, 8), (5, 2))
COSTS = ({"F": 1, "B": 2}, {"F": 3, "B": 5}, {"F": Fraction(1, 3), "B": Fraction(1, 2)})


def rows_of(schedule: gp.Schedule) -> list[list[tuple]]:
    """The library's rows in the lessons' spelling."""
    return [[(a.stage, str(a.kind), a.microbatch) for a in row] for row in schedule.actions]


def costs_of(cost: dict) -> gp.Costs:
    return gp.Costs(cost["F"], cost.get("I", cost.get("B")), cost.get("W", 0), recompute=cost.get("R"))


def ends_of(schedule: gp.Schedule, cost: dict) -> dict[tuple, object]:
    spans = gp.simulate(schedule, costs_of(cost)).spans
    return {(s.action.stage, str(s.action.kind), s.action.microbatch): s.end for s in spans}


def assert_gradients_are_those_of_one_device(rows: list[list[tuple]], table: dict, M: int, work: dict):
    S = 1 + max(s for row in rows for s, _, _ in row)
    layers = gp.mlp([64, *(S - 1) * [12], 10], seed=3)
    data = gp.digits()
    x, target = data.x[:37], np.eye(10)[data.y[:37]]
    ends = answers.clock(rows, table, dict.fromkeys("FBIWR", 1))
    assert len(ends) == sum(map(len, rows))
    stages = answers.stages_of(layers)
    loss = answers.run(sorted(ends, key=ends.get), stages, x, target, M, work)
    alone = gp.single_device_step(layers, (x, target), gp.mse)
    assert loss == pytest.approx(alone.loss, rel=1e-12)
    linear = [i for i, layer in enumerate(layers) if layer.parameters]
    for i, stage in zip(linear, stages, strict=True):
        for name in ("W", "b"):
            assert np.abs(stage[f"d{name}"] - alone.gradients[i, name]).max() < 1e-12
    assert not any(stage["kept"] for stage in stages)


@pytest.mark.parametrize("K", range(1, 6))
def test_a_step_over_k_stages(K):
    layers = gp.mlp([64, *(K - 1) * [12], 10])
    data = gp.digits()
    x, target = data.x[:20], np.eye(10)[data.y[:20]]
    stages = answers.stages_of(layers)
    loss = answers.step(stages, x, target)
    alone = gp.single_device_step(layers, (x, target), gp.mse)
    assert loss == pytest.approx(alone.loss, rel=1e-12)
    assert np.abs(stages[0]["dW"] - alone.gradients[0, "W"]).max() < 1e-12


@pytest.mark.parametrize(("K", "M"), SIZES)
def test_gpipe(K, M):
    rows = answers.gpipe_rows(K, M)
    assert rows == rows_of(gp.GPipe(K, M))
    for cost in COSTS:
        assert answers.clock(rows, NEEDS, cost) == ends_of(gp.GPipe(K, M), cost)
    assert_gradients_are_those_of_one_device(rows, NEEDS, M, WORK)


@pytest.mark.parametrize(("K", "M"), SIZES)
def test_one_f_one_b_is_found_under_a_cap(K, M):
    for cost in COSTS:
        rows = answers.capped_rows(K, M, [K - k for k in range(K)], NEEDS, cost)
        assert rows == rows_of(gp.OneFOneB(K, M))
        assert answers.clock(rows, NEEDS, cost) == ends_of(gp.OneFOneB(K, M), cost)
    assert_gradients_are_those_of_one_device(rows, NEEDS, M, WORK)


def test_recompute_as_soon_as_a_device_is_free():
    rows = rows_of(gp.remat(gp.GPipe(4, 8), "always"))
    ends = answers.clock(rows, REMAT, {"F": 1, "B": 2, "R": 1})
    assert max(ends.values()) == gp.simulate(gp.remat(gp.GPipe(4, 8), "always")).makespan == 41
    work = WORK | {"F": answers.light_forward, "R": answers.recompute}
    assert_gradients_are_those_of_one_device(rows, REMAT, 8, work)


@pytest.mark.parametrize(("K", "M", "V"), [(2, 4, 2), (3, 6, 3), (4, 8, 2), (4, 4, 1), (1, 3, 2)])
def test_interleaved(K, M, V):
    schedule = gp.Interleaved1F1B(K, M, stages_per_device=V)
    rows = answers.interleaved_rows(K, M, V)
    assert rows == rows_of(schedule)
    assert answers.clock(rows, NEEDS, COSTS[0]) == ends_of(schedule, COSTS[0])
    assert_gradients_are_those_of_one_device(rows, NEEDS, M, WORK)


@pytest.mark.parametrize(("K", "M"), SIZES)
def test_w_put_off(K, M):
    work = {"F": answers.forward, "I": answers.input_gradient, "W": answers.weight_gradient}
    rows = answers.putting_off(list(range(K)), M)
    assert rows == rows_of(gp.ZBH1(K, M))
    for cost in ({"F": 1, "I": 1, "W": 1}, {"F": 4, "I": 5, "W": 3}):
        assert answers.clock(rows, SPLIT, cost) == ends_of(gp.ZBH1(K, M), cost)
    assert_gradients_are_those_of_one_device(rows, SPLIT, M, work)


@pytest.mark.parametrize(("K", "M", "pause"), [(4, 11, 0), (5, 3, 0), (3, 6, 2), (1, 2, 0), (2, 5, 0)])
def test_a_v_is_stamped(K, M, pause):
    """At 4 x 11 it takes 77, as V-Min does."""
    strand = answers.v_strand(K, pause)
    assert all(len({slot % 6 for slot in slots.values()}) == 6 for slots in strand)
    rows = answers.stamped(strand, M, 6)
    order = gp.Explicit([[gp.Action(*a) for a in row] for row in rows], placement=gp.v_shaped(K))
    for cost in ({"F": 1, "I": 1, "W": 1}, {"F": 4, "I": 5, "W": 3}):
        assert answers.clock(rows, SPLIT, cost) == ends_of(order, cost)
    work = {"F": answers.forward, "I": answers.input_gradient, "W": answers.weight_gradient}
    assert_gradients_are_those_of_one_device(rows, SPLIT, M, work)
    if (K, M) == (4, 11):
        assert gp.simulate(order).makespan == gp.simulate(gp.VMin(K, M)).makespan == 77


def test_attention_is_the_librarys():
    rng = np.random.default_rng(0)
    layer = gp.Attention(12, 3, rng=rng)
    _, saved = layer.forward(rng.normal(size=(2, 5, 12)), gp.Context())
    _, qkv, (shares, *_), mixed = saved
    mix, found = answers.attention(*np.split(qkv, 3, axis=2), heads=3)
    assert abs(found - shares).max() < 1e-12 and abs(mix - mixed.reshape(mix.shape)).max() < 1e-12


def functions() -> list:
    return [each for each in vars(answers).values() if inspect.isfunction(each)]


@pytest.mark.parametrize("function", functions(), ids=lambda function: function.__name__)
def test_each_piece_is_under_20_lines(function):
    assert len(inspect.getsource(function).splitlines()) < 20


def test_a_student_owns_about_200_lines():
    """After lesson 13, whose pipeline is complete."""
    source, _ = inspect.getsource(answers).split("# lesson 14\n")
    body = ast.parse(source).body[2:]  # without the docstring and the import
    assert 170 <= sum(node.end_lineno - node.lineno + 1 for node in body) <= 220


def test_the_pipeline_without_a_student_is_the_answers():
    names = mine.pipeline()
    assert names["gpipe_rows"](2, 2) == answers.gpipe_rows(2, 2)
    assert {each.__name__ for each in functions()} <= set(names)
