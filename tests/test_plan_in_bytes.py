"""A plan within bytes is within them as the prediction counts, and makes use of the room that there is."""

import random
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpipe_sim as gp
from gpipe_sim.core import Linear, ReLU, Schedule
from gpipe_sim.core.placement import looped
from gpipe_sim.errors import ScheduleError
from gpipe_sim.families.placements import v_shaped
from gpipe_sim.memory import greedy
from gpipe_sim.memory.profile import Profile

PRIORITIES = ("BF", "FB", "IFW", "WIF")


def equal_stages(stages: int, samples: int) -> Profile:
    """Linear and ReLU on every stage, 16 wide."""
    rng = np.random.default_rng(0)
    layers = [layer for _ in range(stages) for layer in (Linear(16, 16, rng=rng), ReLU())]
    batch = np.zeros((samples, 16)), np.zeros((samples, 16))
    return gp.profile(gp.split(layers, stages=stages), batch, gp.mse)


@cache
def unequal_stages(stages: int, samples: int, seed: int) -> Profile:
    """Widths from 2 to 100, and up to three activations after each Linear."""
    draw, rng = random.Random(seed), np.random.default_rng(0)
    widths = [draw.choice([2, 8, 16, 40, 100]) for _ in range(stages + 1)]
    layers, balance = [], []
    for wide, next_ in pairwise(widths):
        more = [draw.choice([ReLU, gp.core.Tanh, gp.core.GELU])() for _ in range(draw.randint(0, 3))]
        layers += [Linear(wide, next_, rng=rng), *more]
        balance.append(1 + len(more))
    batch = np.zeros((samples, widths[0])), np.zeros((samples, widths[-1]))
    return gp.profile(gp.split(layers, balance=balance), batch, gp.mse)


def peaks(schedule: Schedule, profile: Profile, costs: gp.Costs | None = None) -> list[int]:
    return [trace.peak_inside.bytes for trace in gp.predict_memory(schedule, profile, costs)]


def one_by_one(placement, microbatches: int, split: bool) -> gp.Explicit:
    """The order in which each microbatch begins when the one before it is finished."""
    stages = sum(map(len, placement))
    forwards = [(stage, "F") for stage in range(stages)]
    steps = forwards + [
        (stage, kind) for stage in reversed(range(stages)) for kind in ("IW" if split else "B")
    ]
    rows = [
        [f"{stage}{kind}{m}" for m in range(microbatches) for stage, kind in steps if stage in held]
        for held in placement
    ]
    return gp.Explicit(rows, placement=placement)


def makespan(schedule: Schedule, costs: gp.Costs | None = None):
    return gp.simulate(schedule, costs).makespan


def placements(devices: int) -> list:
    """One stage each, two looped, two turned, two neighbours."""
    neighbours = tuple((2 * k, 2 * k + 1) for k in range(devices))
    return [looped(devices, devices), looped(devices, 2 * devices), v_shaped(devices), neighbours]


# The promise


@st.composite
def cases(draw):
    devices, microbatches = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    placement = draw(st.sampled_from(placements(devices)))
    stages = sum(map(len, placement))
    samples = 2 * microbatches + draw(st.integers(0, 1))
    profile = unequal_stages(stages, samples, draw(st.integers(0, 9)))
    times = st.lists(st.integers(0, 4), min_size=stages, max_size=stages)
    costs = draw(st.builds(gp.Costs, times, times, times, comm=st.integers(0, 3)))
    priority = draw(st.sampled_from(PRIORITIES))
    least = peaks(one_by_one(placement, microbatches, "I" in priority), profile, costs)
    free = greedy(devices, microbatches, placement, priority, None, costs)
    most, part = peaks(free, profile, costs), draw(st.sampled_from([0, 0.1, 0.3, 0.6, 0.9]))
    limits = [a + int(part * max(0, b - a)) for a, b in zip(least, most, strict=True)]
    return devices, microbatches, placement, priority, limits, costs, profile


@given(cases(), st.booleans())
def test_no_plan_ever_holds_more_than_its_limit(case, alike):
    """Down to what one microbatch after another takes, and with pieces of uneven size."""
    *sizes, limits, costs, profile = case
    limit = max(limits) if alike else limits
    plan = greedy(*sizes, limit, costs, profile=profile)
    gp.simulate(plan, costs, profile=profile, memory_limit=limit)
    assert makespan(plan, costs) <= makespan(one_by_one(sizes[2], sizes[1], "I" in sizes[3]), costs)


@given(cases())
def test_room_for_the_plan_without_a_limit_gives_that_plan(case):
    *sizes, _, costs, profile = case
    free = greedy(*sizes, None, costs)
    assert greedy(*sizes, peaks(free, profile, costs), costs, profile=profile) == free
    assert greedy(*sizes, None, costs, profile=profile) == free


def test_a_step_on_real_arrays_holds_what_was_planned():
    data = gp.digits()
    batch, layers = (data.x[:37], data.y[:37]), gp.mlp([64, 64, 64, 64, 10])
    partitions = gp.split(layers, stages=4)
    limit = 90_000
    how = {"memory_limit": limit, "profile": gp.profile(partitions, batch, gp.cross_entropy)}
    plan = greedy(4, 8, **how)
    step = gp.train_step(partitions, plan, batch, gp.cross_entropy, memory_limit=limit)
    assert limit / 2 < max(trace.peak_inside.bytes for trace in step.memory) <= limit


def test_messages_that_pile_up_cost_their_sender_room():
    """Device 0 has room for 6 microbatches, but device 1 only for 1, and for few messages that wait."""
    profile = equal_stages(2, 12)
    free, least = (peaks(order, profile) for order in (gp.GPipe(2, 6), one_by_one(looped(2, 2), 6, False)))
    message = 2 * 16 * 8
    by_room = {}
    for waiting in range(4):
        limits = [free[0], least[1] + waiting * message]
        plan = greedy(2, 6, None, "FB", limits, profile=profile)
        assert peaks(plan, profile)[1] <= limits[1]
        by_room[waiting] = gp.peak_in_flight(plan), makespan(plan)
    assert by_room == {0: ((1, 1), 36), 1: ((2, 1), 21), 2: ((4, 1), 21), 3: ((5, 1), 21)}


# Not needlessly careful


@pytest.mark.parametrize(("devices", "microbatches"), [(1, 3), (2, 4), (3, 3), (4, 8), (6, 7)])
def test_within_the_bytes_of_1f1b_backwards_first_is_1f1b(devices, microbatches):
    profile, classic = equal_stages(devices, 2 * microbatches), gp.OneFOneB(devices, microbatches)
    bytes_ = peaks(classic, profile)
    assert greedy(devices, microbatches, memory_limit=bytes_, profile=profile).actions == classic.actions
    plan = greedy(devices, microbatches, memory_limit=max(bytes_), profile=profile)
    assert makespan(plan) == makespan(classic)
    if devices > 1:
        less = [bytes_[0] - 1, *bytes_[1:]]
        assert makespan(greedy(devices, microbatches, memory_limit=less, profile=profile)) > makespan(classic)


# Refusals


def test_a_byte_below_the_least_is_refused_with_the_least():
    profile = equal_stages(2, 12)
    least = peaks(one_by_one(looped(2, 2), 6, False), profile)
    assert least == [5376, 5376]
    with pytest.raises(ScheduleError) as refused:
        greedy(2, 6, memory_limit=5375, profile=profile)
    assert str(refused.value) == (
        "greedy finds no order within memory_limit, not even one microbatch after another:\n"
        "  device 0 would hold 5.376 kB while it runs 0B0, and may hold 5.375 kB\n"
        "  device 1 would hold 5.376 kB while it runs 1B0, and may hold 5.375 kB\n"
        "memory_limit=5376 would do"
    )
    with pytest.raises(ScheduleError, match=r"device 1 .*\nmemory_limit=\[9000, 5376\] would do$"):
        greedy(2, 6, memory_limit=[9000, 0], profile=profile)
    assert str(greedy(2, 6, memory_limit=5376, profile=profile)) == str(one_by_one(looped(2, 2), 6, False))


@pytest.mark.parametrize("split", [False, True])
def test_a_single_microbatch_needs_no_more_than_it_holds(split):
    """Its forward runs before there are gradients, so it needs less than one that comes after another."""
    placement, priority = v_shaped(2), "IFW" if split else "BF"
    profile = unequal_stages(4, 3, 5)
    least = peaks(one_by_one(placement, 1, split), profile)
    assert peaks(greedy(2, 1, placement, priority, least, profile=profile), profile) == least
    less = [least[0], least[1] - 1]
    with pytest.raises(ScheduleError, match="not even one microbatch after another:\n  device 1 would"):
        greedy(2, 1, placement, priority, less, profile=profile)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"profile": equal_stages(3, 12)}, ValueError, "greedy plans 2 stages, but the profile has 3"),
        ({"profile": equal_stages(2, 5)}, ValueError, "5 samples cannot be cut into 6 microbatches"),
        ({"profile": "big"}, TypeError, r"greedy needs a profile, such as .* \(got 'big'\)"),
    ],
)
def test_bad_input_is_told_what_would_work(options, error, says):
    with pytest.raises(error, match=says):
        greedy(2, 6, **{"memory_limit": 9000, "profile": equal_stages(2, 12), **options})
