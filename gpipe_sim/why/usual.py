"""What an action usually takes: at its stage, on its device; and which of the two makes it slow.

Where each device holds one stage, and no other device holds that, nobody can tell them apart.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from itertools import pairwise
from typing import TypeVar

from gpipe_sim.core.numbers import quotient
from gpipe_sim.core.program import Program
from gpipe_sim.errors import Real
from gpipe_sim.why.gaps import median

Column = list[Real]
K = TypeVar("K", bound=Hashable)
Sort = tuple[tuple[int, int], ...]  #: what entries have the same usual time: kind and stage of each part


def usual_times(program: Program, took: Column) -> tuple[Column, Column, Column]:
    """What each entry takes if all stages are equal; if devices are; and usually, on its own device."""
    kind, stage, parts = program.kind.tolist(), program.stage.tolist(), program.parts.tolist()
    sorts = [tuple(zip(kind[a:b], stage[a:b], strict=True)) for a, b in pairwise(parts)]
    homes = program.device[program.first].tolist()
    times = defaultdict(list)
    for at, time in zip(zip(sorts, homes, strict=True), took, strict=True):
        times[at].append(time)
    cells = {at: median(found) for at, found in times.items()}
    of_sort = _lower_medians((sort, time) for (sort, _), time in cells.items())
    equal = _lower_medians((_kinds(sort), time) for sort, time in of_sort.items())
    factors = _factors(program, cells, of_sort, equal)
    staged = _lower_medians((sort, _over(time, factors[k])) for (sort, k), time in cells.items())
    return (
        [equal[_kinds(sort)] for sort in sorts],
        [staged[sort] for sort in sorts],
        [cells[at] for at in zip(sorts, homes, strict=True)],
    )


def _kinds(sort: Sort) -> tuple[int, ...]:
    return tuple(kind for kind, _ in sort)


def _lower_medians(pairs: Iterable[tuple[K, Real]]) -> dict[K, Real]:
    """For each key its middle time, of two in the middle the lower: so one slow stage of two stays slow."""
    times = defaultdict(list)
    for key, time in pairs:
        times[key].append(time)
    return {key: sorted(found)[(len(found) - 1) // 2] for key, found in times.items()}


def told_apart(program: Program) -> list[bool]:
    """For each device, whether it holds several stages, or one that another device holds too."""
    homes = Counter(stage for held in program.placement for stage in held)
    return [len(held) > 1 or any(homes[stage] > 1 for stage in held) for held in program.placement]


def _factors(program: Program, cells: dict, of_sort: dict, equal: dict) -> list[Real]:
    """For each device, how many times as long as usual everything takes that it does: 1 if not everything."""
    homes = Counter(stage for held in program.placement for stage in held)
    sums: dict[tuple[int, int], list[Real]] = defaultdict(lambda: [0, 0])
    for (sort, device), time in cells.items():
        stage = sort[0][1]
        sums[device, stage][0] += time
        sums[device, stage][1] += of_sort[sort] if homes[stage] > 1 else equal[_kinds(sort)]
    ratios = defaultdict(list)
    for (device, _), (time, usual) in sums.items():
        if time > 0 and usual > 0:
            ratios[device].append(quotient(time, usual))
    apart = told_apart(program)
    return [in_common(ratios[k]) if apart[k] and ratios[k] else 1 for k in range(program.devices)]


def in_common(ratios: Column) -> Real:
    """The middle one, or of two in the middle the one nearer to 1; 1 if they are on both sides of it."""
    ordered = sorted(ratios)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return low if low > 1 else high if high < 1 else 1 if low < high else low


def _over(time: Real, factor: Real) -> Real:
    return time if factor == 1 else quotient(time, factor)
