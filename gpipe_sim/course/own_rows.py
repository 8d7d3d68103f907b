"""A reply that draws the student's own rows: all of them, or up to where they go wrong, framed there."""

from collections.abc import Mapping, Sequence

import numpy as np

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.timeline import Span, Timeline
from gpipe_sim.course.answers import SPLIT, needs
from gpipe_sim.course.reply import Reply
from gpipe_sim.drawing.document import Svg
from gpipe_sim.drawing.geometry import Box, Rows, boxes
from gpipe_sim.drawing.marks import DIGIT, Entry, Label, Labels, Lines, Mark, Panel, Shape, Style
from gpipe_sim.drawing.page import LEFT, Laid, above, row_height, sheet, unit_for
from gpipe_sim.drawing.paint import Place
from gpipe_sim.drawing.palette import INK, PAPER, ink
from gpipe_sim.drawing.panel import box_marks, device_names, lanes
from gpipe_sim.drawing.svg import draw
from gpipe_sim.drawing.words import durations
from gpipe_sim.errors import Real

TITLE = "Your rows"
CUT, STUCK = f"{TITLE}, up to where they go wrong", f"{TITLE}, as far as they run"
MOST = 400  #: actions that are drawn, and stages
NEEDS = SPLIT | {"R": [("F", 0)], "U": []}
COST: Mapping[str, Real] = {"F": 1, "B": 2, "I": 1, "W": 1, "R": 1, "U": 0}
Order = Sequence[Sequence[tuple[int, str, int]]]
At = tuple[int, int]  #: a device, and a place in its row
Slots = Sequence[Mapping[tuple[int, str], int]]


class Drawn(Reply):
    """A reply with a picture below its sentence; a terminal shows the sentence alone."""

    picture: Svg

    def _repr_html_(self) -> str:
        return super()._repr_html_() + self.picture._repr_html_()


def drawn(
    reply: Reply, rows: Order, at: At | None = None, cost: Mapping[str, Real] = COST, due: str = ""
) -> Reply:
    """The reply, with a chart of these rows, which need not be legal.

    If they go wrong ``at`` an action, that is framed, with the one that is ``due`` there if it is known to
    the reply, and nothing is shown that begins later. Without it, or
    if no device comes so far, the actions that devices are stuck at are framed and hollow, if there are any.
    Rows that are too long to look at, and labels that are too large for a chart, get no picture.
    """
    largest = max((label for row in rows for s, _, m in row for label in (s, m)), default=MOST)
    if max(largest, sum(map(len, rows))) >= MOST:
        return reply
    done, stuck = _clocked(rows, cost)
    here = stuck
    if at and at[1] < len(done[at[0]]):
        here, wrong = {at}, done[at[0]][at[1]]
        done = [[span for span in row if span is wrong or span.start < wrong.start] for row in done]
    found = Drawn(reply.verdict, reply.text)
    timeline = _timeline(done)
    title = STUCK if here == stuck else CUT
    found.picture = (
        _framed(timeline, here, here & stuck, title, due) if here else draw(timeline, titles=[TITLE])
    )
    return found


def _clocked(rows: Order, cost: Mapping[str, Real]) -> tuple[list[list[Span]], set[At]]:
    """Each row as far as it goes, and after that what it is stuck at; and the places of those."""
    S = 1 + max(s for row in rows for s, _, _ in row)
    done: list[list[Span]] = [[] for _ in rows]
    ends: dict[tuple[int, str, int], Real] = {}

    def begin(k: int, arrived: Sequence[Real] = ()) -> None:
        s, kind, m = rows[k][len(done[k])]
        start = max([0, *arrived, *(span.end for span in done[k])])
        done[k].append(Span(Action(s, Kind[kind], m), k, start, start + cost[kind]))

    moved = True
    while moved:
        moved = False
        for k, row in enumerate(rows):
            for action in row[len(done[k]) :]:
                wanted = needs(action, S, NEEDS)
                if not all(need in ends for need in wanted):
                    break
                begin(k, [ends[need] for need in wanted])
                ends.setdefault(action, done[k][-1].end)
                moved = True
    stuck = {(k, len(done[k])) for k, row in enumerate(rows) if len(done[k]) < len(row)}
    for k, _ in stuck:
        begin(k)
    return done, stuck


def _timeline(done: list[list[Span]]) -> Timeline:
    held = [{part.stage for span in row for part in span.action.parts} for row in done]
    held[0] |= set(range(max(set().union(*held)))).difference(*held)  # a chart has all stages up to the last
    schedule = Explicit([[span.action for span in row] for row in done], placement=list(map(sorted, held)))
    starts, ends = (np.array([span[i] for row in done for span in row]) for i in (2, 3))
    return Timeline(schedule, starts, ends)


def _framed(timeline: Timeline, here: set[At], hollow: set[At], title: str, due: str = "") -> Svg:
    """The timeline, with a frame around what goes wrong; what is hollow did not run."""
    every, first = list(boxes(timeline)), timeline.schedule.program.rows.tolist()
    wrong, empty = ([every[first[k] + place] for k, place in sorted(places)] for places in (here, hollow))
    says = f"{'stuck at' if hollow else 'here:'} {' and '.join(str(box.span.action) for box in wrong)}"
    says += f", and {due} is due" * bool(due)
    devices, until = timeline.schedule.devices, timeline.makespan
    takes = durations(timeline)
    at = Place(above(title, takes), unit_for([timeline], False), row_height(devices), LEFT)
    marks: list[Mark] = [
        lanes(timeline, Rows()),
        *box_marks([box for box in every if box not in empty], None, True),
        Shape([box.outline for box in empty], PAPER),
        *(_number(box, box in wrong, box in empty) for box in every),
        Lines([box.outline for box in wrong], Style.FRAME, Entry(31, says, Style.FRAME)),
    ]
    panel = Panel(marks, devices, device_names(timeline, Rows(), at.scale))
    laid = Laid(panel, at, title, takes, until, [until])
    return sheet([laid], at.x(until), f"{TITLE}, {says}", str(timeline.schedule))


def _number(box: Box, in_full: bool, hollow: bool) -> Labels:
    words = str(box.span.action) if in_full else box.label
    label = Label(float(box.x + box.width / 2), box.y + box.height / 2, words, float(box.width), box.height)
    return Labels([label], INK if hollow else ink(box.fill), DIGIT)


def drawn_in_slots(reply: Reply, strand: Slots, period: int, wrong: tuple[int, str] | None = None) -> Reply:
    """The reply, with the actions of three microbatches in their slots, and a frame around the ``wrong`` one.

    The ``strand`` has the slots of microbatch 0 on each device, {(stage, kind): slot}; each further one comes
    a ``period`` later. Where two share a slot, the wrong one is seen. Slots too far out get no picture.
    """
    done = [_in_slots(k, slots, period, wrong) for k, slots in enumerate(strand)]
    if min(row[0].start for row in done) < 0 or max(row[-1].end for row in done) >= MOST:
        return reply
    found, timeline = Drawn(reply.verdict, reply.text), _timeline(done)
    framed = wrong and Action(wrong[0], Kind[wrong[1]], 0)
    here = {(k, i) for k, row in enumerate(done) for i, span in enumerate(row) if span.action == framed}
    found.picture = _framed(timeline, here, set(), TITLE) if here else draw(timeline, titles=[TITLE])
    return found


def _in_slots(k: int, slots: Mapping[tuple[int, str], int], period: int, wrong: object) -> list[Span]:
    at = {}
    for (s, kind), slot in sorted(slots.items(), key=lambda item: item[0] == wrong):
        for start in (slot + 2 * period, slot + period, slot):
            at[start] = Span(Action(s, Kind[kind], (start - slot) // period), k, start, start + 1)
    return [at[start] for start in sorted(at)]
