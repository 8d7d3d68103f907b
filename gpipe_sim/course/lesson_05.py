"""Lesson 05: what makes an order legal."""

from gpipe_sim.course.reply import Reply, almost, correct, keep_working, your_turn
from gpipe_sim.schedule.actions import Action, Kind, OverlapFB
from gpipe_sim.schedule.base import Schedule, needs
from gpipe_sim.schedule.explicit import Explicit
from gpipe_sim.simulation.deadlock import all_waits, cycle, in_words
from gpipe_sim.simulation.metrics import idle_spans, peak_in_flight
from gpipe_sim.simulation.problems import problems
from gpipe_sim.simulation.simulate import simulate
from gpipe_sim.simulation.timeline import Timeline

LONG, ROOM = 18, (3, 2, 1)  #: what three devices and four microbatches can do with unit costs
KNOT = Explicit.parse("0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0")


def short_and_small(answer: str | Schedule | None) -> Reply:
    """Check an order for 3 devices and 4 microbatches that takes 18 and holds at most 3, 2 and 1."""
    if answer is None:
        return your_turn(
            "write three rows as text, one per device: twelve forwards and twelve backwards in all"
        )
    schedule = _sound(answer, devices=3, microbatches=4)
    if isinstance(schedule, Reply):
        return schedule
    timeline, peaks = simulate(schedule), peak_in_flight(schedule)
    if timeline.makespan > LONG:
        return almost(_too_long(timeline, peaks))
    extra = [peak - room for peak, room in zip(peaks, ROOM, strict=True)]
    if max(extra) > 0:
        bought = "the extra forward" if max(extra) == 1 else "the extra forwards"
        return almost(f"also {LONG}, but peaks {_listed(peaks)}. What did {bought} buy?")
    return correct(f"{LONG} long, peaks {_listed(peaks)}. Could the same rule serve 4 devices?")


def unlock(answer: str | Schedule | None) -> Reply:
    """Check that the lesson's deadlocked order can run after one swap of two actions within a row."""
    if answer is None:
        return your_turn("write the two rows again, with two actions of one row exchanged")
    schedule = _sound(answer, KNOT.devices, KNOT.microbatches)
    if isinstance(schedule, Reply):
        return schedule
    took, moved = simulate(schedule).makespan, _moved(schedule)
    if len(moved) > 2:
        names = ", ".join(map(str, moved))
        return almost(f"it runs and takes {took}, but {names} stand elsewhere now. Is one swap enough?")
    peaks = _listed(peak_in_flight(schedule))
    return correct(f"it runs and takes {took}; the devices hold at most {peaks}. Why does one hold two?")


def _sound(answer: str | Schedule, devices: int, microbatches: int) -> Schedule | Reply:
    """The answer as a schedule that can run, or what is wrong with it."""
    if isinstance(answer, Schedule):
        answer = str(answer)
    if not isinstance(answer, str):
        return keep_working(f"write the rows as one text, such as '0F0 0B0' (got {type(answer).__name__})")
    rows = sum(bool(line.strip()) for line in answer.splitlines())
    if rows != devices:
        return keep_working(f"one row for each of the {devices} devices, please (got {rows})")
    placement = [(device,) for device in range(devices)]
    try:
        schedule = Explicit.parse(answer, placement=placement, microbatches=microbatches)
    except ValueError as error:
        return keep_working(str(error))
    every = (action for row in schedule.actions for action in row)
    if other := next((action for action in every if not _is_whole(action)), None):
        return keep_working(f"{other} is neither a forward nor a backward; use those, each once")
    found = problems(schedule)
    if not found:
        return schedule
    if found[-1].rule == "stuck":
        return keep_working(f"{in_words(cycle(all_waits(schedule)))}.")
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return keep_working(f"{found[0].sentence}{more}")


def _is_whole(action: Action | OverlapFB) -> bool:
    return len(action.parts) == 1 and action.parts[0].kind in (Kind.F, Kind.B)


def _moved(schedule: Schedule) -> list[Action]:
    """The actions that stand in another place of their row than in the deadlocked order."""
    return [
        action
        for before, after in zip(KNOT.actions, schedule.actions, strict=True)
        for was, action in zip(before, after, strict=True)
        if was != action
    ]


def _too_long(timeline: Timeline, peaks: tuple[int, ...]) -> str:
    """Where the last device, which could work without a break, waits; or what starts or ends too late."""
    last = timeline.schedule.devices - 1
    row = timeline.on(last)
    says = f"it takes {timeline.makespan}, with peaks {_listed(peaks)}"
    gaps = [(a, b) for a, b in idle_spans(timeline, last) if row[0].end <= a < row[-1].start]
    if gaps:
        start, end = gaps[0]
        held_up = next(span.action for span in row if span.start == end)
        late = needs(held_up, timeline.schedule)[0]
        return f"{says}. Device {last} waits from {start} to {end} for {late}. What keeps {late} so long?"
    if row[0].start > last:
        late = f"starts at {row[0].start}, and could at {last}"
        return f"{says}. Device {last} {late}. What do the others do first?"
    left = f"is done at {row[-1].end}; the others go on until {timeline.makespan}"
    return f"{says}. Device {last} {left}. What have they put off?"


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))
