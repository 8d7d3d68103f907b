"""The geometry of a chart: boxes, colours, phase lines, ticks."""

from fractions import Fraction
from itertools import combinations, pairwise

import pytest
from cases import BOTH_WAYS, every_schedule, over, over_every_schedule, overlapped, zero_bubble

from gpipe_sim import (
    ZBH1,
    ZBV,
    Costs,
    DualPipe,
    Explicit,
    GPipe,
    Interleaved1F1B,
    Kind,
    Naive,
    OneFOneB,
    Span,
    Timeline,
    remat,
    simulate,
)
from gpipe_sim.drawing.geometry import (
    ROW_FILL,
    boxes,
    caption,
    has_pairs,
    kinds_drawn,
    legend,
    number,
    phase_lines,
    short,
    ticks,
)
from gpipe_sim.drawing.palette import KINDS, ON_DARK, ON_LIGHT, ink, tint

SMALL = ((1, 1), (2, 3), (3, 2), (4, 8))


@over_every_schedule(SMALL)
def test_a_box_for_every_part_of_every_span_as_wide_as_it_lasts(schedule):
    timeline = simulate(schedule)
    drawn = [(box.x, box.width, int(box.y), box.kind, box.label) for box in boxes(timeline)]
    assert drawn == [
        (span.start, span.end - span.start, span.device, part.kind, str(part.microbatch))
        for span in timeline.spans
        for part in span.action.parts
    ]


@over([*every_schedule(SMALL), overlapped(3, 6), zero_bubble(3, 5)])
def test_boxes_stay_in_their_row_and_apart(schedule):
    timeline = simulate(schedule)
    for device in range(schedule.devices):
        row = [box for box in boxes(timeline) if box.span.device == device]
        assert all(device < box.y and box.y + box.height < device + 1 for box in row)
        for a, b in combinations(row, 2):
            aside = a.x + a.width <= b.x or b.x + b.width <= a.x
            above = a.y + a.height <= b.y + 1e-12 or b.y + b.height <= a.y + 1e-12
            assert aside or above


def test_an_overlapped_pair_is_two_boxes_of_half_height():
    timeline = simulate(Explicit.parse("0F0 (0F1;0B0)OVERLAP_F_B 0B1"))
    pair = [box for box in boxes(timeline) if box.span.start == 1]
    assert [(box.kind, box.label, box.x, box.width) for box in pair] == [("F", "1", 1, 3), ("B", "0", 1, 3)]
    assert [box.height for box in pair] == [ROW_FILL / 2] * 2
    assert pair[0].y + pair[0].height == pytest.approx(pair[1].y)
    assert has_pairs(timeline) and not has_pairs(simulate(GPipe(2, 2)))


def test_exact_costs_give_exact_boxes():
    third = Fraction(1, 3)
    timeline = simulate(Naive(2), Costs(forward=third, input_grad=third, weight_grad=0))
    assert [(box.x, box.width) for box in boxes(timeline)] == [(i * third, third) for i in range(4)]


def test_hovering_names_the_action_and_its_times():
    titles = {box.title for box in boxes(simulate(OneFOneB(2, 1), Costs(comm=Fraction(1, 2))))}
    assert titles == {
        "0F0 0\N{EN DASH}1",
        "1F0 1.5\N{EN DASH}2.5",
        "1B0 2.5\N{EN DASH}4.5",
        "0B0 5\N{EN DASH}7",
    }


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
    assert list(phase_lines(Timeline.from_spans(schedule, spans))) == [(2, 0)]


def test_later_stages_of_a_device_are_paler_and_counted_from_each_device():
    fills = {box.span.action: box.fill for box in boxes(simulate(Interleaved1F1B(2, 2, stages_per_device=3)))}
    for kind in "FB":
        shown = [fills[action] for s in (0, 2, 4) for action in fills if str(action) == f"{s}{kind}0"]
        assert shown[0] == KINDS[kind].colour.lower()
        assert all(brightness(a) < brightness(b) < 255 for a, b in pairwise(shown))
    both = {str(box.span.action): box.fill for box in boxes(simulate(BOTH_WAYS))}
    assert both["0F0"] == both["0F1"] == KINDS["F"].colour.lower()


@pytest.mark.parametrize("shade", [0, 0.15, 0.3, 0.45, 0.54])
@pytest.mark.parametrize("kind", list(Kind))
def test_numbers_are_white_on_blue_and_black_elsewhere_and_can_be_read(kind, shade):
    fill = tint(KINDS[kind].colour, shade)
    assert ink(fill) == (ON_DARK if kind is Kind.F and not shade else ON_LIGHT)
    assert contrast(fill, ink(fill)) > 4.5  # WCAG 2.1, level AA


def test_kinds_can_be_told_apart_in_grey():
    grey = {kind: brightness(KINDS[kind].colour) for kind in (Kind.F, Kind.B, Kind.W)}
    assert all(abs(a - b) > 15 for a, b in combinations(grey.values(), 2))


def test_tint_goes_from_the_colour_to_white():
    assert [tint("#0072B2", shade) for shade in (0, 0.5, 1)] == ["#0072b2", "#80b8d8", "#ffffff"]


def test_the_legend_names_what_is_drawn_and_explains_pale_boxes():
    assert [words for _, _, words in legend(simulate(GPipe(2, 1)))] == [
        "F  forward",
        "B  backward",
        "waiting",
    ]
    words = [words for _, _, words in legend(simulate(remat(Interleaved1F1B(2, 2), "always")))]
    kinds = ["F  forward", "B  backward", "R  recompute"]
    assert words == [*kinds, "waiting", "paler: a later stage", "first B, last F"]
    both = kinds_drawn(simulate(Naive(2)), simulate(zero_bubble(2, 2)))
    assert both == [Kind.F, Kind.B, Kind.I, Kind.W]


@pytest.mark.parametrize(
    ("families", "marked"),
    [
        ([OneFOneB], "first B, last F"),
        ([ZBH1, ZBV], "first I, last F"),
        ([DualPipe], "first B or I, last F"),
        ([OneFOneB, ZBH1], "first B or I, last F"),
    ],
)
def test_the_dashed_lines_are_named_by_the_backwards_that_are_drawn(families, marked):
    *_, (_, _, words) = legend(*(simulate(family(4, 8)) for family in families))
    assert words == marked


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        (OneFOneB(4, 8), "1F1B, 4 devices, 8 microbatches: makespan 33, bubble 27.3%"),
        (
            Interleaved1F1B(4, 8),
            "Interleaved 1F1B, 4 devices with 2 stages each, 8 microbatches: makespan 57",
        ),
        (remat(ZBV(1, 1), "always"), "ZB-V with recompute, 1 device with 2 stages each, 1 microbatch: "),
        (Explicit(["0F0 0B0"]), "An order written out, 1 device, 1 microbatch: makespan 3, bubble 0.0%"),
    ],
    ids=repr,
)
def test_the_caption_says_schedule_makespan_and_bubble(schedule, says):
    """By the names of the papers; a family without one goes by its class."""
    assert caption(simulate(schedule)).startswith(says)
    assert GPipe(1, 1).name == "GPipe"


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


def brightness(colour: str) -> float:
    """How light a colour is in grey, 0 to 255."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue


def contrast(a: str, b: str) -> float:
    """The contrast ratio of WCAG 2.1: from 1, the same, to 21, black on white."""
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
