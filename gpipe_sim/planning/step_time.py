"""How long a step of a plan takes: its pipelines are simulated, and the rings of its stages follow them.

The ring of a stage starts when its last backward in any replica has ended. A device is in one ring at a time.
Replicas exchange nothing before that, so one of them is simulated for each kind of place that they have.
"""

from copy import copy
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.program import CODE
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.errors import Real
from gpipe_sim.memory.profile import Profile
from gpipe_sim.planning.cluster import Mesh, ring_of
from gpipe_sim.planning.flops import costs_from_flops
from gpipe_sim.pricing.cluster import Cluster
from gpipe_sim.pricing.hardware import Accelerator

Placement = tuple[tuple[int, ...], ...]


class StepTime(NamedTuple):
    """When the pipelines end, when the last ring does, and a timeline for each kind of place."""

    pipelines: Real
    step: Real
    timelines: tuple[Timeline, ...]


def step_time(schedule: Schedule, mesh: Mesh, profile: Profile, cluster: Cluster) -> StepTime:
    """``schedule`` and ``profile`` are those of one replica, with its share of the batch."""
    costs = costs_from_flops(profile, cluster.accelerator, schedule.microbatches)
    timelines = tuple(
        simulate(schedule, costs, links=links, profile=profile) for links in mesh.links(cluster.links)
    )
    ready = np.maximum.reduce([_ready(timeline) for timeline in timelines]).tolist()
    used = stages_used(schedule)
    rings = ring_times(used, mesh, profile.gradient_bytes, cluster)
    pipelines = max(timeline.makespan for timeline in timelines)
    return StepTime(pipelines, max(pipelines, _end(ready, rings, used)), timelines)


def stages_used(schedule: Schedule) -> Placement:
    """The placement, without copies of stages that no microbatch goes through.

    They have no gradients to sum: Chimera with few microbatches sends all of them in one direction.
    """
    placement, stages = schedule.placement, schedule.stages
    alone = sum(map(len, placement)) == stages
    if alone or schedule.microbatches >= schedule.devices:  # then there are enough for both directions
        return placement
    return _used(schedule)


@lru_cache(maxsize=1024)
def _used(schedule: Schedule) -> Placement:
    homes = copy(schedule).program.homes(Kind.F)  # of a copy, so that the program is not kept
    return tuple(
        tuple(stage for stage in held if device in homes[stage])
        for device, held in enumerate(schedule.placement)
    )


@lru_cache(maxsize=1024)
def ring_times(placement: Placement, mesh: Mesh, sizes: tuple[int, ...], cluster: Cluster) -> list[Real]:
    """How long the all-reduce of each stage takes, among all devices that use a copy of it."""

    def members(stage: int) -> list[int]:
        """In the order of their numbers, which is that of the ring."""
        held = [k for k, stages in enumerate(placement) if stage in stages]
        return sorted(mesh.device(replica, k) for replica in range(mesh.replicas) for k in held)

    return [ring_of(cluster.links, members(stage), size) for stage, size in enumerate(sizes)]


def _ready(timeline: Timeline) -> np.ndarray:
    """When each stage's last backward ends."""
    program = timeline.schedule.program
    backward = np.isin(program.kind, (CODE[Kind.B], CODE[Kind.W]))
    ends = timeline.end[program.entry[backward]]
    found = np.zeros(program.stages, ends.dtype)
    np.maximum.at(found, program.stage[backward], ends)
    return found


def _end(ready: list[Real], rings: list[Real], placement: Placement) -> Real:
    """When the last ring ends, if those that are ready first come first."""
    free: list[Real] = [0] * len(placement)
    for stage in sorted(range(len(ready)), key=lambda stage: ready[stage]):
        members = [k for k, held in enumerate(placement) if stage in held]
        end = max(ready[stage], *(free[k] for k in members)) + rings[stage]
        for k in members:
            free[k] = end
    return max(free)


def parts_of(
    profile: Profile, schedule: Schedule, accelerator: Accelerator, pipelines: Real, step: Real
) -> dict[str, float]:
    """Of a replica; ``pipelines`` is when the last of them ends, ``step`` when the last all-reduce does."""
    compute, again = _on_average(profile, schedule, accelerator)
    alone = simulate(schedule, costs_from_flops(profile, accelerator, schedule.microbatches))
    busy = np.add.reduceat(alone.end - alone.start, schedule.program.rows[:-1]).astype(float).tolist()
    mean, most, makespan = sum(busy) / len(busy), max(busy), float(alone.makespan)
    return {
        "compute": compute,
        "recompute": again,
        "overhead": mean - compute - again,
        "imbalance": most - mean,
        "bubble": makespan - most,
        "messages": float(pipelines) - makespan,
        "all-reduce": float(step) - float(pipelines),
    }


def _on_average(profile: Profile, schedule: Schedule, accelerator: Accelerator) -> tuple[float, float]:
    """What each device of a pipeline takes to compute, and to compute again, if all do as much."""
    forward = sum(layer.flops for layer in profile.layers)
    backward = sum(layer.input_flops + layer.weight_flops for layer in profile.layers)
    each = profile.samples / schedule.devices / float(accelerator.flops)
    again = forward if Kind.R in schedule.program.where else 0
    return (forward + backward) * each, again * each
