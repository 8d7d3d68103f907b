"""Links: latency, bandwidth, queues, topologies; and devices that are busy while they send and receive."""

from fractions import Fraction
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from cases import every_order, over
from plain_links import linked

import gpipe_sim as gp
from gpipe_sim import Costs, Link, Nodes
from gpipe_sim.core import B, Kind
from gpipe_sim.core.device import Device
from gpipe_sim.core.numbers import CostColumn
from gpipe_sim.core.timeline import Message
from gpipe_sim.why import why_idle

SIZES = [(1, 3), (3, 2), (4, 8)]
COSTS = [Costs(), Costs(2, 3, 1), Costs(0, 0, 0), Costs(Fraction(1, 3), 1, Fraction(1, 2), comm=2)]
HALF = Fraction(1, 2)


def as_drawn(timeline: gp.core.Timeline) -> tuple[dict, dict]:
    spans = {span.action: (span.start, span.end) for span in timeline.spans}
    return spans, {(each.action, each.target): (each.start, each.end) for each in timeline.messages}


class Sizes:
    """In place of a profile: messages of these bytes, by what made them."""

    require_within = None

    def __init__(self, of):
        self.of = of

    def message_bytes(self, schedule: gp.core.Schedule) -> CostColumn:
        program = schedule.program
        made = [program.action_of(part) for part in program.needs[program.crosses].tolist()]
        return CostColumn([self.of[action] for action in made], np.arange(len(made)))


@pytest.mark.parametrize("overlap", [True, False])
@over(every_order(SIZES))
def test_every_time_is_that_of_a_plain_clock_for_each_device_and_link(schedule, overlap):
    """Also where only a short message waits for a long one, or the second of a pair for the first: it was
    easy to take the link for one that is never full."""
    chance = Random(repr(schedule))
    devices = range(schedule.devices)
    drawn = {
        (a, b): Link(chance.choice([0, 1, HALF]), chance.choice([1, HALF, Fraction(1, 3), 5]))
        for a in devices
        for b in devices
        if a != b
    }
    parts = [part for row in schedule.actions for action in row for part in action.parts]
    for costs, sizes, link in (
        (Costs(2, 3, 1), (1, 2), None),
        (Costs(0, 0, 0), (1,), None),
        (Costs(), (1, 8), Link(0, 4)),
        (Costs(), (1,), Link(1, 5)),
    ):
        links, size = link or drawn, {part: chance.choice(sizes) for part in parts}
        found = gp.simulate(schedule, costs, links=links, profile=Sizes(size), overlap=overlap)
        way = links.__getitem__ if link is None else lambda pair: link  # noqa: B023
        wanted = linked(schedule, costs, lambda *pair: way(pair), size.get, overlap)  # noqa: B023
        assert as_drawn(found) == wanted


@over(every_order(SIZES))
def test_a_link_that_is_never_full_is_a_constant_delay(schedule):
    for costs in COSTS:
        latency = Costs(costs.forward, costs.input_grad, costs.weight_grad, comm=costs.comm + 3)
        assert as_drawn(gp.simulate(schedule, costs, links=Link(3))) == as_drawn(
            gp.simulate(schedule, latency)
        )


def test_messages_on_one_link_go_one_at_a_time_in_the_order_of_the_senders_row():
    timeline = gp.simulate(gp.GPipe(2, 3), links=Link(latency=1, bandwidth=HALF), message_bytes=1)
    forward = [(str(m.action), m.start, m.end) for m in timeline.messages if m.source == 0]
    assert forward == [("0F0", 1, 4), ("0F1", 3, 6), ("0F2", 5, 8)]
    assert [span.start for span in timeline.on(1)[:3]] == [4, 6, 8]


def test_inside_a_node_messages_are_fast_and_between_nodes_slow():
    links = Nodes(2, inside=Link(), between=Link(latency=5))
    timeline = gp.simulate(gp.GPipe(4, 1), links=links)
    late = {(each.source, each.target): each.end - each.start for each in timeline.messages}
    assert late == {(0, 1): 0, (1, 2): 5, (2, 3): 0, (3, 2): 0, (2, 1): 5, (1, 0): 0}


# Bytes


def small(stages: int) -> tuple[list[gp.core.Partition], tuple]:
    rng = np.random.default_rng(0)
    layers = [
        gp.transformers.PaddingMask(),
        gp.transformers.Embedding(9, 4, rng=rng),
        *gp.mlp([4, *range(5, 4 + stages), 6]),
    ]
    layers += [gp.transformers.SequenceMean(), gp.core.Linear(6, 3, rng=rng, dtype=np.float32)]
    text = rng.integers(9, size=(11, 5))
    return gp.split(layers, stages=stages), (text, np.arange(11) % 3)


@over(every_order([(2, 4)]))
def test_messages_have_the_bytes_that_devices_send(schedule, monkeypatch):
    sent = {}
    send = Device._send

    def noted(self, kind, stage, m, message):
        if self.peers[self.inputs.homes[stage][m]] is not self:
            arrays = message if isinstance(message, tuple) else (message,)
            sent[kind, stage, m] = sum(array.nbytes for array in arrays)
        send(self, kind, stage, m, message)

    monkeypatch.setattr(Device, "_send", noted)
    partitions, batch = small(schedule.stages)
    gp.train_step(partitions, schedule, batch, gp.cross_entropy, optimizer=gp.SGD(0.1))
    column = gp.profile(partitions, batch, gp.cross_entropy).message_bytes(schedule)
    program = schedule.program
    parts = map(program.action_of, program.needs[program.crosses].tolist())
    found = {}
    for part, price in zip(parts, column.index.tolist(), strict=True):
        kind, step = (Kind.F, 1) if part.kind is Kind.F else (Kind.B, -1)
        found[kind, part.stage + step, part.microbatch] = column.values[price]
    assert found == sent


def test_a_profile_gives_a_link_the_bytes_that_it_carries():
    partitions, batch = small(2)
    profile = gp.profile(partitions, batch, gp.cross_entropy)
    timeline = gp.simulate(gp.GPipe(2, 1), links=Link(bandwidth=10), profile=profile)
    [there, back] = sorted(timeline.messages)
    values = profile.message_bytes(gp.GPipe(2, 1)).values
    assert {there.end - there.start, back.end - back.start} <= {Fraction(each, 10) for each in values}
    with pytest.raises(ValueError, match="has 3 stages, but the profile has 2"):
        gp.simulate(gp.GPipe(3, 1), links=Link(bandwidth=10), profile=profile)


@pytest.mark.parametrize("overlap", [True, False])
@over(every_order(SIZES))
def test_bytes_may_be_said_for_all_messages_or_for_each_boundary_between_stages(schedule, overlap):
    chance = Random(repr(schedule))
    between = np.array([chance.choice([1, 2, 7]) for _ in range(schedule.stages - 1)])
    link = Link(1, HALF)

    def size(part):
        return between[part.stage - (part.kind is not Kind.F)].item()

    for said, size_of in ((between, size), (between.tolist(), size), (3, lambda part: 3)):
        found = gp.simulate(schedule, links=link, message_bytes=said, overlap=overlap)
        assert as_drawn(found) == linked(schedule, Costs(), lambda *pair: link, size_of, overlap)


# Refused


ORDER, NARROW = gp.GPipe(3, 2), Link(bandwidth=4)
PROFILE = gp.profile(*small(3), gp.cross_entropy)


@pytest.mark.parametrize(
    ("links", "how", "says"),
    [
        (NARROW, {}, r"profile=profile\(partitions, batch, loss\), or message_bytes=, such as"),
        (Nodes(2, Link(), NARROW), {}, "how large messages are, because links have a bandwidth"),
        (NARROW, {"profile": PROFILE, "message_bytes": 1}, "a profile, or message_bytes=: not both"),
        (None, {"message_bytes": 1}, "and so does message_bytes=: such as links="),
        (NARROW, {"message_bytes": [1, 2, 3]}, r"one for each stage but the last: 2 of them \(got \[1, 2, 3"),
        (NARROW, {"message_bytes": -1}, "message_bytes to be finite and >= 0"),
        (NARROW, {"message_bytes": [1, "x"]}, "each of message_bytes to be a number"),
        (NARROW, {"message_bytes": "12"}, "message_bytes to be a number, or a list"),
    ],
)
def test_where_bandwidth_counts_bytes_have_to_be_said_once(links, how, says):
    """A message was 1 byte where nobody said how large it is, and crossed 25 GB/s in no time."""
    with pytest.raises((TypeError, ValueError), match=says):
        gp.simulate(ORDER, links=links, **how)
    if links:
        with pytest.raises((TypeError, ValueError), match=says):
            gp.links.simulate_shared(ORDER, links, **how)


def test_latency_alone_needs_no_bytes_nor_does_a_link_that_nothing_crosses():
    wide = {(0, 1): Link(1), (1, 0): Link(2), (0, 2): NARROW}
    assert gp.simulate(gp.GPipe(2, 2), links=wide).makespan == 12
    assert gp.simulate(gp.GPipe(1, 2), links=NARROW).makespan == 6


# Why


@over(every_order(SIZES))
def test_the_critical_path_runs_through_messages_and_those_that_they_wait_for(schedule):
    timeline = gp.simulate(schedule, Costs(1, 2, 1), links=Link(bandwidth=HALF), message_bytes=1)
    path = gp.why.critical_path(timeline)
    assert path[0].start == 0 and path[-1].end == timeline.makespan
    for before, after in pairwise(path):
        assert before.end == after.start
        if isinstance(before, Message) and isinstance(after, Message):
            assert before[1:3] == after[1:3], "it waited for another message on its link"
        elif isinstance(after, Message):
            assert after.action in before.action.parts
        elif isinstance(before, Message) or before.device != after.device:
            assert set(before.action.parts) & set(gp.core.needs(after.action, schedule))


def test_a_device_that_does_not_compute_while_it_sends_and_receives_is_said_to_do_that():
    """It was said to wait for nothing."""
    timeline = gp.simulate(gp.GPipe(2, 2), links=Link(bandwidth=1), overlap=False, message_bytes=1)
    assert str(why_idle(timeline, 0, 1)) == "device 0 sends or receives from 1 to 2"
    assert str(why_idle(timeline, 1, 4)) == "device 1 sends or receives from 4 to 5"
    assert str(why_idle(timeline, 1, 0)) == (
        "device 1 waits from 0 to 3, before its first action, for 0F0, which device 0 runs from 0 to 1 and "
        "which arrives at 2; device 1 receives what 0F0 made until 3"
    )


@over(every_order([(3, 2), (4, 4)]))
def test_no_gap_of_a_simulated_timeline_is_without_a_reason(schedule):
    for overlap in (True, False):
        links = Link(bandwidth=HALF)
        timeline = gp.simulate(schedule, Costs(1, 2, 1), links=links, overlap=overlap, message_bytes=1)
        for device in range(schedule.devices):
            for start, end in gp.why.idle_spans(timeline, device):
                says = str(why_idle(timeline, device, (start + end) / 2))
                assert "nothing that the schedule knows of" not in says, says


def test_why_a_device_waits_names_the_message_on_the_link():
    timeline = gp.simulate(gp.GPipe(2, 3), links=Link(latency=1, bandwidth=Fraction(1, 4)), message_bytes=1)
    assert str(why_idle(timeline, 1, 8)) == (
        "device 1 waits from 7 to 10 for 0F1, which device 0 runs from 1 to 2 and which waits until 5 for "
        "the link, where 0F0 is, and arrives at 10"
    )
    assert str(why_idle(timeline, 1, 0)).endswith("which device 0 runs from 0 to 1 and which arrives at 6")


def test_an_update_does_not_wait_until_another_copy_has_sent_its_gradient_on():
    slow = gp.Nodes(3, gp.Link(0, 1), gp.Link(0, 0.1))
    schedule = gp.with_updates(gp.replicate(gp.GPipe(2, 1), 2))
    ends = gp.simulate(schedule, gp.Costs(update=1), links=slow, overlap=False, message_bytes=1).ends
    assert (ends[B(1, 0)], ends[B(1, 1)], ends[gp.core.U(1, 0)]) == (6, 24, 25)
