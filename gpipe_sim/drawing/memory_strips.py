"""A strip below each lane: how many microbatches, or how many bytes, the device holds over time."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.bubbles import peak_in_flight
from gpipe_sim.core.memory import MemoryTrace
from gpipe_sim.core.timeline import Timeline, number
from gpipe_sim.drawing.coarse import Grain
from gpipe_sim.drawing.geometry import Rows, between
from gpipe_sim.drawing.marks import Entry, Name, Shape
from gpipe_sim.drawing.palette import IN_FLIGHT, MEMORY, PALER, Look
from gpipe_sim.errors import Real
from gpipe_sim.why.metrics import in_flight

BELOW = 0.1  #: rows between a lane and its strip
COUNTS_HIGH, BYTES_HIGH = 0.8, 1.4  #: rows that the fullest strip takes
ALONE_HIGH = 8  #: and on a page of a single device
MOST_STEPS, FEWEST = 4000, 8  #: of all strips of bytes together, times categories; and of each
BYTE_UNITS = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (1000, "kB"))
COUNTED = "microbatches in flight (right: the most)"
INPUTS = "only its input"


class Strips(NamedTuple):
    """What strips show: bytes if there are traces, one per device, otherwise microbatches in flight.

    A microbatch is one at all stages of a device: where there are two, each counts half. ``most`` is what a
    full strip holds, the same for all strips of a page. A trace with more than so many ``steps`` is thinned.
    With one device ``alone`` on its page, the strip is large.
    """

    most: Real
    traces: Sequence[MemoryTrace] = ()
    steps: int = MOST_STEPS
    alone: bool = False
    widest: str = ""  #: of what is said on their right

    @property
    def high(self) -> float:
        if self.alone:
            return ALONE_HIGH
        return BYTES_HIGH if self.traces else COUNTS_HIGH

    @property
    def rows(self) -> Rows:
        """Lanes with room for a strip below each."""
        return Rows(1 + BELOW + self.high)

    def in_words(self, held: Real, inputs: Real = 0) -> str:
        if self.traces:
            return bytes_label(int(held))
        return number(held) + (f" + {number(inputs)}" if inputs else "")


class Stack(NamedTuple):
    """What a device holds from each of these times on: a row of ``held`` per category, from the bottom."""

    times: Sequence[Real]
    held: np.ndarray


def strips_of(timelines: Sequence[Timeline], traces: Sequence[MemoryTrace] | None = None) -> list[Strips]:
    """What a page shows of each timeline, on one scale; with traces there is one timeline."""
    alone = all(timeline.schedule.devices == 1 for timeline in timelines)
    if traces is None:
        shares = map(_share, timelines)
        held = [
            peak * share
            for each, share in zip(timelines, shares, strict=True)
            for peak in peak_in_flight(each.schedule)
        ]
        again = any(Kind.R in timeline.schedule.program.where for timeline in timelines)
        widest = max((number(each) + f" + {number(each)}" * again for each in held), key=len)
        return [Strips(max(held), alone=alone, widest=widest)] * len(timelines)
    steps = max(FEWEST, MOST_STEPS // (len(traces) * len(MEMORY)))
    most = max(trace.peak() for trace in traces)
    return [Strips(most, traces, steps, alone, bytes_label(most))]


def strip_marks(
    timeline: Timeline, grain: Grain, rows: Rows, strips: Strips
) -> tuple[list[Shape], list[Name]]:
    """The strips of all devices, a shape per category; and each one's peak, to stand on its right."""
    looks = MEMORY if strips.traces else {COUNTED: IN_FLIGHT, INPUTS: Look(PALER)}
    scale = strips.high / (float(strips.most) or 1)
    outlines, says, peaks, held_for = [], [], [], np.zeros(len(looks))
    for row, (times, held) in enumerate(stacks(timeline, grain, strips)):
        floor = rows.y(row, 1) + rows.collectives + BELOW + strips.high
        levels = floor - scale * np.vstack([np.zeros(len(times)), held.cumsum(axis=0)])
        edges = [*times, timeline.makespan]
        outlines.append([between(edges, above, below) for below, above in pairwise(levels)])
        held_for += held @ np.diff(np.array(edges, float))
        peak = strips.in_words(*([held.sum(axis=0).max()] if strips.traces else held.max(axis=1)))
        says.append(f"device {row}: at most {peak}{'' if strips.traces else ' in flight'}")
        peaks.append(Name(float(levels[-1].min()) if strips.alone else floor - strips.high / 2, peak))
    every = zip(zip(*outlines, strict=True), looks.items(), held_for, strict=True)
    shapes = [
        Shape(shape, look.colour, Entry(20 + i, words, look), look.pattern, says=says)
        for i, (shape, (words, look), shown) in enumerate(every)
        if shown
    ]
    return shapes, peaks


def bytes_label(count: int) -> str:
    """Bytes as a chart has room for them, in whole kB (1,000 bytes), from 10 MB on MB, and so on.

    In words they are ``limit.in_bytes``.
    """
    unit, name = next(each for each in BYTE_UNITS if count >= 10 * each[0] or each[1] == "kB")
    return f"{count / unit:,.0f} {name}" if count >= unit else f"{count} B"


def stacks(timeline: Timeline, grain: Grain, strips: Strips) -> Iterator[Stack]:
    """What each device holds; where that changes more often than a page has room for, thinned."""
    for trace in strips.traces:
        stack = Stack(trace.times, np.array([trace.bytes[category] for category in MEMORY]))
        edges = np.arange(strips.steps) * (float(timeline.makespan) / strips.steps)
        yield _thinned(stack, edges) if len(trace.times) > strips.steps else stack
    share = float(_share(timeline))
    for device in range(0 if strips.traces else timeline.schedule.devices):
        stack = _counted(timeline, device, share)
        yield _thinned(stack, grain.edges(timeline)[:-1]) if grain.column else stack


def _share(timeline: Timeline) -> Fraction:
    """What a stage is of the work of a device."""
    return Fraction(timeline.schedule.devices, timeline.schedule.stages)


def _counted(timeline: Timeline, device: int, share: float) -> Stack:
    """The microbatches that are whole, and those of which only the input is kept until R begins."""
    again = [(span.action.parts[0], span.start) for span in timeline.on(device)]
    again = [(part, start) for part, start in again if part.kind is Kind.R]
    kept = [(timeline.ends[part._replace(kind=Kind.F)], 1) for part, _ in again]
    inputs = sorted([(0, 0), *kept, *((start, -1) for _, start in again)])
    counts = in_flight(timeline, device)
    sums = list(zip((time for time, _ in inputs), accumulate(more for _, more in inputs), strict=True))
    times = sorted({time for time, _ in [*counts, *sums]})
    whole, pale = (_at(times, steps) for steps in (counts, sums))
    return Stack(times, np.array([whole - pale, pale]) * share)


def _at(times: Sequence[Real], steps: Sequence[tuple[Real, int]]) -> np.ndarray:
    """What the last step that has begun says, at each of these times."""
    begins, counts = zip(*steps, strict=True)
    return np.array(counts)[np.searchsorted(np.array(begins, float), np.array(times, float), "right") - 1]


def _thinned(stack: Stack, edges: np.ndarray) -> Stack:
    """The fullest moment from each of these times to the next one."""
    times, total = np.array(stack.times, float), stack.held.sum(axis=0)
    begins = np.maximum(np.searchsorted(times, edges, "right") - 1, 0)  # what is held as a column begins
    begins[0] = 0  # not the last of several samples at time 0
    ends = np.append(begins[1:], len(times) - 1)
    fullest = [a + int(total[a : b + 1].argmax()) for a, b in zip(begins, ends, strict=True)]
    return Stack(edges.tolist(), stack.held[:, fullest])
