"""V-shaped schedules built to a memory limit: one building block, repeated for every microbatch.

A slot is one unit of time. A block says in which slots each device runs F and I of one microbatch. The next
microbatch follows six slots later, because a device runs six actions for each: F, I and W of its two
stages. The longer a block, the more microbatches are under way at once, and the more a device holds.
Qi, Wan, Amar and Lin 2024, arXiv:2405.15362.

Here a block gives only an order, not times, so two of its actions on a device may share a slot. That order is
then run in unit time: at each moment a free device runs the first F or I that can run, and a W if none can.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from gpipe_sim.core.actions import Action, F, I, Kind, W
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.families.placements import v_shaped
from gpipe_sim.machine.machine import Machine

PERIOD = 6
#: Slots from one device to the next, on each of a microbatch's four ways: F down, F back, I down, I back.
Hops = tuple[int, int, int, int]
#: Slots at the three turns between these ways: from F to F, from F to I, from I to I.
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
    """What a device runs next, or None if it waits.

    That is the first F or I of ``coming``, which is in the block's order, that is ``ready``; if none is, the
    oldest W that is ``due``. ``room`` is how many more stage-activations the device may hold. The search
    stops at the first F that would not fit together with every F before it. So an F that overtakes others
    leaves room for them, and none of them is ever kept out.
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
    """The rows that result if each device runs what ``choose`` says, every action taking one unit of time.

    A device holds at most ``limit`` stage-activations, from F until W.
    """
    slots, placement = block(devices, hops, gaps), v_shaped(devices)
    orders = [_in_slot_order(*held, slots[k], microbatches) for k, held in enumerate(placement)]
    weights = [[W(a.stage, a.microbatch) for a in order if a.kind is Kind.I] for order in orders]
    work = Explicit([a + b for a, b in zip(orders, weights, strict=True)], placement=placement)
    entry = {action: i for i, action in enumerate(action for row in work.actions for action in row)}
    machine, clock = Machine(work.program, ordered=False), 0
    coming, due = list(map(deque, orders)), [deque() for _ in orders]
    rows: list[list[Action]] = [[] for _ in orders]

    def ready(action: Action) -> bool:
        return entry[action] in machine.ready and machine.arrival(entry[action]) <= clock

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
    """A device's F and I, sorted by slot; the block is repeated every ``PERIOD`` slots.

    If two share a slot, the one that comes earlier in the block comes first.
    """
    legs = (F, down), (F, back), (I, back), (I, down)
    placed = sorted(
        (slot + PERIOD * m, leg, m) for m in range(microbatches) for leg, slot in enumerate(slots)
    )
    return [kind(stage, m) for _, leg, m in placed for kind, stage in [legs[leg]]]


@dataclass(frozen=True)
class VMin(Schedule):
    """V-Min, the shortest block: about a third of 1F1B's memory, about two thirds of its bubble.

    A device holds at most 2 ceil((K+2)/3) stage-activations from F until W: as much as (K+4)//3 microbatches
    leave on its two stages. The order is made for F, I and W that take equally long; with other costs it is
    the same order. Qi et al. 2024, arXiv:2405.15362.

    With F = I = W = 1, 3 to 40 devices and M > K, a step takes 6M + 4K - 7 if K is a multiple of 3,
    6M + 4K - 5 if K is one more than that, and 6M + 4K - 9 if it is two more. A solver proved that no order
    is shorter within this memory at 3 x 4, 4 x 4, 4 x 8, 6 x 6, 7 x 7, 8 x 8 and 9 x 9. At 5 x 5 this takes
    43, and 41 is possible.
    """

    name = "V-Min"

    stages_per_device = 2
    hops: ClassVar[Hops] = (1, 1, 1, 1)

    @property
    def gaps(self) -> Gaps:
        """Slots at the turns of the block. With gaps of 1, 1, 1 a step at 8 x 64 would take 409, not 407."""
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
    """V-Half, a block about half as long as ZB-V's: half of 1F1B's memory, half of its bubble.

    A device holds at most 2 ((K+2)//2) stage-activations from F until W. Qi et al. 2024, arXiv:2405.15362.

    With F = I = W = 1, 3 to 40 devices and more microbatches than fit at once, a step takes 6M + 3K - 7
    if K is even and 6M + 3K - 4 if it is odd. A solver proved that no order is shorter within this memory at
    3 x 4, 3 x 8, 4 x 4, 4 x 8, 5 x 5, 6 x 6, 7 x 7 and 8 x 8. At 3 x 4 this is 29 within 4 stage-activations;
    27 is possible with room for 5.
    """

    name = "V-Half"

    hops: ClassVar[Hops] = (1, 2, 1, 2)

    @property
    def gaps(self) -> Gaps:
        """Slots at the turns of the block.

        For even K, gaps of 1, 3, 1 would give as short a step while F, I and W take equally long, but a
        longer one otherwise: 8 x 64 with F = 2, I = 3 and W = 1 would take 1014 instead of 900.
        """
        return (1, 3, 1) if self.devices % 2 else (1, 6, 1)

    @property
    def limit(self) -> int:
        return 2 * ((self.devices + 2) // 2)
