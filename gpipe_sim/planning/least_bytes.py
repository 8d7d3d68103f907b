"""What each device holds at the least, from running sums over its row: no layer is asked, so it is quick.

Messages that wait, the outputs and what the loss keeps are left out, and so is what exists only inside an
action. What is left is nearly all.
"""

from itertools import pairwise

import numpy as np

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.program import CODE, Program
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.planning.layer_table import Stages
from gpipe_sim.planning.step_time import stages_used

Column = np.ndarray
F, B, I, W = (CODE[kind] for kind in (Kind.F, Kind.B, Kind.I, Kind.W))


def static_bytes(schedule: Schedule, stages: Stages) -> Column:
    """For each device its weights, what an optimizer keeps for them, and the gradients that it makes."""
    both = zip(schedule.placement, stages_used(schedule), strict=True)
    return np.array(
        [stages.fixed[list(held)].sum() + stages.gradients[list(used)].sum() for held, used in both]
    )


def least_bytes(program: Program, stages: Stages, recompute: bool) -> Column:
    """For each device of an order without R; with ``recompute``, as if an R stood before each backward."""
    at, kind = program.stage, program.kind
    whole = stages.saved + np.where(stages.saves_input, stages.boundary, 0)
    kept = stages.boundary if recompute else whole
    change = np.select(
        [kind == F, kind == B, kind == I, kind == W],
        [kept[at], -kept[at], stages.pending[at] - kept[at], -stages.pending[at]],
        0,
    )
    first = _first_gradients(program)
    change[first] += stages.gradients[at[first]]
    again = np.where((kind == B) | (kind == I), (whole - kept)[at], 0)  # what an R adds
    change, again = (np.add.reduceat(column, program.first) for column in (change, again))
    found = []
    for device, (a, b) in enumerate(pairwise(program.rows.tolist())):
        fixed = stages.fixed[list(program.placement[device])].sum()
        after = np.cumsum(change[a:b])
        before = after - change[a:b] + again[a:b]
        found.append(fixed + max(after.max(initial=0), before.max(initial=0)))
    return np.array(found)


def _first_gradients(program: Program) -> Column:
    """Of each device and stage, the part that makes its gradients first."""
    makes = np.flatnonzero((program.kind == B) | (program.kind == W))
    keys = program.device[makes].astype(np.int64) * program.stages + program.stage[makes]
    return makes[np.unique(keys, return_index=True)[1]]
