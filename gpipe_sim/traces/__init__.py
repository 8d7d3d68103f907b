"""Traces: real runs in, timelines for trace viewers out, and a recorder for loops that label nothing.

``read_trace`` takes the files that ``torch.profiler`` writes, one for each rank, or a table of spans that
somebody measured, and gives a ``Timeline`` for each step. The way of a trace:

    files     which files, within limits; what is in each
    kineto    one rank's file as columns: labels, waits, operators, kernels
    labels, unlabelled     when each action ran, by the rank's own clock; ``gaps``: what is between two,
              ``gpu``: the kernels of one
    steps     which actions belong to one step
    ranks     the files of all ranks together
    clocks    how far the ranks' clocks are apart, as their messages tell
    timeline_of     which order it is and whether it is whole, the messages, and a ``Timeline`` with notes
    tables    a CSV or JSON of measured spans comes in here, and goes the same way from ``clocks`` on
    own_files       what ``to_chrome_trace`` wrote, which has all devices in one file

Nothing that is read is run. A file that would give a wrong timeline is refused, in words that say what to
record instead; what had to be assumed stands in ``notes`` of each timeline.

``to_chrome_trace`` writes timelines, simulated or measured, as a file that Perfetto and chrome://tracing
open. ``Recorder`` notes when the actions of somebody else's loop start and end, such as Megatron's, and
writes them as a table of spans, which ``read_trace`` reads. Lesson 21, "Read a real run".
"""

from gpipe_sim.signatures import readable
from gpipe_sim.traces.chrome import to_chrome_trace
from gpipe_sim.traces.read import read_trace
from gpipe_sim.traces.recorder import Recorder

__all__ = ["Recorder", "read_trace", "to_chrome_trace"]

readable(__name__)
