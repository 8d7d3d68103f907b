"""Gradients summed over links after a pipeline: when, for how long, and what waits for it."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from cases import every_schedule, over

import gpipe_sim as gp
from gpipe_sim import Link, all_reduce, replicate, with_updates
from gpipe_sim.core import Kind, Timeline, busy_time, idle_time
from gpipe_sim.links.collective import Collective
from gpipe_sim.replicas.all_reduce import ring_time
from gpipe_sim.why import critical_path, why_idle

SLOW = Link(latency=1, bandwidth=1)  #: 1 for each round, and 1 for each byte
SIZES = [(1, 2), (2, 3), (4, 8)]
OTHER = [(2, 4), (4, 5)]


# The time of a ring


def walked(links: list[Link], size) -> Fraction:
    """When the last piece arrives, move by move: a piece leaves when it is there and its link is free."""
    devices = len(links)
    free, last = [0] * devices, 0
    there = {(device, device): 0 for device in range(devices)}
    for _, source, target, piece, _ in gp.replicas.ring_moves(devices):
        leaves = max(there[source, piece], free[source])
        free[source] = leaves + links[source].busy(Fraction(size, devices))
        there[target, piece] = free[source] + links[source].latency
        last = max(last, there[target, piece])
    return last


def test_rounds_on_links_that_differ_are_those_of_a_walk_from_move_to_move():
    rng = np.random.default_rng(0)
    for turn in range(60):
        devices = int(rng.integers(2, 17 if turn % 2 else 8))
        links = [Link(int(rng.integers(0, 9)), int(rng.integers(1, 5))) for _ in range(devices)]
        size = int(rng.integers(0, 100))
        alike, link = [links[0]] * devices, links[0]
        alpha_beta = gp.formulas.ring_all_reduce_time(devices, size, link.latency, link.bandwidth)
        assert ring_time(alike, size) == walked(alike, size) == alpha_beta
        found = ring_time(links, size)
        assert found == walked(links, size)
        slowest = Link(max(link.latency for link in links), min(link.bandwidth for link in links))
        assert found <= ring_time([slowest] * devices, size)
        assert found >= 2 * (devices - 1) * slowest.busy(Fraction(size, devices))


# Laws


@pytest.mark.parametrize("replicas", [1, 2, 3])
@over(every_schedule(SIZES))
def test_what_is_summed_and_when(schedule, replicas):
    timeline = gp.simulate(replicate(schedule, replicas), gp.Costs(2, 3, 1, comm=1))
    summed = all_reduce(timeline, 3, links=SLOW)
    program, ended = timeline.schedule.program, {}
    for span in timeline.spans:
        for part in span.action.parts:
            if part.kind in (Kind.B, Kind.W):
                ended.setdefault(part.stage, {})[span.device] = span.end
    several = {stage: ends for stage, ends in ended.items() if len(ends) > 1}
    assert sorted(each.stage for each in summed.collectives) == sorted(several)
    assert len(several) == (program.stages if replicas > 1 else len(several))
    for each in summed.collectives:
        assert each.devices == tuple(sorted(several[each.stage]))
        earlier = [
            other.end
            for other in summed.collectives
            if other.start < each.start and {*other.devices} & {*each.devices}
        ]
        assert each.start == max([*several[each.stage].values(), *earlier])
        assert each.end - each.start == gp.formulas.ring_all_reduce_time(len(each.devices), 3, 1, 1)
    assert summed.spans == timeline.spans and summed.messages == timeline.messages
    assert summed.makespan == max([timeline.makespan, *(each.end for each in summed.collectives)])
    more = (summed.makespan - timeline.makespan) * program.devices
    assert busy_time(summed) == busy_time(timeline)
    assert idle_time(summed) == idle_time(timeline) + more, "what is not hidden is waiting"
    [*_, norm] = [None, *all_reduce(timeline, 3, links=SLOW, clip=True).collectives]
    assert norm is None if program.devices == 1 else norm.start == max(norm_after(timeline, summed))
    for device in range(program.devices):
        mine = [each for each in summed.collectives if device in each.devices]
        assert all(a.end <= b.start for a, b in pairwise(mine)), "one at a time"


def norm_after(timeline: Timeline, summed: Timeline) -> list:
    """When there is what the norm needs: all sums, and the gradients of stages that nobody shares."""
    made = (s.end for s in timeline.spans if {part.kind for part in s.action.parts} & {Kind.B, Kind.W})
    return [*made, *(each.end for each in summed.collectives)]


@over(every_schedule(OTHER))
def test_the_critical_path_goes_through_what_ends_last(schedule):
    timeline = all_reduce(gp.simulate(replicate(schedule, 2)), 3, links=SLOW)
    path = critical_path(timeline)
    assert path[-1].end == timeline.makespan and path[0].start == 0
    assert all(b.start <= a.end for a, b in pairwise(path)), "without a gap"
    assert isinstance(path[-1], Collective)
    for device in range(timeline.schedule.devices):
        assert why_idle(timeline, device, timeline.makespan).end <= timeline.makespan


# Buckets


def test_buckets_overlap_with_the_last_backward():
    """Two devices, a backward of 8 from 4 on, 8 bytes: 8 + 2 when all at once; in 4 parts of 2 the first is
    ready at 6, and each takes 2 rounds of 1 byte."""
    timeline = gp.simulate(replicate(gp.GPipe(1, 1), 2), gp.Costs(4, 4, 4))
    starts = {}
    for buckets in (1, 2, 4):
        summed = all_reduce(timeline, 8, links=Link(bandwidth=1), buckets=buckets)
        starts[buckets] = [(each.start, each.end, each.bytes) for each in summed.collectives]
    assert starts == {
        1: [(12, 20, 8)],
        2: [(8, 12, 4), (12, 16, 4)],
        4: [(6, 8, 2), (8, 10, 2), (10, 12, 2), (12, 14, 2)],
    }


@over(every_schedule(OTHER))
def test_without_latency_buckets_never_make_a_step_longer_and_move_the_same_bytes(schedule):
    timeline = gp.simulate(replicate(schedule, 2), gp.Costs(2, 3, 2))
    plain, parted = (all_reduce(timeline, 6, links=Link(bandwidth=2), buckets=n) for n in (1, 3))
    assert sum(each.bytes for each in parted.collectives) == sum(each.bytes for each in plain.collectives)
    if schedule.program.stages == schedule.program.devices and len(schedule.placement[0]) == 1:
        assert parted.makespan <= plain.makespan
    for stage in range(schedule.stages):
        mine = [each for each in parted.collectives if each.stage == stage]
        [whole] = [each for each in plain.collectives if each.stage == stage]
        assert len(mine) == 3 and mine[0].start <= whole.start


# What updates wait for


def test_clipping_is_a_barrier():
    """Without it a stage is updated when its own gradient is there; with it, when all gradients are."""
    schedule = with_updates(gp.OneFOneB(4, 8))
    timeline = gp.simulate(schedule, gp.Costs(update=1))
    updates = {span.device: span.start for span in timeline.spans if span.action.kind is Kind.U}
    assert updates == {0: 33, 1: 31, 2: 29, 3: 27}
    clipped = all_reduce(timeline, 4, links=SLOW, clip=True)
    [norm] = clipped.collectives
    assert (norm.what, norm.stage, norm.devices, norm.start, norm.end) == ("norm", None, (0, 1, 2, 3), 33, 51)
    after = {span.device: (span.start, span.end) for span in clipped.spans if span.action.kind is Kind.U}
    assert after == dict.fromkeys(range(4), (51, 52))
    assert (timeline.makespan, clipped.makespan) == (34, 52)
    assert critical_path(clipped)[-2:] == (norm, clipped.on(3)[-1]), "any of the four"
    assert str(why_idle(clipped, 3, 40)) == (
        "device 3 waits from 27 to 51 for the norm on devices 0 1 2 3, 33\u201351"
    )


# Refused

TIMELINE = gp.simulate(replicate(gp.GPipe(2, 2), 2))


def test_an_action_behind_an_update_that_waits_is_refused():
    early = gp.Explicit(["0F0 0B0 0U0 1F0 1B0 1U0"], placement=[[0, 1]])
    assert gp.problems(early)
    rows = gp.Explicit(["0F0 2F0 2B0 2U0 0B0 0U0", "1F0 1B0 1U0"], placement=[[0, 2], [1]])
    timeline = gp.simulate(rows)
    with pytest.raises(ValueError, match=r"0B0 stands behind an update that waits until .* device 0's row"):
        all_reduce(timeline, 4, links=SLOW, clip=True)


def test_rings_of_as_many_devices_on_other_links_take_other_times():
    fast, slow = Link(latency=1, bandwidth=100), Link(latency=5, bandwidth=100)
    links = {(0, 2): fast, (2, 0): fast, (1, 3): slow, (3, 1): slow}
    summed = all_reduce(TIMELINE, 400, links=links)
    assert {each.stage: each.end - each.start for each in summed.collectives} == {0: 6, 1: 14}


@pytest.mark.parametrize("buckets", [1, 3])
def test_a_sum_of_no_bytes_does_not_wait_for_itself(buckets):
    """The critical path of a model without weights, clipped, went round in a circle and never came back."""
    clipped = all_reduce(TIMELINE, 0, links=Link(bandwidth=1), buckets=buckets, clip=True)
    *_, last_backward, norm = (each for each in critical_path(clipped) if each.end > each.start)
    assert (last_backward.end, norm.start, norm.end) == (
        TIMELINE.makespan,
        TIMELINE.makespan,
        clipped.makespan,
    )
