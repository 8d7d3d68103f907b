"""How deep a model fits: the most layers that the devices have room for, under a schedule.

What a device holds depends on its own layers and on the order of its actions, not on how deep the other
stages are. So each device can be asked alone, all of them in one prediction; and as every further layer takes
as many bytes as the last one, two predictions nearly tell where the limit is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.memory import MemoryTrace
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.errors import Real, got, require, whole
from gpipe_sim.memory.limit import Limit, read_limits, require_within
from gpipe_sim.memory.prediction import predict_memory
from gpipe_sim.memory.profile import LayerProfile, Profile, Size

MOST = 60_000  #: blocks in all, each for every microbatch, which take some seconds to predict
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


def deepest_model(schedule: Schedule, profile: Profile, block: int, memory_limit: "Limit") -> Deepest:
    """The deepest model of this kind whose step keeps every device within its limit.

    ``profile`` is that of a model in which the layer number ``block`` may stand any number of times in a row,
    as a Transformer's block may. How it is cut does not matter: the layers before that one go to the
    schedule's first stage, those after it to the last. ``memory_limit`` is in bytes, one number or one for
    each device, and is kept also while an action runs. Stages that share a device have equally many blocks.

    MemoryLimitError if one block in each stage is too many already. ValueError for a layer that cannot follow
    itself because it gives another size than it takes, or a limit that more blocks keep than can be predicted
    in seconds: 60,000 in all, divided by the microbatches.
    """
    require_schedule("deepest_model", schedule)
    require("deepest_model", profile, Profile, "a profile, such as profile(partitions, batch, loss)")
    before, middle, after = _cut(profile, block)
    limits = read_limits(schedule.devices, memory_limit)
    groups = _groups(schedule)
    devices = [[k for k, held in enumerate(schedule.placement) if group & {*held}] for group in groups]

    def model(counts: Sequence[int]) -> tuple[tuple[int, ...], Profile]:
        blocks = [0] * schedule.stages
        for group, count in zip(groups, counts, strict=True):
            for stage in group:
                blocks[stage] = count
        stages = [(middle,) * count for count in blocks]
        stages[0] = before + stages[0]
        stages[-1] += after
        return tuple(blocks), replace(profile, stages=tuple(stages))

    memory: dict[tuple[int, ...], tuple[MemoryTrace, ...]] = {}  # of what was tried

    def spare(counts: Sequence[int]) -> list[Real]:
        """For each group, what its fullest device has left."""
        blocks, deeper = model(counts)
        traces = memory[blocks] = predict_memory(schedule, deeper)
        left = [limit - trace.peak_inside.bytes for limit, trace in zip(limits, traces, strict=True)]
        return [min(left[device] for device in each) for each in devices]

    ones = [1] * len(groups)
    require_within(schedule, model(ones)[1], limits)
    of_one = spare(ones)
    most = max(STEP, MOST // (schedule.stages * schedule.microbatches))
    counts = [most]
    if max(of_one) < most * schedule.stages * _made(middle, schedule.microbatches, profile.samples):
        counts = _most(spare, of_one, most)
    if max(counts) == most:
        found = f"{most:,} blocks in each stage fit"
        raise ValueError(f"deepest_model needs a smaller memory_limit, {found} {got(memory_limit)}")
    blocks, deepest = model(counts)
    return Deepest(blocks, deepest, memory.get(blocks) or predict_memory(schedule, deepest))


def _made(block: LayerProfile, microbatches: int, samples: int) -> int:
    """More bytes than a block ever holds: as if each kind of action made all of it, and kept it."""
    arrays = (*block.gradients.values(), block.output, *block.saved, block.input_gradient, *block.pending)
    arrays += block.along + block.forward_inside + block.backward_inside + (block.selective or ((),))[0]
    made = sum(each.fixed * microbatches + each.per_sample * samples for each in arrays if type(each) is Size)
    versions = (1 + microbatches) * (sum(block.parameters.values()) + block.state)
    return len(Kind) * (made + versions)


def _most(spare: Callable[[Sequence[int]], list[Real]], of_one: list[Real], most: int) -> list[int]:
    """For each group the largest number of blocks with nothing lacking, given what one block leaves."""
    known = [{1: left} for left in of_one]
    while True:
        counts = [_next(each, most) for each in known]
        if all(count in each for count, each in zip(counts, known, strict=True)):
            return counts
        for each, count, left in zip(known, counts, spare(counts), strict=True):
            each[count] = left


def _next(left: dict[int, Real], most: int) -> int:
    """The count to try, given what other counts leave; or the one that is known to be the largest.

    It is where a straight line through two of them meets 0, but no giant's step: what a device holds is the
    most at any moment, so it may soon grow faster than at first.
    """
    counts = sorted(left)
    fits = max(count for count in counts if left[count] >= 0)
    too_many = min((count for count in counts if left[count] < 0), default=most + 1)
    if too_many - fits == 1:
        return fits
    furthest = min(STEP * fits, too_many - 1)
    other = too_many if too_many in left else max((count for count in counts if count < fits), default=None)
    if other is None or left[other] == left[fits]:
        return min(2 * fits, furthest)
    crosses = fits + left[fits] * (other - fits) // (left[fits] - left[other])
    return int(min(max(crosses, fits + 1), furthest))


def _groups(schedule: Schedule) -> list[set[int]]:
    """The stages that have equally many blocks, because they share a device, with those of its other ones."""
    groups: list[set[int]] = []
    for held in schedule.placement:
        joined = {*held}.union(*(group for group in groups if group & {*held}))
        groups = [group for group in groups if not group & joined] + [joined]
    return groups


def _cut(profile: Profile, block: int) -> tuple[Layers, LayerProfile, Layers]:
    layers = profile.layers
    block = whole("deepest_model", "block, the number of a layer,", block, low=0, high=len(layers) - 1)
    taken, given = profile.boundaries[block : block + 2]
    if taken["x"] != given["x"]:
        raise ValueError(
            f"layer {block} cannot follow itself: it takes {taken['x'].of(1):,} bytes for a sample, "
            f"and gives {given['x'].of(1):,}"
        )
    if taken != given:
        raise ValueError(f"layer {block} cannot follow itself: it changes what travels along, such as a mask")
    return layers[:block], layers[block], layers[block + 1 :]
