"""Where a device waits in the middle of its work, for a reply that asks why."""

from gpipe_sim.core.actions import Action
from gpipe_sim.core.schedule import needs
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.errors import Real
from gpipe_sim.why.metrics import idle_spans


def first_wait(timeline: Timeline, device: int) -> tuple[Real, Real, Action] | None:
    """From when to when the device first waits between two actions, and for what; None if it never does."""
    row = timeline.on(device)
    for start, end in idle_spans(timeline, device):
        if row[0].end <= start < row[-1].start:
            held_up = next(span.action for span in row if span.start == end)
            return start, end, max(needs(held_up, timeline.schedule), key=lambda need: timeline.ends[need])
    return None
