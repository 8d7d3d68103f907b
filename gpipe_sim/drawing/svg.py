"""Charts as SVG: what a notebook shows, the same bytes on every machine."""

from collections.abc import Iterable, Sequence

from gpipe_sim.core.actions import Action, OverlapFB
from gpipe_sim.core.memory import MemoryTrace
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import Span, Timeline, of_timeline, require_timeline
from gpipe_sim.drawing.causes import draw_causes
from gpipe_sim.drawing.coarse import Grain
from gpipe_sim.drawing.document import HEADLINE, LARGE, WORDS, Svg, words_wide, written
from gpipe_sim.drawing.options import Wanted, read_options
from gpipe_sim.drawing.page import EDGE, LEFT, RIGHT, Laid, above, read_sheet, row_height, sheet, unit_for
from gpipe_sim.drawing.paint import Place
from gpipe_sim.drawing.panel import panel, stretch
from gpipe_sim.drawing.waiting_block import TITLE as PUSHED
from gpipe_sim.drawing.waiting_block import pushed as pushed_panel
from gpipe_sim.drawing.words import caption, title, unequal_work
from gpipe_sim.errors import ScheduleError, listed, require_flags
from gpipe_sim.streams.staleness import staleness
from gpipe_sim.why.causes import Causes

MOST_TIMED = 300_000  #: actions that are timed unasked


@of_timeline
def to_svg(timeline: Timeline) -> str:
    """The SVG text of one timeline; TypeError for anything else."""
    return str(draw(timeline))


def at_unit_costs(schedule: Schedule) -> Svg | None:
    """What a notebook shows of a schedule: its timeline for unit costs, None for one that cannot run.

    A notebook shows it without being asked, so it is None for a schedule that takes long to time, too.
    """
    try:
        return draw(simulate(schedule)) if 2 * schedule.stages * schedule.microbatches <= MOST_TIMED else None
    except ScheduleError:
        return None


def draw(
    *timelines: Timeline | Causes,
    in_flight: bool = False,
    memory: "Sequence[MemoryTrace] | None" = None,
    messages: bool = False,
    critical_path: bool = False,
    highlight: "Iterable[Action | OverlapFB | Span | str] | None" = None,
    weights: str | None = None,
    pushed: bool = False,
    titles: "Sequence[str] | None" = None,
    width: float | None = None,
    font_size: float | None = None,
    grey: bool = False,
) -> Svg:
    """Draw one or more timelines below each other, on one time axis.

    >>> timeline = gp.simulate(gp.OneFOneB(devices=4, microbatches=8))
    >>> gp.draw(timeline, in_flight=True, critical_path=True).save("1f1b.svg")  # a notebook shows it unsaved

    Where they are not the same work, as if more stages cost as much each, the line below a title says so;
    ``compare`` shares the layers out.

    ``in_flight=True`` adds a strip below each lane: how many microbatches the device holds over time, with
    the most on its right. ``memory=step.memory`` shows what it holds in bytes instead, by category, of one
    timeline. ``messages=True`` adds an arrow for each message, from when it leaves to where and when it
    arrives; where it waits for its link before, a dotted line begins at its action.

    ``critical_path=True`` frames the chain of actions that sets the makespan, ``highlight`` frames the
    actions in this list; all others fade. ``weights="stashed"`` writes the version of the weights that an
    action uses in its box, instead of the microbatch, and that which an update makes; the modes are those of
    ``train_step``. ``pushed=True`` adds the same work pushed to the left, so that what is left is waiting.
    ``titles`` replaces the line above each.

    ``width`` is that of the page in pixels, 96 to the inch, and ``font_size`` that of its letters: 850 and 12
    unless one of them is given. Then the page is exactly so wide, and lines that are too long for it are
    broken: ``draw(timeline, width=317, font_size=9).save("column.pdf")`` is 3.3 inches wide, in 6.75 points.

    ``grey=True`` is for print in black and white: kinds of actions are told apart by how dark they are and by
    their patterns, and so is all else. It is on white, in a saved file too.

    With too many actions for a box each, the chart shows how much of its time each device spends on what, and
    the legend says so; it leaves out what is too fine to see: messages, versions, and what is highlighted or
    pushed.

    The causes that ``where_time_goes`` finds, alone and without options, are drawn as one bar.

    ValueError without a timeline, for another number of titles, for memory of other devices or of several
    timelines, for weights that a schedule cannot have, and for an action that is not there; TypeError for
    anything but timelines, and sizes that are no numbers.
    """
    if not timelines:
        raise ValueError("draw needs at least one timeline")
    options = in_flight, memory, messages, critical_path, highlight, weights, pushed
    if isinstance(timelines[0], Causes) and len(timelines) == 1:
        return _bar(timelines[0], *options, titles, width, font_size, grey)
    for timeline in timelines:
        require_timeline("draw", timeline)
    shown = tuple(each for each in timelines if isinstance(each, Timeline))
    titles = _titles(shown, titles)
    require_flags("draw", grey=grey)
    page = read_sheet("draw", width, font_size)._replace(grey=bool(grey))
    grain, wanted = read_options("draw", shown, *options)
    wanted = [each._replace(grey=page.grey) for each in wanted]
    strips = wanted[0].strips  # what they hold at most is written on the right of the lanes
    beside = max(RIGHT, 12 + words_wide(strips.widest, LARGE)) if strips else RIGHT
    fill = grain.column > 0 or page.scale is not None
    unit = unit_for(shown, fill, right=beside, width=page.width)
    row = row_height(max(timeline.schedule.devices for timeline in shown))
    laid: list[Laid] = []
    unequal = unequal_work(shown)
    for timeline, words, each, beside_it in zip(shown, titles, wanted, unequal, strict=True):
        words, until = page.wrapped(words, HEADLINE), timeline.makespan
        said = page.wrapped(caption(timeline, each.weights, beside_it, each.messages), WORDS)
        floor = laid[-1].floor if laid else EDGE
        at = Place(floor + above(words, said), unit, row * stretch(timeline), LEFT)
        laid.append(Laid(panel(timeline, grain, at.scale, each), at, words, said, until, [until]))
        if pushed and not grain.column:
            words = page.wrapped(PUSHED, HEADLINE)
            at = Place(laid[-1].floor + above(words, ""), unit, row, LEFT)
            laid.append(Laid(pushed_panel(timeline, at.scale), at, words, "", until, [until]))
    right = max(each.at.x(each.until) for each in laid) + beside - RIGHT
    says = "; ".join(f"{each.title} ({each.caption})" for each in laid if each.caption).replace("\n", " ")
    return sheet(laid, right, f"Chart: {says}", _rows_as_text(shown, grain, wanted), page)


def _bar(causes: Causes, *options: object) -> Svg:
    """The chart of causes; TypeError with options, which are all of timelines."""
    if any(option is not None and option is not False for option in options):
        raise TypeError("draw takes options for timelines alone; of causes there is save(path, width=...)")
    return draw_causes(causes)


def _titles(timelines: Sequence[Timeline], titles: Sequence[str] | None) -> list[str]:
    """A title for each timeline: the given ones, or what the timelines claim."""
    such_as = "titles, one for each timeline, such as titles=['GPipe']"
    if titles is None:
        titles = [title(timeline) for timeline in timelines]
    titles = [written("draw", words, such_as) for words in listed("draw", such_as, titles)]
    if len(titles) != len(timelines):
        raise ValueError(f"draw needs a title for each of {len(timelines)} timelines (got {len(titles)})")
    return titles


def _rows_as_text(timelines: Sequence[Timeline], grain: Grain, wanted: Sequence[Wanted]) -> str:
    """For a reader who cannot see the boxes: what each device does, in order, and the versions asked for."""
    if grain.column:
        return ""
    texts = []
    for timeline, each in zip(timelines, wanted, strict=True):
        texts.append(str(timeline.schedule))
        if each.versions:
            texts.append(f"versions of the weights:\n{staleness(timeline.schedule, each.weights)}")
    return "\n\n".join(texts)
