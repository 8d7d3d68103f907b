"""The geometry of a chart, boxes, waits, phase lines and ticks; and what it says in words."""

from fractions import Fraction
from types import SimpleNamespace

import pytest
from cases import BOTH_WAYS, every_order, over, overlapped, zero_bubble

from gpipe_sim import (
    ZBV,
    Costs,
    Explicit,
    GPipe,
    Interleaved1F1B,
    Link,
    Naive,
    OneFOneB,
    PipeDream,
    remat,
    simulate,
    with_updates,
)
from gpipe_sim.core import Kind, Span
from gpipe_sim.core.timeline import number
from gpipe_sim.drawing import geometry
from gpipe_sim.drawing.geometry import (
    LANE_HIGH,
    Rows,
    boxes,
    kinds_drawn,
    long_waits,
    phase_lines,
    stage_shades,
    ticks,
)
from gpipe_sim.drawing.text import short
from gpipe_sim.drawing.words import caption, durations, size, slow_hop, title
from gpipe_sim.export.spans import from_spans
from gpipe_sim.why import idle_spans


def test_an_overlapped_pair_is_two_boxes_of_half_height():
    timeline = simulate(Explicit.parse("0F0 (0F1;0B0)OVERLAP_F_B 0B1"))
    pair = [box for box in boxes(timeline) if box.span.start == 1]
    assert [(box.kind, box.label, box.x, box.width) for box in pair] == [("F", "1", 1, 3), ("B", "0", 1, 3)]
    assert [box.height for box in pair] == [LANE_HIGH / 2] * 2
    assert pair[0].y + pair[0].height == pytest.approx(pair[1].y)


@over(every_order(((2, 3), (4, 8))))
def test_long_waits_are_the_idle_spans_of_a_twelfth_of_the_makespan_or_more(schedule):
    timeline = simulate(schedule, Costs(comm=1))
    expected = [
        (device, (start + end) / 2, end - start, "done, " if end == timeline.makespan else "")
        for device in range(schedule.devices)
        for start, end in idle_spans(timeline, device)
        if (end - start) * 12 >= timeline.makespan
    ]
    found = list(long_waits(timeline, Rows()))
    assert [(label.x, label.width, label.words, label.y) for label in found] == [
        (middle, long, f"{done}waits {number(long)}", Rows().y(device, 0.5))
        for device, middle, long, done in expected
    ]


def test_no_words_stand_where_an_arrow_between_two_other_devices_passes():
    """Looped: from device 3 back to 0, from 2.75 to 3 and, with the gradient, from 10.5 to 10.75."""
    rows = [[f"{k}F0", f"{k + 4}F0", f"{k + 4}B0", f"{k}B0"] for k in range(4)]
    looped = Explicit([" ".join(row) for row in rows], placement=[[k, k + 4] for k in range(4)])
    timeline = simulate(looped, Costs(0.5, 0.5, 0.5, comm=0.25))
    rows = Rows()
    every = {(each.x, each.y) for each in long_waits(timeline, rows)}
    clear = {(each.x, each.y) for each in long_waits(timeline, rows, arrows=True)}
    passed = {(x, y) for x, y in every if 0.5 < y < 3}
    assert {y for x, y in passed if (x, y) not in clear} == {rows.y(1, 0.5), rows.y(2, 0.5)}
    assert clear < every and {each for each in every if each not in passed} <= clear
    for device in (1, 2):
        for start, end in idle_spans(timeline, device):
            crossed = any(start < at < end for at in (2.8, 10.6))
            middle = (start + end) / 2, rows.y(device, 0.5)
            assert (middle in clear) == (middle in every and not crossed)


def test_the_words_of_a_wait_keep_off_the_lines_of_collectives(monkeypatch):
    """Lines go from strip to strip: they cross the lanes below the first that takes part, to the last."""
    sums = [SimpleNamespace(devices=(0, 2), start=4), SimpleNamespace(devices=(2, 0), start=-1)]
    monkeypatch.setattr(geometry, "collectives_of", lambda _: sums)
    found = [geometry._widest(0, 10, None, device) for device in range(4)]
    assert found == [(0, 10), (4, 10), (4, 10), (0, 10)]
    monkeypatch.setattr(geometry, "collectives_of", lambda _: [])
    monkeypatch.setattr(geometry, "_widest", lambda *_: (4.0, 10.0))
    assert {(wait.x, wait.width) for wait in long_waits(simulate(GPipe(2, 2)), Rows())} == {(7, 6)}


def test_a_device_does_not_wait_while_an_earlier_action_is_still_running():
    """Measured actions of one device may overlap, as those of two CUDA streams do."""
    schedule = Explicit(["0F0 0B0"])
    forward, backward = schedule.actions[0]
    spans = [Span(forward, 0, 0, 10), Span(backward, 0, 2, 3)]
    assert list(long_waits(from_spans(schedule, spans), Rows())) == []


def test_a_device_without_actions_is_not_done_but_waits():
    schedule = Explicit(["0F0 0B0", ""], placement=[[0], []])
    assert [(wait.y, wait.words) for wait in long_waits(simulate(schedule), Rows())] == [(1.5, "waits 3")]


@pytest.mark.parametrize(
    ("schedule", "lines"),
    [
        (Naive(2), []),  # with one microbatch there is nothing to part
        (Naive(2, 2), []),  # nor where each microbatch goes back at once
        (GPipe(2, 2), [(2, 0), (5, 0), (3, 1)]),
        (OneFOneB(2, 3), [(4, 0), (7, 0), (2, 1), (8, 1)]),
        (
            Explicit(["0F0 0F1 0B0 0B1", ""], placement=[[0], []]),
            [(2, 0)],
        ),  # a device with nothing to do has no phases
    ],
    ids=repr,
)
def test_lines_part_warm_up_steady_state_and_drain(schedule, lines):
    assert list(phase_lines(simulate(schedule))) == lines


@pytest.mark.parametrize("row", ["1F0 1F1", "1B0 1B1"])
def test_a_device_on_which_only_forwards_or_only_backwards_were_measured_has_no_phases(row):
    schedule = Explicit(["0F0 0F1 0B0 0B1", row])
    spans = [Span(a, k, at, at + 1) for k, row in enumerate(schedule.actions) for at, a in enumerate(row)]
    assert list(phase_lines(from_spans(schedule, spans))) == [(2, 0)]


def test_later_stages_of_a_device_are_paler_and_counted_from_each_device():
    shades = {box.span.action: box.shade for box in boxes(simulate(Interleaved1F1B(2, 2, 3)))}
    for kind in (Kind.F, Kind.B):
        of_device_0 = [
            shades[action] for action in sorted(shades) if action.kind == kind and not action.stage % 2
        ]
        assert of_device_0 == pytest.approx([0, 0, 0.2, 0.2, 0.4, 0.4])
    both = {str(box.span.action): box.shade for box in boxes(simulate(BOTH_WAYS))}
    assert both["0F0"] == both["0F1"] == 0
    assert stage_shades(BOTH_WAYS) == [{0: 0, 1: 0.3}] * 2


def test_kinds_are_listed_in_the_order_of_the_palette():
    assert kinds_drawn(simulate(zero_bubble(2, 2))) == [Kind.F, Kind.I, Kind.W]
    assert kinds_drawn(simulate(remat(GPipe(2, 2), "always"))) == [Kind.F, Kind.B, Kind.R]
    assert kinds_drawn(simulate(PipeDream(2, 2), Costs(update=1))) == [Kind.F, Kind.B, Kind.U]
    assert kinds_drawn(simulate(PipeDream(2, 2))) == [Kind.F, Kind.B]  # nobody sees updates that take no time


# Words


@pytest.mark.parametrize(
    ("timeline", "claims", "says"),
    [
        (
            simulate(OneFOneB(4, 8)),
            "1F1B: 33 long, 27.3% waiting",
            "4 devices, 8 microbatches; F takes 1, B 2",
        ),
        (
            simulate(Interleaved1F1B(4, 8), Costs(0.5, 0.25, 0.25)),
            "Interleaved 1F1B: 19 long, 15.8% waiting",
            "4 devices with 2 stages each, 8 microbatches; F takes 0.5, B 0.5",
        ),
        (
            simulate(remat(ZBV(1, 1), "always")),
            "ZB-V with recompute: 8 long, 0.0% waiting",
            "1 device with 2 stages each, 1 microbatch; F takes 1, I 1, W 1, R 1",
        ),
        (
            simulate(Explicit(["0F0 0B0"]), Costs(1, [2], 3)),
            "An order written out: 6 long, 0.0% waiting",
            "1 device, 1 microbatch; F takes 1, B 5",
        ),
        (
            simulate(PipeDream(2, 4)),
            "PipeDream: 15 long, 20.0% waiting",
            "2 devices, 4 microbatches, an update after each; F takes 1, B 2, U 0",
        ),
        (
            simulate(with_updates(GPipe(1, 2))),
            "An order written out: 6 long, 0.0% waiting",
            "1 device, 2 microbatches; F takes 1, B 2, U 0",
        ),
        (
            simulate(GPipe(2, 2), Costs([1, 2], 1, 1)),
            "GPipe: 11 long, 36.4% waiting",
            "2 devices, 2 microbatches; F takes 1 to 2, B 2",
        ),
        (
            simulate(overlapped(2, 3)),
            "An order written out: 15 long, 40.0% waiting",
            "2 devices, 3 microbatches; F takes 1, B 2, F&B 3",
        ),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_the_title_is_a_claim_and_the_caption_says_what_was_run(timeline, claims, says):
    """By the names of the papers; how long an action takes, from the shortest to the longest of its kind."""
    assert (title(timeline), caption(timeline)) == (claims, says)


def test_updates_that_come_unevenly_are_counted():
    for row, says in (
        ("0F0 0B0 0U0 0F1 0B1 0U1 0F2 0F3 0B2 0B3 0U3", "3 updates"),
        ("0F0 0F1 0B0 0B1 0U1 0F2 0B2 0U2 0F3 0B3 0U3", "3 updates"),
        ("0F0 0F1 0B0 0B1 0U1 0F2 0F3 0B2 0B3 0U3", "an update after every 2"),
    ):
        assert size(Explicit([row])).endswith(f"4 microbatches, {says}")


def test_rounding_is_no_difference_between_actions():
    """A tenth is no machine number, so ends minus starts differ in their last digits."""
    assert durations(simulate(OneFOneB(4, 8), Costs(0.1, 0.1, 0.1))) == "F takes 0.1, B 0.2"
    spans = [span._replace(end=span.end + 1e-6 * span.device) for span in simulate(GPipe(2, 1)).spans]
    assert durations(from_spans(GPipe(2, 1), spans)) == "F takes 1, B 2"
    assert durations(simulate(GPipe(2, 1), Costs((1, 3), 1, (1, 2)))) == "F takes 1 to 3, B 2 to 3"


# Numbers


@pytest.mark.parametrize(
    ("until", "expected"),
    [
        (0, [0]),
        (12, list(range(13))),
        (13, [0, 2, 4, 6, 8, 10, 12]),
        (33, [0, 5, 10, 15, 20, 25, 30]),
        (57, [0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55]),
        (Fraction(3, 4), [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]),
        (0.0021, [0, 0.0002, 0.0004, 0.0006, 0.0008, 0.001, 0.0012, 0.0014, 0.0016, 0.0018, 0.002]),
    ],
)
def test_ticks_are_round_and_few(until, expected):
    assert ticks(until) == expected


def test_fewer_ticks_can_be_asked_for():
    assert ticks(12, at_most=24) == list(range(13)), "no halves of what comes in wholes"
    assert ticks(33, at_most=4) == [0, 10, 20, 30]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (3.0, "3"),
        (Fraction(1, 3), "0.3333"),
        (1234567, "1234567"),
        (0.5, "0.5"),
        (674.3124, "674.3"),
        (12345.6, "12346"),
    ],
)
def test_numbers_are_written_short(value, text):
    assert number(value) == text


def test_an_action_is_named_with_its_stage_only_where_needed():
    one, two = GPipe(2, 2), Interleaved1F1B(2, 2)
    assert [short(action, one) for action in one.actions[1][:2]] == ["F0", "F1"]
    assert [short(action, two) for action in two.actions[1][:2]] == ["1F0", "1F1"]


def test_the_caption_names_the_slowest_hop_where_messages_are_drawn():
    links = {(0, 1): Link(1), (1, 2): Link(5), (2, 3): Link(1)}
    timeline = simulate(OneFOneB(4, 8), links=links | {(b, a): link for (a, b), link in links.items()})
    assert caption(timeline, messages=True).endswith("; the slowest hop, 1 to 2: 5")
    assert "hop" not in caption(timeline)
    assert slow_hop(simulate(OneFOneB(4, 8), Costs(comm=2))) == slow_hop(simulate(GPipe(1, 1))) == ""
