"""The banker's test against exhaustive search: every state that a few microbatches can get into.

With whole backwards a microbatch walks through 2S actions in one order only, through all stages and back. A
state is how far each has come, in no order of the microbatches.
"""

import random
from copy import deepcopy
from functools import cache
from itertools import product

import pytest

from gpipe_sim import Action, Kind, ScheduleError, check, greedy, peak_in_flight
from gpipe_sim.core.placement import looped
from gpipe_sim.families.placements import v_shaped
from gpipe_sim.machine.banker import Banker

#: One, two, three and more stages per device, looped, turned, and unevenly spread.
SMALL = [
    looped(2, 2),
    looped(2, 4),
    looped(2, 6),
    v_shaped(2),
    ((0, 1), (2,)),
    ((0, 2, 3, 5), (4, 1)),
    looped(3, 6),
    v_shaped(3),
]


class Search:
    """Every state of a few microbatches on a placement within limits, and whether it can be finished."""

    def __init__(self, placement, limits):
        self.home = {stage: device for device, stages in enumerate(placement) for stage in stages}
        self.stages, self.limits = len(self.home), limits
        self.can_finish = cache(self._can_finish)

    def _can_finish(self, state):
        if all(steps == 2 * self.stages for steps in state):
            return True
        return any(self.can_finish(after) for _, after in self.moves(state))

    def moves(self, state):
        """(the action, the state after it) for everything that fits now."""
        for i, steps in enumerate(state):
            if steps < 2 * self.stages and (i == 0 or state[i - 1] != steps):
                after = tuple(sorted((*state[:i], steps + 1, *state[i + 1 :])))
                if self.fits(after):
                    yield self.next_of(steps), after

    def next_of(self, steps):
        back = steps >= self.stages
        return Action(2 * self.stages - 1 - steps, Kind.B, 0) if back else Action(steps, Kind.F, 0)

    def fits(self, state):
        held = [0] * len(self.limits)
        for steps in state:
            for stage in range(min(steps, 2 * self.stages - steps)):
                held[self.home[stage]] += 1
        return all(count <= limit for count, limit in zip(held, self.limits, strict=True))


def all_limits(placement):
    """Every combination of limits up to two more than a device's stages, none of them too small."""
    return product(*(range(len(held), len(held) + 3) for held in placement))


@pytest.mark.parametrize(
    ("microbatches", "placement"), [*product((2, 3), SMALL), *product([4], SMALL[:5])], ids=str
)
def test_the_banker_admits_a_forward_exactly_if_everything_can_still_be_finished(placement, microbatches):
    """In every state that it can get into; those of four microbatches on six stages are too many."""
    for limits in all_limits(placement):
        search = Search(placement, limits)
        bankers = [Banker(held, microbatches, limit) for held, limit in zip(placement, limits, strict=True)]
        seen, to_visit = set(), [((0,) * microbatches, bankers)]
        while to_visit:
            state, bankers = to_visit.pop()
            for action, after in search.moves(state):
                device = search.home[action.stage]
                assert bankers[device].admits(action) == search.can_finish(after), (limits, state, action)
                if search.can_finish(after) and after not in seen:
                    seen.add(after)
                    to_visit.append((after, recorded(bankers, device, action)))
        assert (2 * search.stages,) * microbatches in seen


def recorded(bankers, device, action):
    copies = deepcopy(bankers)
    copies[device].record(action)
    return copies


def test_some_forwards_that_fit_are_refused_because_they_lead_into_a_corner():
    """Both on their way down with room for two: neither could come back. And what is not refused does fit."""
    search = Search(v_shaped(2), (2, 2))
    fits = [action for action, _ in search.moves((0, 1))]
    finish = [action for action, after in search.moves((0, 1)) if search.can_finish(after)]
    assert (fits, finish) == ([Action(0, Kind.F, 0), Action(1, Kind.F, 0)], [Action(1, Kind.F, 0)])
    banker = Banker((0, 3), microbatches=2, limit=2)
    assert banker.admits(Action(0, Kind.F, 0))
    banker.record(Action(0, Kind.F, 0))
    assert not banker.admits(Action(0, Kind.F, 1))
    assert banker.admits(Action(3, Kind.F, 0))


def at_random(seed):
    """A priority without rhyme or reason, but the same each time."""
    return lambda action: random.Random(f"{seed} {action}").random()


@pytest.mark.parametrize("placement", SMALL, ids=str)
@pytest.mark.parametrize("microbatches", [1, 2, 3])
def test_there_is_a_plan_exactly_where_there_is_an_order(placement, microbatches):
    devices = len(placement)
    for i, limits in enumerate(product(range(5), repeat=devices)):
        possible = Search(placement, limits).can_finish((0,) * microbatches)
        for priority in ("FB", "BF", "FIW", at_random(i)):
            options = {"placement": placement, "priority": priority}
            if possible:
                plan = greedy(devices, microbatches, memory_limit=limits, **options)
                check(plan)
                assert all(peak <= limit for peak, limit in zip(peak_in_flight(plan), limits, strict=True))
            else:
                with pytest.raises(ScheduleError, match="because there is none"):
                    greedy(devices, microbatches, memory_limit=limits, **options)
