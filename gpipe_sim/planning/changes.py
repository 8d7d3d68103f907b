"""The changes that one could make to a run, each as choices: a schedule and costs that can be simulated."""

from collections.abc import Iterator
from dataclasses import replace
from statistics import median_high, median_low
from typing import Any

from gpipe_sim.balance.by_makespan import balance_by_makespan
from gpipe_sim.core.actions import Kind
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.numbers import quotient
from gpipe_sim.core.remat import Remat, remat
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.timeline import number
from gpipe_sim.drawing.compare import Compared
from gpipe_sim.families import ZBV, DualPipeV, Eager1F1B, GPipe, Interleaved1F1B, LoopedBFS, OneFOneB
from gpipe_sim.planning.choices import Choice, say_cut
from gpipe_sim.planning.known_run import Cut, KnownRun
from gpipe_sim.planning.layers_known import PARTS, each_of, scaled

TRIED = 3  #: schedules whose best cut is looked for
TIMES = (2, 4)  #: as many microbatches
SLOW_LINK, HEAVY_HEAD = 1.2, 0.1  #: times the usual; of the last stage
#: Classes of torch.distributed.pipelining; Eager1F1B is its interleaved one with one stage per device.
NO_CODE = (GPipe, OneFOneB, Eager1F1B, Interleaved1F1B, LoopedBFS, ZBV, DualPipeV)
PARTED = f"stages can be cut into {PARTS} equal parts: say what layers they have, with layers="
SHRINKS = "a microbatch of half the size computes for half as long, and the batch can be cut so"
LINK = "the slowest link becomes as fast as the usual one"
DEVICE = "a slow device is replaced by one like the others"
HEAD = "the head can be cut evenly (arXiv:2411.05288), its messages not counted"
COPIES = "the gradients of two copies of the weights are summed in no time"


def copies(schedule: Schedule) -> int:
    return sum(map(len, schedule.placement)) // schedule.stages


def _another_cut(run: KnownRun) -> Iterator[Choice]:
    """The best cut for the schedule of the run."""
    if run.layers.said and run.schedule.stages > 1:
        balance = balance_by_makespan(run.schedule, run.layers.costs).balance
        if balance != run.layers.balance:
            cut = run.cut(balance)
            yield run.choice(f"cut {say_cut(balance)}", run.schedule, cut, balance, run.layers.assumes)


def _another_schedule(run: KnownRun) -> Iterator[Choice]:
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


def _scheduled(run: KnownRun, row: Compared, costs: Costs, balance: Cut | None = None) -> Choice:
    assumes = () if balance is None else run.layers.assumes if run.layers.said else (PARTED,)
    assumes += (COPIES,) * (copies(row.schedule) > copies(run.schedule))
    name = row.name + (f", cut {say_cut(balance)}" if balance and run.layers.said else "")
    family = type(getattr(row.schedule, "inner", row.schedule))
    return run.choice(name, row.schedule, costs, balance, assumes, family not in NO_CODE)


def _more_microbatches(run: KnownRun) -> Iterator[Choice]:
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


def _faster_link(run: KnownRun) -> Iterator[Choice]:
    """The two devices that wait longest for each other's messages, linked as the others are."""
    pairs = dict(getattr(run.stages, "by_pair", ()))
    usual = median_low(pairs.values()) if pairs else 0
    if pairs and (slowest := max(pairs.values())) > SLOW_LINK * usual:
        ends = {*max(pairs, key=lambda pair: pairs[pair])}
        faster = {pair: min(took, usual) if {*pair} == ends else took for pair, took in pairs.items()}
        name = "link {} to {}: {} instead of {}".format(*sorted(ends), number(usual), number(slowest))
        change: dict[str, Any] = {"by_pair": tuple(faster.items())}
        yield run.choice(name, run.schedule, replace(run.stages, **change), assumes=(LINK,))


def _another_device(run: KnownRun) -> Iterator[Choice]:
    """A slow device replaced. To give it less is the best cut, which knows how slow it is."""
    speed = run.stages.speed
    if isinstance(speed, tuple) and min(speed) < (usual := median_high(speed)):
        device = speed.index(min(speed))
        faster = [max(each, usual) if k == device else each for k, each in enumerate(speed)]
        costs = replace(run.stages, speed=faster)
        yield run.choice(f"device {device} as fast as the others", run.schedule, costs, assumes=(DEVICE,))


def _head_in_parts(run: KnownRun) -> Iterator[Choice]:
    """What the last stage takes beyond its layers, in equal parts on all devices."""
    head, count = run.layers.head, run.schedule.stages
    if head <= HEAVY_HEAD or copies(run.schedule) > 1 or len(run.schedule.placement) == 1:
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


#: What ``what_if`` tries, in this order.
CHANGES = (
    _another_cut,
    _another_schedule,
    _more_microbatches,
    _faster_link,
    _another_device,
    _head_in_parts,
)
