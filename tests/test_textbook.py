"""The textbook is the library, by hand: the same times exactly, the same gradients to 1e-12, as printed."""

import ast
import inspect
from fractions import Fraction
from runpy import run_path

import numpy as np
import pytest

import gpipe_sim as gp
from gpipe_sim import textbook
from gpipe_sim.course.lesson_02 import OneHot
from gpipe_sim.course.rows import rows_of
from gpipe_sim.textbook import NEEDS, SPLIT

REMAT = NEEDS | {"R": [("F", 0)]}
PLAIN = {"F": textbook.forward, "B": textbook.backward}
LIGHT = PLAIN | {"F": textbook.light_forward, "R": textbook.recompute}
HALVES = {"F": textbook.forward, "I": textbook.input_gradient, "W": textbook.weight_gradient}
SIZES = ((1, 1), (1, 4), (2, 3), (3, 7), (4, 8), (5, 2))
COSTS = (
    {"F": 1, "B": 2, "R": 1, "I": 1, "W": 1},
    {"F": 4, "B": 8, "R": 3, "I": 5, "W": 3},
    {"F": Fraction(1, 3), "B": Fraction(1, 2), "R": Fraction(1, 5), "I": Fraction(1, 7), "W": Fraction(2, 5)},
)


def one_f_one_b(K: int, M: int, cost: dict = COSTS[0]) -> list[list[tuple]]:
    return textbook.capped_rows(K, M, [K - k for k in range(K)], NEEDS, cost)


def a_v(K: int, M: int, pause: int) -> tuple[list, gp.Explicit]:
    rows = textbook.stamped(textbook.v_strand(K, pause), M, 6)
    return rows, gp.Explicit(
        [[gp.core.Action(*a) for a in row] for row in rows], placement=gp.families.v_shaped(K)
    )


#: the textbook's rows, the library's schedule, the needs and the work
CASES = [
    *((rows_of(gp.Naive(K, M)), gp.Naive(K, M), NEEDS, PLAIN) for K, M in SIZES),
    *((textbook.gpipe_rows(K, M), gp.GPipe(K, M), NEEDS, PLAIN) for K, M in SIZES),
    *((one_f_one_b(K, M), gp.OneFOneB(K, M), NEEDS, PLAIN) for K, M in SIZES),
    *(
        (textbook.interleaved_rows(K, M, V), gp.Interleaved1F1B(K, M, stages_per_device=V), NEEDS, PLAIN)
        for K, M, V in ((2, 4, 2), (3, 6, 3), (4, 8, 2), (4, 4, 1), (1, 3, 2))
    ),
    *(
        (rows_of(remat), remat, REMAT, LIGHT)
        for remat in (gp.remat(gp.GPipe(4, 8), "always"), gp.remat(gp.OneFOneB(3, 5), "always"))
    ),
    *((textbook.putting_off(list(range(K)), M), gp.ZBH1(K, M), SPLIT, HALVES) for K, M in SIZES),
    *((*a_v(*size), SPLIT, HALVES) for size in ((4, 11, 0), (5, 3, 0), (3, 6, 2), (1, 2, 0), (2, 5, 0))),
]
each_schedule = pytest.mark.parametrize(
    ("rows", "schedule", "table", "work"), CASES, ids=[f"{case[1].name}-{len(case[0])}" for case in CASES]
)


@each_schedule
def test_rows_and_times_are_the_librarys_exactly(rows, schedule, table, work):
    assert rows == rows_of(schedule)
    for cost in COSTS:
        split = (cost["I"], cost["W"]) if table is SPLIT else (cost["B"], 0)
        timeline = gp.simulate(schedule, gp.Costs(cost["F"], *split, recompute=cost["R"]))
        assert textbook.clock(rows, table, cost) == timeline.ends


@pytest.mark.parametrize("cost", COSTS)
def test_one_f_one_b_is_found_under_a_cap_whatever_actions_cost(cost):
    for K, M in SIZES:
        assert one_f_one_b(K, M, cost) == rows_of(gp.OneFOneB(K, M))


def linear_layers(S: int) -> tuple[list, np.ndarray, np.ndarray]:
    data = gp.digits()
    return gp.mlp([64, *(S - 1) * [12], 10], seed=3), data.x[:37], np.eye(10)[data.y[:37]]


def assert_gradients_are_those_of_one_device(stages, layers, x, target, loss) -> None:
    alone = gp.single_device_step(layers, (x, target), gp.mse)
    assert loss == pytest.approx(alone.loss, rel=1e-12)
    linear = [i for i, layer in enumerate(layers) if layer.parameters]
    for i, stage in zip(linear, stages, strict=True):
        for name in "Wb":
            assert np.abs(stage[f"d{name}"] - alone.gradients[i, name]).max() < 1e-12
        assert not stage["kept"] and not stage.get("pending")


@each_schedule
def test_gradients_are_those_of_one_device(rows, schedule, table, work):
    layers, x, target = linear_layers(schedule.stages)
    ends, stages = textbook.clock(rows, table, COSTS[0]), textbook.stages_of(layers)
    loss = textbook.run(sorted(ends, key=ends.get), stages, x, target, schedule.microbatches, work)
    assert_gradients_are_those_of_one_device(stages, layers, x, target, loss)


@pytest.mark.parametrize("S", range(1, 6))
def test_a_step_over_all_stages(S):
    layers, x, target = linear_layers(S)
    stages = textbook.stages_of(layers)
    assert_gradients_are_those_of_one_device(stages, layers, x, target, textbook.step(stages, x, target))


def test_the_clock_stops_where_nothing_can_run():
    assert textbook.clock([[(0, "B", 0), (0, "F", 0)]], NEEDS, COSTS[0]) == {}


def test_a_v_takes_what_v_min_takes_where_no_two_of_a_strand_collide():
    assert gp.simulate(a_v(4, 11, 0)[1]).makespan == gp.simulate(gp.families.VMin(4, 11)).makespan == 77
    for K, pause in ((4, 0), (5, 0), (3, 2)):
        assert all(len({slot % 6 for slot in slots.values()}) == 6 for slots in textbook.v_strand(K, pause))


def test_what_it_prints_is_what_the_library_finds(capsys):
    run_path(textbook.__file__, run_name="__main__")
    step, learned = capsys.readouterr().out.splitlines()
    timeline = gp.simulate(gp.OneFOneB(4, 8))
    bubble = f"{float(gp.bubble_fraction(timeline)):.1%}"
    assert step == f"1F1B, 4 devices, 8 microbatches: a step takes {timeline.makespan}, bubble {bubble}"
    how = {"loss": OneHot(), "optimizer": gp.SGD(0.5), "batch_size": 32, "report": None}
    layers = gp.mlp([64, 64, 64, 64, 10])
    history = gp.core.train_single_device(layers, gp.digits(), epochs=20, **how)
    right = f"{history.accuracies[-1]:.1%}"
    assert learned == f"20 epochs: {right} of 359 digits that it has not seen are read right"
    assert history.accuracies[-1] > 0.95


def test_it_is_read_in_one_sitting_and_uses_only_the_digits_of_the_package():
    source = inspect.getsource(textbook)
    assert len(source.splitlines()) <= 300
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    named = {getattr(node, "module", None) or node.names[0].name for node in imports}
    assert named == {"itertools", "types", "numpy", "gpipe_sim.dataset"}
