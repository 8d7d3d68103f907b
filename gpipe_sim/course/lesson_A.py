"""Lesson A: every schedule on one page."""

import operator
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache

from gpipe_sim.core.bubbles import peak_in_flight
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import number as written
from gpipe_sim.course.build import exercise
from gpipe_sim.course.called import called
from gpipe_sim.course.reply import Reply, almost, correct, is_number, keep_working
from gpipe_sim.errors import Real
from gpipe_sim.families import SCHEDULES

#: devices, microbatches, the most microbatches that a device may hold, and how long a message is on its way
HIDDEN: tuple[tuple[int, int, Real, Fraction], ...] = (
    (4, 8, 3, Fraction(0)),
    (4, 8, 8, Fraction(0)),
    (6, 12, 5, Fraction(1)),
    (8, 16, Fraction(7, 2), Fraction(0)),
    (2, 4, 2, Fraction(0)),
    (3, 7, 4, Fraction(1, 2)),  # the fifth family refuses this size, and the fastest comes after it
    (3, 9, 5, Fraction(1)),
    (4, 12, 5, Fraction(1, 2)),
    (5, 7, 9, Fraction(1, 2)),
    (4, 8, 4, Fraction(2)),
    (4, 8, 2, Fraction(0)),  # from here on what the cases above never ask for: V-Min, ZB-H1 and GPipe
    (3, 6, 3, Fraction(1)),
    (4, 8, 8, Fraction(4)),
    (4, 8, 4, Fraction(0)),  # without ZB-V it is V-Half; who times halves as wholes says ZB-H1
)
FAMILIES = {family.__name__: family for family in SCHEDULES}

Cut = Callable[[Schedule], int]  # into how many stages a device's work on a microbatch is cut


@exercise("write a function of (devices, microbatches, limit, comm) and pass it in")
def fastest_within(answer: Callable | None) -> Reply:
    """Check ``answer(devices, microbatches, limit, comm)``: a class out of SCHEDULES.

    The right class has the shortest step of those whose fullest device holds at most the activations of
    ``limit`` microbatches. If several are equally fast, any of them is right.
    """
    given = []
    for case in HIDDEN:
        got = called(answer, *case, where=f"called {_where(*case)}")
        name = getattr(got, "__name__", None)
        if name not in FAMILIES:
            return _no_class(case, got)
        given.append(name)
    wrong = [(case, name) for case, name in zip(HIDDEN, given, strict=True) if name not in _fastest(*case)]
    if not wrong:
        return correct("nothing within the limit is faster, at any size, limit and link tried")
    return _the_mistake(given, *wrong[0]) or _what_is_wrong(*wrong[0])


def _no_class(case: tuple, got: object) -> Reply:
    if got is None:
        question = "you give nothing back. Does no schedule fit, or is there no return?"
        return keep_working(f"{_where(*case)} {question}")
    said = f"a list of {len(got)}" if isinstance(got, list | tuple) and len(got) > 1 else repr(got)
    said = written(got) if is_number(got) else said
    return keep_working(f"{_where(*case)} you say {said}. Which class of gp.SCHEDULES is that?")


def _stages_per_device(schedule: Schedule) -> int:
    """Stages per device, where a stage counts once if there are two copies of it, as in Chimera: 1, not 2."""
    return schedule.stages // schedule.devices


def _whole(schedule: Schedule) -> int:
    return 1


def _each_of_those_held(schedule: Schedule) -> int:
    return len(schedule.placement[0])


def _every(devices: int, microbatches: int) -> Iterator[Schedule]:
    """The families that are defined for this size."""
    for family in SCHEDULES:
        try:
            yield family(devices, microbatches)
        except ValueError:
            continue


@cache
def _length(schedule: Schedule, comm: Real, cut: Cut = _stages_per_device) -> Real:
    return simulate(schedule, Costs(comm=comm).per_stage(cut(schedule))).makespan


def _holds(schedule: Schedule) -> Real:
    return Fraction(max(_peaks(schedule)), _stages_per_device(schedule))


@cache
def _peaks(schedule: Schedule) -> tuple[int, ...]:
    return tuple(peak_in_flight(schedule))


def _fastest(
    devices: int,
    microbatches: int,
    limit: Real,
    comm: Real,
    *,
    time: Cut = _stages_per_device,
    memory: Cut = _stages_per_device,
    sent: Cut = _whole,
    held: Callable = max,
    within: Callable = operator.le,
) -> set[str]:
    """The names of the fastest families within the limit; the options stand for ways to get this wrong."""
    lengths = {
        type(schedule).__name__: _length(schedule, Fraction(comm) / sent(schedule), time)
        for schedule in _every(devices, microbatches)
        if within(Fraction(held(_peaks(schedule)), memory(schedule)), limit)
    }
    return {name for name, length in lengths.items() if length == min(lengths.values())}


def _the_mistake(given: list[str], case: tuple, name: str) -> Reply | None:
    """A reply to someone whose answers all follow from one known mistake; None if they do not."""
    says = f"{_where(*case)} you say {name}"
    mistakes = (
        ({"time": _whole}, "How long is one of two stages that share a device's layers?"),
        ({"memory": _whole}, "How much of a microbatch is one of two stages that share a device's layers?"),
        ({"time": _whole, "memory": _whole}, "Is a stage the same share of the model in every schedule?"),
        (
            {"time": _each_of_those_held, "memory": _each_of_those_held},
            "Are Chimera's two stages on a device halves of its share, or copies of two devices' shares?",
        ),
        ({"time": _each_of_those_held}, "Does a second copy make a stage shorter?"),
        ({"sent": _stages_per_device}, "How long is a message on its way in your simulation?"),
        ({"held": lambda peaks: peaks[0]}, "Is device 0 always the fullest?"),
        ({"within": operator.lt}, "May the fullest device hold exactly as much as the limit?"),
        ({"held": min}, "Must every device stay within the limit, or only one?"),
    )
    for options, question in mistakes:
        if all(name in _fastest(*case, **options) for case, name in zip(HIDDEN, given, strict=True)):
            return almost(f"{says}. {question}")
    if all(name in _fastest(*case[:3], Fraction(0)) for case, name in zip(HIDDEN, given, strict=True)):
        return almost(f"{says}. Which schedules can work on something else while a message travels?")
    return None


def _what_is_wrong(case: tuple, name: str) -> Reply:
    devices, microbatches, limit, comm = case
    says = f"{_where(*case)} you say {name}"
    try:
        schedule = FAMILIES[name](devices, microbatches)
    except ValueError as error:
        return keep_working(f"{says}, which is not defined there: {error}")
    if _holds(schedule) > limit:
        held = written(_holds(schedule))
        return keep_working(
            f"{says}, whose fullest device holds {held} microbatches. Is that within {written(limit)}?"
        )
    shortest = min(_length(FAMILIES[each](devices, microbatches), comm) for each in _fastest(*case))
    return keep_working(
        f"{says}, which takes {written(_length(schedule, comm))}; the shortest within the limit takes "
        f"{written(shortest)}. Did you try them all, and how long are they in your simulation?"
    )


def _where(devices: int, microbatches: int, limit: Real, comm: Real) -> str:
    size = f"K={devices}, M={microbatches}"
    return f"for {size}, limit {written(limit)} and messages that take {written(comm)}"
