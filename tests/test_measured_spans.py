"""A timeline made of measured spans."""

import pytest
from cases import overlapped

import gpipe_sim as gp
from gpipe_sim.export.spans import from_spans


def test_a_timeline_is_made_of_spans_in_any_order():
    whole = gp.simulate(overlapped(3, 4), gp.Costs(0.5, 1, 2))
    again = from_spans(whole.schedule, reversed(whole.spans))
    assert again.spans == whole.spans and again.rows == whole.rows and again.ends == whole.ends
    assert (again.messages, len(whole.messages)) == ((), 2 * 2 * 4)


BACKWARDS = gp.Explicit(gp.OneFOneB(2, 4).actions[::-1], placement=[[1], [0]])  #: device 1 starts


@pytest.mark.parametrize("schedule", [gp.OneFOneB(2, 4), BACKWARDS])
@pytest.mark.parametrize("began", [1_763_870_866.25, 10**18, 0])
def test_the_clock_of_the_spans_may_have_begun_long_ago(began, schedule):
    """Of time.time(), or of nanoseconds: the bubble was 0.99999."""
    whole = gp.simulate(schedule, gp.Costs(1, 2, 3))
    later = [span._replace(start=began + span.start, end=began + span.end) for span in whole.spans]
    timeline = from_spans(whole.schedule, iter(later))
    assert timeline.spans == whole.spans and timeline.began == began
    assert gp.bubble_fraction(timeline) == gp.bubble_fraction(whole)
    assert repr(timeline).endswith(f", began at {began}>" if began else ": makespan 30>")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda spans: spans[:-1], "0B1 of OneFOneB(devices=2, microbatches=2) was not measured"),
        (lambda spans: [*spans, spans[0]], "0F0 is measured twice"),
        (
            lambda spans: [spans[0]._replace(device=1), *spans[1:]],
            "0F0 is measured on device 1, but OneFOneB(",
        ),
        (lambda spans: [spans[0]._replace(action=gp.core.I(0, 0)), *spans[1:]], "0I0 is not in OneFOneB"),
        (lambda spans: [spans[0]._replace(action=gp.core.F(9, 0)), *spans[1:]], "9F0 is not in OneFOneB"),
    ],
)
def test_spans_that_are_no_step_of_the_schedule_are_refused(change, says):
    timeline = gp.simulate(gp.OneFOneB(2, 2))
    with pytest.raises(ValueError) as refused:
        from_spans(timeline.schedule, change(list(timeline.spans)))
    assert says in str(refused.value)


def test_spans_that_contradict_the_order_are_refused():
    schedule = gp.Explicit(["0F0 0R0 0F1 0B0 0B1"])
    times = {"0F0": (0, 1), "0F1": (1, 2), "0R0": (2, 3), "0B0": (3, 5), "0B1": (5, 7)}
    spans = [gp.core.Span(gp.core.Action.parse(text), 0, *map(float, when)) for text, when in times.items()]
    with pytest.raises(
        ValueError, match=r"0F1 is measured before 0R0, but Explicit\(.*\) has it after: give"
    ):
        from_spans(schedule, spans)
    ran = gp.Explicit([[span.action for span in spans]])
    assert gp.why.idle_spans(from_spans(ran, spans), 0) == []


@pytest.mark.parametrize("times", [(2.0, 1.0), (float("nan"), 1.0), (0.0, float("inf"))])
def test_spans_without_a_length_are_refused(times):
    timeline = gp.simulate(gp.Naive(1))
    spans = [timeline.spans[0]._replace(start=times[0], end=times[1]), timeline.spans[1]]
    with pytest.raises(ValueError, match=r"0F0 (is measured from 2.0 to 1.0|needs (start|end) to be finite)"):
        from_spans(timeline.schedule, spans)
