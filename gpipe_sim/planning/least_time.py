"""How long a step takes at the least, from what stages take alone: no order is laid out.

A device can do nothing before the first microbatch has come through the stages before its own. Then it has
all its actions to do, one after another. After its last backward, that microbatch still goes back:

    device k   [ head ][ all that device k does ][ tail, or its all-reduce ]

If weight gradients are actions of their own they may come last, and then nothing goes back after them; but
forwards and input gradients alone are followed by a tail as well.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpipe_sim.planning.layer_table import Stages

Column = np.ndarray


class Shape(NamedTuple):
    """What is known of an order before it is laid out."""

    placement: tuple[tuple[int, ...], ...]
    microbatches: int
    split: bool  #: whether W is an action of its own
    recompute: bool


def least_time(shape: Shape, stages: Stages, overhead: float, rings: Sequence[float]) -> float:
    """``rings``: how long the all-reduce of each stage takes. They follow its last backward."""
    placement, m = shape.placement, shape.microbatches
    near = _neighbours(placement, len(stages.forward))
    forward = stages.forward + overhead
    again = forward if shape.recompute else 0
    back = stages.input_grad + overhead + (0 if shape.split else stages.weight_grad)
    weight = stages.weight_grad if shape.split else 0  # its overhead may be that of a full backward
    head = _before(forward, np.where(near, 0, stages.arrives))
    tail = _before(back, np.where(near, 0, np.roll(stages.returns, 1)))
    chain, all_work = m * (forward + again + back), m * (forward + again + back + weight)
    held = np.array(placement)
    # of copies, each has a share of the microbatches, so a device works on its stages in turn
    together = np.min if held.size > len(stages.forward) else np.sum
    start, end, ring = (each[held].min(axis=1) for each in (head, tail, np.array(rings, float)))
    until_last_backward = start + together(chain[held], axis=1) + end
    until_ring = start + together(all_work[held], axis=1) + ring
    return max(until_last_backward.max(), until_ring.max())


def _before(takes: Column, arrives: Column) -> Column:
    """For each stage, all stages before it, and the messages up to it."""
    return np.cumsum(takes) - takes + np.cumsum(arrives)


def _neighbours(placement: tuple[tuple[int, ...], ...], stages: int) -> Column:
    """Whether a stage and the one before it may be on one device, with no message between them."""
    near = np.zeros(stages, bool)
    for held in map(set, placement):
        near[[stage for stage in held if stage - 1 in held]] = True
    return near
