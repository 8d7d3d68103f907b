"""A plan within bytes is within them as the prediction counts, and makes use of the room that there is."""

import random
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpipe_sim as gp
from gpipe_sim.core.placement import looped
from gpipe_sim.families.placements import v_shaped
from gpipe_sim.machine.banker import Banker, Life
from gpipe_sim.machine.rooms import InBytes, one_by_one

PRIORITIES = ("BF", "FB", "IFW", "WIF")


def equal_stages(stages: int, samples: int) -> gp.Profile:
    """Linear and ReLU on every stage, 16 wide."""
    rng = np.random.default_rng(0)
    layers = [layer for _ in range(stages) for layer in (gp.Linear(16, 16, rng=rng), gp.ReLU())]
    batch = np.zeros((samples, 16)), np.zeros((samples, 16))
    return gp.profile(gp.split(layers, stages=stages), batch, gp.mse)


@cache
def unequal_stages(stages: int, samples: int, seed: int) -> gp.Profile:
    """Widths from 2 to 100, and up to three activations after each Linear."""
    draw, rng = random.Random(seed), np.random.default_rng(0)
    widths = [draw.choice([2, 8, 16, 40, 100]) for _ in range(stages + 1)]
    layers, balance = [], []
    for wide, next_ in pairwise(widths):
        more = [draw.choice([gp.ReLU, gp.Tanh, gp.GELU])() for _ in range(draw.randint(0, 3))]
        layers += [gp.Linear(wide, next_, rng=rng), *more]
        balance.append(1 + len(more))
    batch = np.zeros((samples, widths[0])), np.zeros((samples, widths[-1]))
    return gp.profile(gp.split(layers, balance=balance), batch, gp.mse)


def peaks(schedule: gp.Schedule, profile: gp.Profile, costs: gp.Costs | None = None) -> list[int]:
    return [trace.peak_inside.bytes for trace in gp.predict_memory(schedule, profile, costs)]


def makespan(schedule: gp.Schedule, costs: gp.Costs | None = None):
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
    free = gp.greedy(devices, microbatches, placement, priority, None, costs)
    most, part = peaks(free, profile, costs), draw(st.sampled_from([0, 0.1, 0.3, 0.6, 0.9]))
    limits = [a + int(part * max(0, b - a)) for a, b in zip(least, most, strict=True)]
    return devices, microbatches, placement, priority, limits, costs, profile


@given(cases(), st.booleans())
def test_no_plan_ever_holds_more_than_its_limit(case, alike):
    """Down to what one microbatch after another takes, and with pieces of uneven size."""
    *sizes, limits, costs, profile = case
    limit = max(limits) if alike else limits
    plan = gp.greedy(*sizes, limit, costs, profile=profile)
    gp.simulate(plan, costs, profile=profile, memory_limit=limit)
    assert makespan(plan, costs) <= makespan(one_by_one(sizes[2], sizes[1], "I" in sizes[3]), costs)


@given(cases())
def test_room_for_the_plan_without_a_limit_gives_that_plan(case):
    *sizes, _, costs, profile = case
    free = gp.greedy(*sizes, None, costs)
    assert gp.greedy(*sizes, peaks(free, profile, costs), costs, profile=profile) == free
    assert gp.greedy(*sizes, None, costs, profile=profile) == free


def test_a_step_on_real_arrays_holds_what_was_planned():
    data = gp.digits()
    batch, layers = (data.x[:37], data.y[:37]), gp.mlp([64, 64, 64, 64, 10])
    partitions = gp.split(layers, stages=4)
    limit = 90_000
    how = {"memory_limit": limit, "profile": gp.profile(partitions, batch, gp.cross_entropy)}
    plan = gp.greedy(4, 8, **how)
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
        plan = gp.greedy(2, 6, None, "FB", limits, profile=profile)
        assert peaks(plan, profile)[1] <= limits[1]
        by_room[waiting] = gp.peak_in_flight(plan), makespan(plan)
    assert by_room == {0: ((1, 1), 36), 1: ((2, 1), 21), 2: ((4, 1), 21), 3: ((5, 1), 21)}


def test_a_little_less_room_for_the_sender_is_better_than_half_as_much_for_the_receiver():
    """Lowering whichever room leaves the least excess would keep one microbatch on device 1, and take 71."""
    costs, profile, limit = (
        gp.Costs([1, 2, 1], [1, 2, 1], [1, 2, 1], comm=1),
        unequal_stages(3, 12, 14),
        179_134,
    )
    plan = gp.greedy(3, 6, memory_limit=limit, costs=costs, profile=profile)
    assert gp.simulate(plan, costs, profile=profile, memory_limit=limit).makespan == 50


# Not needlessly careful


@pytest.mark.parametrize(("devices", "microbatches"), [(1, 3), (2, 4), (3, 3), (4, 8), (4, 16), (8, 16)])
def test_within_the_bytes_of_1f1b_backwards_first_is_1f1b(devices, microbatches):
    profile, classic = equal_stages(devices, 2 * microbatches), gp.OneFOneB(devices, microbatches)
    bytes_ = peaks(classic, profile)
    assert gp.greedy(devices, microbatches, memory_limit=bytes_, profile=profile).actions == classic.actions
    plan = gp.greedy(devices, microbatches, memory_limit=max(bytes_), profile=profile)
    assert makespan(plan) == makespan(classic)
    if devices > 1:
        less = [bytes_[0] - 1, *bytes_[1:]]
        assert makespan(gp.greedy(devices, microbatches, memory_limit=less, profile=profile)) > makespan(
            classic
        )


def measured(sizes: tuple, costs: gp.Costs, profile: gp.Profile, counts) -> list[tuple]:
    """(makespan, peaks) of the plan for each limit in counts."""
    plans = [gp.greedy(*sizes, count, costs) for count in counts]
    return [(makespan(plan, costs), peaks(plan, profile, costs)) for plan in plans]


def within(limit: int, found: list[tuple]):
    return min(time for time, bytes_ in found if max(bytes_) <= limit)


def test_on_unequal_stages_it_is_as_short_as_the_best_of_all_limits_in_counts():
    """One count per device, all of them tried; one stage per device, so counts can say all that bytes can."""
    ratios = []
    for seed in range(16):
        rng = random.Random(seed)
        devices, microbatches = rng.choice([2, 3]), rng.choice([3, 5])
        times = [rng.randint(1, 4) for _ in range(devices)]
        costs, profile = gp.Costs(times, times, times, comm=rng.choice([0, 1, 3])), None
        profile = unequal_stages(devices, 2 * microbatches, seed)
        sizes = devices, microbatches, None, "BF"
        found = measured(sizes, costs, profile, product(range(1, microbatches + 1), repeat=devices))
        low, high = (choose(max(bytes_) for _, bytes_ in found) for choose in (min, max))
        for part in (0.3, 0.7):
            limit = low + int(part * (high - low))
            plan = gp.greedy(*sizes, limit, costs, profile=profile)
            ratios.append(makespan(plan, costs) / within(limit, found))
    assert sum(ratios) / len(ratios) < 1.01
    assert max(ratios) < 1.15


def test_where_stages_differ_in_bytes_no_limit_in_counts_gives_as_short_a_plan():
    """A GPT on a V: device 0 holds the embedding and the head, 512 bytes and 1.2 MB for a microbatch.

    With 5.4 MB on each device the plan takes 51. All 225 pairs of counts are tried: those whose plans fit
    take 55 or more.
    """
    text, costs, limit = gp.StandIn((8, 64), np.int64), gp.Costs(comm=2), 5_400_000
    partitions = gp.split(gp.gpt(4, 64, 4, tokens=2000, sequence=64), balance=[2, 1, 1, 4])
    profile = gp.profile(partitions, (text, text), gp.cross_entropy)
    sizes = 2, 8, v_shaped(2), "IFW"
    plan = gp.greedy(*sizes, limit, costs, profile=profile)
    assert (makespan(plan, costs), gp.peak_in_flight(plan)) == (51, (10, 13))
    gp.simulate(plan, costs, profile=profile, memory_limit=limit)
    plans = [gp.greedy(*sizes, counts, costs) for counts in product(range(2, 17), repeat=2)]
    times = [makespan(plan, costs) for plan in plans]
    shorter = [plan for plan, time in zip(plans, times, strict=True) if time < 55]
    assert shorter and all(max(peaks(plan, profile, costs)) > limit for plan in shorter)
    assert (
        gp.simulate(gp.greedy(*sizes, (4, 6), costs), costs, profile=profile, memory_limit=limit).makespan
        == 55
    )


# The banker, who weighs


@pytest.mark.parametrize("samples", [12, 11])
def test_a_life_in_bytes_by_hand(samples):
    """Two samples, 16 wide, of 8 bytes: 256 for x, for y, and for each gradient.

    A stage keeps x and y, and the last one what the loss saved. While B runs there are the message and one
    gradient more; on the last stage, which gets no message, only one. I also leaves the gradient that W needs
    beside x. Parameters and gradients have 16 * 16 + 16 numbers each. Pieces of 11 samples have two or one.
    """
    work, profile = one_by_one(looped(2, 2), 6, False), equal_stages(2, samples)
    first, last = Life((0, 512, 0), (512, 1024), {}), Life((0, 768, 0), (768, 1024), {})
    planner = InBytes(None, work, profile, (0, 0), gp.Costs())
    assert (planner.fixed, planner.lives) == ([4352, 4352], [first, last])
    planner = InBytes(None, one_by_one(looped(2, 2), 6, True), profile, (0, 0), gp.Costs())
    first, last = Life((0, 512, 0), (512, 1280), {0: 512}), Life((0, 768, 0), (768, 1280), {1: 512})
    assert (planner.fixed, planner.lives) == ([4352, 4352], [first, last])


@st.composite
def lives(draw):
    """A life on one device of up to three stages, split or not, whose peaks are at least what is held."""
    stages = draw(st.integers(1, 3))
    up = draw(st.lists(st.integers(0, 5), min_size=stages, max_size=stages))
    held = [sum(up[:j]) for j in range(stages + 1)]
    held += held[-2::-1]
    extra = draw(st.lists(st.integers(0, 4), min_size=2 * stages, max_size=2 * stages))
    pending = draw(st.lists(st.integers(0, 4), min_size=stages, max_size=stages))
    after = [now + left for now, left in zip(held[1:], [0] * stages + pending[::-1], strict=True)]
    peaks = [max(held[j], after[j]) + extra[j] for j in range(2 * stages)]
    return Life(tuple(held), tuple(peaks), dict(enumerate(pending)))


@given(lives(), st.integers(1, 5), st.integers(0, 12), st.booleans(), st.integers(0, 999))
def test_whatever_the_banker_admits_all_microbatches_can_be_finished(life, microbatches, spare, split, seed):
    """At random: each microbatch takes its next step, or a W that waits, if the banker admits it."""
    stages, draw = len(life.pending), random.Random(seed)
    limit = max(life.peaks) + spare
    banker = Banker(range(stages), microbatches, limit, life)
    assert banker.may_begin() and not Banker(range(stages), 1, max(life.peaks) - 1, life).may_begin()
    back, done, waiting = (gp.Kind.I if split else gp.Kind.B), [0] * microbatches, []
    while min(done) < 2 * stages or waiting:
        steps = [(m, step(done[m], stages, back, m)) for m in range(microbatches) if done[m] < 2 * stages]
        admitted = [case for case in steps if banker.admits(case[1])] + [(None, w) for w in waiting]
        assert admitted
        m, action = draw.choice(admitted)
        if m is None:
            waiting.remove(action)
        else:
            waiting += [gp.W(action.stage, m)] * (action.kind is gp.Kind.I)
            done[m] += 1
        banker.record(action)
        kept = sum(life.held[steps] for steps in done) + sum(life.pending[w.stage] for w in waiting)
        assert banker.held == kept <= banker.most <= limit
    assert banker.held == 0


def step(done: int, stages: int, back: gp.Kind, m: int) -> gp.Action:
    return gp.F(done, m) if done < stages else gp.Action(2 * stages - 1 - done, back, m)


# Refusals


def test_a_byte_below_the_least_is_refused_with_the_least():
    profile = equal_stages(2, 12)
    least = peaks(one_by_one(looped(2, 2), 6, False), profile)
    assert least == [5376, 5376]
    with pytest.raises(gp.ScheduleError) as refused:
        gp.greedy(2, 6, memory_limit=5375, profile=profile)
    assert str(refused.value) == (
        "greedy finds no order within memory_limit, not even one microbatch after another:\n"
        "  device 0 would hold 5.376 kB while it runs 0B0, and may hold 5.375 kB\n"
        "  device 1 would hold 5.376 kB while it runs 1B0, and may hold 5.375 kB\n"
        "memory_limit=5376 would do, which is 5.376 kB"
    )
    with pytest.raises(gp.ScheduleError, match=r"device 1 .*\nmemory_limit=\[9000, 5376\] would do$"):
        gp.greedy(2, 6, memory_limit=[9000, 0], profile=profile)
    assert str(gp.greedy(2, 6, memory_limit=5376, profile=profile)) == str(one_by_one(looped(2, 2), 6, False))


@pytest.mark.parametrize("split", [False, True])
def test_a_single_microbatch_needs_no_more_than_it_holds(split):
    """Its forward runs before there are gradients, so it needs less than one that comes after another."""
    placement, priority = v_shaped(2), "IFW" if split else "BF"
    profile = unequal_stages(4, 3, 5)
    least = peaks(one_by_one(placement, 1, split), profile)
    assert peaks(gp.greedy(2, 1, placement, priority, least, profile=profile), profile) == least
    less = [least[0], least[1] - 1]
    with pytest.raises(gp.ScheduleError, match="not even one microbatch after another:\n  device 1 would"):
        gp.greedy(2, 1, placement, priority, less, profile=profile)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"profile": equal_stages(3, 12)}, ValueError, "greedy plans 2 stages, but the profile has 3"),
        ({"profile": equal_stages(2, 5)}, ValueError, "5 samples cannot be cut into 6 microbatches"),
        ({"profile": "big"}, TypeError, r"greedy needs a profile, such as .* \(got 'big'\)"),
        ({"memory_limit": "1 GB"}, TypeError, r"memory_limit in numbers of bytes: one, .*'1 GB'"),
        ({"memory_limit": [9000]}, ValueError, r"one memory_limit, or 2, one per device \(got 1\)"),
        ({"memory_limit": float("nan")}, ValueError, r"memory_limit >= 0 \(got nan\)"),
        ({"memory_limit": -1}, ValueError, r"memory_limit >= 0 \(got -1\)"),
    ],
)
def test_bad_input_is_told_what_would_work(options, error, says):
    with pytest.raises(error, match=says):
        gp.greedy(2, 6, **{"memory_limit": 9000, "profile": equal_stages(2, 12), **options})
