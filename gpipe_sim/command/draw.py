"""a schedule as a grid of text with its numbers, or as a chart

The schedule is a family of some size, or a file as for check. Without -o the grid is printed: a row for each
device, a column for each unit of time. With -o a chart is written, over one of the same name: SVG, PDF or
PNG, as its name says. Of an order that deadlocks the chart shows who waits for whom.

examples:
  gpipe-sim draw 1F1B 4 8
  gpipe-sim draw zb-h1 4 8 --times 1 1.2 0.8 --comm 0.5
  gpipe-sim draw interleaved-1f1b 4 8 --stages-per-device 3 --in-flight -o interleaved.svg
  gpipe-sim draw order.txt --times 1 2
"""

import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

from gpipe_sim.command.answer import Answer, numbers
from gpipe_sim.command.orders import Order, read_order, timed
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.numbers import quotient
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.timeline import number
from gpipe_sim.drawing.deadlock import draw_deadlock
from gpipe_sim.drawing.svg import draw
from gpipe_sim.errors import DeadlockError, Real
from gpipe_sim.families import SCHEDULES, WITHOUT_FLUSH

FAMILIES: tuple[Any, ...] = SCHEDULES + WITHOUT_FLUSH  # called with options that not all of them have


def shown_name(family) -> str:
    """As its paper has it."""
    return family.name if isinstance(family.name, str) else family.__name__


def plain(name: str) -> str:
    """The same for ZB-H1, ZBH1 and zb_h1."""
    return re.sub("[^a-z0-9]", "", name.lower())


NAMES = {plain(name): family for family in FAMILIES for name in (family.__name__, shown_name(family))}
KNOWN = f"the families are {', '.join(map(shown_name, FAMILIES))}"


def add(parser: ArgumentParser) -> None:
    parser.usage = "%(prog)s FAMILY DEVICES MICROBATCHES [options]\n       %(prog)s FILE [options]"
    what = "three words, such as 1F1B 4 8, or one: a file, or - for stdin"
    parser.add_argument("what", nargs="+", metavar="FAMILY ... | FILE", help=f"{what}; {KNOWN}")
    times = "of a stage, for a microbatch: F B or F I W, where B is I and W"
    parser.add_argument("--times", nargs="+", type=exact, metavar="T", help=f"{times} (default: 1 1 1)")
    parser.add_argument("--comm", type=exact, default=0, metavar="T", help="of a message (default: 0)")
    parser.add_argument("--stages-per-device", type=int, metavar="V", help="where a family leaves it open")
    parser.add_argument("--in-flight", action="store_true", help="in the chart: what each device holds")
    parser.add_argument("--critical-path", action="store_true", help="in the chart: what sets its length")
    parser.add_argument("-o", metavar="FILE", help="the chart: .svg, .pdf or .png")


def exact(text: str) -> Real:
    """A time as Python's own exact number."""
    if not re.fullmatch(r"[0-9]{1,18}(/[0-9]{0,17}[1-9][0-9]{0,17}|\.[0-9]{1,18})?|\.[0-9]{1,18}", text):
        raise ArgumentTypeError(f"{text!r} is no time: write one such as 2, 0.5 or 1/3")
    time = Fraction(text)
    return int(time) if time == int(time) else time


def answer(asked: Namespace) -> Answer:
    if not asked.o and (asked.in_flight or asked.critical_path):
        raise ValueError("--in-flight and --critical-path are of a chart: say where with -o chart.svg")
    costs = costs_of(asked.times, asked.comm)
    order = asked_for(asked.what, asked.stages_per_device)
    try:
        timeline = timed(order, costs)
    except DeadlockError as hang:
        if not asked.o:
            raise
        draw_deadlock(order).save(asked.o)
        return Answer(f"{hang}\nchart      {asked.o}", 1)
    said = "\n".join([numbers(timeline), *shared_out(order, costs)])
    if not asked.o:
        return Answer(f"{timeline}\n\n{said}")
    draw(timeline, in_flight=asked.in_flight, critical_path=asked.critical_path).save(asked.o)
    return Answer(f"{said}\nchart      {asked.o}")


def costs_of(times: list[Real] | None, comm: Real) -> Costs:
    forward, *backward = times or (1, 1, 1)
    if len(backward) not in (1, 2):
        raise ValueError(f"--times needs two or three numbers, F B or F I W (got {1 + len(backward)})")
    input_grad, weight_grad = backward if len(backward) == 2 else [quotient(backward[0], 2)] * 2
    return Costs(forward, input_grad, weight_grad, comm=comm)


def asked_for(words: list[str], stages_per_device: int | None) -> Order:
    what, *sizes = words
    if len(sizes) == 2:
        return of_family(what, sizes[0], sizes[1], stages_per_device)
    if sizes or (plain(what) in NAMES and not Path(what).exists()):
        raise ValueError("a family needs devices and microbatches, as in 1F1B 4 8; a file stands alone")
    if stages_per_device is not None:
        raise ValueError("--stages-per-device is of a family; a file says itself which stages a device holds")
    if what != "-" and not Path(what).exists():
        raise ValueError(f"{what!r} is no file, and no family: {KNOWN}")
    return read_order(what)


def of_family(name: str, devices: str, microbatches: str, stages_per_device: int | None) -> Schedule:
    meant = {each for known, each in NAMES.items() if plain(known).startswith(plain(name))}
    family = NAMES.get(plain(name)) or (meant.pop() if len(meant) == 1 else None)
    if family is None:
        raise ValueError(f"{name!r} is no family: {KNOWN}")
    sizes = [size_of(*each) for each in (("DEVICES", devices), ("MICROBATCHES", microbatches))]
    if stages_per_device is None:
        return family(*sizes)
    if "stages_per_device" not in {field.name for field in fields(family)}:
        has = family.stages_per_device
        raise ValueError(f"{shown_name(family)} takes no --stages-per-device: it always has {has}")
    return family(*sizes, stages_per_device=stages_per_device)


def size_of(name: str, text: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", text):
        raise ValueError(f"{name} has to be a whole number (got {text!r})")
    return int(text)


def shared_out(order: Order, costs: Costs) -> list[str]:
    """Of several stages on a device: how long it is if all of them together take these times.

    Else a family with more stages would look slower than one with fewer, only because it has more work.
    """
    schedule = order if isinstance(order, Schedule) else order.schedule
    each, uneven = divmod(schedule.stages, schedule.devices)
    if each <= 1 or uneven:
        return []
    fair = timed(order, costs.per_stage(each)).makespan
    return [f"equal work {number(fair)} long, if all {each} stages of a device together take these times"]
