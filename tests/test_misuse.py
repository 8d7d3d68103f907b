"""What nobody should do: each is refused in words, at once, and nothing has changed."""

import re
import time
import tracemalloc
from collections.abc import Callable
from inspect import signature

import numpy as np
import pytest
from cases import every_schedule

import gpipe_sim as gp
from gpipe_sim.theory import formulas

X, Y = np.random.default_rng(0).normal(size=(16, 64)), np.arange(16) % 10
STAGES = 2
LINEAR = gp.Linear(64, 64, rng=np.random.default_rng(0))


def parts() -> list[gp.Partition]:
    return gp.split(gp.mlp([64, 10, 10]), stages=STAGES)


def step(schedule=None, batch=(X, Y), loss=gp.cross_entropy, partitions=None, **options) -> gp.StepResult:
    return gp.train_step(partitions or parts(), schedule or gp.GPipe(2, 2), batch, loss, **options)


def train(**options) -> gp.History:
    usual = {"loss": gp.cross_entropy, "optimizer": gp.SGD(0.1), "epochs": 1, "batch_size": 4, "report": None}
    return gp.train(parts(), gp.GPipe(2, 2), (X, Y), **usual | options)


TIMELINE = gp.simulate(gp.GPipe(2, 2))

#: (what is done, the error, what it says)
CASES: list[tuple[Callable, type, str]] = [
    # Sizes
    (lambda: gp.GPipe(2.0, 2), TypeError, "GPipe needs devices to be a whole number (got 2.0)"),
    (lambda: gp.GPipe(2, "2"), TypeError, "GPipe needs microbatches to be a whole number (got '2')"),
    (lambda: gp.GPipe(True, 2), TypeError, "GPipe needs devices to be a whole number (got True)"),
    (lambda: gp.GPipe(0, 2), ValueError, "GPipe needs devices >= 1 (got 0)"),
    (lambda: gp.Interleaved1F1B(2, 2, 0), ValueError, "Interleaved1F1B needs stages_per_device >= 1 (got 0)"),
    (lambda: gp.repeat(gp.GPipe(2, 2), 0), ValueError, "repeat needs steps >= 1 (got 0)"),
    (lambda: gp.greedy(0, 2), ValueError, "greedy needs devices >= 1 (got 0)"),
    (
        lambda: gp.greedy(2, 2, memory_limit=1j),
        TypeError,
        "memory_limit in numbers of stage-activations (got 1j)",
    ),
    (lambda: gp.looped(2, None), TypeError, "looped needs stages to be a whole number (got None)"),
    (lambda: gp.mlp([64, 0]), ValueError, "mlp needs every size >= 1 (got 0)"),
    (lambda: gp.mlp(64), TypeError, "mlp needs a list of sizes, such as [64, 32, 10] (got 64)"),
    (lambda: gp.mlp("64"), TypeError, "mlp needs a list of sizes, such as [64, 32, 10] (got '64')"),
    (lambda: gp.mlp([64]), ValueError, "mlp needs at least two sizes"),
    (lambda: gp.digits(seed=-1), ValueError, "digits needs seed >= 0 (got -1)"),
    (lambda: gp.digits(seed=0.5), TypeError, "digits needs seed to be a whole number (got 0.5)"),
    (lambda: train(epochs=0), ValueError, "train needs epochs >= 1 (got 0)"),
    (lambda: train(batch_size=2.5), TypeError, "train needs batch_size to be a whole number (got 2.5)"),
    (lambda: train(batch_size=17), ValueError, "train needs batch_size <= 16"),
    (lambda: step(seed=-1), ValueError, "train_step needs seed >= 0 (got -1)"),
    (lambda: step(step="a"), TypeError, "train_step needs step to be a whole number (got 'a')"),
    # Orders
    (lambda: gp.Explicit(["999F999"]), ValueError, "far beyond 1 actions: is a label wrong?"),
    (lambda: gp.Explicit(["0F0 0B999999"]), ValueError, "far beyond 2 actions: is a label wrong?"),
    (
        lambda: gp.Explicit(["0F10100"]),
        ValueError,
        "1 stages and 10101 microbatches are far beyond 1 actions",
    ),
    (lambda: gp.Explicit(["x" * 10**6]), ValueError, "(1000000 characters) is not an action"),
    (lambda: gp.Explicit(["0F" + "9" * 10**6]), ValueError, "(1000002 characters) is not an action"),
    (lambda: gp.Explicit("0F0"), TypeError, "Explicit takes one row per device, such as ['0F0 0B0']"),
    (lambda: gp.Explicit([["0F0", 3]]), TypeError, "takes actions or their spelling, such as '0F0' (got 3)"),
    (lambda: gp.Explicit(["0F0 0B0"], placement=[[0, 0]]), ValueError, "list a stage once on device 0"),
    (lambda: gp.Explicit(["0F0 0B0"], placement=[[-1]]), ValueError, "without a gap (got [-1])"),
    (lambda: gp.Explicit(["0F0 0B0"], placement=3), TypeError, "to list the stages of each device"),
    (lambda: gp.simulate("GPipe"), TypeError, "simulate needs a schedule, such as GPipe(4, 8) (got 'GPipe')"),
    (lambda: gp.simulate(gp.GPipe), TypeError, "simulate needs a schedule, such as GPipe(4, 8)"),
    (lambda: gp.check(TIMELINE), TypeError, "check needs a schedule, such as GPipe(4, 8)"),
    (lambda: gp.greedy(2, 2, priority={"B", "F"}), ValueError, "greedy needs priority to list F and B"),
    (lambda: gp.greedy(2, 2, placement=[[0], [0, 1]]), ValueError, "stage 0 is on devices 0 and 1"),
    (lambda: gp.from_torch_csv("0F" + "1" * 200_000), ValueError, "from_torch_csv cannot read the text"),
    (lambda: gp.from_torch_csv("0F0,zz"), ValueError, "line 1, cell 2: 'zz' is not an action"),
    (lambda: gp.remat(gp.GPipe(2, 2), "often"), ValueError, "remat needs mode to be one of"),
    (lambda: gp.colocate(gp.GPipe(2, 2), 2), TypeError, "devices lists a name for each of 2"),
    (
        lambda: gp.bubble_fraction(gp.GPipe(2, 2)),
        TypeError,
        "bubble_fraction needs a timeline",
    ),
    (lambda: gp.why_idle(TIMELINE, 5, 0), ValueError, "why_idle needs a device from 0 to 1 (got 5)"),
    (lambda: TIMELINE.on(2), ValueError, "there are devices 0 to 1 (got 2)"),
    # Costs
    (lambda: gp.Costs(comm=(1, 1)), TypeError, "Costs needs comm to be a number (got (1, 1))"),
    (lambda: gp.Costs(-1), ValueError, "Costs needs forward to be finite and >= 0 (got -1)"),
    (lambda: gp.Costs(float("nan")), ValueError, "Costs needs forward to be finite and >= 0 (got nan)"),
    (lambda: gp.Costs(1j), TypeError, "Costs needs forward to be a number (got 1j)"),
    (lambda: gp.Costs("1"), TypeError, "Costs needs forward to be a number (got '1')"),
    (
        lambda: gp.simulate(gp.GPipe(2, 2), 1),
        TypeError,
        "simulate needs costs, such as Costs",
    ),
    (lambda: gp.greedy(2, 2, costs={}), TypeError, "greedy needs costs, such as Costs(comm=1) (got {})"),
    (lambda: gp.greedy(2, 2, costs=0), TypeError, "greedy needs costs, such as Costs(comm=1) (got 0)"),
    (lambda: gp.simulate(gp.GPipe(2, 2), gp.Costs([1, 2, 3])), ValueError, "lists forward for 3 stages"),
    (lambda: gp.simulate(gp.GPipe(4, 8), gp.Costs(1e308)), ValueError, "lasts longer than the largest float"),
    # Batches, losses, models
    (lambda: step(gp.GPipe(2, 10**6)), ValueError, "16 samples cannot be cut into 1000000 microbatches"),
    (lambda: step(batch=(np.array(["a"] * 16), Y)), TypeError, "a batch needs inputs to hold real numbers"),
    (
        lambda: step(batch=(X * 1j, Y)),
        TypeError,
        "inputs to hold real numbers (got complex128)",
    ),
    (lambda: step(batch=(X, Y[:3])), ValueError, "of equal length (got lengths 16 and 3)"),
    (lambda: step(batch=X), TypeError, "a batch is (inputs, targets) (got ndarray)"),
    (lambda: step(loss="mse"), TypeError, "a step needs a loss, such as cross_entropy or mse (got 'mse')"),
    (
        lambda: gp.mse(np.array([[1j]]), np.array([[1.0]])),
        TypeError,
        "needs outputs to hold real numbers",
    ),
    (lambda: gp.mse(np.ones((1, 1)), np.array([["a"]])), TypeError, "mse needs targets to hold real numbers"),
    (lambda: gp.cross_entropy(np.ones((1, 2)), np.array([2])), ValueError, "needs targets from 0 to 1"),
    (lambda: gp.cross_entropy(np.ones((1, 2)), np.array([0.5])), TypeError, "targets to be class numbers"),
    (lambda: gp.single_device_step(parts()[0], (X, Y), gp.cross_entropy), TypeError, "are partition.layers"),
    (lambda: gp.split(3, stages=1), TypeError, "a model is a list of layers, such as mlp([64, 10]) (got 3)"),
    (lambda: gp.split(parts()[0], stages=1), TypeError, "its layers are partition.layers"),
    (lambda: gp.single_device_step("model", (X, Y), gp.mse), TypeError, "a model is a list of layers"),
    (lambda: step(partitions=parts()[:1]), ValueError, "has 2 stages, but there are 1 partitions"),
    (
        lambda: step(partitions=[gp.Partition([LINEAR]), gp.Partition([LINEAR], 1)]),
        ValueError,
        "layers 0 and 1 are the same Linear(64, 64)",
    ),
    (lambda: gp.split(gp.mlp([4, 4]), stages=2), ValueError, "cannot cut 1 layers into 2 stages; at most 1"),
    (lambda: gp.Adam(1e-3, 0.9), TypeError, "Adam needs two betas, such as (0.9, 0.999) (got 0.9)"),
    (lambda: gp.SGD(-1), ValueError, "SGD needs 0 <= learning_rate < inf (got -1)"),
    (lambda: gp.Adam(eps=0), ValueError, "Adam needs eps > 0"),
    (lambda: train(report="x"), TypeError, "train needs report to be a function of a line of text, or None"),
    (lambda: train(optimizer="adam"), TypeError, "train needs an optimizer"),
    (
        lambda: gp.evaluate(parts(), X * np.nan, Y),
        ValueError,
        "evaluate needs finite inputs (sample 0",
    ),
    (lambda: gp.evaluate(broken(), X, Y), ValueError, "evaluate needs a model whose outputs are finite"),
    # Formulas
    (
        lambda: gp.formulas.gpipe_bubble(4, 0),
        ValueError,
        "gpipe_bubble needs microbatches >= 1 (got 0)",
    ),
    (lambda: gp.formulas.gpipe_makespan(4, 8, -1), ValueError, "gpipe_makespan needs forward to be finite"),
    (
        lambda: gp.formulas.gpipe_makespan(4, 8, float("nan")),
        ValueError,
        "forward to be finite and >= 0",
    ),
    (lambda: gp.formulas.one_f_one_b_in_flight(4, 8, 1.5), TypeError, "needs device to be a whole number"),
    (lambda: gp.formulas.one_f_one_b_in_flight(4, 8, 4), ValueError, "needs device from 0 to 3 (got 4)"),
    (lambda: gp.formulas.chimera_bubble(4, 6), ValueError, "is for K dividing M (got K = 4, M = 6)"),
    (lambda: gp.formulas.chimera_bubble(3, 6), ValueError, "needs an even number of devices (got 3)"),
    (lambda: gp.formulas.zbh1_memory(4, 0, -1), ValueError, "needs before_input_grad to be finite and >= 0"),
    (lambda: gp.formulas.microbatches_for(4, "1e9999999"), ValueError, "needs a bubble between 0 and 1"),
    (lambda: gp.formulas.microbatches_for(4, "1e-9999999"), ValueError, "needs a bubble between 0 and 1"),
    (lambda: gp.formulas.microbatches_for(4, None), ValueError, "needs a bubble between 0 and 1 (got None)"),
    # Charts
    (lambda: gp.draw(), ValueError, "draw needs at least one timeline"),
    (lambda: gp.draw(gp.GPipe(2, 2)), TypeError, "draw needs a timeline, such as simulate"),
    (lambda: gp.draw(TIMELINE, titles="My title"), TypeError, "titles=['My title']"),
    (lambda: gp.draw(TIMELINE, titles=["a", "b"]), ValueError, "a title for each of 1 timelines (got 2)"),
    (
        lambda: gp.plots.plot_memory(step()),
        TypeError,
        "plot_memory needs one device's memory",
    ),
    (lambda: gp.recorded_run("gpt"), ValueError, "there is no recorded run 'gpt'; there are 1f1b"),
]


def broken() -> list[gp.Partition]:
    """A model that has learned NaN."""
    partitions = parts()
    for array in partitions[0].parameters.values():
        array *= np.nan
    return partitions


@pytest.mark.parametrize(("do", "error", "says"), CASES, ids=[case[2][:50] for case in CASES])
def test_it_is_refused_in_words_and_at_once(do, error, says):
    """Within 5 seconds and 200 MB, by the exact type, in a message that no terminal has to scroll through."""
    tracemalloc.start()
    began = time.perf_counter()
    try:
        with pytest.raises(error, match=re.escape(says)) as refused:
            do()
        assert time.perf_counter() - began < 5
        assert tracemalloc.get_traced_memory()[1] < 200e6
    finally:
        tracemalloc.stop()
    assert type(refused.value) is error
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("small", [np.int8, np.uint8, np.int16])
def test_small_numpy_integers_are_what_pythons_are(small):
    """They would overflow in sums: 100 + 100 is -56 in int8."""
    for schedule in every_schedule([(3, 7), (4, 8)]):
        sizes = {n: small(v) for n, v in vars(schedule).items() if type(v) is int and n != "program"}
        rest = {n: v for n, v in vars(schedule).items() if n not in {*sizes, "program"}}
        again = type(schedule)(**sizes, **rest)
        assert again == schedule and again.program.same_order(schedule.program), schedule
        assert {type(value) for value in vars(again).values()} == {
            type(value) for value in vars(schedule).values()
        }
    assert gp.simulate(gp.GPipe(small(12), small(100))).makespan == 333
    assert gp.repeat(gp.GPipe(2, 30), small(10)).microbatches == 300
    assert gp.formulas.gpipe_makespan(small(100), small(100)) == 597
    assert gp.formulas.gpipe_makespan(4, 8, small(100), small(100)) == 2200
    assert gp.simulate(gp.GPipe(4, 8), gp.Costs(small(100), small(100), small(100))).makespan == 3300
    assert gp.formulas.gpipe_messages(small(100), small(100), small(100)) == 2 * 9999 * 100


@pytest.mark.parametrize("small", [np.int8, np.uint8, np.int16])
def test_every_formula_of_small_numpy_integers_is_that_of_pythons(small):
    """Devices and times up to 120, whose sums and products no int8 holds."""
    tried = 0
    for name, formula in vars(formulas).items():
        if not hasattr(formula, "__wrapped__") or name == "microbatches_for":
            continue
        sizes = {"devices": 20, "microbatches": 120, "stages_per_device": 3, "device": 19, "pair": 110}
        sizes |= {"backward": 100, "forward": 120, "input_grad": 110, "weight_grad": 40, "comm": 90}
        given = {each: sizes.get(each, 115) for each in signature(formula).parameters}
        plain, again = formula(**given), formula(**{each: small(value) for each, value in given.items()})
        assert (again, type(again)) == (plain, type(plain)), name
        tried += 1
    assert tried == 25


@pytest.mark.parametrize("small", [np.int8, np.uint8, np.int16])
def test_small_numpy_integers_are_pythons_in_plans_placements_and_steps_too(small):
    assert gp.looped(small(2), small(4)) == gp.looped(2, 4)
    assert gp.v_shaped(small(100)) == gp.v_shaped(100)
    assert gp.bidirectional(small(100)) == gp.bidirectional(100)
    explicit = gp.Explicit(["0F0 0B0"], placement=[[small(0)]], microbatches=small(1))
    assert explicit == gp.Explicit(["0F0 0B0"]) and type(explicit.placement[0][0]) is int
    assert gp.greedy(small(2), small(70)).actions == gp.greedy(2, 70).actions
    assert gp.Costs(small(120)).per_stage(small(3)) == gp.Costs(120).per_stage(3)
    assert [len(part.layers) for part in gp.split(gp.mlp([2] * 130), stages=small(2))] == [
        len(part.layers) for part in gp.split(gp.mlp([2] * 130), stages=2)
    ]
    balance = [small(120), small(9)]
    assert [len(part.layers) for part in gp.split([gp.Tanh() for _ in range(129)], balance=balance)] == [
        120,
        9,
    ]
    assert gp.activation_memory(TIMELINE, small(0), small(100)) == gp.activation_memory(TIMELINE, 0, 100)
    assert train(epochs=small(2), batch_size=small(8)).losses == train(epochs=2, batch_size=8).losses
    spans = [span._replace(start=small(span.start * 10), end=small(span.end * 10)) for span in TIMELINE.spans]
    again = gp.Timeline.from_spans(TIMELINE.schedule, spans)
    assert (gp.busy_time(again), gp.idle_time(again), again.makespan) == (120, 60, 90)
    assert {type(time) for span in again.spans for time in (span.start, span.end)} == {int}


def test_one_action_may_be_labelled_up_to_10099():
    assert gp.Explicit(["0F10099"]).microbatches == 10_100


def test_what_has_a_timeline_is_told_to_give_that():
    for function in (gp.draw, gp.fit_costs, gp.bubble_fraction):
        with pytest.raises(TypeError, match=r"needs a timeline, such as its \.timeline \(got StepResult\)"):
            function(step())


def test_losses_of_small_integers_do_not_overflow():
    assert gp.mse(np.array([[100]], np.int8), np.array([[-100]], np.int8)) == 40000
    assert gp.cross_entropy(np.array([[250, 3]], np.uint8), np.array([0])) == pytest.approx(0, abs=1e-12)
    assert gp.mse(np.array([[1]]), np.array([[0.5]])) == 0.25


def test_results_compare_without_raising():
    one, other = step(), step()
    assert one == one and one != other and one != 1
    assert one in [other, one]


def test_what_was_refused_changed_nothing():
    partitions = parts()
    before = {key: p.copy() for part in partitions for key, p in part.parameters.items()}
    usual = {"loss": gp.cross_entropy, "optimizer": gp.SGD(0.1), "epochs": 1, "batch_size": 4}
    for wrong in ({"report": "x"}, {"epochs": 0}, {"loss": None}, {"optimizer": 3}, {"seed": -1}):
        with pytest.raises((TypeError, ValueError)):
            gp.train(partitions, gp.GPipe(2, 2), (X, Y), **usual | {"report": None} | wrong)
    after = {key: p for part in partitions for key, p in part.parameters.items()}
    assert all((before[key] == after[key]).all() for key in before)
