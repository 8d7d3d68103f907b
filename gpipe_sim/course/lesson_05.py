"""Lesson 05: what makes an order legal."""

from gpipe_sim.course.reply import Reply, almost, correct, keep_working, your_turn
from gpipe_sim.drawing.deadlock import draw_deadlock
from gpipe_sim.drawing.svg import draw
from gpipe_sim.errors import DeadlockError
from gpipe_sim.schedule.actions import Action, Kind, OverlapFB
from gpipe_sim.schedule.base import Schedule, needs
from gpipe_sim.schedule.explicit import Explicit
from gpipe_sim.simulation.costs import Costs
from gpipe_sim.simulation.deadlock import all_waits, cycle, in_words
from gpipe_sim.simulation.machine import Machine
from gpipe_sim.simulation.metrics import idle_spans, peak_in_flight
from gpipe_sim.simulation.problems import problems
from gpipe_sim.simulation.simulate import simulate
from gpipe_sim.simulation.timeline import Timeline

LONG, ROOM = 18, (3, 2, 1)  #: what three devices and four microbatches can do with unit costs
KNOT = Explicit.parse("0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0")
#: What natural wrong guesses at how many needs 0F1, 1F1, 1B1 and 0B1 have together would be.
NEEDS = {
    3: "Is each of them given just one need, or none? How many things does 0B1 read?",
    5: "That is one for each, and two for 0B1. From which stage does 0F1 get its input?",
    7: "That takes the action before it on the row for a need. Does 0F1 read what 0F0 made?",
}
#: What natural wrong guesses at the action that device 0 waits for first would be.
WAITS_FOR = {
    "0B0": "That is the action that waits. What does it read?",
    "0F0": "It is done at 1. Which other thing does the waiting action read?",
    "0F2": "It is done when the wait begins. What ends when the wait does?",
    "1F0": "It is done at 2, before device 0 waits. What does device 1 do next?",
}
#: What natural wrong guesses at the length where device 1 begins with microbatch 2 would be.
LENGTHS = {
    9: "That is a device that never waits. When can device 1 begin?",
    12: "That is the first order. When does the microbatch arrive with which device 1 begins here?",
    18: "That is one device alone. What do the two do at the same time?",
}
#: What natural wrong guesses at the action that ends last in the two rows would be.
LAST = {
    "0B0": "It reads a gradient. Which action makes that, and what stands before it on its row?",
    "0B1": "It stands last on its row. What does the second action on that row wait for?",
    "1B0": "It stands last on its row. What does the first action on that row wait for?",
    "1F1": "It reads what 0F1 makes. What stands before 0F1 on its row?",
}
#: What natural wrong guesses at the orders that can run with blocking sends would be.
BLOCKING = {
    "both": "Device 0 has done 0F1 and sends it. Is device 1 there to receive it, in the early order?",
    "early": "When does the early order go forwards and backwards at the same time? And GPipe?",
    "neither": "Does device 1 send anything in GPipe before it has received all it is to receive?",
}
#: What natural wrong guesses at how much sooner the step ends with stage 0 twice as fast would be.
SOONER = {
    0: "Only the slowest stage would count then. Who waits for the first forward of stage 0?",
    3: "That is all that stage 0 has on the path. How much of it is left at twice the speed?",
    6: "That is half of all the work of stage 0. How much of that work does anybody wait for?",
    12: "That is half of what stage 1 has on the path. What does stage 0 have on it?",
    15: "That is half of the step. Which boxes on the path belong to stage 0?",
}


def follow(schedule: Schedule) -> tuple[str, ...]:
    """The action that ends last and what there is to see: a chart, or what the devices are stuck at."""
    machine = Machine.of(schedule.program, Costs())
    while (entry := machine.earliest()) is not None:
        machine.apply(entry)
        last = str(schedule.program.entry_of(entry))
    try:
        return last, draw(simulate(schedule))
    except DeadlockError as stuck:
        return last, str(stuck), draw_deadlock(schedule)


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
