"""What stages cost that are made of layers: the costs of their layers, added up."""

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import accumulate, pairwise
from typing import Any

from gpipe_sim.core.costs import PER_DEVICE, Cost, Costs
from gpipe_sim.errors import got, listed, require, whole

#: The costs that are added up. What a message takes is the same wherever the model is cut.
PER_STAGE = {field.name for field in fields(Costs)} - {"comm"} - PER_DEVICE


def layers_listed(owner: str, costs: Costs) -> int:
    """How many layers the costs list, 0 if each is one number; TypeError for what nobody can add up."""
    require(owner, costs, Costs, "costs of single layers, such as Costs.from_forward([1, 1, 2])")
    if type(costs).duration is not Costs.duration:
        such = "a duration of its own"
        raise TypeError(f"{owner} adds up the costs of layers, so it needs Costs without {such} {got(costs)}")
    listed_here = (cost for name, cost in vars(costs).items() if name in PER_STAGE)
    return max((len(cost) for cost in listed_here if isinstance(cost, tuple)), default=0)


def merged(costs: Costs, balance: Sequence[int]) -> Costs:
    """Read these costs as those of single layers, and add them up: stage s gets ``balance[s]`` layers.

    A cost that is one number is that of each layer. A message takes as long as before, and so does the
    overhead of an action. ``merged(Costs.from_forward([1, 1, 1, 2]), [3, 1])`` has a forward of 3 and of 2.
    TypeError or ValueError unless the balance lists whole numbers of at least 1 that add up to all layers.
    """
    require("merged", costs, Costs, "costs, such as Costs.from_forward([1, 1, 1, 2])")
    balance = listed("merged", "how many layers each stage gets, such as [2, 2, 1]", balance)
    ends = [0, *accumulate(whole("merged", "each stage's layers", size) for size in balance)]
    costs.require_length("layers", ends[-1], PER_STAGE, "the balance")
    sums: dict[str, Any] = {name: _summed(getattr(costs, name), ends) for name in PER_STAGE}
    return replace(costs, **sums)


def _summed(cost: Cost | None, ends: Sequence[int]) -> Cost | None:
    if isinstance(cost, Sequence):
        return tuple(sum(cost[a:b]) for a, b in pairwise(ends))
    return None if cost is None else tuple((b - a) * cost for a, b in pairwise(ends))
