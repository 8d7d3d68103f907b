"""The simple bound: a device waits for its first microbatch, does its work, and the last one goes back."""

from collections.abc import Iterator

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.core.timeline import number
from gpipe_sim.errors import Real
from gpipe_sim.viewer.puzzles import Bound, Puzzle


def simple_bound(puzzle: Puzzle) -> Bound:
    """The largest of what each device needs: head + work + tail, with the sentence that says it.

        device k   [ head ][ all that device k does ][ tail ]

    The head is what it takes until a forward can reach one of its stages, the tail how long a gradient takes
    from one of them back to stage 0. Where backwards are split, W can fill the tail. So there the work
    without W is followed by a tail, and all the work by nothing.
    """
    return max(device_bounds(puzzle), key=lambda bound: bound.value)


def device_bounds(puzzle: Puzzle) -> Iterator[Bound]:
    """What each device needs; where backwards are split, with all its work and without W."""
    home = {stage: device for device, held in enumerate(puzzle.placement) for stage in held}
    back = puzzle.kinds[1]

    def takes(kind: str, stage: int) -> Real:
        return puzzle.costs.duration(Action(stage, Kind(kind), 0), home[stage])

    def way(kind: str, stage: int) -> Real:
        """Through all stages before this one, with the messages between them."""
        crossed = sum(home[s] != home[s + 1] for s in range(stage))
        return sum(takes(kind, s) for s in range(stage)) + crossed * puzzle.costs.comm

    split = "W" in puzzle.kinds
    last = takes("W", 0) if split else 0  # after the last I of stage 0
    for device, held in enumerate(puzzle.placement):
        head = min(way("F", stage) for stage in held)
        to_do = {kind: puzzle.microbatches * sum(takes(kind, s) for s in held) for kind in puzzle.kinds}
        tail = min(way(back, stage) for stage in held) + last
        some, every = to_do["F"] + to_do[back], sum(to_do.values())
        if split:
            yield _bound(device, head, "has", every, 0)
        yield _bound(device, head, "has F and I of" if split else "has", some, tail)


def _bound(device: int, head: Real, has: str, work: Real, tail: Real) -> Bound:
    value = head + work + tail
    parts = [
        f"cannot start before {number(head)}" if head else "",
        f"{has} {number(work)}{' of work' if has == 'has' else ''}",
        f"after that the last gradient needs {number(tail)} more" if tail else "",
    ]
    *before, last = filter(None, parts)
    said = f"Device {device} {', '.join(before)}{', and ' if before else ''}{last}"
    total = " + ".join(number(part) for part in (head, work, tail) if part)
    return Bound(value, f"{said}: {total} = {number(value)}." if before else f"{said}.")
