"""What the time of a step is made of: parts that add up to it, each the difference of two computed times."""

from itertools import pairwise
from numbers import Real

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.memory.profile import Profile
from gpipe_sim.planning.hardware import Accelerator, costs_from_flops


def parts_of(
    profile: Profile, schedule: Schedule, accelerator: Accelerator, pipelines: Real, step: Real
) -> dict[str, float]:
    """Of a replica; ``pipelines`` is when the last of them ends, ``step`` when the last all-reduce does."""
    compute, again = _on_average(profile, schedule, accelerator)
    alone = simulate(schedule, costs_from_flops(profile, accelerator, schedule.microbatches))
    busy, makespan = _busy(alone), float(alone.makespan)
    mean, most = sum(busy) / len(busy), max(busy)
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


def _busy(timeline: Timeline) -> list[float]:
    """How long each device computes."""
    taken = timeline.end - timeline.start
    return [float(taken[a:b].sum()) for a, b in pairwise(timeline.schedule.program.rows.tolist())]
