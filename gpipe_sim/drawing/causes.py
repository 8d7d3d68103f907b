"""Where the time of a step goes, as one bar: its pieces in the order in which they add up, a row for each.

    1F1B: messages cost 72.2 of 393.9
    makespan                    [==================================================================]  393.9
    work, if stages were equal  [========================]                                           208.1
    the order's own bubble                                [==========]                               78.0
    messages                                                          [============]                 72.2

What makes the step shorter goes back to the left, as an outline.
"""

from collections.abc import Iterator
from html import escape
from itertools import accumulate, pairwise

from gpipe_sim.core.timeline import number
from gpipe_sim.drawing.document import HEADLINE, Svg, outline, text, words_wide
from gpipe_sim.drawing.palette import CURVES, FAINT, INK, LANE, PAPER
from gpipe_sim.why.causes import REST, Causes

WIDE, MARGIN, BETWEEN = 420, 12, 12  #: pixels of the bar, of the page's edge, and beside the bar
TOP, ROW, HIGH = 48, 22, 14  #: where rows begin, from one to the next, and of a piece
LEAST = 0.5  #: pixels of a piece that can be seen


def draw_causes(causes: Causes) -> Svg:
    """The terms of the sum as pieces of one bar, and beside each its time and its share."""
    times = [(each.name, each.time) for each in causes.terms]
    times += [(REST, causes.rest)] if causes.rest else []
    rows = [("makespan", causes.makespan), *times]
    said = [f"{number(time)}, {causes.share(time)}" for _, time in rows]
    left = MARGIN + BETWEEN + max(words_wide(name) for name, _ in rows)
    claim, under = title(causes), f"{causes.timeline.schedule.name}; one cause added after the other"
    right = left + WIDE + BETWEEN + max(map(words_wide, said))
    width = MARGIN + max(right, MARGIN + words_wide(claim, HEADLINE.size * HEADLINE.wide))
    pieces = list(_pieces(causes, left))
    drawn = [
        text(MARGIN, 20, escape(claim), "start", HEADLINE.size, bold=True),
        text(MARGIN, 38, escape(under), "start", colour=FAINT),
    ]
    for i, ((name, _), words) in enumerate(zip(rows, said, strict=True)):
        y = TOP + i * ROW
        drawn.append(text(left - BETWEEN, y + HIGH - 3, escape(name), "end"))
        drawn.append(f'<path d="{outline(left, y, WIDE, HIGH)}" fill="{LANE}"/>')
        drawn += [_piece(y, *piece) for piece in (pieces[i - 1 : i] if i else pieces)]
        drawn.append(text(left + WIDE + BETWEEN, y + HIGH - 3, words, "start"))
    return Svg(lambda hover: iter(drawn), (width, TOP + len(rows) * ROW + 6), claim, str(causes))


def title(causes: Causes) -> str:
    """The claim: which cause costs most, or that there is none beside the order itself."""
    name, most = max(((each.name, each.time) for each in causes.terms[2:]), key=lambda each: each[1])
    if most <= 0:
        return f"{number(causes.makespan)} long: all of it is work and the order's own bubble"
    return f"{number(causes.makespan)} long: after work and bubble, {name} cost most, {number(most)}"


def _pieces(causes: Causes, left: float) -> Iterator[tuple[float, float, str, bool]]:
    """(left, width, colour, whether it makes the step shorter), in pixels, of each term and of the rest."""
    times = [float(each.time) for each in causes.terms] + [float(causes.rest)] * bool(causes.rest)
    ends = [0.0, *accumulate(times)]
    unit = WIDE / (max(*ends, float(causes.makespan)) or 1)
    most = max(times[2:])
    for i, (before, after) in enumerate(pairwise(ends)):
        colour = CURVES[-1] if i < 2 else INK if times[i] == most else FAINT
        yield left + min(before, after) * unit, abs(after - before) * unit, colour, after < before


def _piece(y: float, left: float, wide: float, colour: str, shorter: bool) -> str:
    if wide < LEAST:
        return ""
    look = f'fill="none" stroke="{colour}"' if shorter else f'fill="{colour}" stroke="{PAPER}"'
    return f'<path d="{outline(left, y, wide, HIGH)}" {look} stroke-width="0.8"/>'
