"""What a device holds for each microbatch, and whether it may start another action: the banker's test."""

from collections.abc import Iterable
from itertools import accumulate
from numbers import Real
from typing import NamedTuple

from gpipe_sim.core.actions import Action, Kind


class Life(NamedTuple):
    """One microbatch on one device: its forwards there in order, then its backwards in the reverse order.

    ``held`` is what it holds before its first step, and after each. ``peaks`` is the most while each step
    runs. ``pending`` is what it holds, beside that, between I and W of a stage.
    """

    held: tuple[Real, ...]
    peaks: tuple[Real, ...]
    pending: dict[int, Real]


def unit_life(stages: Iterable[int]) -> Life:
    """A life in numbers of stage-activations: a stage holds one from F until B or W."""
    stages = tuple(stages)
    up = range(len(stages))
    held = (*up, *(j + 1 for j in reversed(up)), 0)
    return Life(held, tuple(map(max, held, held[1:])), dict.fromkeys(stages, 1))


class Banker:
    """What one device holds, and the banker's test before it starts another action.

    The microbatches that have begun can all be finished if they can be finished one by one: one of them has
    room for all its remaining steps and then frees what it holds, then another has, and so on. The one that
    is furthest along may as well go first, because it is so on every device. In this sequence each device can
    be asked alone: a microbatch needs room for the most that it is yet to hold here, beside what those behind
    it hold. What waits for a W can be freed at any time.

    In numbers of stage-activations the test is exact: a microbatch frees nothing before its last forward, and
    needs no more room after it; so finishing several at once needs no less room than one by one, and the one
    that is furthest along needs the least room on every device.
    """

    def __init__(self, stages: Iterable[int], microbatches: int, limit: Real, life: Life | None = None):
        self.place = {stage: j for j, stage in enumerate(sorted(stages))}
        self.life = life or unit_life(self.place)
        self.limit, self.held = limit, 0
        self.most: Real = 0  #: that it has held, also while an action ran
        # through[j]: how many microbatches have run exactly j of their steps here.
        self.through = [microbatches] + [0] * (2 * len(self.place))
        peaks = self.life.peaks
        self.needs = list(accumulate(reversed(peaks), max))[::-1]  # from here on

    def may_begin(self) -> bool:
        """Whether there is room for one microbatch; if there is on every device, all can be finished."""
        return max(self.needs, default=0) <= self.limit

    def admits(self, action: Action) -> bool:
        """Whether the action fits, and every microbatch that has begun can still be finished afterwards."""
        if action.kind is Kind.W:
            return True
        j = self._step(action)
        return self._while(j) <= self.limit and self._is_safe(self._after(j))

    def record(self, action: Action) -> None:
        """Take note that the action has been started."""
        if action.kind is Kind.W:
            self.held -= self.life.pending[action.stage]
            return
        j = self._step(action)
        self.most = max(self.most, self._while(j))
        self.through = self._after(j)
        self.held += self.life.held[j + 1] - self.life.held[j]
        if action.kind is Kind.I:
            self.held += self.life.pending[action.stage]

    def _step(self, action: Action) -> int:
        j = self.place[action.stage]
        return j if action.kind is Kind.F else 2 * len(self.place) - 1 - j

    def _while(self, j: int) -> Real:
        """The most that the device holds while a microbatch does its step j."""
        return self.held + self.life.peaks[j] - self.life.held[j]

    def _after(self, j: int) -> list[int]:
        through = list(self.through)
        through[j] -= 1
        through[j + 1] += 1
        return through

    def _is_safe(self, through: list[int]) -> bool:
        kept = 0
        for count, held, need in zip(through, self.life.held, self.needs, strict=False):
            kept += count * held
            if count and kept - held + need > self.limit:
                return False
        return True
