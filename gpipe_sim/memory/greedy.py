"""Plan an order from rules when no pattern fits: with unequal stages, slow messages, or a memory limit.

``greedy`` is a list scheduler. Whenever a device is free, it starts the ready action that comes first by
priority. Forwards first gives GPipe with its drain in order; backwards first, with room for K-k microbatches
on device k, gives 1F1B; I before F before W fills with weight gradients what would otherwise be bubbles.

A limit counts stage-activations, or bytes of everything. A planner that counts activations cannot know how
many bytes wait in messages, because that depends on when other devices send. So a plan within bytes is
measured by the prediction. If some device would hold too much, the fullest gets room for one stage-activation
less, or if it has none to spare, those that exchange messages with it; and the plan is made again.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import pairwise

from gpipe_sim.core.actions import Action, Kind, OverlapFB
from gpipe_sim.core.bubbles import peak_in_flight
from gpipe_sim.core.cost_model import CostModel, require_costs
from gpipe_sim.core.costs import UNIT
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.memory import Inside
from gpipe_sim.core.placement import looped, read_placement, require_gapless
from gpipe_sim.errors import MOST, Real, ScheduleError, got, require, require_few, whole
from gpipe_sim.machine.machine import Machine
from gpipe_sim.memory.limit import in_bytes, read_limits
from gpipe_sim.memory.prediction import predict_memory
from gpipe_sim.memory.profile import Profile

Placement = tuple[tuple[int, ...], ...]


def greedy(
    devices: int,
    microbatches: int,
    placement: Sequence[Sequence[int]] | None = None,
    priority: Sequence[Kind | str] = ("B", "F"),
    memory_limit: "Real | Sequence[Real] | None" = None,
    costs: CostModel | None = None,
    *,
    profile: Profile | None = None,
) -> Explicit:
    """An order in which no device waits while there is an action that it may start.

    ``placement`` lists the stages that each device holds, by default one each; ``looped`` and ``v_shaped``
    make such lists. ``priority`` lists F and B, or F, I and W to split the backwards, most urgent first. Ties
    go to the lower microbatch, then to the lower stage. ``memory_limit`` is the most stage-activations that a
    device may hold from F until B or W: one number, or one per device. ``costs``, unit costs unless given,
    say how long actions and messages take while the plan is made. The result is an order, and stays legal
    whatever the times turn out to be.

    With the ``profile`` of a model, ``memory_limit`` is in bytes: the most that a device may ever hold, of
    everything, also while an action runs. ``simulate`` with this profile, this limit and these costs does not
    refuse the result. With other costs messages may wait longer, and take more room.

    Planning n actions takes time in proportion to n log n. Within bytes, each plan is measured by
    ``predict_memory``, and made again with room for one microbatch fewer if it does not fit: at most as often
    as there are microbatches in flight, on all devices. Each decision looks no further than the next action,
    so the order need not be the shortest, and a pattern that waits on purpose can beat it: on unequal stages,
    B before F within K-k often takes longer than 1F1B. I before F before W without a limit hardly ever does
    (1 of 6000 random cases).

    ScheduleError, with what would do, if no order keeps within the limit; in bytes, if not even one
    microbatch after another does. (With several stages per device and large gradients, some other order may
    then fit.) ValueError for a placement that holds a stage twice, and for a profile of another number of
    stages or of fewer samples than microbatches.
    """
    devices = whole("greedy", "devices", devices)
    microbatches = whole("greedy", "microbatches", microbatches)
    held = _read_placement(placement, devices)
    stages = sum(map(len, held))
    require_few("greedy", stages * microbatches, "pairs of stage and microbatch", most=MOST // 10)
    kinds = _read_priority(priority)
    limits = read_limits(devices, math.inf if memory_limit is None else memory_limit)
    costs = UNIT if costs is None else costs
    require_costs("greedy", costs, stages, devices)
    by_urgency = [
        [Action(stage, kind, m) for kind in kinds for m in range(microbatches) for stage in sorted(stages)]
        for stages in held
    ]
    work = Explicit(by_urgency, placement=held, microbatches=microbatches)
    if profile is not None:
        return _within_bytes(work, profile, limits, costs)
    _require_room(held, limits)
    return _Plan(work, limits, costs).order()


def _one_by_one(work: Explicit) -> Explicit:
    """The order in which each microbatch begins when the one before it is finished."""

    def place(action: Action | OverlapFB) -> tuple:
        stage, kind, m = action.parts[0]
        return m, kind is not Kind.F, stage if kind is Kind.F else -stage, kind

    rows = [sorted(row, key=place) for row in work.actions]
    return Explicit(rows, placement=work.placement, microbatches=work.microbatches)


class Room:
    """What one device holds, in stage-activations: each from F until B or W."""

    def __init__(self, stages: Iterable[int], limit: Real):
        self.place = {stage: j for j, stage in enumerate(sorted(stages))}
        self.limit, self.held = limit, 0
        # through[j]: how many microbatches have run j of their forwards here, and no backward.
        self.through = [0] * (len(self.place) + 1)

    def admits(self, action: Action) -> bool:
        """Whether the action fits, and every microbatch that has begun can still be finished afterwards.

        Microbatches on their way back can always go on. Of the others, the one that is furthest along has to
        have room for the forwards that it has yet to run here. Then it can be finished, and frees so much
        that the one that is then the furthest along has room too. (The furthest along on one device may as
        well be so on every device. Of all states of small cases, this refuses just those that are stuck.)
        """
        if action.kind is not Kind.F:
            return True
        furthest = max([self.place[action.stage] + 1, *(j for j, count in enumerate(self.through) if count)])
        forward = sum(j * count for j, count in enumerate(self.through))
        yet_to_run = len(self.place) - furthest
        return self.held + 1 <= self.limit and forward + 1 + yet_to_run <= self.limit

    def record(self, action: Action) -> None:
        """Take note that the action has been started."""
        j = self.place[action.stage]
        if action.kind is Kind.F:
            self.through[j] -= 1
            self.through[j + 1] += 1
            self.held += 1
            return
        if action.kind is not Kind.W and j == len(self.place) - 1:
            self.through[-1] -= 1
        self.held -= action.kind is not Kind.I


class _Plan:
    """A plan in the making: a ``Machine`` keeps time, and every free device takes its most urgent action.

    ``work`` lists the actions of each device, most urgent first. So of two entries the lower is more urgent.
    """

    def __init__(self, work: Explicit, limits: Iterable[Real], costs: CostModel):
        self.work, self.machine = work, Machine(work.program, costs, ordered=False)
        self.actions = [part for row in work.actions for action in row for part in action.parts]
        self.rooms = [Room(held, limit) for held, limit in zip(work.placement, limits, strict=True)]
        self.rows: list[list[Action]] = [[] for _ in self.rooms]
        # By device, stage and kind: the entries that are ready. A room treats them all alike, so if it has
        # none for the first one, the others need not be tried.
        self.ready: list[dict] = [defaultdict(list) for _ in self.rooms]
        # (time, device, entry): then all that this entry needs has arrived; -1: then the device becomes free
        self.agenda: list[tuple[Real, int, int]] = []

    def order(self) -> Explicit:
        """Make the plan: the rows of all devices, as a schedule."""
        self._announce(self.machine.ready)
        while self.agenda:
            now = self.agenda[0][0]
            for device in self._woken(now):
                if self.machine.free[device] <= now:
                    self._start(device, now)
        return Explicit(self.rows, placement=self.work.placement, microbatches=self.work.microbatches)

    def _announce(self, entries: Iterable[int]) -> None:
        for entry in entries:
            heappush(self.agenda, (self.machine.arrival(entry), self.machine.home[entry], entry))

    def _woken(self, now: Real) -> set[int]:
        """Make ready all that arrives now; return the devices that may be able to start something."""
        woken = set()
        while self.agenda and self.agenda[0][0] == now:
            _, device, entry = heappop(self.agenda)
            woken.add(device)
            if entry >= 0:
                heappush(self.ready[device][self.actions[entry][:2]], entry)
        return woken

    def _start(self, device: int, now: Real) -> None:
        """Start the most urgent ready action for which there is room, if there is one."""
        for entry in sorted(heap[0] for heap in self.ready[device].values() if heap):
            action = self.actions[entry]
            if self.rooms[device].admits(action):
                heappop(self.ready[device][action[:2]])
                self.rooms[device].record(action)
                self.rows[device].append(action)
                self._announce(self.machine.apply(entry, at=now))
                heappush(self.agenda, (self.machine.free[device], device, -1))
                return


def _read_priority(priority: Sequence[Kind | str]) -> tuple[Kind, ...]:
    """The kinds of action that the plan consists of, most urgent first."""
    few = isinstance(priority, Sequence) and len(priority) <= len(Kind)
    order = tuple(map(str, priority)) if few else ()
    if "".join(sorted(order)) not in ("BF", "FIW"):
        raise ValueError(
            "greedy needs priority to list F and B, or F, I and W, each once and the most urgent first "
            f"{got(priority)}"
        )
    return tuple(map(Kind, order))


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
    require_gapless(held)
    return held


def _require_room(held: Placement, limits: Sequence[Real]) -> None:
    """ScheduleError if some device has no room for even one microbatch; if all have, there is an order."""
    short = [
        f"  device {device} may hold {math.floor(limit)} stage-activations, and has to hold {len(stages)} "
        f"before it can free one: those of {' '.join(f'{stage}F0' for stage in sorted(stages))}"
        for device, (stages, limit) in enumerate(zip(held, limits, strict=True))
        if limit < len(stages)
    ]
    _refuse("because there is none", short, [*map(len, held)], limits)


def _within_bytes(work: Explicit, profile: Profile, limits: Sequence[Real], costs: CostModel) -> Explicit:
    """The plan without a limit if that fits, or the first one that does with smaller and smaller rooms.

    ScheduleError if not even one microbatch after another fits; that is the order if no plan does.
    """
    placement, one_by_one = work.placement, _one_by_one(work)
    require("greedy", profile, Profile, "a profile, such as profile(partitions, batch, loss)")
    if len(profile.stages) != work.stages:
        raise ValueError(f"greedy plans {work.stages} stages, but the profile has {len(profile.stages)}")

    def held(order: Explicit) -> list[Inside]:
        return [trace.peak_inside for trace in predict_memory(order, profile, costs)]

    def over(order: Explicit) -> list[Real]:
        return [peak.bytes - limit for peak, limit in zip(held(order), limits, strict=True)]

    order = _Plan(work, [math.inf] * len(placement), costs).order()
    if max(excess := over(order)) > 0:
        _require_least(held(one_by_one), limits)
    while max(excess) > 0:
        fullest, rooms = excess.index(max(excess)), peak_in_flight(order)
        near = {stage + step for stage in placement[fullest] for step in (-1, 0, 1)}
        less = [k for k, own in enumerate(placement) if near & {*own} and rooms[k] > len(own)]
        if not less:
            return one_by_one
        less = [fullest] if fullest in less else less
        order = _Plan(work, [room - (k in less) for k, room in enumerate(rooms)], costs).order()
        excess = over(order)
    return order


def _require_least(least: list[Inside], limits: Sequence[Real]) -> None:
    """ScheduleError, with what would do, if one microbatch after another does not fit."""
    short = [
        f"  device {device} would hold {in_bytes(peak.bytes)} while it runs {peak.action}, "
        f"and may hold {in_bytes(limit)}"
        for device, (peak, limit) in enumerate(zip(least, limits, strict=True))
        if peak.bytes > limit
    ]
    _refuse("not even one microbatch after another", short, [peak.bytes for peak in least], limits)


def _refuse(why: str, short: Sequence[str], least: Sequence[Real], limits: Sequence[Real]) -> None:
    """ScheduleError if devices fall short; what would do is one number, unless the limits differ."""
    if short:
        enough = [max(each, limit) for each, limit in zip(least, limits, strict=True)]
        would_do = f"memory_limit={max(enough) if len(set(limits)) == 1 else enough} would do"
        lines = [f"greedy finds no order within memory_limit, {why}:", *short, would_do]
        raise ScheduleError("\n".join(lines))
