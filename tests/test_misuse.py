"""What nobody should do: each is refused in words, at once, and nothing has changed."""

import re
import time
import tracemalloc
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dis import opname
from functools import cache
from inspect import isfunction, signature
from numbers import Integral, Real
from random import Random
from types import UnionType
from typing import Any, get_args, get_origin

import matplotlib.pyplot as plt
import numpy as np
import pytest
from cases import every_schedule
from hypothesis import given
from hypothesis import strategies as st
from misused import (
    CASES,
    FUNCTIONS,
    HANDED_IN,
    HOSTILE,
    TIMELINE,
    WRONG,
    X,
    Y,
    arguments,
    hostile,
    meant_by,
    parts,
    step,
    train,
)

import gpipe_sim as gp
from gpipe_sim.core import F, looped, needs
from gpipe_sim.course.build import BUILDS
from gpipe_sim.course.limit import time_limit
from gpipe_sim.course.reply import Reply
from gpipe_sim.errors import got
from gpipe_sim.export.spans import from_spans
from gpipe_sim.families import bidirectional, v_shaped
from gpipe_sim.memory import greedy
from gpipe_sim.papers import formulas

LISTS = (Sequence, Collection, tuple)
NUMBERS = (int, float, Integral, Real)

LESSONS = [
    getattr(gp.course, f"lesson_{name}")
    for name in (*(f"{n:02}" for n in range(1, 11)), "13", "14", "15", "20", "A", "B")
]
#: Every function of a lesson that its notebook calls with the student's answers.
CHECKS = [
    check
    for lesson in LESSONS
    for name, check in vars(lesson).items()
    if isfunction(check)
    and check.__module__ == lesson.__name__
    and check.__annotations__.get("return") is Reply
    if (name in BUILDS or list(signature(check).parameters) == ["answer"])
]


#: What a message calls a parameter, where a part of what is called says it.
SAID_AS = {"dropout": "rate", "sequence": "longest", "simulated": "overlay", "measured": "overlay"}
#: What a message may be about instead, whoever was given it.
THINGS = "is not an action|a batch is|a memory|layer 0|program of device 0|train needs|at least one output"
THINGS += "|does not fit|changes its input|was not measured|can finish|a name for each"
THINGS += "|a batch of|at least one action|the programs are for|largest float|input_grad to be finite"
#: Whatever is public, and each parameter of it.
PLACES = [(name, each) for name in FUNCTIONS for each in signature(FUNCTIONS[name]).parameters]


def may_be(kind, value, name: str) -> bool:
    """Whether a value could be meant for a parameter of this annotation."""
    if kind is Any:
        return True
    if isinstance(kind, UnionType):
        return any(may_be(each, value, name) for each in get_args(kind))
    kind = get_origin(kind) or kind
    if kind is bool:
        return isinstance(value, bool | np.bool_)
    if kind in NUMBERS:
        if kind in (int, Integral) and isinstance(value, np.ndarray) and value.shape == ():
            value = value.item()  # an array of no dimensions is a whole number to Python
        if isinstance(value, bool | np.bool_) or not isinstance(value, kind if kind is Integral else Real):
            return False
        if kind is int and not isinstance(value, Integral):
            return False
        least = -np.inf if name == "time" else 0
        endless = value == np.inf and name in ("memory", "bandwidth", "memory_limit", "hbm")
        return least <= value < np.inf or endless
    if not isinstance(kind, type):
        return True
    with suppress(OverflowError):  # of what is asked what it has
        return isinstance(value, (kind, np.ndarray, list, Iterator) if kind in LISTS else kind)
    return False


def contents(given: dict) -> list[bytes]:
    """The numbers that a call could change: batches, weights, and what an optimizer remembers."""
    models = [part.parameters for part in given.get("partitions", ())]
    models += [getattr(layer, "parameters", {}) for layer in given.get("layers", ())]  # or how many
    return [array.tobytes() for array in gp.core.roots([list(given.values()), models])]


def is_said_by_us(error: Exception) -> bool:
    """Whether a ``raise`` of the package made it, not NumPy or Python in the middle of a sum."""
    at = error.__traceback__
    while at.tb_next:
        at = at.tb_next
    code = at.tb_frame.f_code
    return "gpipe_sim" in code.co_filename and opname[code.co_code[at.tb_lasti]] == "RAISE_VARARGS"


def spoil(name: str, parameter: str, wrong: object, given: dict) -> bool:
    """Call with one wrong argument: it is meant, or a sentence of ours says what is wrong. Whether it ran."""
    function = FUNCTIONS[name]
    each = signature(function).parameters[parameter]
    meant = wrong is each.default or may_be(meant_by(each), wrong, each.name)
    call = signature(function).bind_partial()
    call.arguments = given | {each.name: (wrong,) if each.kind is each.VAR_POSITIONAL else wrong}
    try:
        function(*call.args, **call.kwargs)
    except (TypeError, ValueError, IndexError, gp.errors.DivergedError) as error:
        said = f"{each.name}|{SAID_AS.get(each.name, each.name)}"
        assert is_said_by_us(error), (each.name, got(wrong), str(error))
        named = re.search(rf"\b({name}|{said})\b", str(error)) or re.search(THINGS, str(error))
        assert named, (each.name, str(error))
        if meant_by(each) in (*NUMBERS, bool) and not meant:
            assert re.search(rf"\b({said})\b", str(error)), (each.name, str(error))
            assert got(wrong) in str(error), (each.name, str(error))
        assert len(str(error)) < 400 or type(error) is gp.errors.MemoryLimitError
        return False
    assert meant, (each.name, got(wrong))
    return True


@pytest.mark.filterwarnings("ignore:.*unit.* of time:UserWarning")  # some numbers are only hardly meant
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_wrong_argument_is_refused_by_its_name_and_changes_nothing(name):
    """Whatever comes instead of one right argument."""
    given = arguments(name)
    before = contents(given)
    for each in signature(FUNCTIONS[name]).parameters.values():
        for wrong in WRONG if each.name in given else ():
            meant = wrong is each.default or may_be(meant_by(each), wrong, each.name)
            if meant and not isinstance(wrong, int | float | str | list | tuple | np.ndarray):
                continue
            if wrong is True and meant:
                continue
            if spoil(name, each.name, wrong, given) and contents(given) != before:
                given = arguments(name)
                before = contents(given)
    assert contents(given) == before


anew = cache(arguments)


@pytest.mark.filterwarnings("ignore:.*unit.* of time:UserWarning")
@given(seed=st.integers(0, 2**32))
def test_whatever_comes_is_right_or_refused_in_words_at_once_and_changes_nothing(seed):
    """Twenty calls for each seed: one of many odd values in place of one right argument."""
    draw = Random(seed)
    for (name, parameter), wrong in zip(draw.choices(PLACES, k=20), draw.choices(HOSTILE, k=20), strict=True):
        given = anew(name)
        if parameter in given and not (parameter == "report" and callable(hostile(wrong))):
            before = contents(given)
            with time_limit(5):  # and within two gigabytes
                ran = spoil(name, parameter, hostile(wrong), given)
            if ran and "train" in name:
                anew.cache_clear()
            else:
                assert contents(given) == before, (name, parameter, wrong)
            plt.close("all")


def test_each_case_is_another_mistake():
    told = [(do.__code__.co_code, do.__code__.co_consts, do.__code__.co_names) for do, _, _ in CASES]
    assert len(set(map(repr, told))) == len(CASES) >= 200


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


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: f"{check.__module__[-2:]}-{check.__name__}")
def test_a_check_replies_to_whatever_is_handed_in(check):
    takes = len(signature(check).parameters)
    for answer in HANDED_IN:
        reply = check(*takes * [answer])
        assert isinstance(reply, gp.course.Reply) and reply.verdict != "correct", answer
        assert len(reply.text) < 1000


@pytest.mark.parametrize("small", [np.int8, np.uint8, np.int16])
def test_small_numpy_integers_are_what_pythons_are(small):
    """They would overflow in sums: 100 + 100 is -56 in int8."""
    for schedule in every_schedule([(3, 7), (4, 8)]):
        sizes = {n: small(v) for n, v in vars(schedule).items() if type(v) is int and n != "program"}
        rest = {n: v for n, v in vars(schedule).items() if n not in {*sizes, "program"}}
        again = type(schedule)(**sizes, **rest)
        assert again == schedule and again.actions == schedule.actions, schedule
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
        if not hasattr(formula, "__wrapped__") or name == "microbatches_for_bubble":
            continue
        sizes = {"devices": 20, "microbatches": 120, "stages_per_device": 3}
        sizes |= {"backward": 100, "forward": 120, "stage": 3, "features": 100, "heads": 100}
        given = {each: sizes.get(each, 115) for each in signature(formula).parameters}
        plain, again = formula(**given), formula(**{each: small(value) for each, value in given.items()})
        assert (again, type(again)) == (plain, type(plain)), name
        tried += 1
    assert tried == 13


@pytest.mark.parametrize("small", [np.int8, np.uint8, np.int16])
def test_small_numpy_integers_are_pythons_in_plans_placements_and_steps_too(small):
    assert looped(small(2), small(4)) == looped(2, 4)
    assert v_shaped(small(100)) == v_shaped(100)
    assert bidirectional(small(100)) == bidirectional(100)
    explicit = gp.Explicit(["0F0 0B0"], placement=[[small(0)]], microbatches=small(1))
    assert explicit == gp.Explicit(["0F0 0B0"]) and type(explicit.placement[0][0]) is int
    assert greedy(small(2), small(70)).actions == greedy(2, 70).actions
    assert gp.Costs(small(120)).per_stage(small(3)) == gp.Costs(120).per_stage(3)
    assert [len(part.layers) for part in gp.split(gp.mlp([2] * 130), stages=small(2))] == [
        len(part.layers) for part in gp.split(gp.mlp([2] * 130), stages=2)
    ]
    balance = [small(120), small(9)]
    assert [len(part.layers) for part in gp.split([gp.core.Tanh() for _ in range(129)], balance=balance)] == [
        120,
        9,
    ]
    assert train(epochs=small(2), batch_size=small(8)).losses == train(epochs=2, batch_size=8).losses
    spans = [span._replace(start=small(span.start * 10), end=small(span.end * 10)) for span in TIMELINE.spans]
    again = from_spans(TIMELINE.schedule, spans)
    assert (gp.core.busy_time(again), gp.core.idle_time(again), again.makespan) == (120, 60, 90)
    assert {type(time) for span in again.spans for time in (span.start, span.end)} == {int}


def test_one_action_may_be_labelled_up_to_10099():
    assert gp.Explicit(["0F10099"]).microbatches == 10_100


def test_what_has_a_timeline_is_told_to_give_that():
    for function in (gp.draw, gp.fit_costs, gp.bubble_fraction):
        with pytest.raises(TypeError, match=r"timeline, such as its \.timeline \(got <StepResult with"):
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


def test_an_action_is_asked_for_by_its_spelling_or_as_part_of_a_pair():
    schedule = gp.families.DualPipe(2, 4)
    pair = next(action for row in schedule.actions for action in row if len(action.parts) == 2)
    apart = gp.core.OverlapFB(pair.forward, pair.backward._replace(microbatch=3 - pair.backward.microbatch))
    assert (
        schedule.program.find(pair) >= 0
        and schedule.program.find(pair.forward) >= 0
        and schedule.program.find(apart) < 0
    )
    assert schedule.device_of(pair) == schedule.device_of(str(pair)) == schedule.device_of(pair.backward)
    assert needs("1F0", schedule) == needs(F(1, np.int8(0)), schedule) == (F(0, 0),)
    assert gp.Costs(3).duration("0F0") == 3


def test_measured_times_are_pythons_own_numbers():
    spans = [
        gp.core.Span(a, np.int64(d), np.float64(s), np.float32(e))
        for a, d, s, e in gp.simulate(gp.GPipe(2, 2)).spans
    ]
    timeline = from_spans(gp.GPipe(2, 2), spans)
    assert {type(value) for span in timeline.spans for value in span[1:]} == {int, float}
    assert timeline.start.dtype == np.float64 and timeline.makespan == 9


def test_a_price_that_nobody_pays_may_be_any():
    class Unused(gp.Costs):
        def durations(self, program):
            column = super().durations(program)
            return column._replace(values=[*column.values, -1, None])

    assert gp.simulate(gp.GPipe(2, 2), Unused()).makespan == 9
