"""A cut that fits where the fastest does not: early stages of 1F1B hold more microbatches, so they get less.

It is for pipelines whose devices have a stage each. A stage of certain layers on device k takes its weights,
their gradients, and what it keeps of each microbatch that the schedule has in flight there. Of the cuts that
fit by this count, the one whose slowest stage is the fastest is found exactly.
"""

from functools import lru_cache
from math import inf

import numpy as np

from gpipe_sim.balance.cuts import Search
from gpipe_sim.core.bubbles import peak_in_flight
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.planning.layer_table import Cut, LayerTable

Column = np.ndarray


def fitting_cut(table: LayerTable, schedule: Schedule, samples: int, recompute: bool) -> Cut | None:
    """The cut, for microbatches of so many samples; None if there is none, or a device has other stages."""
    layers, stages = table.count, schedule.devices
    if any(held != (device,) for device, held in enumerate(schedule.placement)):
        return None
    in_flight, width = peak_in_flight(schedule), layers - stages + 1
    takes, fixed, kept, working = _tables(table, samples, recompute, width)

    @lru_cache(maxsize=2)
    def of_device(held: int) -> Column:
        fits = fixed + held * kept + working <= table.cluster.memory
        return np.where(fits, takes, inf)

    search = Search(lambda stage, _: of_device(in_flight[stage]), width, layers, stages, inf)
    return tuple(search.best()) if search.rest()[0][0] < inf else None


def _tables(table: LayerTable, samples: int, recompute: bool, width: int) -> tuple[Column, ...]:
    """A row for each layer that a stage starts with, a column for each number of layers that it has.

    What it computes; its weights with gradients; what it keeps of a microbatch; and what is there for one
    more while that is computed again.
    """
    first = np.arange(table.count)[:, None]
    end = first + np.arange(1, width + 1)
    there = np.minimum(end, table.count)

    def between(sums: Column) -> Column:
        return sums[there] - sums[first]

    flops = table.forward * (2 if recompute else 1) + table.input_grad + table.weight_grad
    takes = np.where(end <= table.count, between(flops), inf)
    saved, inputs = between(table.saved(samples)), table.inputs(samples)[:, None]
    nothing = np.zeros_like(saved)
    kept, working = (inputs + nothing, saved) if recompute else (saved + inputs, nothing)
    return takes, between(table.fixed + table.gradients), kept, working
