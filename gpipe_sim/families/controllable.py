"""V-shaped schedules whose memory is chosen: one building block, repeated for every microbatch.

A block says at which slots a microbatch's F and I run on each device, slots being one unit of time. The
next microbatch follows six slots later, because a device does six things for each: F, I and W of two
stages. The longer a block, the more microbatches are under way at once, and the more is held.
Qi, Wan, Amar and Lin 2024, arXiv:2405.15362.

A block gives an order here, not times: two of its actions may share a slot. The order is then filled in
unit time. A device does the first of its F and I that can run, and a W when none can.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from gpipe_sim.schedule.actions import Action, F, I, Kind, W
from gpipe_sim.schedule.base import Schedule
from gpipe_sim.schedule.explicit import Explicit
from gpipe_sim.schedule.placement import v_shaped
from gpipe_sim.simulation.machine import Machine

PERIOD = 6
#: Slots from one device to the next on the four legs of the V: F down, F back, I down, I back.
Hops = tuple[int, int, int, int]
#: Slots at the three turns between the legs: F to F, F to I, I to I.
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


def choose(
    coming: Iterable[Action], due: deque[Action], room: int, ready: Callable[[Action], bool]
) -> Action | None:
    """What a device does next, or None if it waits.

    The first F or I of ``coming``, the block's order, that is ``ready``; else the oldest W that is ``due``.
    It looks no further than there is ``room``, counted in stage-activations, for every F up to there. So an
    F that overtakes leaves room for those that it overtakes, and none of them is ever kept out.
    """
    for action in coming:
        if action.kind is Kind.F:
            room -= 1
        if room < 0:
            break
        if ready(action):
            return action
    return due[0] if due else None


@lru_cache(maxsize=8)
def filled(
    devices: int, microbatches: int, hops: Hops, gaps: Gaps, limit: int
) -> tuple[tuple[Action, ...], ...]:
    """The rows of a block's order, each device doing what ``choose`` says in unit time.

    A device holds at most ``limit`` stage-activations, from F until W.
    """
    slots, placement = block(devices, hops, gaps), v_shaped(devices)
    orders = [_in_slot_order(*held, slots[k], microbatches) for k, held in enumerate(placement)]
    weights = [[W(a.stage, a.microbatch) for a in order if a.kind is Kind.I] for order in orders]
    work = Explicit([a + b for a, b in zip(orders, weights, strict=True)], placement=placement)
    entry = {action: i for i, action in enumerate(action for row in work.actions for action in row)}
    machine, clock = Machine.of(work.program, ordered=False), 0
    coming, due = list(map(deque, orders)), [deque() for _ in orders]
    rows: list[list[Action]] = [[] for _ in orders]

    def ready(action: Action) -> bool:
        return machine.is_ready(entry[action]) and machine.arrival(entry[action]) <= clock

    while any(coming) or any(due):
        for device, row in enumerate(rows):
            action = choose(coming[device], due[device], limit - machine.held[device], ready)
            if action is None:
                continue
            (due if action.kind is Kind.W else coming)[device].remove(action)
            if action.kind is Kind.I:
                due[device].append(W(action.stage, action.microbatch))
            machine.apply(entry[action], at=clock)
            row.append(action)
        clock += 1
    return tuple(map(tuple, rows))


def _in_slot_order(down: int, back: int, slots: tuple[int, ...], microbatches: int) -> list[Action]:
    """A device's F and I, sorted by the slots of the block repeated every ``PERIOD``.

    Of two in one slot, first the one that is earlier in the block.
    """
    legs = (F, down), (F, back), (I, back), (I, down)
    placed = sorted(
        (slot + PERIOD * m, leg, m) for m in range(microbatches) for leg, slot in enumerate(slots)
    )
    return [kind(stage, m) for _, leg, m in placed for kind, stage in [legs[leg]]]


@dataclass(frozen=True)
class VMin(Schedule):
    """The shortest block: about a third of 1F1B's memory, about two thirds of its bubble.

    Holds at most 2 ceil((K+2)/3) stage-activations, (K+4)//3 microbatches of a model of 2K stages, from F
    until W. A forward, an input gradient and a weight gradient are assumed to take equally long; with other
    costs the order stays as it is. Qi et al. 2024, arXiv:2405.15362.

    With F = I = W = 1, 3 to 40 devices and M > K, a step takes 6M + 4K - 7 if K is a multiple of 3,
    6M + 4K - 5 if K is one more than that, and 6M + 4K - 9 if it is two more. A solver proved that no order
    is shorter within this memory at 3 x 4, 4 x 4, 4 x 8, 6 x 6, 7 x 7, 8 x 8 and 9 x 9. At 5 x 5 this takes
    43, and 41 is possible.
    """

    stages_per_device: ClassVar[int] = 2
    hops: ClassVar[Hops] = (1, 1, 1, 1)

    @property
    def gaps(self) -> Gaps:
        """Slots at the turns of the block. With 1, 1, 1 a step at 8 x 64 would take 409 instead of 407."""
        return 1, 3, 1

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        return v_shaped(self.devices)

    @property
    def limit(self) -> int:
        """The most stage-activations that a device holds."""
        return 2 * ((self.devices + 4) // 3)

    def order(self, device: int) -> Iterator[Action]:
        rows = filled(self.devices, self.microbatches, self.hops, self.gaps, self.limit)
        return iter(rows[device])


@dataclass(frozen=True)
class VHalf(VMin):
    """A block about half as long as ZB-V's: half of 1F1B's memory, half of its bubble.

    Holds at most 2 ((K+2)//2) stage-activations, from F until W.

    With F = I = W = 1, 3 to 40 devices and more microbatches than fit at once, a step takes 6M + 3K - 7
    if K is even and 6M + 3K - 4 if it is odd. A solver proved that no order is shorter within this memory at
    3 x 4, 3 x 8, 4 x 4, 4 x 8, 5 x 5, 6 x 6, 7 x 7 and 8 x 8. At 3 x 4 this is 29 within 4 stage-activations;
    27 is possible with room for 5.
    """

    hops: ClassVar[Hops] = (1, 2, 1, 2)

    @property
    def gaps(self) -> Gaps:
        """Slots at the turns of the block.

        With gaps of 1, 3, 1 an even K would take as long where F, I and W take equally long, and longer where
        they do not: 8 x 64 would take 1014 instead of 900 with F = 2, I = 3 and W = 1.
        """
        return (1, 3, 1) if self.devices % 2 else (1, 6, 1)

    @property
    def limit(self) -> int:
        return 2 * ((self.devices + 2) // 2)
