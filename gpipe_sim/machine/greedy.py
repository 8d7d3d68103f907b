"""Plan an order from rules when no pattern fits: with unequal stages, slow messages, or a memory limit.

``greedy`` is a list scheduler. Whenever a device is free, it starts the ready action that comes first by
priority. Forwards first gives GPipe with its drain in order; backwards first, with room for K-k microbatches
on device k, gives 1F1B; I before F before W fills with weight gradients what would otherwise be bubbles.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import pairwise, repeat
from numbers import Real

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.core.cost_model import CostModel, require_costs
from gpipe_sim.core.costs import UNIT
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.placement import looped, read_placement
from gpipe_sim.errors import (
    MOST,
    ScheduleError,
    got,
    listed,
    number,
    require,
    require_few,
    require_flags,
    whole,
)
from gpipe_sim.machine.banker import Banker
from gpipe_sim.machine.machine import Machine
from gpipe_sim.machine.rooms import InBytes
from gpipe_sim.memory.profile import Profile

#: Kinds, most urgent first; or a function from an action to a sortable key.
Priority = Sequence[Kind | str] | Callable[[Action], object]
Placement = tuple[tuple[int, ...], ...]

LIMITS = "memory_limit in numbers of {unit}: one, or one per device"
WHOLE = (Kind.F, Kind.B)
SPLIT = (Kind.F, Kind.I, Kind.W)


def greedy(
    devices: int,
    microbatches: int,
    placement: Sequence[Sequence[int]] | None = None,
    priority: Priority = ("B", "F"),
    memory_limit: Real | Sequence[Real] | None = None,
    costs: CostModel | None = None,
    *,
    profile: Profile | None = None,
    split: bool = False,
) -> Explicit:
    """An order in which no device waits while there is an action that it may start.

    ``placement`` lists the stages that each device holds, by default one each; ``looped`` and ``v_shaped``
    make such lists. ``priority`` lists F and B, or F, I and W to split the backwards, most urgent first. Or
    it is a function from an action to a sortable key, smallest first; then ``split`` says whether backwards
    are split. Ties go to the lower microbatch, then to the lower stage. ``memory_limit`` is the most
    stage-activations that a device may hold from F until B or W: one number, or one per device. ``costs``,
    unit costs unless given, say how long actions and messages take while the plan is made. The result is an
    order, and stays legal whatever the times turn out to be.

    With the ``profile`` of a model, ``memory_limit`` is in bytes: the most that a device may ever hold, of
    everything, also while an action runs. ``simulate`` with this profile, this limit and these costs does not
    refuse the result. With other costs messages may wait longer, and take more room.

    Planning n actions takes time in proportion to n log n. Within bytes, each plan is measured by
    ``predict_memory`` and made again if messages do not fit: seldom more than a hundred times. Each decision
    looks no further than the next action, so the order need not be the shortest, and a pattern that waits on
    purpose can beat it: on unequal stages, B before F within K-k often takes longer than 1F1B. I before F
    before W without a limit hardly ever does (1 of 6000 random cases).

    ScheduleError, with what would do, if no order keeps within the limit; in bytes, if not even one
    microbatch after another does. (With several stages per device and large gradients, some other order may
    then fit.) ValueError for a placement that holds a stage twice, and for a profile of another number of
    stages or of fewer samples than microbatches.
    """
    devices = whole("greedy", "devices", devices)
    microbatches = whole("greedy", "microbatches", microbatches)
    require_flags("greedy", split=split)
    held = _read_placement(placement, devices)
    require_few(
        "greedy", sum(map(len, held)) * microbatches, "pairs of stage and microbatch", most=MOST // 10
    )
    kinds, key = _read_priority(priority, split)
    limits = _read_limits(memory_limit, devices, "stage-activations" if profile is None else "bytes")
    costs = UNIT if costs is None else costs
    require_costs("greedy", costs, sum(map(len, held)), devices)
    work = _work(held, microbatches, kinds)

    def plan(bankers: Iterable[Banker]) -> Explicit:
        return _Plan(work, key, bankers, costs).order()

    if profile is not None:
        _require_profile(profile, work)
        return InBytes(plan, work, profile, limits, costs).order()
    _require_room(held, limits)
    return plan(map(Banker, held, repeat(microbatches), limits))


class DevicePlan:
    """One device during planning: its row so far, its memory, and the ranks of the actions that are ready.

    The rank of an action is its place in the order of priority, 0 for the most urgent of all.
    """

    def __init__(self, memory: Banker):
        self.memory = memory
        self.row: list[Action] = []
        # The memory test treats all actions of a kind and a stage alike. So these have a heap: if its first
        # one is refused, the others need not be tried.
        self.ready: dict[tuple[int, Kind], list[int]] = defaultdict(list)

    def put(self, action: Action, rank: int) -> None:
        """Note that this action is ready."""
        heappush(self.ready[action.stage, action.kind], rank)

    def take(self, by_rank: list[Action]) -> int | None:
        """Start the most urgent ready action for which there is room, and return its rank; None if none."""
        for rank in sorted(heap[0] for heap in self.ready.values() if heap):
            action = by_rank[rank]
            if self.memory.admits(action):
                heappop(self.ready[action.stage, action.kind])
                self.memory.record(action)
                self.row.append(action)
                return rank
        return None


class _Plan:
    """A plan in the making: a ``Machine`` keeps time, and every free device takes its most urgent action."""

    def __init__(self, work: Explicit, key: Callable, bankers: Iterable[Banker], costs: CostModel):
        self.work = work
        self.machine = Machine.of(work.program, costs, ordered=False)
        entries = [action for row in work.actions for action in row]
        by_key = _sorted_by(key, entries)
        self.by_rank = [entries[entry] for entry in by_key]
        self.entry_of = by_key
        self.rank_of = {entry: rank for rank, entry in enumerate(by_key)}
        self.devices = list(map(DevicePlan, bankers))
        # (time, device, rank): then all that this action needs has arrived; -1: then the device becomes free
        self.agenda: list[tuple[Real, int, int]] = []

    def order(self) -> Explicit:
        """Make the plan: the rows of all devices, as a schedule."""
        self._announce(self.machine.ready())
        while self.agenda:
            now = self.agenda[0][0]
            for device in self._woken(now):
                self._start(device, now)
        rows = [plan.row for plan in self.devices]
        return Explicit(rows, placement=self.work.placement, microbatches=self.work.microbatches)

    def _announce(self, entries: Iterable[int]) -> None:
        for entry in entries:
            item = self.machine.arrival(entry), self.machine.home[entry], self.rank_of[entry]
            heappush(self.agenda, item)

    def _woken(self, now: Real) -> set[int]:
        """Make ready all that arrives now; return the devices that may be able to start something."""
        woken = set()
        while self.agenda and self.agenda[0][0] == now:
            _, device, rank = heappop(self.agenda)
            woken.add(device)
            if rank >= 0:
                self.devices[device].put(self.by_rank[rank], rank)
        return woken

    def _start(self, device: int, now: Real) -> None:
        if self.machine.free[device] > now or (rank := self.devices[device].take(self.by_rank)) is None:
            return
        opened = self.machine.apply(self.entry_of[rank], at=now)
        heappush(self.agenda, (self.machine.free[device], device, -1))
        self._announce(opened)


def _work(placement: Placement, microbatches: int, kinds: tuple[Kind, ...]) -> Explicit:
    """All actions of each device, in an order that means nothing."""
    rows = [
        [Action(stage, kind, m) for kind in kinds for m in range(microbatches) for stage in held]
        for held in placement
    ]
    return Explicit(rows, placement=placement, microbatches=microbatches)


def _sorted_by(key: Callable, actions: list[Action]) -> list[int]:
    """The places of the actions, most urgent first."""
    keys = [(key(action), action.microbatch, action.stage) for action in actions]
    try:
        return sorted(range(len(actions)), key=keys.__getitem__)
    except (TypeError, ValueError) as error:
        raise TypeError(f"greedy needs priority to return keys that can be sorted: {error}") from None


def _read_priority(priority: Priority, split: bool) -> tuple[tuple[Kind, ...], Callable[[Action], object]]:
    """The kinds of action that the plan consists of, and the key by which actions are sorted."""
    if callable(priority):
        return (SPLIT if split else WHOLE), priority
    try:
        order = tuple(map(Kind, priority)) if isinstance(priority, Sequence) else ()
    except (TypeError, ValueError):
        order = ()
    kinds = next((kinds for kinds in (WHOLE, SPLIT) if sorted(kinds) == sorted(order)), None)
    if kinds is None:
        raise ValueError(
            "greedy needs priority to list F and B, or F, I and W, each once and the most urgent first, "
            f"or to be a function of an action {got(priority)}"
        )
    if split and kinds is WHOLE:
        raise ValueError(f"greedy splits no backward if priority lists B: list I and W {got(priority)}")
    return kinds, lambda action: order.index(action.kind)


def _read_placement(placement: Sequence[Sequence[int]] | None, devices: int) -> Placement:
    """The stages that each device holds; ValueError unless they are 0, 1, 2, ..., each on one device."""
    if placement is None:
        return looped(devices, devices)
    held = read_placement("greedy", placement, devices)
    stages = sorted(stage for stages in held for stage in stages)
    if twice := [stage for stage, next_ in pairwise(stages) if stage == next_]:
        places = " and ".join(str(device) for device, stages in enumerate(held) if twice[0] in stages)
        raise ValueError(
            f"greedy needs each stage on one device, but stage {twice[0]} is on devices {places}: "
            "which microbatch takes which copy is a pattern of its own, as in Chimera and DualPipe"
        )
    if not stages or stages != list(range(len(stages))):
        raise ValueError(
            f"greedy needs placement to hold the stages 0, 1, 2, ... without a gap (got {stages})"
        )
    return held


def _require_profile(profile: Profile, work: Explicit) -> None:
    require("greedy", profile, Profile, "a profile, such as profile(partitions, batch, loss)")
    if len(profile.stages) != work.stages:
        raise ValueError(f"greedy plans {work.stages} stages, but the profile has {len(profile.stages)}")


def _read_limits(memory_limit: Real | Sequence[Real] | None, devices: int, unit: str) -> tuple[Real, ...]:
    """One limit per device, infinite if none is given."""
    if memory_limit is None:
        return (math.inf,) * devices
    if isinstance(memory_limit, Real):
        memory_limit = [memory_limit] * devices
    limits = listed("greedy", LIMITS.format(unit=unit), memory_limit)
    if len(limits) != devices:
        raise ValueError(f"greedy needs one memory_limit, or {devices}, one per device (got {len(limits)})")
    limits = tuple(number("greedy", "memory_limit", limit) for limit in limits)
    for limit in limits:
        if not limit >= 0:
            raise ValueError(f"greedy needs memory_limit >= 0 {got(limit)}")
    return limits


def _require_room(held: Placement, limits: tuple[Real, ...]) -> None:
    """ScheduleError if some device has no room for even one microbatch; if all have, there is an order."""
    short = [
        (device, sorted(stages), math.floor(limit))
        for device, (stages, limit) in enumerate(zip(held, limits, strict=True))
        if limit < len(stages)
    ]
    if not short:
        return
    lines = ["greedy finds no order within memory_limit, because there is none:"]
    lines += [f"  {_short_sentence(*case)}" for case in short]
    if len(set(limits)) == 1:
        enough = max(map(len, held))
    else:
        enough = [max(len(stages), limit) for stages, limit in zip(held, limits, strict=True)]
    raise ScheduleError("\n".join([*lines, f"memory_limit={enough} would do"]))


def _short_sentence(device: int, stages: list[int], limit: int) -> str:
    forwards = [Action(stage, Kind.F, 0) for stage in stages]
    holds = f"it holds {limit} of at most {limit} stage-activations"
    if limit:
        saved = ", ".join(map(str, forwards[:limit]))
        holds += f" ({saved}), none of which can be freed before {forwards[limit]} has run"
    return f"device {device} cannot proceed to {forwards[limit]}: {holds}; it needs {len(stages)}"
