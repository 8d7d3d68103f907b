"""A simulated and a measured step on one time axis: the numbers, and what is drawn where."""

import math
import re
from fractions import Fraction
from itertools import pairwise
from textwrap import dedent
from xml.etree import ElementTree

import pytest
from cases import over_every_order, overlapped, zero_bubble
from drawn import assert_inside, bounds, chart_of, elements, pixels, time_axis, words_in
from measured import PLANNED, measured

from gpipe_sim import (
    ZBV,
    Costs,
    Explicit,
    GPipe,
    Naive,
    OneFOneB,
    bubble_fraction,
    fit_costs,
    overlay,
    simulate,
)
from gpipe_sim.core.actions import Kind
from gpipe_sim.drawing.geometry import boxes
from gpipe_sim.drawing.overlay import Compared, Overlay, _claim
from gpipe_sim.export.spans import from_spans
from gpipe_sim.families import DualPipeV

SLOWER = Costs(22, 20, 24)
SEVERAL = [OneFOneB(4, 8), ZBV(4, 8), GPipe(2, 4), DualPipeV(3, 6), OneFOneB(20, 3), Naive(1)]


def jittered(schedule) -> Overlay:
    return overlay(simulate(schedule, PLANNED), measured(schedule))


def test_makespan_and_bubble_are_pairs_with_their_error():
    both = jittered(OneFOneB(4, 8))
    assert both.makespan == (660, both.measured.makespan)
    assert both.makespan.error == both.measured.makespan / 660 - 1
    assert both.bubble == (bubble_fraction(both.simulated), bubble_fraction(both.measured))
    assert both.bubble.simulated == 3 / 11


@over_every_order([(2, 3), (4, 8)])
def test_a_timeline_overlaid_with_itself_has_no_error(schedule):
    both = overlay(simulate(schedule, PLANNED), simulate(schedule, PLANNED))
    assert both.makespan.error == both.bubble.error == 0


def test_nothing_simulated_and_something_measured_is_an_infinite_error():
    assert Compared(0, 3).error == math.inf
    assert Compared(0, 0).error == 0
    assert Compared(Fraction(1, 2), Fraction(3, 4)).error == Fraction(1, 2)


def test_an_infinite_error_is_a_dash():
    free = overlay(simulate(GPipe(1, 1), Costs(0, 0, 0)), simulate(GPipe(1, 1)))
    assert "makespan 0 and 3 (-), bubble 0.0% and 0.0%" in str(free.drawing)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (GPipe(2, 3), "0B2 is on device 0 in the measured one only"),
        (zero_bubble(2, 2), "0B0 is on device 0 in the simulated one only"),
        (
            Explicit(["0F0 0F1 1F1 0B0 1B1 0B1", "1F0 1B0"], placement=[[0, 1], [1]]),
            "1B1 is on device 0 in the measured one only",
        ),
    ],
)
def test_other_actions_are_refused_by_name(other, said):
    with pytest.raises(ValueError, match="overlay needs two timelines of the same actions: ") as error:
        overlay(simulate(GPipe(2, 2)), simulate(other))
    assert str(error.value).endswith(said)


@pytest.mark.parametrize("value", [GPipe(2, 2), None, "timeline"], ids=repr)
def test_anything_but_two_timelines_is_refused(value):
    for pair in ((value, simulate(GPipe(2, 2))), (simulate(GPipe(2, 2)), value)):
        with pytest.raises(TypeError, match="overlay needs a timeline, such as simulate"):
            overlay(*pair)


def test_another_order_of_the_same_actions_can_be_compared_but_not_one_action_less():
    both = overlay(simulate(GPipe(2, 3)), simulate(GPipe(2, 3, drain="in_order")))
    assert both.makespan == (12, 12)
    whole = simulate(zero_bubble(1, 1))
    less = from_spans(Explicit(["0F0 0I0"]), whole.spans[:-1])
    with pytest.raises(ValueError, match=r"0W0 is on device 0 in the simulated one only$"):
        overlay(whole, less)


@pytest.mark.parametrize("schedule", SEVERAL, ids=repr)
def test_each_device_has_two_lanes_close_together_with_the_boxes_of_both_where_their_times_are(schedule):
    """The simulated one is half as high and on top. Times are read to a tenth of a pixel."""
    both = jittered(schedule)
    chart = chart_of(str(both.drawing))
    lanes = [bounds(lane) for lane in chart.lanes]
    thin, full = lanes[: schedule.devices], lanes[schedule.devices :]
    assert [lane[2] for lane in thin] == pytest.approx([float(both.makespan.simulated)] * len(thin), rel=0.01)
    assert [lane[2] for lane in full] == pytest.approx([float(both.makespan.measured)] * len(full), rel=0.01)
    for device, (above, below) in enumerate(zip(thin, full, strict=True)):
        assert 0 < below[1] - above[3] < (above[3] - above[1]) / 2
        assert (above[3] - above[1]) / (below[3] - below[1]) == pytest.approx(0.42 / 0.86, abs=0.03)
        assert not device or above[1] - full[device - 1][3] > 3 * (below[1] - above[3])
    zero, unit = time_axis(elements(ElementTree.fromstring(str(both.drawing))))
    found = sorted((title, (left - zero) / unit) for left, *_, title in pixels(str(both.drawing)))
    starts = sorted((box.title, box.x) for each in (both.simulated, both.measured) for box in boxes(each))
    assert [title for title, _ in found] == [title for title, _ in starts]
    assert [x for _, x in found] == pytest.approx([float(x) for _, x in starts], abs=0.3 / unit)


def test_rows_and_devices_are_named():
    said = [word.words for word in words_in(str(jittered(OneFOneB(4, 8)).drawing))]
    assert [said.count(name) for name in ("simulated", "measured")] == [4, 4]
    assert [word for word in said if word.startswith("device")] == [f"device {k}" for k in range(4)]
    assert any(re.fullmatch(r"1F1B: measured \d+\.\d% longer than simulated", words) for words in said)
    flat = [word.words for word in words_in(str(jittered(OneFOneB(40, 1)).drawing))]
    assert "simulated" not in flat and "device 0" in flat, "rows too low for the names of lanes"
    assert "makespan 660 and 710.1 (+7.6%), bubble 27.3% and 28.8%" in said


@pytest.mark.parametrize("schedule", [*SEVERAL, overlapped(3, 6)], ids=repr)
def test_nothing_is_drawn_outside_the_sheet_or_on_top_of_another_box(schedule):
    both = jittered(schedule)
    width, _ = assert_inside(str(both.drawing))
    assert width <= 880
    by_row: dict[float, list] = {}
    for left, top, right, _, _ in pixels(str(both.drawing)):
        by_row.setdefault(top, []).append((left, right))
    for row in by_row.values():
        assert all(right <= left + 0.11 for (_, right), (left, _) in pairwise(sorted(row)))


def test_a_fitted_simulation_lies_closer_than_the_plan():
    step = measured(OneFOneB(4, 8), seed=1)
    planned = overlay(simulate(step.schedule, PLANNED), step)
    fitted = overlay(simulate(step.schedule, fit_costs(step)), step)
    assert 0 < fitted.makespan.error < planned.makespan.error / 2


def test_actions_in_a_pair_are_left_out_of_the_errors():
    """One pair takes 6 where its halves take 3 + 3: only what stands alone in both is compared."""
    schedule = Explicit(["0F0 (0F1;0B0)OVERLAP_F_B 0B1"])
    step = measured(schedule, Costs(3, 1, 2), noise=0)
    both = overlay(simulate(schedule, Costs(2, 1, 2, overlap=6)), step)
    assert both.durations == {Kind.F: (2, pytest.approx(3)), Kind.B: (3, pytest.approx(3))}


def test_its_text_is_a_table():
    schedule = OneFOneB(4, 8)
    both = overlay(simulate(schedule, PLANNED), simulate(schedule, SLOWER))
    assert str(both) == dedent("""\
        OneFOneB(devices=4, microbatches=8)
                         simulated  measured   error
        makespan               660       726  +10.0%
        bubble fraction      27.3%     27.3%   +0.0%
        mean forward            20        22  +10.0%
        mean backward           40        44  +10.0%""")


def test_a_headline_says_how_much_longer_or_shorter_and_nothing_of_what_cannot_be_said():
    assert _claim(0.1) == "measured 10.0% longer than simulated"
    assert _claim(-0.1) == "measured 10.0% shorter than simulated"
    assert _claim(math.inf) == _claim(0) == "simulated above, measured below"
