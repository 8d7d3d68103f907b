"""The Gantt chart in matplotlib axes: it paints what ``draw`` paints."""

from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.transforms import ScaledTranslation

from gpipe_sim.core.actions import Action, OverlapFB
from gpipe_sim.core.memory import MemoryTrace
from gpipe_sim.core.timeline import Span, Timeline, number, of_timeline
from gpipe_sim.drawing.coarse import grain_of
from gpipe_sim.drawing.geometry import ticks
from gpipe_sim.drawing.marks import LETTER, Entry, Label, Labels, Lines, Panel, Scale, Shape, Style, legend
from gpipe_sim.drawing.options import Wanted, read_options
from gpipe_sim.drawing.palette import DOTS, INK, LINES, PAPER, Look
from gpipe_sim.drawing.panel import panel, rows_of, stretch
from gpipe_sim.drawing.plots.style import LABEL_SIZE, WIDTH, claim, given_or_new, require_axes
from gpipe_sim.drawing.waiting_block import TITLE as PUSHED
from gpipe_sim.drawing.waiting_block import pushed
from gpipe_sim.drawing.words import caption
from gpipe_sim.drawing.words import title as claimed
from gpipe_sim.errors import require

HATCH = {LINES: "////", DOTS: "...."}  #: matplotlib's names for patterns
#: of the lines between phases, and of messages that wait, in widths of the line
DASHES = {Style.PHASE: (0, (3, 2)), Style.QUEUE: (0, (1, 1.4))}
WIDE = 1.14  #: how much wider the letters of matplotlib's font are than Helvetica's
BELOW = 36  #: points from the axis to the legend
MOST_NUMBERS, USUAL = 21, 4  #: on the axis, if none has more than so many digits
ROW = 0.32  #: inches of a row, if there are few
AS_TITLE = "a text as its title"


@of_timeline
def plot_timeline(
    timeline: Timeline,
    ax: Axes | None = None,
    title: str | None = None,
    *,
    in_flight: bool = False,
    memory: Sequence[MemoryTrace] | None = None,
    messages: bool = False,
    critical_path: bool = False,
    highlight: Iterable[Action | OverlapFB | Span | str] | None = None,
    weights: str | None = None,
) -> Axes:
    """The Gantt chart: a lane per device, device 0 on top; what shows of a lane is waiting.

    The boxes are one ``PolyCollection`` per colour, labelled as in the legend: so thousands of boxes are
    drawn fast, and tests can read them back. ``title`` replaces the line on top. All else is as in ``draw``,
    its errors too; TypeError for a title that is no text, or for anything but axes.
    """
    title = require("plot_timeline", claimed(timeline) if title is None else title, str, AS_TITLE)
    options = in_flight, memory, messages, critical_path, highlight, weights
    grain, [wanted] = read_options("plot_timeline", [timeline], *options)
    rows = timeline.schedule.devices * rows_of(timeline, wanted).pitch
    ax = given_or_new(ax, _width(timeline), 1.25 + _height(rows, timeline))
    shown = panel(timeline, grain, scale_of(ax, timeline, rows), wanted)
    return paint(ax, timeline, shown, title, caption(timeline, wanted.weights))


@of_timeline
def plot_pushed(timeline: Timeline, ax: Axes | None = None, title: str = PUSHED) -> Axes:
    """The same work, pushed to the left: what is left of the lanes is the waiting of all devices.

    TypeError for anything but a timeline, axes and a text.
    """
    title = require("plot_pushed", title, str, AS_TITLE)
    rows = timeline.schedule.devices
    ax = given_or_new(ax, _width(timeline), 1.1 + _height(rows, timeline))
    return paint(ax, timeline, pushed(timeline, scale_of(ax, timeline, rows)), title)


@of_timeline
def plot_bare(timeline: Timeline, ax: Axes) -> Axes:
    """Lanes and boxes alone, for charts too small for words; x is time, y is rows, and neither is named.

    TypeError for anything but a timeline and axes.
    """
    require_axes(ax)
    rows = timeline.schedule.devices * rows_of(timeline, Wanted()).pitch
    for mark in panel(timeline, grain_of(timeline), scale_of(ax, timeline, rows), Wanted()).marks:
        if isinstance(mark, Shape):
            _add_shape(ax, mark._replace(edged=False))
    ax.set(xlim=(0, float(timeline.makespan) or 1), ylim=(rows, 0), xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    return ax


def scale_of(ax: Axes, timeline: Timeline, rows: float) -> Scale:
    """How large things will be, in points, if the axes fill the figure as far as they do now."""
    wide, high = (side * 72 / ax.figure.dpi for side in (ax.bbox.width, ax.bbox.height))
    return Scale(wide / (float(timeline.makespan) or 1), high / rows, LABEL_SIZE, WIDE)


def paint(ax: Axes, timeline: Timeline, shown: Panel, title: str, caption: str = "") -> Axes:
    """The marks of a panel, its names, title and legend, on axes whose x is time and whose y is rows."""
    scale, until = scale_of(ax, timeline, shown.height), float(timeline.makespan)
    for mark in shown.marks:
        if isinstance(mark, Shape):
            _add_shape(ax, mark)
        elif isinstance(mark, Lines):
            _add_lines(ax, mark)
        else:
            for label in mark.labels:
                ax.add_artist(Fitting(label, mark))
    ax.set(xlim=(0, until or 1), ylim=(shown.height, 0))
    ax.set_yticks([name.y for name in shown.names], [name.words for name in shown.names])
    times = _times(until)
    ax.set_xticks(times, [number(time) for time in times])
    ax.get_xticklabels()[-1].set_fontweight("bold")
    ax.set_xlabel("time", fontsize=LABEL_SIZE)
    ax.tick_params(labelsize=LABEL_SIZE, colors=INK)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    for peak in shown.peaks:
        at, to = (1, peak.y), ("axes fraction", "data")
        ax.annotate(peak.words, at, (5, 0), to, "offset points", va="center_baseline", fontsize=LABEL_SIZE)
    claim(ax, title, caption)
    _legend(ax, legend([(shown, scale)]), 1.15 * scale.unit * (until or 1))  # axes grow when laid out
    return ax


def _add_lines(ax: Axes, mark: Lines) -> None:
    if mark.style is Style.MESSAGE:
        how = {"arrowstyle": "-|>", "color": INK, "lw": 0.8, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 7}
        for start, end in mark.paths:
            ax.annotate("", end, start, arrowprops=how)
        return
    closed = [[*path, path[0]] if mark.style is Style.FRAME else path for path in mark.paths]
    width, dashes = 0.8 * mark.style.width, [DASHES.get(mark.style, "solid")]
    lines = LineCollection(closed, colors=INK, linewidths=width, linestyles=dashes, capstyle="projecting")
    ax.add_collection(lines)


def _add_shape(ax: Axes, mark: Shape) -> None:
    if mark.fill:
        colour, width = to_rgba(mark.fill, mark.opaque), 0.6 if mark.edged else 0
        areas = PolyCollection(mark.outlines, facecolors=colour, edgecolors=PAPER, linewidths=width)
        areas.set_label(mark.entry.words if mark.entry else "_")
        ax.add_collection(areas)
    if mark.pattern:
        areas = PolyCollection(mark.outlines, facecolors="none", edgecolors=PAPER, linewidths=0, label="_")
        areas.set_hatch(HATCH[mark.pattern])
        ax.add_collection(areas)


class Fitting(Text):
    """Words in a place; not drawn while they do not fit into it."""

    def __init__(self, label: Label, among: Labels):
        self.label, self.among = label, among
        super().__init__(label.x, label.y, label.words, color=among.colour, fontsize=LABEL_SIZE)
        self.set(ha="center", va="center_baseline")

    def fits(self) -> bool:
        begin, end = self.get_transform().transform([(0, 0), (1, 1)])
        (unit, row), point = abs(end - begin), self.figure.dpi / 72
        return self.among.fits(self.label, Scale(unit / point, row / point, LABEL_SIZE, WIDE))

    def draw(self, renderer) -> None:
        if self.fits():
            super().draw(renderer)


def _legend(ax: Axes, entries: Sequence[Entry], width: float) -> None:
    """Below the axis, in as many columns as fit into a width in points."""
    wide = [(len(entry.words) * LETTER * WIDE + 2.7) * LABEL_SIZE for entry in entries]
    fits = (n for n in range(len(wide), 1, -1) if sum(max(wide[i::n]) for i in range(n)) <= width)
    columns = next(fits, 1)
    rows = [entries[i : i + columns] for i in range(0, len(entries), columns)]
    by_column = [row[i] for i in range(columns) for row in rows if i < len(row)]  # as matplotlib fills them
    below = ScaledTranslation(0, -BELOW / 72, ax.figure.dpi_scale_trans)
    ax.legend(
        handles=[handle(entry) for entry in by_column],
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=ax.transAxes + below,
        ncols=columns,
        frameon=False,
        fontsize=LABEL_SIZE,
        handlelength=1,
        handleheight=1,
        handletextpad=0.4,
        columnspacing=1.2,
        borderpad=0,
        borderaxespad=0,
    )


def handle(entry: Entry) -> Patch | Line2D:
    """What stands beside an entry's words."""
    swatch, words = entry.swatch, entry.words
    if isinstance(swatch, Look):
        hatch = HATCH.get(swatch.pattern)
        return Patch(label=words, facecolor=swatch.colour, edgecolor=PAPER, linewidth=0, hatch=hatch)
    if swatch is None or swatch is Style.FRAME:
        return Patch(label=words, facecolor="none", edgecolor=INK, linewidth=1.6 if swatch else 0)
    if swatch is Style.MESSAGE:
        return Line2D([], [], color=INK, lw=0.8 * swatch.width, label=words, marker=9, ms=4)
    x, y = ([0.5, 0.5], [0, 1]) if swatch is Style.PHASE else ([], [])
    return Line2D(x, y, color=INK, lw=0.8 * swatch.width, label=words, ls=DASHES[swatch])


def _times(until: float) -> list[float]:
    """Where the axis has numbers: at round times, fewer where these are long, and at the makespan."""
    longest = max(len(number(time)) for time in ticks(until, MOST_NUMBERS))
    round_times = ticks(until, at_most=MOST_NUMBERS * USUAL // max(USUAL, longest))
    near = until * max(USUAL, len(number(until))) / (25 * USUAL)
    return [*(time for time in round_times if until - time > near), until]


def _width(timeline: Timeline) -> float:
    """The width in inches: enough for the legend, but at most that of a page."""
    return min(WIDTH, max(7.5, 1.2 + 0.28 * float(timeline.makespan)))


def _height(rows: float, timeline: Timeline) -> float:
    """The height of all rows in inches; rows are lower if there are many of them."""
    row = ROW if rows <= 12 else 0.24 if rows <= 24 else 0.16 if rows <= 48 else 0.1
    return rows * row * stretch(timeline)
