"""What ``to_json`` writes, ``from_json`` reads back exactly; and it refuses all else in one sentence."""

import doctest
import json
import random
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, fields
from fractions import Fraction
from math import inf, nan, nextafter
from pathlib import Path

import numpy as np
import pytest
from cases import BOTH_WAYS, UPDATED, V_SHAPED, every_order, over, overlapped, zero_bubble
from hypothesis import given
from hypothesis import strategies as st
from measured import measured
from misused import LIKE, PROFILE, WIDE

import gpipe_sim as gp
from gpipe_sim import Costs, Explicit, GPipe, Link, OneFOneB, simulate
from gpipe_sim.core import CostModel, F, Schedule, Timeline
from gpipe_sim.export import envelope, from_json, recorded_run, to_json
from gpipe_sim.families import SCHEDULES, WITHOUT_FLUSH, DualPipe
from gpipe_sim.links import simulate_shared
from gpipe_sim.replicas import data_parallel_round, side_by_side
from gpipe_sim.streams import PipeDream2BW, PipelinedBackprop

DATA = Path(__file__).parent / "data" / "version-1"
THIRD, TENTH = Fraction(1, 3), 0.1


class Own(Schedule):
    """A student's family, whose name is that of one here."""

    name = "Mine, ü"
    weights = ("latest",)
    placement = ((0,), (1,))

    def order(self, device):
        yield from GPipe(2, self.microbatches).order(device)


Own.__name__ = "OneFOneB"


class Noisy(CostModel):
    """No action takes as long as planned."""

    def duration(self, action, device):
        return random.Random(str(action)).lognormvariate(0, 0.3)


def exact(value: object) -> object:
    """The value with the type of every number, and floats by their bits."""
    if isinstance(value, Timeline):
        return {field.name: exact(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Schedule):
        return type(value), value, value.name, value.weights, value.actions, value.placement, value.stages
    if isinstance(value, np.ndarray):
        return exact(value.tolist())
    if isinstance(value, tuple | list):
        return type(value), [exact(each) for each in value]
    return type(value), value.hex() if isinstance(value, float) else value


def there_and_back(thing):
    found = from_json(text := to_json(thing))
    assert to_json(found) == text and text.isascii() and text.count("\n") == 1
    return found


# There and back

DERIVED = [
    V_SHAPED,
    BOTH_WAYS,
    *UPDATED,
    zero_bubble(3, 4),
    overlapped(3, 4),
    gp.remat(GPipe(3, 4), "except_last"),
    gp.remat(gp.ZBV(2, 4), "always", stages=[0, 3]),
    gp.remat(gp.replicate(GPipe(2, 3), 2), "always"),
    gp.replicate(gp.remat(OneFOneB(2, 3), "always"), 2, adjacent="replicas"),
    gp.replicate(gp.replicate(GPipe(2, 2), 2), 2),
    gp.replicate(GPipe(2, 2), 1),
    side_by_side([GPipe(2, 4), OneFOneB(2, 2)]),
    gp.replicate(gp.PipeDream(2, 4, every=2), 2),
    gp.repeat(gp.with_updates(DualPipe(2, 4)), 2),
    gp.repeat(PipeDream2BW(2, 4), 2),  # with the weights of PipeDream-2BW alone
    Explicit(["0F0 0B0", ""], placement=[[0], []]),  # a device without work
    Explicit(["0B0 0F0"], microbatches=3),  # which cannot run
]


@over([*every_order(), *DERIVED])
def test_every_schedule_comes_back_as_it_was(schedule):
    found = there_and_back(schedule)
    assert exact(found) == exact(schedule) and repr(found) == repr(schedule)


def test_a_family_is_written_by_its_class_and_a_class_of_ones_own_by_its_rows():
    value = json.loads(to_json(GPipe(2, 2, drain="in_order")))["value"]
    assert value == {
        "family": "GPipe",
        "options": {"devices": 2, "microbatches": 2, "drain": "in_order"},
        "placement": [[0], [1]],
        "rows": ["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"],
    }
    found = there_and_back(Own(2, 3))
    assert type(found) is Explicit and found.actions == GPipe(2, 3).actions
    assert (found.name, found.weights) == ("Mine, ü", ("latest",))
    assert exact(there_and_back(found)) == exact(found)


#: Whole numbers small and huge, fractions, floats, and all of them together.
COSTS = {
    "units": Costs(comm=1),
    "huge": Costs(10**30, 2, 3, comm=1 << 62),
    "fractions": Costs(THIRD, Fraction(2, 1), 1, comm=Fraction(1, 7), overlap=THIRD, recompute=THIRD),
    "floats": Costs(TENTH, 0.2, 1e-300, update=0.3, comm=nextafter(1, 2)),
    "mixed": Costs(1, TENTH, THIRD, comm=1),
}


@pytest.mark.parametrize("costs", COSTS.values(), ids=COSTS)
def test_every_simulated_timeline_comes_back_to_the_last_bit(costs):
    sizes = [(1, 1), (3, 2), (4, 4)]
    for schedule in [*every_order(sizes), *DERIVED[:-1]]:
        found = there_and_back(timeline := simulate(schedule, costs))
        assert exact(found) == exact(timeline) and found.start.dtype == timeline.start.dtype
        assert (found.makespan, found.spans, found.messages) == (
            (timeline.makespan, timeline.spans, timeline.messages)
        )


ONES = np.ones((3, 3))
ON = Link(latency=1, bandwidth=THIRD)
TWICE = gp.replicate(gp.with_updates(OneFOneB(2, 3)), 2)
SPECIAL = {
    "queued": simulate(OneFOneB(3, 4), links=ON, message_bytes=7),
    "taking turns to send": simulate(OneFOneB(3, 4), links=ON, message_bytes=7, overlap=False),
    "one wire": simulate_shared(gp.ZBH1(3, 4), ON, message_bytes=0.1),
    "summed": gp.all_reduce(simulate(TWICE), [10, 0.5], links=ON, buckets=2, clip=True),
    "through device 0": data_parallel_round(3, weights=5, inputs=THIRD, links=ON),
    "noise": simulate(gp.ZBV(3, 6), Noisy()),
    "own family": simulate(Own(2, 3)),
    "measured": measured(DualPipe(4, 8)),
    "recorded": recorded_run("zbh1"),
    "taking turns": recorded_run("narrow_alone"),
    "blocking": gp.run_programs(
        gp.device_programs(GPipe(2, 3)),
        gp.split(gp.mlp([3] * 3), stages=2),
        (ONES, ONES),
        gp.mse,
        sends="blocking",
    ).timeline,
}


@pytest.mark.parametrize("name", SPECIAL)
def test_messages_collectives_and_what_was_measured_come_back(name):
    found = there_and_back(timeline := SPECIAL[name])
    if name == "own family":
        assert found.schedule.actions == timeline.schedule.actions and found.spans == timeline.spans
    else:
        assert exact(found) == exact(timeline)
    assert found.messages == timeline.messages and found.makespan == timeline.makespan
    assert (found.took_turns, found.began) == (timeline.took_turns, timeline.began)
    assert str(gp.draw(found)).split("<desc>")[0] == str(gp.draw(timeline)).split("<desc>")[0]
    assert not found.start.flags.writeable


EVERY_COST = [
    *COSTS.values(),
    Costs(),
    Costs([1, 2], (THIRD, 2), np.array([0.1, 5e-324]), recompute=[1, 1], update=[0, 1], overlap=[2, 2]),
    Costs(speed=[1, 2.5, THIRD], overhead=[0, 1, TENTH]),
    Costs(np.int64(3), np.float32(0.1), 0, speed=np.ones(2)),
    Costs(0.0, -0.0, 10**4000),
]


@pytest.mark.parametrize("costs", EVERY_COST, ids=range(len(EVERY_COST)))
def test_every_cost_comes_back(costs):
    found = there_and_back(costs)
    assert [exact(each) for each in vars(found).values()] == [exact(each) for each in vars(costs).values()]
    assert type(found) is Costs


def _profiles() -> Iterator:
    yield from (PROFILE, WIDE, LIKE)
    small = gp.gpt(2, 8, 2, tokens=11, sequence=5)
    tokens = gp.MetaArray((6, 5), "i8"), gp.MetaArray((6, 5), "i8")
    yield gp.profile(gp.split(small, stages=2), tokens, gp.cross_entropy, gp.Adam(0.1))


def test_every_profile_comes_back_and_predicts_the_same():
    for profile in _profiles():
        assert (found := there_and_back(profile)) == profile
        schedule = gp.remat(OneFOneB(len(profile.stages), 3), "always")
        assert gp.predict_memory(schedule, found) == gp.predict_memory(schedule, profile)
        assert found.costs(3) == profile.costs(3)


times = st.one_of(
    st.integers(0, 10**40),
    st.fractions(0, 10**6),
    st.floats(0, allow_nan=False, allow_infinity=False),
)


@given(st.lists(times, min_size=4, max_size=4), st.integers(1, 4), st.integers(1, 6), st.data())
def test_any_costs_and_their_timeline_come_back(four, devices, microbatches, data):
    family = data.draw(st.sampled_from((*SCHEDULES, *WITHOUT_FLUSH)))
    costs = Costs(*four[:3], comm=four[3])
    assert [exact(each) for each in vars(there_and_back(costs)).values()] == (
        [exact(each) for each in vars(costs).values()]
    )
    try:
        timeline = simulate(family(devices, microbatches), costs)
    except ValueError:  # no such size, or too long for a float
        return
    assert exact(there_and_back(timeline)) == exact(timeline)


def test_the_example_is_right():
    assert doctest.testmod(envelope) == (0, 3)


# Files of version 1: whatever is changed, they stay readable

KEPT = {
    "zbv": gp.ZBV(2, 4),
    "pipedream": PipeDream2BW(2, 4),
    "recomputed-copies": gp.replicate(gp.remat(gp.Interleaved1F1B(2, 2), "except_last", [1]), 2),
    "own-order": gp.repeat(PipelinedBackprop(2, 2), 2),
    "costs": EVERY_COST[6],
    "fractions": simulate(DualPipe(2, 4), COSTS["fractions"]),
    "summed": SPECIAL["summed"],
    "measured": measured(gp.ZBH1(2, 3)),
    "profile": LIKE,
    "fitted-costs": gp.fit_costs(measured(gp.ZBH1(2, 3))),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_file_of_version_1_is_read(name):
    text, expected = (DATA / f"{name}.json").read_text(encoding="utf-8"), KEPT[name]
    assert json.loads(text)["version"] == 1
    found = from_json(text)
    assert exact(found) == exact(expected) or (found == expected and isinstance(found, gp.Costs))
    assert to_json(expected) == text


def test_there_is_a_file_for_each_and_every_kind_has_one():
    assert {path.stem for path in DATA.iterdir()} == set(KEPT)
    assert {json.loads(path.read_text())["kind"] for path in DATA.iterdir()} == set(envelope.KINDS)


# What cannot be written


class Longer(Costs):
    """Costs of one's own."""


@dataclass(frozen=True)
class Party:
    """What several devices do together, of a class of one's own."""

    start: int = 0
    end: int = 1


@pytest.mark.parametrize(
    ("thing", "error", "says"),
    [
        (
            Noisy(),
            TypeError,
            "writes Costs, and Noisy is a cost model of another class, whose rules .* write the timeline",
        ),
        (Longer(), TypeError, "writes Costs, and Longer is a cost model of another class"),
        (GPipe, TypeError, "needs a schedule, Costs, a timeline or the profile of a model"),
        (None, TypeError, "needs a schedule"),
        (Explicit([[F(-1, 0)]], placement=[[0]]), ValueError, ".*label that has no text"),
        (Explicit([[F(0, 10**18)]], placement=[[0]], microbatches=1), ValueError, ".*label that has no text"),
        (Costs(10**4300), ValueError, ".*4300 digits"),
        (Timeline(GPipe(1, 1), np.array([0, 1.0]), np.array([1, inf])), ValueError, ".*not JSON"),
        (Timeline(GPipe(1, 1), np.array([0, 1.0]), np.array([1, nan])), ValueError, ".*times from 0 on"),
        (Timeline(GPipe(1, 1), np.array([1, 0]), np.array([2, 1])), ValueError, ".*begins before the one"),
        (Timeline(GPipe(1, 1), np.arange(3), np.arange(3)), ValueError, ".*need 2 starts and ends"),
        (
            Timeline(GPipe(1, 1), np.arange(2), np.arange(2), collectives=(Party(),)),
            TypeError,
            "no file holds a Party",
        ),
    ],
)
def test_what_no_file_can_hold_is_refused(thing, error, says):
    with pytest.raises(error, match=f"^to_json (cannot write this .*|){says}") as refused:
        to_json(thing)
    assert "\n" not in str(refused.value)


# What cannot be read

TEXTS = {name: to_json(thing) for name, thing in KEPT.items()}
CUT = GPipe(2, 2)


def changed(text: str, *path: str | int, to: object = ..., name: str = "") -> str:
    """The same file with another value in this place, or without it; ``name`` is one more field there."""
    data = json.loads(text)
    at = data
    for key in path[:-1]:
        at = at[key]
    if name:
        at[path[-1]][name] = to
    elif to is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return json.dumps(data)


GPIPE, COST, TIMES = to_json(CUT), to_json(Costs()), to_json(simulate(CUT))
SUMMED, PROFILED = TEXTS["summed"], TEXTS["profile"]
LAYER, SUM = ("value", "stages", 0, 0), ("value", "collectives", 0)
DEEP, LONGER = json.loads("[" * 300 + "]" * 300), json.loads(to_json(OneFOneB(2, 3)))["value"]
HOSTILE = {
    "nothing": ("", "no JSON, or cut off"),
    "no JSON": ("0F0 0B0", "no JSON, or cut off"),
    "a list": ("[]", "does not say that its format is 'gpipe_sim'"),
    "another format": (changed(COST, "format", to="x"), "does not say that its format"),
    "a newer version": (changed(COST, "version", to=2), r"reads version 1 of the format \(got 2\)"),
    "no version": (changed(COST, "version"), r"version 1 of the format \(got None\)"),
    "True is 1": (changed(COST, "version", to=True), r"version 1 of the format \(got True\)"),
    "another kind": (changed(COST, "kind", to="plan"), "kind to be one of .*'schedule', 'costs', 'timeline'"),
    "one kind as another": (changed(COST, "kind", to="timeline"), "timeline has a field that it cannot have"),
    "unknown field outside": (changed(COST, "more", to=1), "it has a field that it cannot have: 'more'"),
    "unknown field inside": (changed(COST, "value", to=1, name="x"), "costs has a field .*: 'x'"),
    "missing field": (changed(COST, "value", "comm"), "costs has no comm"),
    "a word as a time": (changed(COST, "value", "comm", to="soon"), "costs.comm is no number"),
    "0 below": (changed(COST, "value", "comm", to="1/0"), "costs.comm is no number and no fraction"),
    "a list as a time": (changed(COST, "value", "comm", to=[1]), "costs.comm is of a wrong kind"),
    "True as a time": (changed(COST, "value", "comm", to=True), "costs.comm is of a wrong kind"),
    "negative": (changed(COST, "value", "forward", to=-1), "costs.forward needs to be >= 0"),
    "no speed": (changed(COST, "value", "speed", to=0), "Costs needs speed > 0"),
    "NaN": (changed(COST, "value", "comm", to=nan), "NaN is no number of JSON"),
    "infinite": (changed(COST, "value", "comm", to=-inf), "-Infinity is no number of JSON"),
    "beyond floats": (COST.replace('"comm": 0', '"comm": 1e999'), "'1e999' is larger than the largest float"),
    "beyond digits": (COST.replace('"comm": 0', f'"comm": {"9" * 5000}'), "digits"),
    "twice": (COST.replace('"comm"', '"comm": 1, "comm"'), "it has 'comm' twice in one object"),
    "deep": ("[" * 100_000, "nested too deeply"),
    "deep options": (changed(GPIPE, "value", "options", "drain", to=DEEP), "wrong"),
    "a class that is none": (changed(GPIPE, "value", "family", to="os.system"), "got 'os.system'"),
    "a class of ours": (changed(GPIPE, "value", "family", to="Timeline"), "got 'Timeline'"),
    "no method's name": (changed(GPIPE, "value", to=1, name="__class__"), "field that it cannot have"),
    "a million devices": (changed(GPIPE, "value", "options", "devices", to=10**6), "other rows"),
    "too many devices": (changed(GPIPE, "value", "options", "devices", to=10**9), "GPipe needs at most"),
    "too many microbatches": (changed(GPIPE, "value", "options", "microbatches", to=10**6), "other rows"),
    "another order": (changed(GPIPE, "value", "rows", 0, to="0F1 0F0 0B1 0B0"), "other rows"),
    "another placement": (changed(GPIPE, "value", "placement", to=[[1], [0]]), "or another placement"),
    "another option": (changed(GPIPE, "value", "options", "drain", to="never"), "drain to be one of"),
    "an option too many": (changed(GPIPE, "value", "options", to=2, name="every"), "cannot have: 'every'"),
    "no row of actions": (changed(GPIPE, "value", "rows", 0, to=["0F0"]), r"rows\[0\] is of a wrong kind"),
    "recompute never": (
        changed(to_json(gp.remat(CUT, "always")), "value", "options", "mode", to="never"),
        "of Remat, but that has other rows",
    ),
    "copies of nothing": (
        changed(to_json(gp.replicate(CUT, 2)), "value", "options", "inners", to=[]),
        "side_by_side needs",
    ),
    "a label far too large": (
        changed(to_json(Explicit(["0F0"])), "value", "options", "microbatches", to=10**9),
        "far beyond 1 actions",
    ),
    "weights that are none": (
        changed(to_json(Explicit(["0F0"])), "value", "options", "weights", to=["mine"]),
        "weights to be one of",
    ),
    "a time too few": (changed(TIMES, "value", "start", 0), "need 8 starts and ends"),
    "ends before": (changed(TIMES, "value", "end", 0, to=-1), "each end not before its start"),
    "out of order": (changed(TIMES, "value", "start", to=[3, *[4] * 7]), "each end not before"),
    "sent, never arrived": (changed(TIMES, "value", "arrived", to=None), "both sent and arrived, or neither"),
    "another schedule's": (changed(TIMES, "value", "schedule", to=LONGER), "need 12 starts and ends"),
    "no such device": (changed(SUMMED, *SUM, "devices", to=[0, 10**9]), "which cannot be"),
    "a sum of nobody": (changed(SUMMED, *SUM, "devices", to=[]), "which cannot be"),
    "a sum before its start": (changed(SUMMED, *SUM, "start", to=10**9), "its collectives"),
    "an array of no name": (changed(PROFILED, *LAYER, "saved", to=["x7"]), "do not fit each other"),
    "no stage": (changed(PROFILED, "value", "stages", to=[]), "do not fit each other"),
    "no samples": (changed(PROFILED, "value", "samples", to=0), "do not fit each other"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "says"), HOSTILE.values(), ids=HOSTILE)
def test_what_to_json_never_wrote_is_refused_in_one_sentence(text, says):
    with pytest.raises(ValueError, match=f"^from_json cannot read this text: .*{says}") as refused:
        from_json(text)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 500


@pytest.mark.parametrize("text", [b"{}", None, Path("costs.json"), json.loads(COST)])
def test_only_a_text_is_read(text):
    with pytest.raises(TypeError, match=r"from_json needs a text"):
        from_json(text)


@pytest.mark.parametrize("name", KEPT)
def test_a_text_that_is_cut_off_anywhere_is_refused(name):
    text = TEXTS[name].rstrip("\n")
    for length in [*range(0, len(text), 1 + len(text) // 50), len(text) - 1]:
        with pytest.raises(ValueError, match=r"^from_json cannot read this text: it is no JSON, or cut off"):
            from_json(text[:length])


JUNK = [
    None,
    True,
    -1,
    0,
    1,
    10**30,
    -0.5,
    1e308,
    "",
    "x1",
    "1/3",
    "0F0",
    [],
    {},
    [[]],
    [10**9],
    "Explicit",
    {"a": 1},
]


def places(data: object, at: tuple = ()) -> Iterator[tuple]:
    yield at
    for key, each in (
        data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    ):
        yield from places(each, (*at, key))


@given(st.sampled_from(sorted(KEPT)), st.randoms(use_true_random=False))
def test_whatever_is_spoiled_is_refused_or_is_something_that_can_be_written(name, chance):
    """A file with any value put in any place never does anything else."""
    data = json.loads(TEXTS[name])
    *path, key = chance.choice([at for at in places(data) if at])
    at = data
    for each in path:
        at = at[each]
    at[key] = deepcopy(chance.choice(JUNK))
    try:
        found = from_json(json.dumps(data))
    except ValueError as error:
        assert str(error).startswith("from_json cannot read this text: ") and "\n" not in str(error)
    else:
        assert to_json(from_json(to_json(found))) == to_json(found)
