"""The Gantt chart; and a strip per device of its microbatches in flight, to go below it."""

from collections.abc import Sequence
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

from gpipe_sim.drawing.coarse import Grain, areas, grain_of, in_flight_steps
from gpipe_sim.drawing.geometry import (
    PHASES,
    ROW_FILL,
    WAITING,
    Box,
    boxes,
    caption,
    has_pairs,
    kinds_drawn,
    legend,
    long_waits,
    number,
    numbered,
    phase_lines,
    ticks,
)
from gpipe_sim.drawing.palette import IN_FLIGHT, INK, KINDS, LANE, PAPER, hatched, in_legend, ink
from gpipe_sim.drawing.plots.style import LABEL_SIZE, TITLE_SIZE, WIDTH, given_or_new
from gpipe_sim.errors import require, whole
from gpipe_sim.schedule.actions import Kind
from gpipe_sim.simulation.metrics import peak_in_flight
from gpipe_sim.simulation.timeline import Timeline, of_timeline

STRIP_FILL = 0.9  #: how much of a strip's height ``scale`` takes
HATCH = "//"  #: matplotlib's name for the lines over hatched boxes
DASHES = (0, (3, 2))  #: of the lines between phases, in points


@of_timeline
def plot_timeline(timeline: Timeline, ax: Axes | None = None, title: str | None = None) -> Axes:
    """The Gantt chart: a lane per device, device 0 on top; what shows of a lane is waiting.

    The boxes are one ``PolyCollection`` per kind of action, labelled with its meaning: so thousands of boxes
    are drawn fast, and tests can read them back. A box shows its microbatch if the number fits; dashed lines
    separate warm-up, steady state and drain. ``title`` replaces the line on top, which by default names the
    schedule, its makespan and its bubble. With too many actions for a box each, it shows how much of its time
    each device spends on what, as ``draw`` does.
    """
    title = require(
        "plot_timeline", caption(timeline) if title is None else title, str, "a text as its title"
    )
    grain = grain_of(timeline)
    entries = legend(timeline, coarse=grain.column > 0)
    ax = given_or_new(ax, _width(timeline, entries, title), 1.1 + _height(timeline, grain))
    _add_lanes(ax, timeline, grain)
    if grain.column:
        _add_areas(ax, timeline, grain)
    else:
        _add_all_boxes(ax, timeline)
    _time_and_devices(ax, timeline, grain)
    ax.set_title(title, loc="left", fontsize=TITLE_SIZE, pad=20)
    ax.legend(
        handles=[_handle(*entry) for entry in entries],
        loc="lower left",
        bbox_to_anchor=(0, 1.02),
        ncols=6,
        frameon=False,
        fontsize=LABEL_SIZE,
        handlelength=1,
        handleheight=1,
        columnspacing=1.6,
        borderpad=0,
        borderaxespad=0,
    ).set_in_layout(False)  # the title above it keeps its place free
    return ax


@of_timeline
def plot_in_flight(timeline: Timeline, ax: Axes | None = None, scale: int | None = None) -> Axes:
    """Below a Gantt chart: how many microbatches each device holds over time, one strip per device.

    ``scale`` is the count that fills a strip, by default the largest peak; each device's own peak is written
    on the right.
    """
    grain = grain_of(timeline)
    entries = legend(timeline, coarse=grain.column > 0)
    ax = given_or_new(ax, _width(timeline, entries), 0.9 + _height(timeline, grain))
    most = max(*peak_in_flight(timeline.schedule), 1)
    scale = most if scale is None else whole("plot_in_flight", "scale", scale)
    for floor, held in enumerate(in_flight_steps(timeline, grain), 1):
        steps, peak = [*held, (timeline.makespan, 0)], max(count for _, count in held)
        ax.fill_between(
            [float(time) for time, _ in steps],
            [floor - STRIP_FILL * count / scale for _, count in steps],
            floor,
            step="post",
            color=IN_FLIGHT,
            lw=0,
        )
        ax.annotate(
            str(peak),
            (1, floor - 0.5),
            xycoords=("axes fraction", "data"),
            xytext=(5, 0),
            textcoords="offset points",
            va="center_baseline",
            fontsize=LABEL_SIZE,
        )
    _time_and_devices(ax, timeline, grain)
    each = ", counted per stage" if any(len(held) > 1 for held in timeline.schedule.placement) else ""
    words = f"microbatches in flight{each}: a full strip is {scale}, each device's peak on the right"
    ax.set_title(words, loc="left", fontsize=LABEL_SIZE)
    return ax


def _add_lanes(ax: Axes, timeline: Timeline, grain: Grain) -> None:
    until, inset = float(timeline.makespan), (1 - ROW_FILL) / 2
    corners = [
        [(0, row + inset), (until, row + inset), (until, row + 1 - inset), (0, row + 1 - inset)]
        for row in range(grain.rows(timeline))
    ]
    ax.add_collection(PolyCollection(corners, facecolors=LANE, linewidths=0, label=WAITING))


def _add_areas(ax: Axes, timeline: Timeline, grain: Grain) -> None:
    """One collection per kind, as for boxes, with an area for each row."""
    for kind, found in groupby(areas(timeline, grain), key=lambda area: area.kind):
        look = {"facecolors": KINDS[kind].colour, "hatch": HATCH if hatched(kind) else None}
        outlines = [area.outline for area in found]
        ax.add_collection(
            PolyCollection(outlines, edgecolors=PAPER, linewidths=0, label=in_legend(kind), **look)
        )


def _add_all_boxes(ax: Axes, timeline: Timeline) -> None:
    """The boxes with their numbers, and the lines between the phases."""
    every = list(boxes(timeline))
    for kind in kinds_drawn(timeline):
        _add_boxes(ax, kind, [box for box in every if box.kind is kind])
    _label_boxes(ax, every, timeline)
    for wait in long_waits(timeline):
        middle = float(wait.start + wait.end) / 2, wait.device + 0.5
        ax.add_artist(Fitting(middle, float(wait.end - wait.start), ROW_FILL, wait.label, INK))
    _add_phase_lines(ax, timeline)


def _add_boxes(ax: Axes, kind: Kind, drawn: Sequence[Box]) -> None:
    corners = []
    for box in drawn:
        left, right = float(box.x), float(box.x + box.width)
        top, bottom = box.y, box.y + box.height
        corners.append([(left, top), (right, top), (right, bottom), (left, bottom)])
    ax.add_collection(
        PolyCollection(
            corners,
            facecolors=[box.fill for box in drawn],
            edgecolors=PAPER,
            linewidths=0.5 if len(drawn) < 2000 else 0,
            hatch=HATCH if hatched(kind) else None,
            label=in_legend(kind),
        )
    )


def _add_phase_lines(ax: Axes, timeline: Timeline) -> None:
    lines = [[(float(time), device), (float(time), device + 1)] for time, device in phase_lines(timeline)]
    ax.add_collection(LineCollection(lines, colors=INK, linewidths=0.8, linestyles=[DASHES]))


class Fitting(Text):
    """Words in a place, (width, height) in time and rows; not drawn if they do not fit into it."""

    def __init__(self, middle: tuple[float, float], width: float, height: float, words: str, colour: str):
        self.room, self.needs = (width, height), _points(words)
        style = {"ha": "center", "va": "center_baseline", "fontsize": LABEL_SIZE, "color": colour}
        super().__init__(*middle, words, **style)

    def fits(self) -> bool:
        corners = self.axes.transData.transform([(0, 0), self.room])
        width, height = abs(corners[1] - corners[0]) * 72 / self.figure.dpi
        return width >= self.needs and height >= LABEL_SIZE

    def draw(self, renderer) -> None:
        if self.fits():
            super().draw(renderer)


class BoxLabel(Fitting):
    """The number in a box. If a longer one of its kind would not fit, none of them is drawn."""

    def __init__(self, box: Box, longest: str):
        self.box = box
        middle = float(box.x + box.width / 2), box.y + box.height / 2
        super().__init__(middle, float(box.width), box.height, box.label, ink(box.fill))
        self.needs = _points(longest)


def _label_boxes(ax: Axes, drawn: Sequence[Box], timeline: Timeline) -> None:
    """A label for each box that would have room for one if the axes filled the whole figure."""
    widest = 72 * ax.figure.get_size_inches()[0] / (float(timeline.makespan) or 1)
    for box in numbered(drawn, lambda box: float(box.width) * widest >= _points(box.label)):
        longest = max((other.label for other in drawn if other.kind is box.kind), key=len)
        ax.add_artist(BoxLabel(box, longest))


def _points(words: str) -> float:
    """The width of a number or of words in points, with a little room on both sides."""
    return len(words) * 0.65 * LABEL_SIZE + 2


def _handle(kind: Kind | None, colour: str, words: str) -> Patch | Line2D:
    if words.endswith(PHASES):
        return Line2D([0.5, 0.5], [0, 1], color=colour, lw=0.8, ls=DASHES, label=words)
    hatch = HATCH if hatched(kind) else None
    return Patch(facecolor=colour, edgecolor=PAPER, linewidth=0, hatch=hatch, label=words)


def _time_and_devices(ax: Axes, timeline: Timeline, grain: Grain) -> None:
    """Time to the right from 0 to the makespan, device 0 on top, and no frame around them."""
    rows, until = grain.rows(timeline), float(timeline.makespan)
    shown, times = range(0, rows, max(1, rows // 16)), _times(until)
    ax.set(xlim=(0, until or 1), ylim=(rows, 0))
    ax.set_xlabel(f"time; {grain.words}" if grain.column else "time", fontsize=LABEL_SIZE)
    ax.set_xticks(times, [number(time) for time in times])
    ax.set_yticks([row + 0.5 for row in shown], [f"device {row * grain.devices}" for row in shown])
    ax.tick_params(labelsize=LABEL_SIZE)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)


def _times(until: float) -> list[float]:
    """Where the axis has numbers: at round times, and at the makespan."""
    near = until / 25
    return [*(time for time in ticks(until, at_most=21) if until - time > near), until]


def _width(timeline: Timeline, entries: Sequence[tuple], title: str = "") -> float:
    """The width in inches: enough for the labels, title and legend, but at most that of a page."""
    words = max(len(title), sum(len(words) + 4 for _, _, words in entries))
    return min(WIDTH, max(5.0, 1.2 + 0.28 * float(timeline.makespan), 1.2 + 0.085 * words))


def _height(timeline: Timeline, grain: Grain) -> float:
    """The height of all rows in inches; rows are lower if there are many of them."""
    rows = grain.rows(timeline)
    row = 0.32 if rows <= 8 else 0.24 if rows <= 16 else 0.16 if rows <= 32 else 0.1
    return rows * row * (1.4 if has_pairs(timeline) else 1)
