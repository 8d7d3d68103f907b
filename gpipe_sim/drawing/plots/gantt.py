"""The Gantt chart in matplotlib axes: it paints what ``draw`` paints."""

from collections.abc import Callable, Iterable, Sequence
from math import ceil, inf
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.textpath import text_to_path
from matplotlib.transforms import ScaledTranslation

from gpipe_sim.core.actions import Action, OverlapFB
from gpipe_sim.core.memory import MemoryTrace
from gpipe_sim.core.timeline import Span, Timeline, number, of_timeline
from gpipe_sim.drawing.coarse import grain_of
from gpipe_sim.drawing.document import written
from gpipe_sim.drawing.geometry import ticks
from gpipe_sim.drawing.marks import LETTER, Entry, Label, Labels, Lines, Panel, Scale, Shape, Style, legend
from gpipe_sim.drawing.options import Wanted, read_options
from gpipe_sim.drawing.palette import DOTS, INK, LINES, PAPER, Look
from gpipe_sim.drawing.panel import panel, rows_of, stretch
from gpipe_sim.drawing.plots.style import (
    LABEL_SIZE,
    TITLE_SIZE,
    WIDTH,
    claim,
    given_or_new,
    label_size,
    require_axes,
)
from gpipe_sim.drawing.waiting_block import TITLE as PUSHED
from gpipe_sim.drawing.waiting_block import pushed
from gpipe_sim.drawing.words import caption
from gpipe_sim.drawing.words import title as claimed

HATCH = {LINES: "////", DOTS: "...."}  #: matplotlib's names for patterns
#: of the lines between phases, and of messages that wait, in widths of the line
DASHES = {Style.PHASE: (0, (3, 2)), Style.QUEUE: (0, (1, 1.4))}
WIDE = 1.14  #: how much wider the letters of matplotlib's font are than Helvetica's
BELOW, LINE, ROWS = 4, 1.4, 1.2  #: to the legend, from line to line, from row to row: in sizes of the font
SMALLEST, EDGE = 6, 1.5  #: points of letters that have to be small, and of the edge of their figure
MOST_NUMBERS, USUAL = 21, 4  #: on the axis, if none has more than so many digits
LONG = 1_000  #: letters in a line that are measured
ROW = 0.32  #: inches of a row, if there are few
AS_TITLE = "a text as its title"


@of_timeline
def plot_timeline(
    timeline: Timeline,
    ax: Axes | None = None,
    title: str | None = None,
    *,
    in_flight: bool = False,
    memory: "Sequence[MemoryTrace] | None" = None,
    messages: bool = False,
    critical_path: bool = False,
    highlight: "Iterable[Action | OverlapFB | Span | str] | None" = None,
    weights: str | None = None,
) -> Axes:
    """The Gantt chart: a lane per device, device 0 on top; what shows of a lane is waiting.

    The boxes are one ``PolyCollection`` per colour, labelled as in the legend: so thousands of boxes are
    drawn fast, and tests can read them back. ``title`` replaces the line on top. All else is as in ``draw``,
    its errors too; TypeError for a title that is no text, or for anything but axes.

    Letters follow matplotlib's ``font.size``. In a figure that is too low for them they are smaller, down to
    6 points; if even these have no room, the legend and the line below the title are left out. A figure
    without a layout engine gets matplotlib's constrained one, so that no words are cut off.
    """
    title = written("plot_timeline", claimed(timeline) if title is None else title, AS_TITLE)
    options = in_flight, memory, messages, critical_path, highlight, weights
    grain, [wanted] = read_options("plot_timeline", [timeline], *options)
    rows = timeline.schedule.devices * rows_of(timeline, wanted).pitch
    words = title, caption(timeline, wanted.weights, messages=wanted.messages)
    return _painted(ax, timeline, rows, lambda scale: panel(timeline, grain, scale, wanted), *words)


@of_timeline
def plot_pushed(timeline: Timeline, ax: Axes | None = None, title: str | None = None) -> Axes:
    """The same work, pushed to the left: what is left of the lanes is the waiting of all devices.

    TypeError for anything but a timeline, axes and a text.
    """
    title = written("plot_pushed", PUSHED if title is None else title, AS_TITLE)
    return _painted(ax, timeline, timeline.schedule.devices, lambda scale: pushed(timeline, scale), title)


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


def _painted(
    ax: Axes | None,
    timeline: Timeline,
    rows: float,
    lay: Callable[[Scale], Panel],
    title: str,
    caption: str = "",
) -> Axes:
    """What ``lay`` lays out: on new axes with room for its letters, or with letters for which these have it.

    Axes that somebody put where they are, outside any grid, keep their place and the usual letters.
    """
    usual, new = label_size(), ax is None
    ax = given_or_new(ax, _width(timeline), (1.25 if caption else 1.1) + _height(rows, timeline))
    sizes = [usual, *(size / 2 for size in range(2 * ceil(usual), 2 * SMALLEST - 1, -1) if size / 2 < usual)]
    figure, grid, room = ax.figure, ax.get_subplotspec(), inf
    if grid and not new:
        room = 72 / figure.dpi * figure.bbox.height * len(grid.rowspan) / grid.get_gridspec().nrows
        if isinstance(figure, Figure) and figure.get_layout_engine() is None:
            figure.set_layout_engine("constrained", h_pad=EDGE / 72, w_pad=EDGE / 72)
    for font in sizes:
        scale = scale_of(ax, timeline, rows, font)
        shown, wide = lay(scale), _room(timeline, scale) if grid else inf
        heads = _lines(title, wide, font * TITLE_SIZE / LABEL_SIZE, "bold"), _lines(caption, wide, font)
        if (high := _needs(timeline, shown, scale, heads)) <= room:
            break
    else:
        paint(ax, timeline, shown, heads[0], font=font).legend_ = None
        return ax
    if new and isinstance(figure, Figure):
        figure.set_figheight(max(high / 72, figure.get_figheight()))
    return paint(ax, timeline, shown, *heads, font)


def _lines(words: str, wide: float, font: float, weight: str = "normal") -> str:
    """The words, in as many lines as they need in so many points."""
    look = FontProperties(size=font, weight=weight)
    widths = (_width_of(part, look) for part in words.splitlines())
    if (most := max(widths, default=0)) <= wide:
        return words
    letters = max(1, int(max(map(len, words.splitlines())) * wide / most))
    return "\n".join(fill(part, letters) for part in words.splitlines())


def _width_of(words: str, look: FontProperties) -> float:
    """In points; of words that are longer than any page is wide, as wide as the first of them say."""
    first = words[:LONG]
    wide = text_to_path.get_text_width_height_descent(first, look, False)[0]
    return wide * len(words) / max(1, len(first))


def _needs(timeline: Timeline, shown: Panel, scale: Scale, heads: Sequence[str]) -> float:
    """How many points high a figure needs to be for these axes, with all words around them."""
    entries = legend([(shown, scale)])
    lines = ceil(len(entries) / _columns(entries, _room(timeline, scale), scale.font))
    lines += sum(len(words.splitlines()) for words in heads)
    row = min(ROWS * scale.font, 72 * _height(shown.height, timeline) / shown.height)
    return shown.height * row + scale.font * (LINE * lines + BELOW) + 2 * EDGE


def scale_of(ax: Axes, timeline: Timeline, rows: float, font: float | None = None) -> Scale:
    """How large things will be, in points, if the axes fill the figure as far as they do now."""
    wide, high = (side * 72 / ax.figure.dpi for side in (ax.bbox.width, ax.bbox.height))
    return Scale(wide / (float(timeline.makespan) or 1), high / rows, font or label_size(), WIDE)


def paint(
    ax: Axes, timeline: Timeline, shown: Panel, title: str, caption: str = "", font: float | None = None
) -> Axes:
    """The marks of a panel, its names, title and legend, on axes whose x is time and whose y is rows."""
    scale, until = scale_of(ax, timeline, shown.height, font), float(timeline.makespan)
    font = scale.font
    for mark in shown.marks:
        if isinstance(mark, Shape):
            _add_shape(ax, mark)
        elif isinstance(mark, Lines):
            _add_lines(ax, mark)
        else:
            for label in mark.labels:
                ax.add_artist(Fitting(label, mark, font))
    ax.set(xlim=(0, until or 1), ylim=(shown.height, 0))
    ax.set_yticks([name.y for name in shown.names], [name.words for name in shown.names])
    times = _times(until)
    ax.set_xticks(times, [number(time) for time in times])
    ax.get_xticklabels()[-1].set_fontweight("bold")
    ax.set_xlabel("time", fontsize=font)
    ax.tick_params(labelsize=font, colors=INK)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    for peak in shown.peaks:
        at, to = (1, peak.y), ("axes fraction", "data")
        ax.annotate(peak.words, at, (5, 0), to, "offset points", va="center_baseline", fontsize=font)
    claim(ax, title, caption, font)
    _legend(ax, legend([(shown, scale)]), _room(timeline, scale), font)
    return ax


def _room(timeline: Timeline, scale: Scale) -> float:
    """Points from the left to the right of a legend: axes grow when they are laid out."""
    return 1.15 * scale.unit * (float(timeline.makespan) or 1)


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

    def __init__(self, label: Label, among: Labels, font: float):
        self.label, self.among, self.font = label, among, font
        super().__init__(label.x, label.y, label.words, color=among.colour, fontsize=font)
        self.set(ha="center", va="center_baseline")

    def fits(self) -> bool:
        begin, end = self.get_transform().transform([(0, 0), (1, 1)])
        (unit, row), point = abs(end - begin), self.figure.dpi / 72
        return self.among.fits(self.label, Scale(unit / point, row / point, self.font, WIDE))

    def draw(self, renderer) -> None:
        if self.fits():
            super().draw(renderer)


def _columns(entries: Sequence[Entry], width: float, font: float) -> int:
    """How many columns of a legend fit into a width in points."""
    wide = [(len(entry.words) * LETTER * WIDE + 2.7) * font for entry in entries]
    fits = (n for n in range(len(wide), 1, -1) if sum(max(wide[i::n]) for i in range(n)) <= width)
    return next(fits, 1)


def _legend(ax: Axes, entries: Sequence[Entry], width: float, font: float) -> None:
    """Below the axis, in as many columns as fit into a width in points."""
    columns = _columns(entries, width, font)
    rows = [entries[i : i + columns] for i in range(0, len(entries), columns)]
    by_column = [row[i] for i in range(columns) for row in rows if i < len(row)]  # as matplotlib fills them
    below = ScaledTranslation(0, -BELOW * font / 72, ax.figure.dpi_scale_trans)
    ax.legend(
        handles=[handle(entry) for entry in by_column],
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=ax.transAxes + below,
        ncols=columns,
        frameon=False,
        fontsize=font,
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
    x, y = ([], []) if swatch is Style.QUEUE else ([0.5, 0.5], [0, 1])
    return Line2D(x, y, color=INK, lw=0.8 * swatch.width, label=words, ls=DASHES.get(swatch, "solid"))


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
