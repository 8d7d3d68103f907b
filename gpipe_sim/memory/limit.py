"""A memory limit: what does not fit is refused before anything runs, with what would help, computed."""

import numbers
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gpipe_sim.core.cost_model import CostModel
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.gpipe import GPipe
from gpipe_sim.core.memory import MemoryTrace
from gpipe_sim.core.one_f_one_b import OneFOneB
from gpipe_sim.core.remat import Remat, remat
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.errors import MemoryLimitError, Real, got, listed, number
from gpipe_sim.memory.prediction import predict_memory
from gpipe_sim.memory.profile import Profile
from gpipe_sim.streams.updates import updates_of

Limit = Real | Sequence[Real]


def require_within(
    schedule: Schedule,
    profile: Profile,
    limit: Limit,
    costs: CostModel | None = None,
    weights: str | None = None,
) -> tuple[MemoryTrace, ...]:
    """The predicted traces, if no device ever holds more than its limit, also while an action runs.

    ``limit`` is a number of bytes, or one for each device. MemoryLimitError says which device would hold too
    much, when, what, and which changes would help. ``weights`` is that of ``train_step``.
    """
    require_schedule("a memory limit", schedule)
    limits = read_limits(schedule.devices, limit)
    traces = predict_memory(schedule, profile, costs, weights)
    over = [trace.peak_inside.bytes - most for trace, most in zip(traces, limits, strict=True)]
    if max(over) > 0:
        device = over.index(max(over))
        raise MemoryLimitError(
            f"{_what(schedule, traces[device], device, limits[device])}\n"
            f"{_help(schedule, profile, limits, costs, weights)}"
        )
    return traces


def read_limits(devices: int, limit: Limit) -> list[Real]:
    """A number for each device; TypeError or ValueError if there are none."""
    owner = "a memory limit"
    if isinstance(limit, numbers.Real):
        limit = [limit] * devices
    limits = listed(owner, "a number, or one for each device", limit)
    limits = [number(owner, "each", each) for each in limits]
    if wrong := [each for each in limits if not each >= 0]:
        raise ValueError(f"{owner} needs numbers >= 0 {got(wrong[0])}")
    if len(limits) != devices:
        raise ValueError(f"{owner} needs a number for each of {devices} devices {got(limits)}")
    return limits


def _what(schedule: Schedule, trace: MemoryTrace, device: int, most: Real) -> str:
    action, peak, start, end = trace.peak_inside
    refused = (
        f"{schedule!r} does not fit: device {device} would hold {in_bytes(peak)} while it runs {action}, "
        f"from {start} to {end}, and may hold {in_bytes(most)}."
    )
    if start == end:  # what there was before it is no sample of its own
        return refused
    held = {category: size for category, size in trace.at(start).items() if size}
    before = ", ".join(f"{category} {in_bytes(size)}" for category, size in held.items()) or "nothing"
    more = in_bytes(peak - sum(held.values()))
    return f"{refused}\nWhen {action} starts, it holds {before}; {more} more come while it runs."


def _help(
    schedule: Schedule, profile: Profile, limits: list[Real], costs: CostModel | None, weights: str | None
) -> str:
    found = []
    for name, change in _changes(schedule, profile):
        try:
            traces = predict_memory(change(), profile, costs, weights)
        except (ValueError, TypeError):  # what is changed cannot be made, or does not fit costs and profile
            continue
        peaks = [trace.peak_inside.bytes for trace in traces]
        fits = all(peak <= most for peak, most in zip(peaks, limits, strict=True))
        found.append((not fits, max(peaks), name))
    lines = [
        f"  {name}: at most {in_bytes(peak)} on a device, which {'does not fit' if unfit else 'fits'}"
        for unfit, peak, name in sorted(found)
    ]
    return "\n".join(["With", *lines]) if lines else "A smaller batch holds less."


def _changes(schedule: Schedule, profile: Profile) -> Iterator[tuple[str, Callable[[], Schedule]]]:
    """(in words, the changed schedule) for what usually helps."""
    inner = schedule.inner if isinstance(schedule, Remat) else schedule
    others: dict[str, Callable[[], Schedule]] = {}
    family = not isinstance(inner, Explicit)  # it can be made for another size
    if family and 2 * inner.microbatches <= profile.samples and (more := _halved(inner)):
        with_every = f" with every={more['every']}" if "every" in more else ""
        others[f"{more['microbatches']} microbatches{with_every}"] = partial(replace, inner, **more)
    if isinstance(inner, GPipe):
        others["1F1B"] = partial(OneFOneB, inner.devices, inner.microbatches)
    if isinstance(schedule, Remat):
        for name, make in others.items():
            yield name, partial(_recomputing, make, schedule.mode, schedule.only)
        return
    yield 'recompute, remat(..., "always")', partial(remat, schedule, "always")
    for name, make in others.items():
        yield name, make
        both = "1F1B and recompute" if name == "1F1B" else f"recompute and {name}"
        yield both, partial(_recomputing, make, "always")


def _recomputing(make: Callable[[], Schedule], *how: Any) -> Schedule:
    return remat(make(), *how)


def _halved(schedule: Schedule) -> dict[str, int]:
    """The sizes with microbatches half as large, in the same mini-batches; nothing if a family has none."""
    more = {"microbatches": 2 * schedule.microbatches}
    if updates_of(schedule.program).count == 1:
        return more
    every = getattr(schedule, "every", 0)
    return more | {"every": 2 * every} if every else {}


def in_bytes(size: Real) -> str:
    """Four digits and a unit of 1,000: 411.6 kB."""
    units = ["bytes", "kB", "MB", "GB", "TB"]
    while not -1000 < size < 1000 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{float(size):.4g} {units[0]}"
