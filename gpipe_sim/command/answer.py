"""What a subcommand gives back, and what several of them say: the numbers of a timeline."""

from typing import NamedTuple

from gpipe_sim.core.bubbles import bubble_fraction, peak_in_flight
from gpipe_sim.core.timeline import Timeline, number
from gpipe_sim.drawing.words import caption

MOST_LISTED = 64  #: devices


class Answer(NamedTuple):
    text: str
    status: int = 0  #: 0 is yes, or done; 1 is no


def numbers(timeline: Timeline) -> str:
    """Four lines: what was timed, and its makespan, bubble fraction and microbatches in flight."""
    peaks = peak_in_flight(timeline.schedule)
    held = ", ".join(map(str, peaks)) if len(peaks) <= MOST_LISTED else f"at most {max(peaks)}"
    each = "pairs of stage and microbatch" if timeline.schedule.program.stacked else "microbatches"
    return (
        f"{timeline.schedule.name}, {caption(timeline)}\n"
        f"makespan   {number(timeline.makespan)}\n"
        f"bubble     {float(bubble_fraction(timeline)):.1%} of the devices' time is waiting\n"
        f"in flight  {held}: the most {each} that each device holds"
    )
