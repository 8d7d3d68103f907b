"""What the laws are tested over: every family of schedules, in ordinary and in odd sizes.

Also two orders written out as ``Explicit``: one with split backwards, one with overlapped pairs.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import cache, wraps

import pytest

from gpipe_sim.core.actions import Action, B, F, I, Kind, OverlapFB, W
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.gpipe import GPipe
from gpipe_sim.core.interleaved import Interleaved1F1B
from gpipe_sim.core.naive import Naive
from gpipe_sim.core.one_f_one_b import Eager1F1B, OneFOneB
from gpipe_sim.core.schedule import Schedule

try:
    from gpipe_sim.families import SCHEDULES
    from gpipe_sim.families.derived import repeat, with_updates
    from gpipe_sim.families.zero_bubble import ZBH1
    from gpipe_sim.streams.pipedream import PipeDream, PipeDream2BW

    ALONE = False
except ModuleNotFoundError:
    ALONE = True  #: whether the core is all there is: its tests run without chapters too (test_imports.py)
    SCHEDULES = (Naive, GPipe, OneFOneB, Eager1F1B, Interleaved1F1B)

#: (devices, microbatches): one device, one microbatch, M < K, M = K, K divides M, and not.
SIZES = ((1, 1), (1, 3), (2, 1), (2, 3), (3, 2), (3, 8), (4, 1), (4, 3), (4, 4), (4, 8), (4, 10))
if ALONE:  # what is the same with chapters around is seen there
    SIZES = ((1, 3), (2, 1), (3, 2), (4, 4), (4, 10))

#: F = B = 1: a backward as long as a forward, its two halves equally long.
EQUAL = {"forward": 1, "input_grad": Fraction(1, 2), "weight_grad": Fraction(1, 2)}


def every_schedule(sizes: Iterable[tuple[int, int]] = SIZES) -> Iterator[Schedule]:
    """Every family in every size, and the variants that options give."""
    for size in sizes:
        yield from _of_every_family(*size)


def every_order(sizes: Iterable[tuple[int, int]] = SIZES) -> Iterator[Schedule]:
    """Every schedule, and streams: for all laws but those about one device's gradients, or one update."""
    for size in sizes:
        yield from (*_of_every_family(*size), *_streams(*size))


@cache
def _streams(devices: int, microbatches: int) -> tuple[Schedule, ...]:
    """Updates on the way, without a flush and with one. Pipelined backpropagation has PipeDream's rows."""
    if ALONE:
        return ()
    halves = () if microbatches % 2 else of_size(ZBH1, devices, microbatches // 2)
    return (
        PipeDream(devices, microbatches),
        PipeDream2BW(devices, microbatches),
        *(repeat(with_updates(half), 2) for half in halves),
    )


@cache
def _of_every_family(devices: int, microbatches: int) -> tuple[Schedule, ...]:
    """The same objects for every test, so that an order is laid out once and not once per test."""
    return (
        *(schedule for family in SCHEDULES for schedule in of_size(family, devices, microbatches)),
        GPipe(devices, microbatches, drain="in_order"),
        *of_size(Interleaved1F1B, devices, microbatches, stages_per_device=3),
    )


def of_size(family: type[Schedule], *sizes: int, **options: int) -> Iterator[Schedule]:
    """The schedule, or nothing for a size that the family refuses (test_families.py says which)."""
    try:
        yield family(*sizes, **options)
    except ValueError as error:
        assert family.__name__ in str(error)


def over_every_order(sizes: Iterable[tuple[int, int]] = SIZES) -> Callable:
    """Run a test on every schedule and stream; see ``over``."""
    return over(every_order(sizes))


def over_every_schedule(sizes: Iterable[tuple[int, int]] = SIZES) -> Callable:
    """Run a test on every schedule; see ``over``."""
    return over(every_schedule(sizes))


def over(schedules: Iterable[Schedule]) -> Callable:
    """Run a test on each schedule, and report it once per family: a failure names the schedule as well.

    A report per schedule is what a test that takes a tenth of a millisecond spends most of its time on.
    """
    by_family: dict[str, list[Schedule]] = {}
    for schedule in schedules:
        by_family.setdefault(type(getattr(schedule, "inner", schedule)).__name__, []).append(schedule)

    def decorate(test: Callable) -> Callable:
        @wraps(test)
        def on_each(*, family: list[Schedule], **others):
            __tracebackhide__ = True
            for schedule in family:
                try:
                    test(schedule=schedule, **others)
                except BaseException as error:
                    error.add_note(f"of {schedule!r}")
                    raise

        takes = inspect.signature(test).parameters.values()
        renamed = [each.replace(name="family") if each.name == "schedule" else each for each in takes]
        on_each.__signature__ = inspect.Signature(renamed)
        return pytest.mark.parametrize("family", by_family.values(), ids=by_family)(on_each)

    return decorate


def parts(schedule: Schedule) -> Iterator[Action]:
    """Every plain action, device by device; a pair is two."""
    return (part for row in schedule.actions for action in row for part in action.parts)


def splits(schedule: Schedule) -> bool:
    """Whether any backward is split into I and W."""
    return any(part.kind is Kind.I for part in parts(schedule))


def entrances(schedule: Schedule) -> dict[int, list[int]]:
    """The microbatches that enter the model at each device that runs stage 0: one device per direction."""
    entered: dict[int, list[int]] = {}
    for m in range(schedule.microbatches):
        entered.setdefault(schedule.device_of(F(0, m)), []).append(m)
    return entered


def in_order(schedule: Schedule) -> bool:
    """Whether every stage adds its microbatches' gradients up in order, on one device."""
    added: dict[int, list[int]] = {}
    for part in parts(schedule):
        if part.kind in (Kind.B, Kind.W):
            added.setdefault(part.stage, []).append(part.microbatch)
    return len(entrances(schedule)) == 1 and all(ms == sorted(ms) for ms in added.values())


def zero_bubble(devices: int, microbatches: int) -> Explicit:
    """ZB-H1: 1F1B with split backwards; device k puts each W off by k microbatches. Qi et al. 2024."""
    return Explicit([_zero_bubble_row(devices, microbatches, k) for k in range(devices)])


def _zero_bubble_row(devices: int, microbatches: int, device: int) -> Iterator:
    warmup = min(devices - device - 1, microbatches)
    yield from (F(device, m) for m in range(warmup))
    for m in range(microbatches):
        if warmup + m < microbatches:
            yield F(device, warmup + m)
        yield I(device, m)
        if m >= device:
            yield W(device, m - device)
    yield from (W(device, m) for m in range(max(0, microbatches - device), microbatches))


def overlapped(devices: int, microbatches: int) -> Explicit:
    """1F1B in which each backward and the forward after it run as one block."""
    return Explicit([_overlapped_row(devices, microbatches, k) for k in range(devices)])


def _overlapped_row(devices: int, microbatches: int, device: int) -> Iterator:
    warmup = min(devices - device, microbatches)
    yield from (F(device, m) for m in range(warmup))
    for m in range(microbatches - warmup):
        yield OverlapFB(F(device, warmup + m), B(device, m))
    yield from (B(device, m) for m in range(microbatches - warmup, microbatches))


#: Stage 0 and 3 on device 0, stages 1 and 2 on device 1: the model goes down and comes back.
V_SHAPED = Explicit(
    ["0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1", "1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1"], placement=[[0, 3], [1, 2]]
)
#: Two copies of the model, one in each direction: the microbatch fixes the copy.
BOTH_WAYS = Explicit(["0F0 1F1 1B1 0B0", "0F1 1F0 1B0 0B1"], placement=[[0, 1], [1, 0]])
#: An update after each stage's last backward, if there is a chapter that knows of updates.
UPDATED = () if ALONE else (with_updates(OneFOneB(2, 4)),)
