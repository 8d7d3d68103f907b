"""What stages make and keep, as plain numbers for the page: read off one device that runs a tiny step.

The device holds all stages and runs one microbatch, so an array that one stage hands to the next as it is
stays one array, and is seen to be. The step runs twice, with one sample and with two: what differs grows with
the samples.

    {"samples": 8, "arrays": [[fixed, per_sample], ...], "stages": [{...}, ...]}

A stage has the bytes of its "parameters" and "optimizer state", its "gradients" as [fixed, per_sample], and
lists of the numbers of arrays: what it "keeps" in each category that ``HOLDS`` has, where its boundary inputs
are what the stage before sends it, and the "output gradient" that the stage after sends it. Arrays that are
always in the same lists are one.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.core.boundary import Boundary
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.memory import ACTIVATIONS, GRADIENTS, MESSAGES, PARAMETERS, STATE, Memory, roots
from gpipe_sim.core.meta_array import Some, root_of
from gpipe_sim.core.rules import BOUNDARY
from gpipe_sim.core.simulate import simulate
from gpipe_sim.memory.prediction import devices_on_paper
from gpipe_sim.memory.profile import Profile

OUTPUT_GRADIENT = "output gradient"
EXACT = 2**53  #: doubles count every whole number up to here
Place = tuple[int, str]  #: a stage, and what its array is there


class _Watched(Memory):
    """Notes every array by its place: under a category, or as what passes between stages."""

    def __init__(self):
        super().__init__()
        self.places: dict[Place, list[Some]] = {}

    def keep(self, category: str, key: Any, value: Any) -> None:
        super().keep(category, key, value)
        if category != MESSAGES:
            stage = key if isinstance(key, int) else key[0]
            self.places[stage, category] = list(roots(value))
        elif key[0] is not Kind.F:
            self.places[key[1], OUTPUT_GRADIENT] = _arrays(value)

    def came_in(self, key: Hashable, boundary: Boundary) -> None:
        self.places[key[0], BOUNDARY] = _arrays(boundary)  # type: ignore[index]


def _arrays(boundary: Boundary) -> list[Some]:
    return [root_of(each) for each in (boundary if isinstance(boundary, tuple) else (boundary,))]


def sizes_of(profile: Profile) -> dict[str, Any]:
    """What the page has to know of a model to count the bytes that devices hold.

    ValueError if a step may hold more bytes than doubles can count one by one.
    """
    one, two = (_places(profile, samples) for samples in (1, 2))
    affine = {  # by array of the first step: its fixed bytes, and those of each sample
        id(array): (2 * array.nbytes - same.nbytes, same.nbytes - array.nbytes)
        for place, arrays in one.items()
        for array, same in zip(arrays, two[place], strict=True)
    }
    numbers, arrays = _grouped(one, affine)

    def in_all(stage: int, name: str) -> list[int]:
        return _added(affine[id(array)] for array in one.get((stage, name), ()))

    def of(stage: int) -> dict[str, Any]:
        return {
            PARAMETERS: in_all(stage, PARAMETERS)[0],
            STATE: in_all(stage, STATE)[0],
            GRADIENTS: in_all(stage, GRADIENTS),
            "keeps": {name: numbers.get((stage, name), []) for name in ACTIVATIONS},
            OUTPUT_GRADIENT: numbers.get((stage, OUTPUT_GRADIENT), []),
        }

    if 2 * profile.samples * sum(map(sum, affine.values())) >= EXACT:
        raise ValueError(
            f"a step of {profile!r} may hold more bytes than a page can count exactly, {EXACT:,}"
        )
    return {"samples": profile.samples, "arrays": arrays, "stages": [*map(of, range(len(profile.stages)))]}


def _grouped(
    places: dict[Place, list[Some]], affine: dict[int, tuple[int, int]]
) -> tuple[dict[Place, list[int]], list[list[int]]]:
    """The numbers of arrays by place, and the bytes of each; those that go everywhere together are one."""
    passing = {
        place: arrays for place, arrays in places.items() if place[1] in (*ACTIVATIONS, OUTPUT_GRADIENT)
    }
    goes: dict[int, Counter[Place]] = {}
    for place, arrays in passing.items():
        for array in arrays:
            goes.setdefault(id(array), Counter())[place] += 1
    groups: dict[Hashable, list[int]] = {}
    for array_id, where in goes.items():
        groups.setdefault(frozenset(where.items()), []).append(array_id)
    number = {first: i for i, (first, *_) in enumerate(groups.values())}  # of a group, by its first array
    numbers = {
        place: [number[id(array)] for array in arrays if id(array) in number]
        for place, arrays in passing.items()
    }
    return numbers, [_added(map(affine.__getitem__, group)) for group in groups.values()]


def _added(sizes: Iterable[tuple[int, int]]) -> list[int]:
    return [sum(each) for each in zip(*sizes, strict=True)] or [0, 0]


def _places(profile: Profile, samples: int) -> dict[Place, list[Some]]:
    """All arrays of a step of one microbatch with so many samples, on one device with split backwards."""
    stages = range(len(profile.stages))
    row = [Action(stage, Kind.F, 0) for stage in stages]
    row += [Action(stage, kind, 0) for stage in reversed(stages) for kind in (Kind.I, Kind.W)]
    timeline = simulate(Explicit([row], placement=[list(stages)]))
    [device] = devices_on_paper(timeline, replace(profile, samples=samples), _Watched)
    assert isinstance(device.memory, _Watched)
    return device.memory.places
