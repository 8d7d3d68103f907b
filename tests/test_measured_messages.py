"""Timelines whose messages were measured: all of them, some, or none."""

import re
from dataclasses import replace

import pytest
from planted import measured_with

import gpipe_sim as gp
from gpipe_sim.core import F, Span
from gpipe_sim.core.timeline import Message
from gpipe_sim.export import from_json, to_json
from gpipe_sim.export.spans import from_spans
from gpipe_sim.why import critical_path, why_idle

ORDER = gp.OneFOneB(2, 2)
WHOLE = gp.simulate(ORDER, gp.Costs(2, 1, 2, comm=3))


def again(messages, began=0.0, notes=()):
    spans = [span._replace(start=span.start + began, end=span.end + began) for span in WHOLE.spans]
    moved = [each._replace(start=each.start + began, end=each.end + began) for each in messages]
    return from_spans(ORDER, spans, messages=moved, notes=notes)


@pytest.mark.parametrize("began", [0, 1e12, 1_763_870_866_250.25])
def test_messages_come_back_as_they_were_measured(began):
    timeline = again(WHOLE.messages, began, notes=["the clocks agree to 0.1"])
    assert [each[:3] for each in timeline.messages] == [each[:3] for each in WHOLE.messages]
    for there, here in zip(timeline.messages, WHOLE.messages, strict=True):
        assert there[3:] == pytest.approx(here[3:], abs=1e-3)
    assert timeline.notes == ("the clocks agree to 0.1", "4 of 4 messages were measured")
    assert timeline.measured and not WHOLE.measured and not from_spans(ORDER, WHOLE.spans).messages


def test_others_take_as_long_as_usual_between_their_devices_but_are_there_when_they_are_needed():
    """0F1 is asked for at 10, so it arrived by then; gradients take 3, as the one that was measured."""
    first, *_, gradient = WHOLE.messages
    timeline = again([first._replace(end=first.end - 1), gradient])
    arrived = {each.action: (each.start, each.end) for each in timeline.messages}
    assert arrived[F(0, 0)] == (2, 4) and arrived[F(0, 1)] == (4, 6)
    for each in timeline.messages:
        if each.source == 1:
            assert each.end - each.start == 3
    assert timeline.notes == (
        "2 of 4 messages were measured",
        "1 of 2 messages from device 0 to device 1 are assumed to take as long as usual",
        "1 of 2 messages from device 1 to device 0 are assumed to take as long as usual",
    )
    assert [each.end - each.start for each in again([]).messages] == [0] * 4


def test_it_goes_through_json_with_its_notes():
    timeline = again(WHOLE.messages[:1], 1e9, notes=["by hand"])
    found = from_json(to_json(timeline))
    assert (found.notes, found.messages, found.began) == (timeline.notes, timeline.messages, 1e9)
    assert found.measured and '"notes"' not in to_json(WHOLE)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"end": 6}, "left at 2 and arrived at 6, but its action ended at 2, and what needs it started at 5"),
        ({"start": 1}, "left at 1 and arrived at 5, but its action ended at 2"),
        ({"start": 4.5, "end": 4}, "left at 4.5 and arrived at 4"),
        ({"target": 0}, "of 0F0 from device 0 to device 0 was measured, but OneFOneB(.*) has none such"),
        ({"action": F(1, 0)}, "the message of 1F0 from device 0 to device 1 was measured, but"),
        ({"end": float("nan")}, "needs end to be finite"),
    ],
)
def test_messages_that_cannot_be_are_refused(change, says):
    first = next(each for each in WHOLE.messages if each.action == F(0, 0))
    with pytest.raises(ValueError, match=says):
        from_spans(ORDER, WHOLE.spans, messages=[first._replace(**change)])


def test_a_message_twice_and_what_is_none_are_refused():
    first = WHOLE.messages[0]
    with pytest.raises(ValueError, match="the message of 0F0 from device 0 to device 1 is measured twice"):
        from_spans(ORDER, WHOLE.spans, messages=[first, first])
    with pytest.raises(TypeError, match=r"from_spans needs messages, such as Message\(F\(0, 0\), source=0"):
        from_spans(ORDER, WHOLE.spans, messages=["0F0"])
    with pytest.raises(TypeError, match="from_spans needs notes, a list of sentences"):
        from_spans(ORDER, WHOLE.spans, notes="assumed")


SLOW = {"links": {(1, 2): 12}}


def gap_before(timeline, text):
    """A time in the wait before an action."""
    span = next(span for row in timeline.rows for span in row if str(span.action) == text)
    return span.device, span.start - 1


def test_a_slow_link_is_named_where_messages_were_measured_and_not_where_they_were_not():
    slow = measured_with(gp.OneFOneB(4, 8), **SLOW)
    at = gap_before(slow, "2F0")
    came = next(each for each in slow.messages if (each.action, each.target) == (F(1, 0), 2))
    said = str(why_idle(slow, *at))
    assert "1F0, which device 1 runs from 7.8" in said and f"which arrives at {came.end:.4g}" in said
    assert came.end - came.start == pytest.approx(12, rel=0.03) and "assumed" not in said
    assert "messages were not measured" in str(why_idle(measured_with(gp.OneFOneB(4, 8), None, **SLOW), *at))
    crossed = {(each.source, each.target) for each in critical_path(slow) if isinstance(each, Message)}
    assert (1, 2) in crossed


def test_messages_that_were_filled_in_are_said_to_be_assumed():
    slow = measured_with(gp.OneFOneB(4, 8), 0.5, **SLOW)
    device, time = gap_before(slow, "2F0")
    count = re.search(
        r"; (\d) of 8 messages from device 1 to device 2 are assumed$", str(why_idle(slow, device, time))
    )
    assert count and 0 < int(count[1]) < 8
    assert (
        f"{count[1]} of 8 messages from device 1 to device 2 are assumed to take as long as usual"
        in slow.notes
    )


def test_a_pause_behind_the_message_is_told_apart_from_it():
    late = measured_with(gp.OneFOneB(4, 8), pauses={"before 2F0": 40})
    assert re.search(
        r"; most of that is later: 2F0 could start at 15\.\d+$", str(why_idle(late, *gap_before(late, "2F0")))
    )
    early = from_spans(
        gp.Explicit(["0F0 0B0"]), [Span(F(0, 0), 0, 0, 1), Span(gp.core.B(0, 0), 0, 5, 7)], messages=[]
    )
    assert "waits from 1 to 5 for nothing that the schedule knows of" in str(why_idle(early, 0, 3))


def test_links_are_fitted_by_pair():
    fitted = gp.fit_costs(measured_with(gp.OneFOneB(4, 8), 0.5, **SLOW))
    assert fitted.links[1, 2].latency == pytest.approx(12, abs=0.2)
    assert all(
        link.latency == pytest.approx(0.5, abs=0.1) for pair, link in fitted.links.items() if pair != (1, 2)
    )
    assert (
        fitted.transfer(F(1, 0), 1, 2) == fitted.links[1, 2].latency
        and fitted.transfer(F(0, 0), 0, 9) == fitted.comm
    )
    assert abs(fitted.error) < 0.02
    assert fitted.overhead == pytest.approx((0.3,) * 4, abs=0.05)
    faster = (
        gp.simulate(gp.OneFOneB(4, 8), fitted).makespan
        - gp.simulate(gp.OneFOneB(4, 8), fitted.plain).makespan
    )
    assert faster > 12, "plain costs have one time for all messages"


def test_links_take_the_place_of_messages_and_are_not_paid_twice():
    order, links = (
        gp.OneFOneB(3, 4),
        {(0, 1): gp.Link(5), (1, 0): gp.Link(1), (1, 2): gp.Link(2), (2, 1): gp.Link(0)},
    )
    timeline = gp.simulate(order, links=links)
    fitted = gp.fit_costs(timeline)
    assert fitted.links == links and fitted.error == 0
    free = gp.simulate(order, replace(fitted, comm=0, by_pair=()), links=fitted.links)
    assert free.makespan == timeline.makespan == gp.simulate(order, fitted).makespan


def test_bandwidth_is_read_off_messages_of_several_sizes():
    order, link = gp.OneFOneB(4, 4), gp.Link(latency=1, bandwidth=8)
    long = gp.Costs(10, 10, 10)  # no message waits for another
    timeline = gp.simulate(order, long, links=link, message_bytes=[16, 32, 8])
    links = gp.fit_costs(timeline, message_bytes=[16, 32, 8]).links
    assert set(links.values()) == {link} and len(links) == 6
    alike = gp.simulate(order, long, links=link, message_bytes=16)
    assert set(gp.fit_costs(alike, message_bytes=16).links.values()) == {gp.Link(3)}
    with pytest.raises(ValueError, match="fit_costs needs message_bytes to be a number, or a list"):
        gp.fit_costs(timeline, message_bytes=[1, 2])


def test_fitted_costs_are_costs_and_go_through_json():
    fitted = gp.fit_costs(measured_with(gp.ZBV(4, 8), 0.5))
    found = from_json(to_json(fitted))
    assert found == fitted and type(found) is type(fitted) and found.error == fitted.error
    assert gp.simulate(gp.ZBV(4, 8), found).spans == gp.simulate(gp.ZBV(4, 8), fitted).spans
    assert fitted != fitted.plain and hash(fitted) == hash(fitted.plain)
    with pytest.raises(ValueError, match=r"Costs lists .* for 8 stages, but the schedule has 4"):
        gp.simulate(gp.OneFOneB(4, 8), fitted)
    with pytest.raises(ValueError, match=r"(overhead for 4|the jitter of 4) devices, but"):
        gp.simulate(gp.Interleaved1F1B(2, 8, 4), fitted)
