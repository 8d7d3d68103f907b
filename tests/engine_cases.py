"""What PyTorch's engine is tested over, told without torch: orders that it can run, and what they give."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from cases import SIZES, V_SHAPED, every_schedule, overlapped, parts, zero_bubble
from hypothesis import strategies as st
from numeric import apart, furthest_apart

import gpipe_sim as gp
from gpipe_sim import Explicit, cross_entropy
from gpipe_sim.core import Action, Kind, Layer, Loss, Schedule, Timeline, U, needs
from gpipe_sim.core.step import StepResult

#: 13 layers: room for four devices of three stages.
WIDTHS = [6, 5, 5, 5, 5, 5, 5, 4]
SAMPLES = 2  #: in each microbatch


def one_copy(schedule: Schedule) -> bool:
    """Whether every stage is on one device: all but Chimera and DualPipe."""
    stages = [stage for held in schedule.placement for stage in held]
    return len(stages) == len(set(stages))


def runnable(sizes: Iterable[tuple[int, int]] = SIZES) -> Iterator[Schedule]:
    return filter(one_copy, every_schedule(sizes))


def over_every_runnable(sizes: Iterable[tuple[int, int]] = SIZES):
    """Run a test once per schedule that the engine can run."""
    return pytest.mark.parametrize("schedule", runnable(sizes), ids=repr)


#: Every stage, the last one too, meets its microbatches in another order than the batch has them.
OUT_OF_ORDER = Explicit([" ".join(f"{k}{kind}{m}" for kind in "FB" for m in (2, 0, 3, 1)) for k in range(3)])
#: Every stage meets them in an order of its own.
CROSSED = Explicit(["0F0 0F1 0F2 0B1 0B0 0B2", "1F1 1F0 1F2 1B2 1B1 1B0", "2F0 2B0 2F2 2B2 2F1 2B1"])
EXPLICIT = {
    "out of order": OUT_OF_ORDER,
    "crossed": CROSSED,
    "V": V_SHAPED,
    "split": zero_bubble(4, 8),
    "split, M < K": zero_bubble(4, 2),
    "pairs": overlapped(4, 8),
    "some split": Explicit(["0F0 0F1 0I0 0B1 0W0", "1F0 1F1 1B1 1I0 1W0"]),
    "neighbours": Explicit(["0F0 1F0 0F1 1F1 1B0 0B0 1B1 0B1", "2F0 2B0 2F1 2B1"], placement=[[0, 1], [2]]),
}
over_explicit = pytest.mark.parametrize("schedule", EXPLICIT.values(), ids=EXPLICIT)


@st.composite
def legal_orders(draw, recompute: bool = True, least: int = 1, copies: bool = False) -> Explicit:
    """Any placement, any order that does not deadlock, any backward in one or in two, recomputed or not.

    With ``copies`` some stages are on several devices, and each microbatch takes any of them.
    """
    devices, microbatches = draw(st.integers(1, 4)), draw(st.integers(least, 4))
    stages = draw(st.integers(devices, 6))
    random = draw(st.randoms(use_true_random=False))
    return legal_order(random, devices, microbatches, stages, recompute, copies)


def legal_order(
    random: Random, devices: int, microbatches: int, stages: int, recompute: bool = True, copies: bool = False
) -> Explicit:
    """Any of ``legal_orders`` of this size."""
    home = [*range(devices), *(random.randrange(devices) for _ in range(stages - devices))]
    random.shuffle(home)
    holds = [{k} for k in home]
    for held in holds if copies else ():
        held.update(k for k in range(devices) if random.random() < 0.4)
    taken = {(s, m): random.choice(sorted(holds[s])) for s in range(stages) for m in range(microbatches)}
    actions = [
        Action(stage, kind, m)
        for stage in range(stages)
        for m in range(microbatches)
        for kind in random.choice(("FB", "FIW", "FRB", "FRIW") if recompute else ("FB", "FIW"))
    ]
    actions = [action._replace(kind=Kind(action.kind)) for action in actions]
    placement = [[stage for stage in range(stages) if k in holds[stage]] for k in range(devices)]
    rows = [[action for action in actions if taken[action[::2]] == k] for k in range(devices)]
    return ordered(Explicit(rows, placement=placement), random)


@st.composite
def legal_streams(draw) -> Explicit:
    """Any legal order with updates on the way: mini-batches cut anywhere, updates as late as they may be."""
    return legal_stream(draw(legal_orders(least=2)), draw(st.randoms(use_true_random=False)))


def legal_stream(order: Explicit, random: Random) -> Explicit:
    """This order's actions in another order, with updates on the way."""
    ends = [m for m in range(order.microbatches - 1) if random.random() < 0.7] + [order.microbatches - 1]
    rows, after = [], defaultdict(set)
    for row, held in zip(order.actions, order.placement, strict=True):
        rows.append([*row, *(U(stage, end) for stage in held for end in ends)])
        for action in (action for action in row if action.kind in (Kind.B, Kind.W)):
            own = bisect_left(ends, action.microbatch)
            after[U(action.stage, ends[own])].add(action)
            if own:
                after[action].add(U(action.stage, ends[own - 1]))
    eager = random.choice([0, 0.5, 1])  # forwards that come early meet old weights
    return ordered(Explicit(rows, placement=order.placement), random, after, eager)


def ordered(
    whole: Explicit,
    random: Random,
    after: Mapping[Action, set[Action]] | None = None,
    eager: float = 0,
) -> Explicit:
    """Its actions, each picked at random among those whose needs are met, and what else they come after.

    ``eager`` is how often a forward is preferred to what else could come next.
    """
    rows = [[] for _ in whole.actions]
    actions, done = [action for row in whole.actions for action in row], set()
    left = {action: {*needs(action, whole), *(after or {}).get(action, ())} for action in actions}
    while left:
        ready = [action for action, wanted in left.items() if done.issuperset(wanted)]
        forwards = [action for action in ready if action.kind is Kind.F] if random.random() < eager else []
        picked = random.choice(forwards or ready)
        rows[whole.device_of(picked)].append(picked)
        done.add(picked)
        del left[picked]
    return Explicit(rows, placement=whole.placement)


def batch_for(microbatches: int, loss: Loss = cross_entropy, dtype: type = np.float64) -> tuple:
    rng = np.random.default_rng(microbatches)
    x = rng.normal(size=(SAMPLES * microbatches, WIDTHS[0])).astype(dtype)
    if loss is gp.mse:
        return x, rng.normal(size=(len(x), WIDTHS[-1])).astype(dtype)
    return x, rng.integers(0, WIDTHS[-1], len(x))


def model(activation: str = "tanh", dtype: type = np.float64) -> list[Layer]:
    return gp.mlp(WIDTHS, activation=activation, dtype=dtype)


def in_numpy(layers: list[Layer], schedule: Schedule, batch: tuple, loss: Loss) -> StepResult:
    return gp.train_step(gp.split(layers, stages=schedule.stages), schedule, batch, loss, meter=False)


def assert_equal(found: StepResult, expected: StepResult, within: float = 1e-10) -> None:
    """Loss, outputs and every gradient, relative to the largest entry of each."""
    assert found.loss == pytest.approx(expected.loss, rel=within)
    assert apart(found.outputs, expected.outputs) < within
    assert furthest_apart(found.gradients, expected.gradients) < within


def worked(row: Iterable, without_r: bool = False) -> list[Action]:
    """The plain actions of a row or of a device's spans."""
    actions = (part for one in row for part in getattr(one, "action", one).parts)
    return [action for action in actions if not (without_r and action.kind is Kind.R)]


def assert_a_timeline_of(timeline: Timeline, schedule: Schedule) -> None:
    """Every action once and where it belongs, one at a time, in order, after what it needs, from 0 on."""
    assert sorted(worked(timeline.spans)) == sorted(parts(schedule))
    assert all(len(span.action.parts) == 1 for span in timeline.spans)
    assert min(span.start for span in timeline.spans) == 0
    assert all(span.device == schedule.device_of(span.action) for span in timeline.spans)
    for k, row in enumerate(schedule.actions):
        spans = timeline.on(k)
        assert worked(spans, without_r=True) == worked(row, without_r=True)
        assert all(span.start <= span.end for span in spans)
        for span, later in pairwise(spans):
            assert span.end <= later.start
            if span.action.kind is Kind.R:
                assert later.action[::2] == span.action[::2] and later.action.kind in (Kind.B, Kind.I)
                assert later.start == span.end
    for span in timeline.spans:
        assert all(timeline.ends[need] <= span.start for need in needs(span.action, timeline.schedule))
