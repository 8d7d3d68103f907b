"""Room for a forward, against exhaustive search: every state that a few microbatches can get into.

With whole backwards a microbatch walks through 2S actions in one order only, through all stages and back. A
state is how far each has come, in no order of the microbatches.
"""

from copy import deepcopy
from functools import cache
from itertools import product

import pytest

from gpipe_sim import check, peak_in_flight
from gpipe_sim.core import B, F
from gpipe_sim.core.placement import looped
from gpipe_sim.errors import ScheduleError
from gpipe_sim.families.placements import v_shaped
from gpipe_sim.memory import greedy
from gpipe_sim.memory.greedy import Room

#: One, two, three and more stages per device, looped, turned, and unevenly spread.
SMALL = [looped(2, 2), looped(2, 6), v_shaped(2), ((0, 1), (2,)), ((0, 2, 3, 5), (4, 1)), v_shaped(3)]


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
        return F(steps, 0) if steps < self.stages else B(2 * self.stages - 1 - steps, 0)

    def fits(self, state):
        held = [0] * len(self.limits)
        for steps in state:
            for stage in range(min(steps, 2 * self.stages - steps)):
                held[self.home[stage]] += 1
        return all(count <= limit for count, limit in zip(held, self.limits, strict=True))


@pytest.mark.parametrize(("microbatches", "placement"), [*product((2, 3), SMALL[:5]), (2, SMALL[5])], ids=str)
def test_a_forward_is_admitted_exactly_if_everything_can_still_be_finished(placement, microbatches):
    """In every state that it can get into, with room for up to two more than a device's stages."""
    for limits in product(*(range(len(held), len(held) + 3) for held in placement)):
        search = Search(placement, limits)
        rooms = [Room(held, limit) for held, limit in zip(placement, limits, strict=True)]
        seen, to_visit = set(), [((0,) * microbatches, rooms)]
        while to_visit:
            state, rooms = to_visit.pop()
            for action, after in search.moves(state):
                room, finishes = rooms[search.home[action.stage]], search.can_finish(after)
                assert room.admits(action) == finishes, (limits, state, action)
                if finishes and after not in seen:
                    seen.add(after)
                    to_visit.append((after, deepcopy(rooms)))
                    to_visit[-1][1][search.home[action.stage]].record(action)
        assert (2 * search.stages,) * microbatches in seen


def test_some_forwards_that_fit_are_refused_because_they_lead_into_a_corner():
    """Both on their way down with room for two: neither could come back."""
    search, room = Search(v_shaped(2), (2, 2)), Room((0, 3), limit=2)
    assert [action for action, _ in search.moves((0, 1))] == [F(0, 0), F(1, 0)]
    assert [action for action, after in search.moves((0, 1)) if search.can_finish(after)] == [F(1, 0)]
    room.record(F(0, 0))
    assert not room.admits(F(0, 1)) and room.admits(F(3, 0))


@pytest.mark.parametrize("placement", SMALL[:5], ids=str)
def test_there_is_a_plan_exactly_where_there_is_an_order(placement):
    for limits in product(range(5), repeat=len(placement)):
        for microbatches, priority in ((1, "FB"), (2, "BF"), (3, "FIW")):
            options = {"placement": placement, "priority": priority, "memory_limit": limits}
            if Search(placement, limits).can_finish((0,) * microbatches):
                plan = greedy(len(placement), microbatches, **options)
                check(plan)
                assert all(peak <= limit for peak, limit in zip(peak_in_flight(plan), limits, strict=True))
            else:
                with pytest.raises(ScheduleError, match="because there is none"):
                    greedy(len(placement), microbatches, **options)
