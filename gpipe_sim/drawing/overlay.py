"""A simulated and a measured step on one time axis: what the simulation gets right, and what it misses."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.core.bubbles import bubble_fraction
from gpipe_sim.core.timeline import Timeline, number, require_timeline, rounded
from gpipe_sim.drawing.coarse import grain_of
from gpipe_sim.drawing.document import Drawn, Svg
from gpipe_sim.drawing.geometry import Rows
from gpipe_sim.drawing.marks import Name, Panel
from gpipe_sim.drawing.options import Wanted
from gpipe_sim.drawing.page import EDGE, LEFT, Laid, above, row_height, sheet, unit_for
from gpipe_sim.drawing.paint import Place
from gpipe_sim.drawing.palette import FAINT
from gpipe_sim.drawing.panel import panel, stretch
from gpipe_sim.drawing.words import size, table
from gpipe_sim.errors import Real

NAMES = ("simulated", "measured")
THIN, FULL = Rows(1.55, 0.1, 0.42), Rows(1.55, 0.54, 0.86)  #: lanes of each device
LANES = tuple(zip((THIN, FULL), NAMES, strict=True))
NAMES_WIDE = 56  #: pixels of these two names
SMALL = 10, FAINT  #: their font and colour
SEEN = 0.0005  #: an error that is not 0.0%
SMALLEST_ROW = 8  #: pixels of a thin lane that has its name


@rounded
class Compared(NamedTuple):
    """The same number, taken from the simulated and from the measured timeline."""

    simulated: Real
    measured: Real

    @property
    def error(self) -> Real:
        """measured / simulated - 1; 0 if both are 0, infinite if only the simulated number is 0."""
        if self.simulated:
            return self.measured / self.simulated - 1
        return math.inf if self.measured else 0.0


@dataclass(frozen=True, repr=False)
class Overlay(Drawn):
    """Two timelines of the same actions on the same devices: a drawing in a notebook, a table as ``str``.

    ``makespan`` and ``bubble`` (the bubble fraction) are ``Compared``: a pair with its ``error``.
    ValueError if the actions or their devices differ, TypeError for anything but timelines.
    """

    simulated: Timeline
    measured: Timeline

    def __post_init__(self):
        require_timeline("overlay", self.simulated)
        require_timeline("overlay", self.measured)
        simulated, measured = _homes(self.simulated), _homes(self.measured)
        for action, device in sorted(simulated.items() ^ measured.items()):
            which = "simulated" if simulated.get(action) == device else "measured"
            says = f"{action} is on device {device} in the {which} one only"
            raise ValueError(f"overlay needs two timelines of the same actions: {says}")

    @cached_property
    def makespan(self) -> Compared:
        return Compared(self.simulated.makespan, self.measured.makespan)

    @cached_property
    def bubble(self) -> Compared:
        return Compared(bubble_fraction(self.simulated), bubble_fraction(self.measured))

    @cached_property
    def durations(self) -> dict[Kind, Compared]:
        """The mean duration of each kind, over the actions outside any overlapped pair in both timelines."""
        simulated, measured = _alone(self.simulated), _alone(self.measured)
        means = {}
        for kind in Kind:
            both = [action for action in simulated if action in measured and action.kind is kind]
            if both:
                totals = (sum(times[action] for action in both) for times in (simulated, measured))
                means[kind] = Compared(*(total / len(both) for total in totals))
        return means

    @cached_property
    def drawing(self) -> Svg:
        """The chart that a notebook shows; times are in the unit of the two timelines.

        Each device has a thin lane, simulated, on top of a full one, measured.
        """
        both = self.simulated, self.measured
        grain, schedule = grain_of(*both), self.simulated.schedule
        row = row_height(schedule.devices) * stretch(*both)
        left = LEFT + (NAMES_WIDE if THIN.height * row >= SMALLEST_ROW else 0)
        at = Place(EDGE + above("title", "numbers"), unit_for(both, grain.column > 0, left), row, left)
        wanted = Wanted(notes=grain.notes)
        thin, full = (panel(both[i], grain, at.scale, wanted, rows) for i, rows in enumerate((THIN, FULL)))
        devices = Panel([], full.height, [name._replace(y=name.y - 0.15) for name in full.names])
        devices_named = range(len(full.names)) if left > LEFT else ()
        names = [Name(lane.y(k, 0.5), words, *SMALL) for k in devices_named for lane, words in LANES]
        page = Panel([*thin.marks, *full.marks], full.height, names, notes=full.notes)
        title, until = f"{schedule.name}: {_claim(self.makespan.error)}", max(self.makespan)
        laid = [
            Laid(devices, at._replace(left=LEFT), ""),
            Laid(page, at, title, _numbers(self), until, self.makespan),
        ]
        says = f"Chart: {title} ({size(schedule)}); {_numbers(self)}"
        return sheet(laid, at.x(until), says)

    def _repr_html_(self) -> str:
        return self.drawing._repr_html_()

    def __repr__(self) -> str:
        spans = " simulated, ".join(map(number, self.makespan))
        return f"<Overlay of {self.simulated.schedule!r}: makespan {spans} measured>"

    def __str__(self) -> str:
        return "\n".join([repr(self.simulated.schedule), *table([("", *NAMES, "error"), *_table(self)])])


def overlay(simulated: Timeline, measured: Timeline) -> Overlay:
    """Compare a simulated timeline with a measured one of the same actions, both in the same unit of time.

    ``overlay(simulate(schedule, fit_costs(step)), step)`` shows what costs alone do not explain. One timeline
    may have an overlapped pair where the other has its two halves. ValueError and TypeError: see ``Overlay``.
    """
    return Overlay(simulated, measured)


def _homes(timeline: Timeline) -> dict[Action, int]:
    return {part: span.device for span in timeline.spans for part in span.action.parts}


def _alone(timeline: Timeline) -> dict[Action, Real]:
    """How long each action takes, without those in overlapped pairs."""
    return {span.action: span.end - span.start for span in timeline.spans if isinstance(span.action, Action)}


def _table(overlay: Overlay) -> Iterator[tuple[str, ...]]:
    yield "makespan", *map(number, overlay.makespan), _percent(overlay.makespan.error)
    yield "bubble fraction", *map("{:.1%}".format, map(float, overlay.bubble)), _percent(overlay.bubble.error)
    for kind, compared in overlay.durations.items():
        yield f"mean {kind.meaning}", *map(number, compared), _percent(compared.error)


def _percent(error: Real) -> str:
    return f"{float(error):+.1%}" if math.isfinite(error) else "-"


def _claim(error: Real) -> str:
    if not SEEN <= abs(off := float(error)) < math.inf:
        return "simulated above, measured below"
    return f"measured {abs(off):.1%} {'longer' if off > 0 else 'shorter'} than simulated"


def _numbers(overlay: Overlay) -> str:
    spans = " and ".join(map(number, overlay.makespan))
    bubbles = " and ".join(map("{:.1%}".format, map(float, overlay.bubble)))
    return f"makespan {spans} ({_percent(overlay.makespan.error)}), bubble {bubbles}"
