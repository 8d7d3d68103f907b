"""Which device holds which stages."""

from collections.abc import Sequence
from operator import index

from gpipe_sim.errors import got, listed, require_few, whole


def looped(devices: int, stages: int) -> tuple[tuple[int, ...], ...]:
    """Stage s on device s mod K: device 0 holds 0, K, 2K, and so on."""
    devices, stages = require_count("looped", "devices", devices), require_count("looped", "stages", stages)
    return tuple(tuple(range(device, stages, devices)) for device in range(devices))


def require_count(owner: str, name: str, value: int) -> int:
    count = whole(owner, name, value)
    require_few(owner, count, name)
    return count


def say_stages(held: Sequence[int]) -> str:
    """The stages of a device in words: "stage 3", "stages 0 7", "no stage"."""
    if not held:
        return "no stage"
    return f"stage{'s' if len(held) > 1 else ''} {' '.join(map(str, held))}"


def read_placement(
    owner: str, placement: Sequence[Sequence[int]], devices: int
) -> tuple[tuple[int, ...], ...]:
    """Per device, the stages that it holds, as Python's own numbers.

    TypeError unless it is lists of whole numbers, ValueError unless there are ``devices`` of them.
    """
    needs = f"{owner} needs placement to list"
    try:
        held = tuple(tuple(map(index, listed(owner, "", stages))) for stages in listed(owner, "", placement))
    except Exception:  # of a class of one's own
        such_as = "such as [[0, 3], [1, 2]]"
        raise TypeError(f"{needs} the stages of each device, {such_as} {got(placement)}") from None
    for device, stages in enumerate(held):
        if len(set(stages)) < len(stages):
            raise ValueError(f"{needs} a stage once on device {device} (got {stages})")
    if len(held) != devices:
        raise ValueError(f"{needs} {devices} devices (got {len(held)})")
    return held


def require_gapless(held: tuple[tuple[int, ...], ...]) -> None:
    found = sorted({stage for stages in held for stage in stages})
    if not found or found != list(range(len(found))):
        raise ValueError(f"placement must hold the stages 0, 1, 2, ... without a gap (got {found})")
