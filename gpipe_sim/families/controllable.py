"""V-shaped schedules whose memory is chosen: one building block, repeated for every microbatch.

A block says at which slots a microbatch's F and I run on each device, slots being one unit of time. The
next microbatch follows six slots later, because a device does six things for each: F, I and W of two
stages. The longer a block, the more microbatches are under way at once, and the more is held.
Qi, Wan, Amar and Lin 2024, arXiv:2405.15362.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import ClassVar

from gpipe_sim.schedule.actions import Action, F, I, Kind, W
from gpipe_sim.schedule.base import Schedule
from gpipe_sim.schedule.placement import v_shaped
from gpipe_sim.schedule.rules import NEEDS

PERIOD = 6
#: Slots from one device to the next on the four legs of the V: F down, F back, I down, I back.
Hops = tuple[int, int, int, int]
#: Slots at the three turns between the legs.
Gaps = tuple[int, int, int]


def block(devices: int, hops: Hops, gaps: Gaps) -> list[tuple[int, int, int, int]]:
    """Per device, the slots of microbatch 0: F of its first stage, F and I of its second, I of its first."""
    last, starts = devices - 1, [0]
    for hop, gap in zip(hops, gaps, strict=False):
        starts.append(starts[-1] + hop * last + gap)
    down, back, turned, home = starts
    return [
        (
            down + hops[0] * k,
            back + hops[1] * (last - k),
            turned + hops[2] * k,
            home + hops[3] * (last - k),
        )
        for k in range(devices)
    ]


def fits(devices: int, hops: Hops, gaps: Gaps) -> bool:
    """Whether repeating the block never asks a device for two things in one slot."""
    return all(len({slot % PERIOD for slot in slots}) == 4 for slots in block(devices, hops, gaps))


def tightest_gaps(devices: int, hops: Hops) -> Gaps:
    """The gaps with the smallest sum that fit; of equal sums the first in order."""
    every = sorted(product(range(1, PERIOD), repeat=3), key=lambda gaps: (sum(gaps), gaps))
    return next(gaps for gaps in every if fits(devices, hops, gaps))


class _Filler:
    """Runs the block's order in unit time: F and I as it says, W wherever a device would wait.

    A forward that would exceed ``limit`` stage-activations, held from F until W, waits for a W instead.
    """

    def __init__(self, devices: int, microbatches: int, slots: list[tuple[int, ...]], limit: int):
        self.stages, self.limit = 2 * devices, limit
        self.orders = [
            deque(_in_slot_order(k, self.stages - 1 - k, slots[k], microbatches)) for k in range(devices)
        ]
        self.ended: dict[Action, int] = {}
        self.due: list[deque[Action]] = [deque() for _ in range(devices)]
        self.held = [0] * devices
        self.rows: list[list[Action]] = [[] for _ in range(devices)]

    def run(self) -> list[list[Action]]:
        clock = 0
        while any(self.orders) or any(self.due):
            for device, row in enumerate(self.rows):
                if action := self._next(device, clock):
                    row.append(action)
                    self.ended[action] = clock + 1
            clock += 1
        return self.rows

    def _next(self, device: int, clock: int) -> Action | None:
        order, due = self.orders[device], self.due[device]
        if order and self._ready(order[0], clock) and self._has_room(order[0], device):
            action = order.popleft()
            if action.kind is Kind.F:
                self.held[device] += 1
            else:
                due.append(W(action.stage, action.microbatch))
            return action
        if due:
            self.held[device] -= 1
            return due.popleft()
        return None

    def _has_room(self, action: Action, device: int) -> bool:
        return action.kind is not Kind.F or self.held[device] < self.limit

    def _ready(self, action: Action, clock: int) -> bool:
        """The same rule as ``NEEDS``, for the F and I of a model that is not there yet."""
        return all(self.ended.get(need, clock + 1) <= clock for need in self._needs(action))

    def _needs(self, action: Action) -> Iterator[Action]:
        for kind, step in NEEDS[action.kind]:
            stage = action.stage + step
            if kind in (Kind.F, Kind.I) and 0 <= stage < self.stages:
                yield Action(stage, kind, action.microbatch)


def _in_slot_order(down: int, back: int, slots: tuple[int, ...], microbatches: int) -> list[Action]:
    """A device's F and I, sorted by the slots of the block repeated every ``PERIOD``."""
    kinds = (F, down), (F, back), (I, back), (I, down)
    placed = [
        (slot + PERIOD * m, kind(stage, m))
        for m in range(microbatches)
        for slot, (kind, stage) in zip(slots, kinds, strict=True)
    ]
    return [action for _, action in sorted(placed)]


@dataclass(frozen=True)
class VMin(Schedule):
    """The shortest block: about a third of 1F1B's memory, about two thirds of its bubble.

    Holds at most 2 ceil((K+2)/3) stage-activations, (K+4)//3 microbatches of a model of 2K stages, from F
    until W. A forward, an input gradient and a weight gradient are assumed to take equally long; with other
    costs the order stays as it is. Qi et al. 2024, arXiv:2405.15362.
    """

    stages_per_device: ClassVar[int] = 2

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        return v_shaped(self.devices)

    @property
    def limit(self) -> int:
        """The most stage-activations that a device holds."""
        return 2 * ((self.devices + 4) // 3)

    @property
    def shape(self) -> tuple[Hops, Gaps]:
        """Hops and gaps of the block."""
        hops = (1, 1, 1, 1)
        return hops, tightest_gaps(self.devices, hops)

    def order(self, device: int) -> Iterator[Action]:
        return iter(self._rows[device])

    @cached_property
    def _rows(self) -> list[list[Action]]:
        slots = block(self.devices, *self.shape)
        return _Filler(self.devices, self.microbatches, slots, self.limit).run()


@dataclass(frozen=True)
class VHalf(VMin):
    """A block about half as long as ZB-V's: half of 1F1B's memory, half of its bubble.

    Holds at most 2 ((K+2)//2) stage-activations, from F until W. Of the blocks with these hops and gaps of
    up to 5 that stay within it, these are the shortest for every K up to 10.
    """

    @property
    def limit(self) -> int:
        return 2 * ((self.devices + 2) // 2)

    @property
    def shape(self) -> tuple[Hops, Gaps]:
        if self.devices % 2:
            return (1, 2, 1, 2), (1, 1, 2)
        return ((2, 2, 2, 2), (3, 1, 3)) if self.devices <= 4 else ((1, 2, 1, 2), (4, 1, 5))
