"""What the layers of a run cost, as far as what its stages cost and what the caller says can tell.

    stages    [       8       ][   8   ][        13        ]      measured
    layers    [ 2 ][ 2 ][ 2 ][2][4][4]  [ 2 ][ 2 ][    9    ]      supposed: a head in the last layer

Layers of one stage are taken to cost the same. At both ends a stage may have more than layers, an embedding
or a head; what it takes beyond the usual is put on the outermost layer, where no cut can take it apart.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from statistics import median_low
from typing import Any, NamedTuple

from gpipe_sim.balance.by_makespan import MOST
from gpipe_sim.balance.costs_of_stages import PER_STAGE, layers_listed
from gpipe_sim.core.costs import Cost, Costs
from gpipe_sim.core.numbers import quotient
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.errors import Real, got, listed, require_few, whole
from gpipe_sim.memory.profile import Profile
from gpipe_sim.why.usual import in_common

OWNER = "what_if"
PARTS = 4  #: equal parts that a stage is taken to be made of, if nobody says what its layers are
SLOW = 1.2  #: times as long as usual, from which on a device is called slow
COMPUTING = sorted(PER_STAGE - {"update"})  #: what shrinks with a microbatch
FLOPS = "layers share a stage's time as they share its FLOPs"
EQUAL = "layers of one stage cost the same"
HEAVY_END = "what an outer stage takes beyond the usual is its outermost layer's, such as a head's"


class Layers(NamedTuple):
    """What each layer costs, how many each stage has, and what had to be supposed for that.

    ``said``: whether there are layers; otherwise each stage is so many equal ``PARTS``. ``stages`` are the
    costs that the layers of each stage add up to.
    """

    costs: Costs
    balance: tuple[int, ...]
    said: bool
    assumes: tuple[str, ...]
    stages: Costs

    @property
    def head(self) -> Real:
        """The share of the last stage that it takes beyond what as many of the usual layers take."""
        work = work_of(self.stages, len(self.balance))
        usual = median_low(map(quotient, work, self.balance)) * self.balance[-1]
        return quotient(max(0, work[-1] - usual), work[-1]) if work[-1] else 0


def read_layers(
    costs: Costs,
    schedule: Schedule,
    layers: Sequence[int] | Costs | None,
    profile: Profile | None,
    fitted: bool = False,
) -> Layers:
    """``layers`` as ``what_if`` takes them; without any, those of the profile, by their FLOPs.

    Costs that are ``fitted`` do not say whether a stage is slow or its device is; costs that are given do.
    """
    stages, work = schedule.stages, work_of(costs, schedule.stages)
    if layers is None and profile is not None:
        profile.require_stages(schedule)
        alone = replace(profile, stages=tuple((layer,) for layer in profile.layers))
        balance = _counts([len(stage) for stage in profile.stages], stages)
        weights = work_of(alone.costs(schedule.microbatches), sum(balance))
        assumes: tuple[str, ...] = (FLOPS,)
    elif isinstance(layers, Costs):
        count = layers_listed(OWNER, layers)
        if count < stages:
            raise ValueError(f"{OWNER} needs layers= to list costs of {stages} layers or more {got(layers)}")
        require_few(OWNER, count, "layers", MOST)
        weights = work_of(layers, count)
        balance, assumes = _nearest(weights, work), ()
    else:
        balance = [PARTS if stages <= MOST else 1] * stages if layers is None else _counts(layers, stages)
        weights, heavy = _supposed(work, balance)
        assumes = (EQUAL, HEAVY_END) if heavy else (EQUAL,)
    costs = _by_device(costs, schedule, balance) if fitted else costs
    said = layers is not None or profile is not None
    return Layers(_apart(costs, weights, balance), tuple(balance), said, assumes, costs)


def work_of(costs: Costs, count: int) -> list[Real]:
    """What a microbatch takes at each stage, forward and back, on a device of speed 1."""
    each = (each_of(cost, count) for cost in (costs.forward, costs.input_grad, costs.weight_grad))
    return [sum(three) for three in zip(*each, strict=True)]


def each_of(cost: Cost, count: int) -> Sequence[Real]:
    return cost if isinstance(cost, Sequence) else (cost,) * count


def _counts(layers: Sequence[int], stages: int) -> list[int]:
    such_as = "layers= to list how many layers each stage has, such as [4, 4, 4, 4], or Costs of each layer"
    counts = [whole(OWNER, "each of layers=", count) for count in listed(OWNER, such_as, layers)]
    if len(counts) != stages:
        raise ValueError(f"{OWNER} needs layers= for {stages} stages {got(layers)}")
    require_few(OWNER, sum(counts), "layers", MOST)
    return counts


def _nearest(weights: Sequence[Real], work: Sequence[Real]) -> list[int]:
    """The cut of layers with these costs that comes nearest to what the stages take."""
    ends, total = [0], float(sum(weights)) / float(sum(work) or 1)
    done = list(map(float, accumulate(weights)))
    for stage, passed in enumerate(accumulate(work), start=1):
        off = [abs(each - float(passed) * total) for each in done]
        ends.append(1 + min(range(ends[-1], len(done) - len(work) + stage), key=off.__getitem__))
    ends[-1] = len(weights)
    return [end - start for start, end in pairwise(ends)]


def _supposed(work: Sequence[Real], balance: Sequence[int]) -> tuple[list[Real], bool]:
    """(what each layer takes, whether an end of the model is taken to be heavier than its layers)."""
    usual = median_low(map(quotient, work, balance))
    found = [[quotient(taken, count)] * count for taken, count in zip(work, balance, strict=True)]
    heavy = False
    for stage, outer in ((0, 0), (-1, -1)):
        if balance[stage] > 1 and found[stage][0] > usual:
            heavy |= found[stage][0] > SLOW * usual
            found[stage] = [usual] * balance[stage]
            found[stage][outer] = work[stage] - usual * (balance[stage] - 1)
    return [weight for stage in found for weight in stage], heavy


def _by_device(costs: Costs, schedule: Schedule, balance: Sequence[int]) -> Costs:
    """The same costs with a slow device told from heavy stages: where all of several stages are as slow."""
    if costs.speed != 1 or any(len(held) < 2 for held in schedule.placement):
        return costs
    each = list(map(quotient, work_of(costs, schedule.stages), balance))
    usual = median_low(each) or 1
    slow = [in_common([quotient(each[stage], usual) for stage in held]) for held in schedule.placement]
    if max(slow) < SLOW or sum(map(len, schedule.placement)) > schedule.stages:
        return costs
    speed = [quotient(1, by) if by >= SLOW else 1 for by in slow]
    by_stage = {stage: speed[device] for device, held in enumerate(schedule.placement) for stage in held}
    return replace(scaled(costs, [by_stage[stage] for stage in sorted(by_stage)]), speed=speed)


def _apart(costs: Costs, weights: Sequence[Real], balance: Sequence[int]) -> Costs:
    """The costs of layers that add up to those of their stages, in proportion to these weights."""
    ends = [0, *accumulate(balance)]
    shares = [list(_shares(weights[a:b])) for a, b in pairwise(ends)]

    def each(cost: Cost) -> tuple[Real, ...]:
        stages = zip(each_of(cost, len(balance)), shares, strict=True)
        return tuple(taken * share for taken, of_stage in stages for share in of_stage)

    found: dict[str, Any] = {name: each(cost) for name, cost in _said(costs)}
    return replace(costs, **found)


def _shares(weights: Sequence[Real]) -> Iterator[Real]:
    total = sum(weights)
    return (quotient(weight, total) if total else quotient(1, len(weights)) for weight in weights)


def _said(costs: Costs) -> Iterator[tuple[str, Cost]]:
    given = ((name, getattr(costs, name)) for name in sorted(PER_STAGE))
    return ((name, cost) for name, cost in given if cost is not None)


def scaled(costs: Costs, by: Sequence[Real]) -> Costs:
    """The same costs with all computing of stage s multiplied by ``by[s]``; messages and overhead stay."""
    said = ((name, cost) for name, cost in _said(costs) if name in COMPUTING)
    found: dict[str, Any] = {name: tuple(map(_times, each_of(cost, len(by)), by)) for name, cost in said}
    return replace(costs, **found)


def _times(time: Real, by: Real) -> Real:
    product = time * by
    return quotient(product, 1)
