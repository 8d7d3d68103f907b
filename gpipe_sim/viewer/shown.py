"""What a page opens with, as JSON: schedules as orders with their costs, timelines as their times.

A page calculates in doubles. Whole numbers and fractions become doubles here, once; where that changes a
number, the page says so.
"""

from collections.abc import Sequence
from dataclasses import fields
from fractions import Fraction
from math import inf
from typing import Any

from gpipe_sim.core.costs import UNIT, Costs
from gpipe_sim.core.remat import Remat
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.errors import Real, got
from gpipe_sim.export.records import written
from gpipe_sim.families import SCHEDULES, WITHOUT_FLUSH
from gpipe_sim.links.links import Link, Links, Nodes

EXACT = 2**53  #: whole numbers up to this are doubles
ROUNDED = "Times are calculated in doubles: a cost that is no double, such as 1/3, is the nearest one here."
FIXED = "Costs of a class of one's own have rules that no page can run: these times stay as they are."
Record = dict[str, Any]


def of_schedule(
    schedule: Schedule,
    costs: Costs | None,
    links: Links | None,
    message_bytes: Real | Sequence[Real] | None,
    sizes: Any,
    limit: Sequence[Real] | None,
) -> Record:
    """The record of a schedule that runs again in the page, under costs that its reader changes."""
    return {
        "schedule": _schedule(schedule),
        "costs": {field.name: _plain(getattr(costs or UNIT, field.name)) for field in fields(Costs)},
        "links": _links(links),
        "message_bytes": _plain(message_bytes),
        "sizes": sizes,
        "limit": limit and [None if most == inf else _plain(most) for most in limit],
        "times": None,
    }


def of_timeline(timeline: Timeline) -> Record:
    """The record of what has its times already: measured, or simulated in a way of one's own."""
    times = {name: _column(getattr(timeline, name)) for name in ("start", "end", "sent", "arrived")}
    together = [{name: _plain(each) for name, each in one.items()} for one in written(timeline.collectives)]
    nothing = dict.fromkeys(("costs", "links", "message_bytes", "sizes", "limit"))
    more = {"collectives": together, "took_turns": timeline.took_turns, "notes": list(timeline.notes)}
    return {"schedule": _schedule(timeline.schedule, rows=True), **nothing, "times": times | more}


def inexact(*values: Any) -> bool:
    """Whether a number among these, in whatever lists and records, is no double."""
    for value in values:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list | tuple) and inexact(*value):
            return True
        if isinstance(value, Fraction | int) and not isinstance(value, bool) and float(value) != value:
            return True
    return False


def _schedule(schedule: Schedule, rows: bool = False) -> Record:
    """Of a family, its options: the page knows its rows. Of another order, its rows."""
    inner, mode = schedule, "never"
    if type(schedule) is Remat and schedule.only is None:
        inner, mode = schedule.inner, schedule.mode
    found = written(inner)
    known = type(inner) in (*SCHEDULES, *WITHOUT_FLUSH)
    if rows or not known:
        found = written(schedule)
    record = {
        "family": found["family"] if known else None,
        "options": found["options"] if known else {},
        "recompute": mode if known else "never",
        "placement": found["placement"],
        "microbatches": schedule.microbatches,
        "name": schedule.name,
    }
    return record | ({"rows": found["rows"]} if rows or not known else {})


def _links(links: Links | None) -> Any:
    if links is None or isinstance(links, Link):
        return links and _link(links)
    if isinstance(links, Nodes):
        ends = {"inside": _link(links.inside), "between": _link(links.between)}
        return {"devices_per_node": links.devices_per_node, **ends}
    return {"pairs": [[*pair, _link(link)] for pair, link in links.items()]}


def _link(link: Link) -> Record:
    bandwidth = None if link.bandwidth == inf else _plain(link.bandwidth)
    return {"latency": _plain(link.latency), "bandwidth": bandwidth}


def _column(times: Any) -> list | None:
    return None if times is None else [_plain(time) for time in times.tolist()]


def _plain(value: Any) -> Any:
    """A number as JSON has it: a double, or a whole number that is one. Lists and words stay as they are."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Fraction | int) and not isinstance(value, bool):
        return value if isinstance(value, int) and abs(value) <= EXACT else float(value)
    if isinstance(value, float) and value != value:
        raise ValueError(f"a page needs times that are numbers {got(value)}")
    return value
