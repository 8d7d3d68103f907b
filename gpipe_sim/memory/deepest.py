"""How deep a model fits: the most layers that the devices have room for, under a schedule.

What a device holds depends on its own layers and on the order of its actions, not on how deep the other
stages are. So each device can be asked alone, all of them in one prediction; and as every further layer takes
as many bytes as the last one, two predictions nearly tell where the limit is.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import NamedTuple

from gpipe_sim.core.cost_model import CostModel
from gpipe_sim.core.memory import MemoryTrace
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.errors import got, require, whole
from gpipe_sim.memory.limit import Limit, read_limits, require_within
from gpipe_sim.memory.prediction import predict_memory
from gpipe_sim.memory.profile import INPUT, LayerProfile, Profile

MOST = 20_000  #: blocks in all, which take some seconds to predict
STEP = 10  #: how many times as many blocks as are known to fit are tried at most
Layers = tuple[LayerProfile, ...]


@dataclass(frozen=True, repr=False)
class Deepest:
    """The deepest model that fits: how many ``blocks`` each stage has, and what the devices then hold.

    ``profile`` is the whole model's, ``memory`` its prediction.
    """

    blocks: tuple[int, ...]
    profile: Profile
    memory: tuple[MemoryTrace, ...]

    @property
    def depth(self) -> int:
        """The blocks of all stages together."""
        return sum(self.blocks)

    def __repr__(self) -> str:
        return f"<Deepest: {self.depth} blocks in {len(self.blocks)} stages>"


class _Group(NamedTuple):
    """Stages that have equally many blocks, because they share a device; and all devices that hold them."""

    stages: tuple[int, ...]
    devices: tuple[int, ...]


class _Search(NamedTuple):
    """What is known of a group: how many blocks fit, how many do not, and what another count leaves."""

    fits: int
    spare: Real  # bytes that are left then
    too_many: int
    other: int = 0  # another count that was tried
    lacks: Real = 0  # how much less is left then


def deepest_model(
    schedule: Schedule, profile: Profile, block: int, memory_limit: Limit, costs: CostModel | None = None
) -> Deepest:
    """The deepest model of this kind whose step keeps every device within its limit.

    ``profile`` is that of a model in which the layer number ``block`` may stand any number of times in a row,
    as a Transformer's block may. How it is cut does not matter: the layers before that one go to the
    schedule's first stage, those after it to the last. ``memory_limit`` is in bytes, one number or one for
    each device, and is kept also while an action runs. Stages that share a device have equally many blocks.

    MemoryLimitError if one block in each stage is too many already. ValueError for a layer that cannot follow
    itself because it gives another size than it takes, or a limit that 20,000 blocks in all keep.
    """
    require_schedule("deepest_model", schedule)
    require("deepest_model", profile, Profile, "a profile, such as profile(partitions, batch, loss)")
    before, middle, after = _cut(profile, block)
    limits = read_limits(schedule, memory_limit)
    groups = list(_groups(schedule))

    def model(counts: Sequence[int]) -> tuple[tuple[int, ...], Profile]:
        blocks = [0] * schedule.stages
        for group, count in zip(groups, counts, strict=True):
            for stage in group.stages:
                blocks[stage] = count
        stages = [(middle,) * count for count in blocks]
        stages[0] = before + stages[0]
        stages[-1] += after
        return tuple(blocks), replace(profile, stages=tuple(stages))

    def spare(traces: Sequence[MemoryTrace]) -> list[Real]:
        """For each group, what its fullest device has left."""
        left = [limit - trace.peak_inside.bytes for limit, trace in zip(limits, traces, strict=True)]
        return [min(left[device] for device in group.devices) for group in groups]

    ones = [1] * len(groups)
    traces = require_within(schedule, model(ones)[1], limits, costs)
    most = max(1, MOST // schedule.stages)
    counts = _most(
        lambda counts: spare(predict_memory(schedule, model(counts)[1], costs)), spare(traces), most
    )
    if max(counts) == most:
        found = f"{most:,} blocks in each stage fit"
        raise ValueError(f"deepest_model needs a smaller memory_limit, {found} {got(memory_limit)}")
    blocks, deepest = model(counts)
    return Deepest(blocks, deepest, predict_memory(schedule, deepest, costs))


def _most(spare: Callable[[Sequence[int]], list[Real]], of_one: list[Real], most: int) -> list[int]:
    """For each group the largest number of blocks with something to spare, given what one block leaves."""
    groups = [_Search(1, left, most + 1) for left in of_one]
    while any(group.too_many - group.fits > 1 for group in groups):
        tried = [_next(group) for group in groups]
        groups = [_told(*each) for each in zip(groups, tried, spare(tried), strict=True)]
    return [group.fits for group in groups]


def _next(group: _Search) -> int:
    """The count to try: where a straight line through the two that are known meets 0, but no giant's step.

    What a device holds is the most at any moment, so it may soon grow faster than at first.
    """
    if group.too_many - group.fits == 1:
        return group.fits  # this group's search is over
    furthest = min(STEP * group.fits, group.too_many - 1)
    if not group.lacks:
        return min(2 * group.fits, furthest)
    crosses = group.fits + group.spare * (group.other - group.fits) // group.lacks
    return int(min(max(crosses, group.fits + 1), furthest))


def _told(group: _Search, tried: int, spare: Real) -> _Search:
    if tried == group.fits:
        return group
    lacks = group.spare - spare
    if spare < 0:
        return group._replace(too_many=tried, other=tried, lacks=lacks)
    return group._replace(fits=tried, spare=spare, other=group.fits, lacks=-lacks)


def _groups(schedule: Schedule) -> Iterator[_Group]:
    """The stages, put together where they share a device; in Chimera, devices that share a stage as well."""
    left = dict(enumerate(schedule.placement))
    while left:
        stages, devices = set(), set()
        device = min(left)
        while device is not None:
            devices.add(device)
            stages |= set(left.pop(device))
            device = next((other for other, held in left.items() if stages & set(held)), None)
        yield _Group(tuple(sorted(stages)), tuple(sorted(devices)))


def _cut(profile: Profile, block: int) -> tuple[Layers, LayerProfile, Layers]:
    layers = profile.layers
    block = whole("deepest_model", "block, the number of a layer,", block, low=0, high=len(layers) - 1)
    taken, given = profile.boundaries[block : block + 2]
    if taken[INPUT] != given[INPUT]:
        raise ValueError(
            f"layer {block} cannot follow itself: it takes {taken[INPUT].of(1):,} bytes for a sample, "
            f"and gives {given[INPUT].of(1):,}"
        )
    if taken != given:
        raise ValueError(f"layer {block} cannot follow itself: it changes what travels along, such as a mask")
    return layers[:block], layers[block], layers[block + 1 :]
