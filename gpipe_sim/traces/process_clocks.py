"""Clocks of several processes, and what the messages between these say of them."""

from collections.abc import Sequence

import numpy as np

from gpipe_sim.core.schedule import Schedule, needs
from gpipe_sim.traces.clocks import closed
from gpipe_sim.traces.notes import Timed


def clocks(schedule: Schedule, noted: Sequence[Sequence[Timed]], others: np.ndarray) -> np.ndarray:
    """What to add to each process's times so that all are on the clock of the first, in seconds.

    Whatever one process had done before another could go on says how far their clocks are apart at least,
    and a message the other way says how far at most. The middle is taken: then nothing comes before what it
    needs, on any clock. It is off by half of what the quickest message each way took at most, or a little
    more where none was waited for. ``others`` has what else is known, (process, process): by how much the
    second clock is behind the first at least, in seconds.
    """
    apart = others.copy()
    ran = {a: (process, start, end) for process, spans in enumerate(noted) for a, start, end in spans}
    for action, (mine, start, _) in ran.items():
        for its, _, end in (ran[need] for need in needs(action, schedule) if need in ran):
            apart[its, mine] = max(apart[its, mine], end - start)
    apart = -closed(-apart)
    return (apart[0] - apart[:, 0]) / 2
