"""Two pictures that lessons draw themselves: an outline to label, and a loss that falls."""

from collections.abc import Sequence

from gpipe_sim.core.timeline import Timeline
from gpipe_sim.drawing.document import Svg, text
from gpipe_sim.drawing.geometry import Rows, boxes
from gpipe_sim.drawing.marks import Entry, Panel, Shape
from gpipe_sim.drawing.page import LEFT, Laid, above, row_height, sheet, unit_for
from gpipe_sim.drawing.paint import Place
from gpipe_sim.drawing.palette import FAINT, INK, Look
from gpipe_sim.drawing.panel import device_names, lanes

WIDE, HIGH, MARGIN = 600, 200, 40  #: pixels of a curve, and around it


def outlined(timeline: Timeline, title: str) -> Svg:
    """Where devices work and where they wait, without times, kinds or numbers."""
    devices, until = timeline.schedule.devices, timeline.makespan
    at = Place(above(title, ""), unit_for([timeline], True), row_height(devices), LEFT)
    work = Shape([box.outline for box in boxes(timeline)], FAINT, Entry(9, "work", Look(FAINT)))
    panel = Panel([lanes(timeline, Rows()), work], devices, device_names(timeline, Rows(), at.scale))
    return sheet([Laid(panel, at, title, "", until)], at.x(until), f"{title}: {devices} rows without times")


def falling(losses: Sequence[float], title: str, along: str) -> Svg:
    """A curve from the first loss to the last, in whole pixels, so that no processor's last digits show."""
    most, step = max(losses), WIDE / (len(losses) - 1)
    points = " ".join(
        f"{MARGIN + i * step:.0f},{MARGIN + HIGH * (1 - one / most):.0f}" for i, one in enumerate(losses)
    )
    right, floor = MARGIN + WIDE, MARGIN + HIGH
    parts = [
        text(MARGIN, 22, title, "start", 14, bold=True),
        f'<path d="M{MARGIN} {MARGIN}V{floor}H{right}" stroke="{FAINT}" fill="none"/>',
        f'<polyline points="{points}" stroke="{INK}" stroke-width="2" fill="none"/>',
        text(MARGIN - 6, MARGIN + 8, "loss", "end", colour=FAINT),
        text(MARGIN - 6, floor, "0", "end", colour=FAINT),
        text(right, floor + 20, along, "end", colour=FAINT),
    ]
    return Svg(lambda hover: iter(parts), (right + 20, floor + 34), title)
