"""What would help a run? Each change that one could make, simulated with what the run cost; the best first.

A change is a schedule and costs, so it can be checked: simulate them. What nobody measured is said beside it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from statistics import median_high, median_low
from typing import Any, cast

import numpy as np

from gpipe_sim.balance.by_makespan import balance_by_makespan
from gpipe_sim.balance.costs_of_stages import layers_listed, merged
from gpipe_sim.core.actions import Kind
from gpipe_sim.core.bubbles import most_held
from gpipe_sim.core.costs import Cost, Costs
from gpipe_sim.core.numbers import quotient
from gpipe_sim.core.remat import Remat, remat
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import Timeline, number
from gpipe_sim.drawing.compare import Compared, Comparison, compare
from gpipe_sim.errors import Real, duration, got, listed, require
from gpipe_sim.families import (
    SCHEDULES,
    ZBV,
    DualPipeV,
    Eager1F1B,
    GPipe,
    Interleaved1F1B,
    LoopedBFS,
    OneFOneB,
)
from gpipe_sim.memory.prediction import predict_memory
from gpipe_sim.memory.profile import Profile
from gpipe_sim.planning.candidates import stages_of
from gpipe_sim.planning.choices import Choice, WhatIf, say_cut
from gpipe_sim.planning.layers_known import OWNER, PARTS, Layers, each_of, read_layers, scaled
from gpipe_sim.why.fit_costs import fit_costs

Cut = tuple[int, ...]  #: the layers of each stage
SAME = 1e-9  #: a share that is rounding
LEAST = 0.005  #: what saves a smaller share is not offered
TRIED = 3  #: schedules whose best cut is looked for
TIMES = (2, 4)  #: as many microbatches
SLOW_LINK, HEAVY_HEAD = 1.2, 0.1  #: times the usual; of the last stage
#: Classes of torch.distributed.pipelining; Eager1F1B is its interleaved one with one stage per device.
NO_CODE = (GPipe, OneFOneB, Eager1F1B, Interleaved1F1B, LoopedBFS, ZBV, DualPipeV)
HALVES = "the two halves of a backward take as long as taken here: nobody measured them apart"
PARTED = f"stages can be cut into {PARTS} equal parts: say what layers they have, with layers="
SHRINKS = "a microbatch of half the size computes for half as long, and the batch can be cut so"
LINK = "the slowest link becomes as fast as the usual one"
DEVICE = "a slow device is replaced by one like the others"
HEAD = "the head can be cut evenly (arXiv:2411.05288), its messages not counted"
NO_CUT = "no cut: say how many layers each stage has, such as layers=[4, 4, 4, 4]"
COPIES = "the gradients of two copies of the weights are summed in no time"


def what_if(
    run: Timeline | Costs,
    schedule: Schedule | None = None,
    *,
    layers: Sequence[int] | Costs | None = None,
    profile: Profile | None = None,
    limit: Real | None = None,
    schedules: Iterable[type[Schedule]] | None = None,
) -> WhatIf:
    """What a step would take after each change that one could make, the shortest first.

    >>> slow = gp.simulate(gp.OneFOneB(4, 8), gp.Costs.from_forward([4, 4, 8, 4]))
    >>> print(gp.what_if(slow, layers=[4, 4, 4, 4], schedules=[gp.ZBH1]))
                        time   gain  in flight  code      sure   if
    as it is             220                 4           exact
    ZB-H1, cut 6 4 2 4   154  30.0%          6   yes  supposed  1 2
    cut 6 4 2 4          174  20.9%          6        supposed    1
    32 microbatches      199   9.5%          1        supposed    3
    ZB-H1                200   9.1%          4   yes  supposed    2
    16 microbatches      206   6.4%          2        supposed    3
    1  if layers of one stage cost the same
    2  if the two halves of a backward take as long as taken here: nobody measured them apart
    3  if a microbatch of half the size computes for half as long, and the batch can be cut so
    in flight: today's microbatches of a device's share of the layers, on the fullest device

    ``run`` is a timeline, measured or simulated, whose costs are fitted; or ``Costs`` with their
    ``schedule``. Offered are the best cut, the other schedules of the library, both together, more
    microbatches of the same batch, a slow link or device as fast as the others, and a heavy head cut in
    parts; each only where it saves something, and where it means something.

    - ``layers``: how many each stage has, or ``Costs`` of each layer, in any unit. Without them there is no
      cut to offer, and a stage that has to be cut is taken to be four equal parts. A stage is told to be slow
      for its layers, unless all of several stages on its device are.
    - ``profile``: of the model as it is cut now. It knows the layers too, and what each choice holds.
    - ``limit``: what a device may hold at most, in bytes, or in flight if there is no profile.
    - ``schedules``: families to compare with, such as those that you can run; ``[]`` for none. All of
      ``SCHEDULES`` that need one copy of the weights, unless given.

    Of ties, what needs no code comes first, and then what sends fewer messages. Noise and what an action
    takes however small it is are not in a fit: what has more and smaller actions gains a little less.

    Messages and overhead stay as they are whatever the cut. Times are in the unit of the run. TypeError or
    ValueError for what is no run, or for layers that do not fit it.
    """
    costs, schedule, timeline = _read_run(run, schedule)
    simulated = simulate(schedule, costs)  # which refuses what does not fit
    layers_listed(OWNER, costs)
    if profile is not None:
        require(OWNER, profile, Profile, "a profile, such as profile(partitions, batch, loss)")
    if limit is not None:
        limit = duration(OWNER, "limit, for each device,", limit)
    known = _Run(schedule, costs, timeline, simulated, layers, profile, limit, _read_families(schedules))
    return known.answer()


def _read_run(run: Timeline | Costs, schedule: Schedule | None) -> tuple[Costs, Schedule, Timeline | None]:
    such_as = "a timeline, or costs and their schedule, such as what_if(Costs(comm=1), OneFOneB(4, 8))"
    require(OWNER, run, Timeline | Costs, such_as)
    if isinstance(run, Costs):
        require_schedule(OWNER, schedule)
        return run, cast(Schedule, schedule), None
    if schedule is not None:
        raise TypeError(f"{OWNER} takes the schedule from the timeline; leave out schedule= {got(schedule)}")
    return fit_costs(run), run.schedule, run


def _read_families(given: Iterable[type[Schedule]] | None) -> tuple[type[Schedule], ...]:
    """Unless some are given, those that need one copy of the weights."""
    if given is None:
        return tuple(family for family in SCHEDULES if _copies(family(4, 8)) == 1)
    such_as = "schedules= to list families of gp.SCHEDULES, such as [OneFOneB, Interleaved1F1B]"
    found = listed(OWNER, such_as, given)
    if any(require(OWNER, family, type, such_as) not in SCHEDULES for family in found):
        raise TypeError(f"{OWNER} needs {such_as} {got(given)}")
    return tuple(dict.fromkeys(found))


def _copies(schedule: Schedule) -> int:
    return sum(map(len, schedule.placement)) // schedule.stages


@dataclass(frozen=True)
class _Run:
    """What is known of a run, and what is asked of it."""

    schedule: Schedule
    costs: Costs
    timeline: Timeline | None
    simulated: Timeline
    asked: Sequence[int] | Costs | None
    profile: Profile | None
    limit: Real | None
    families: tuple[type[Schedule], ...]

    @cached_property
    def error(self) -> float:
        """By which share the run, simulated with its own costs, ends later than it did."""
        if self.timeline is None:
            return 0.0
        return float(self.simulated.end.max()) / float(self.timeline.end.max() or 1) - 1

    @property
    def measured(self) -> bool:
        return self.timeline is not None and self.timeline.measured

    @cached_property
    def kinds(self) -> set[Kind]:
        return {*self.schedule.program.where}

    @cached_property
    def left(self) -> Real:
        """The share of stage 0's backward that is I at the others, if it leaves all to W, as torch does."""
        i, w = (list(each_of(cost, self.schedule.stages)) for cost in _backward(self.costs))
        if not self.measured or 20 * i[0] >= w[0] or 20 * sum(i) <= sum(w):
            return 0
        return sum(i[1:]) / (sum(i[1:]) + sum(w[1:]))

    @cached_property
    def layers(self) -> Layers:
        costs = _stage_0(self.costs, self.schedule.stages, self.left) if self.left else self.costs
        return read_layers(costs, self.schedule, self.asked, self.profile, self.timeline is not None)

    @cached_property
    def stages(self) -> Costs:
        """What the stages cost, with a slow device told from heavy stages where that can be told."""
        found = self.layers.stages
        return _stage_0(found, self.schedule.stages, 0) if self.left else found

    def cut(self, balance: Cut) -> Costs:
        """What the stages of another cut cost.

        The overhead that was measured on the devices at the ends of a chain is less than on those between,
        which have messages to handle on both sides, as all have with several stages.
        """
        found = merged(self.layers.costs, balance)
        if self.measured and len(balance) > self.schedule.stages:
            found = replace(found, overhead=max(each_of(found.overhead, self.schedule.devices)))
        return _stage_0(found, len(balance), 0) if self.left else found

    @cached_property
    def others(self) -> tuple[list[Schedule], list[str]]:
        """(the other schedules of this size, why families have none)."""
        found, refused = list[Schedule](), list[str]()
        if Kind.U in self.kinds or not self.kinds & {Kind.B, Kind.I}:
            return found, ["other schedules are compared for one step, forward and back, without updates"]
        for family in self.families:
            for several in stages_of(family, (2, 4)):
                options = {"stages_per_device": several} if several != family.stages_per_device else {}
                try:
                    made = family(self.schedule.devices, self.schedule.microbatches, **options)
                except ValueError as error:
                    refused.append(str(error))
                    continue
                mode = getattr(self.schedule, "mode", "always") if Kind.R in self.kinds else "never"
                found.append(remat(made, mode))
        return [each for each in found if each.actions != self.schedule.actions], refused

    @cached_property
    def compared(self) -> Comparison | tuple[()]:
        """The other schedules on equal layers."""
        finer = [each for each in self.others[0] if each.stages <= sum(self.layers.balance)]
        return compare(finer, costs=self.layers.costs) if finer else ()

    def choice(
        self,
        name: str,
        schedule: Schedule,
        costs: Costs,
        balance: Cut | None = None,
        assumes: tuple[str, ...] = (),
        code: bool = False,
    ) -> Choice:
        known = self.timeline is None or Kind.W in self.kinds or Kind.W not in schedule.program.where
        assumes += () if known else (HALVES,)
        makespan = simulate(schedule, costs).makespan
        sure = "supposed" if assumes else f"to {abs(self.error):.1%}" if abs(self.error) > SAME else "exact"
        gain = 1 - float(quotient(makespan, self.simulated.makespan or 1))
        held = self.held(schedule, balance or self.layers.balance)
        shown = balance if self.layers.said else None
        return Choice(name, schedule, costs, shown, makespan, gain, held, assumes, sure, code)

    def held(self, schedule: Schedule, balance: Cut) -> Real:
        """What the fullest device holds: bytes, or microbatches of today's size if there is no profile."""
        if self.profile is not None:
            ends = pairwise([0, *accumulate(balance)])
            stages = tuple(self.profile.layers[start:end] for start, end in ends)
            traces = predict_memory(schedule, replace(self.profile, stages=stages))
            return max(trace.peak_inside.bytes for trace in traces)
        layers = max(most_held(schedule.program, np.array(balance)[schedule.program.stage]))
        size = quotient(self.schedule.microbatches, schedule.microbatches)
        return quotient(layers * schedule.devices * size, sum(balance))

    def within(self, choice: Choice) -> bool:
        return self.limit is None or choice.peak <= self.limit

    def answer(self) -> WhatIf:
        now = self.choice("as it is", self.schedule, self.costs)
        tried = [each for change in CHANGES for each in change(self)]
        fit = [each for each in tried if self.within(each)]
        shorter = sorted((each for each in fit if each.gain >= LEAST), key=_place)
        left_out = {
            "over the limit": [each.name for each in tried if not self.within(each)],
            "no gain": [each.name for each in fit if each.gain < LEAST],
        }
        notes = [f"{why}: {', '.join(names)}" for why, names in left_out.items() if names]
        notes += self.others[1] + [NO_CUT] * (not self.layers.said)
        if self.timeline is not None and abs(self.error) > SAME:
            took, fitted = self.timeline.makespan, self.simulated.makespan
            notes.insert(0, f"the run took {number(took)}; with what was fitted it takes {number(fitted)}")
        return WhatIf(now, tuple(shorter), tuple(notes), self.profile is not None)


def _place(choice: Choice) -> tuple[float, bool, int]:
    """Of ties, apart from rounding, what needs no code comes first, and then what sends fewer messages."""
    makespan = float(f"{float(choice.makespan):.9g}")
    return makespan, choice.code, int(choice.schedule.program.crosses.sum())


def _backward(costs: Costs) -> tuple[Cost, Cost]:
    return costs.input_grad, costs.weight_grad


def _stage_0(costs: Costs, stages: int, share: Real) -> Costs:
    """Stage 0's backward with this share of it in I. PyTorch's engine has none there, and all in W."""
    i, w = (list(each_of(cost, stages)) for cost in _backward(costs))
    both = i[0] + w[0]
    i[0], w[0] = both * share, both * (1 - share)
    return replace(costs, input_grad=i, weight_grad=w)


def _another_cut(run: _Run) -> Iterator[Choice]:
    """The best cut for the schedule of the run."""
    if run.layers.said and run.schedule.stages > 1:
        balance = balance_by_makespan(run.schedule, run.layers.costs).balance
        if balance != run.layers.balance:
            cut = run.cut(balance)
            yield run.choice(f"cut {say_cut(balance)}", run.schedule, cut, balance, run.layers.assumes)


def _another_schedule(run: _Run) -> Iterator[Choice]:
    """The same layers in another order. Where stages are other ones, and for the best, cut again."""
    best = sorted(run.compared, key=lambda row: row.makespan)[: TRIED * run.layers.said]
    for row in run.compared:
        if not (again := row.schedule.stages != run.schedule.stages):
            yield _scheduled(run, row, run.stages)
        if row in best:
            balance = balance_by_makespan(row.schedule, run.layers.costs).balance
            if again or balance != run.layers.balance:
                yield _scheduled(run, row, run.cut(balance), balance)
        elif again and row.balance:
            yield _scheduled(run, row, run.cut(row.balance), row.balance)


def _scheduled(run: _Run, row: Compared, costs: Costs, balance: Cut | None = None) -> Choice:
    assumes = () if balance is None else run.layers.assumes if run.layers.said else (PARTED,)
    assumes += (COPIES,) * (_copies(row.schedule) > _copies(run.schedule))
    name = row.cells[0] + (f", cut {say_cut(balance)}" if balance and run.layers.said else "")
    family = type(getattr(row.schedule, "inner", row.schedule))
    return run.choice(name, row.schedule, costs, balance, assumes, family not in NO_CODE)


def _more_microbatches(run: _Run) -> Iterator[Choice]:
    """The same batch in more pieces: computing shrinks with them, messages and overhead do not."""
    if Kind.U in run.kinds:
        return
    for times in TIMES:
        count = times * run.schedule.microbatches
        schedule = _resized(run.schedule, count)
        samples = count if run.profile is None else run.profile.samples
        if schedule is not None and samples % count == 0:
            costs = scaled(run.stages, [quotient(1, times)] * run.schedule.stages)
            yield run.choice(f"{count} microbatches", schedule, costs, assumes=(SHRINKS,))


def _resized(schedule: Schedule, microbatches: int) -> Schedule | None:
    """The same family for more microbatches; None where there is none of this size, or no family."""
    if isinstance(schedule, Remat):
        inner = _resized(schedule.inner, microbatches)
        return inner and remat(inner, schedule.mode, schedule.only)
    try:
        return replace(schedule, microbatches=microbatches)
    except (ValueError, TypeError):
        return None


def _faster_link(run: _Run) -> Iterator[Choice]:
    """The two devices that wait longest for each other's messages, linked as the others are."""
    pairs = dict(getattr(run.stages, "by_pair", ()))
    usual = median_low(pairs.values()) if pairs else 0
    if pairs and (slowest := max(pairs.values())) > SLOW_LINK * usual:
        ends = {*max(pairs, key=lambda pair: pairs[pair])}
        faster = {pair: min(took, usual) if {*pair} == ends else took for pair, took in pairs.items()}
        name = "link {} to {}: {} instead of {}".format(*sorted(ends), number(usual), number(slowest))
        change: dict[str, Any] = {"by_pair": tuple(faster.items())}
        yield run.choice(name, run.schedule, replace(run.stages, **change), assumes=(LINK,))


def _another_device(run: _Run) -> Iterator[Choice]:
    """A slow device replaced. To give it less is the best cut, which knows how slow it is."""
    speed = run.stages.speed
    if isinstance(speed, tuple) and min(speed) < (usual := median_high(speed)):
        device = speed.index(min(speed))
        faster = [max(each, usual) if k == device else each for k, each in enumerate(speed)]
        costs = replace(run.stages, speed=faster)
        yield run.choice(f"device {device} as fast as the others", run.schedule, costs, assumes=(DEVICE,))


def _head_in_parts(run: _Run) -> Iterator[Choice]:
    """What the last stage takes beyond its layers, in equal parts on all devices."""
    head, count = run.layers.head, run.schedule.stages
    if head <= HEAVY_HEAD or _copies(run.schedule) > 1 or len(run.schedule.placement) == 1:
        return
    homes = {held[-1] for held in run.schedule.placement if held}
    costs = scaled(run.stages, [*[1] * (count - 1), 1 - head])
    more: dict[str, Any] = {}
    for name in ("forward", "input_grad", "weight_grad"):
        part = quotient(each_of(getattr(run.stages, name), count)[-1] * head, len(homes))
        each = enumerate(each_of(getattr(costs, name), count))
        more[name] = [cost + part * (stage in homes) for stage, cost in each]
    name, costs = f"head split over {len(homes)} devices", replace(costs, **more)
    yield run.choice(name, run.schedule, costs, assumes=(HEAD,), code=True)


CHANGES = (
    _another_cut,
    _another_schedule,
    _more_microbatches,
    _faster_link,
    _another_device,
    _head_in_parts,
)
