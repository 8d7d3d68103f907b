"""Microbatches from both ends at once, each forward overlapped with another's backward.

A device works on two stages: microbatches meet the near one first and the far one later. Eight steps
as in the authors' program: DeepSeek-AI 2024, arXiv:2412.19437, and github.com/deepseek-ai/DualPipe.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from gpipe_sim.schedule.actions import Action, B, F, I, OverlapFB, W
from gpipe_sim.schedule.base import Schedule
from gpipe_sim.schedule.placement import bidirectional, v_shaped

NEAR, FAR = 0, 1


class _Feed:
    """Hands out a device's next actions, near and far, and remembers which weight gradients are due."""

    def __init__(self, stages: tuple[int, int], first: tuple[int, int]):
        self.stages = stages
        self.forwards, self.backwards = list(first), list(first)
        self.due: deque[Action] = deque()

    def forward(self, side: int) -> Action:
        self.forwards[side] += 1
        return F(self.stages[side], self.forwards[side] - 1)

    def backward(self, side: int, split: bool = False) -> Action:
        stage, m = self.stages[side], self.backwards[side]
        self.backwards[side] += 1
        if split:
            self.due.append(W(stage, m))
        return (I if split else B)(stage, m)

    def weights(self) -> Action:
        return self.due.popleft()

    def pair(self, forward: int, backward: int) -> OverlapFB:
        return OverlapFB(self.forward(forward), self.backward(backward))


def _eight_steps(depth: int, place: int, microbatches: int, feed: _Feed) -> Iterator[Action | OverlapFB]:
    """One device's order; of ``depth`` devices from the near end to the turn it is number ``place``."""
    below = depth - place - 1
    yield from (feed.forward(NEAR) for _ in range(2 * below))
    for _ in range(place + 1):
        yield from (feed.forward(NEAR), feed.forward(FAR))
    for _ in range(below):
        yield from (feed.backward(FAR, split=True), feed.weights(), feed.forward(FAR))
    for i in range(microbatches - 2 * depth + place + 1):
        if i == 0 and below == 0:  # at the turn the first pair would wait for itself
            yield from (feed.forward(NEAR), feed.backward(FAR))
        else:
            yield feed.pair(NEAR, FAR)
        yield feed.pair(FAR, NEAR)
    for _ in range(below):
        yield from (feed.backward(FAR), feed.pair(FAR, NEAR))
    half, odd = divmod(place + 1, 2)
    for i in range(2 * (place + 1)):  # far and near in turn; from about the middle on, split
        yield feed.backward((FAR, NEAR)[i % 2], split=i > 2 * half - (odd == 0))
    for _ in range(below):
        yield from (feed.weights(), feed.backward(NEAR, split=True))
    yield from (feed.weights() for _ in range(place + 1))


@dataclass(frozen=True)
class DualPipeV(Schedule):
    """DualPipe folded in the middle: one copy of the model, going down the devices and back.

    Bubble (K-1)(F&B + B - 3W) for I as long as F, on K devices of two stages each; at most 2K+1
    stage-activations; needs at least 2K microbatches. The order is PyTorch's ScheduleDualPipeV, action for
    action; that runs the halves of a pair one after the other, which takes 51 at 4 x 8 with unit costs where
    the atomic pair takes 54.
    """

    def __post_init__(self):
        super().__post_init__()
        _require_filled("DualPipeV", self.microbatches, 2 * self.devices)

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        return v_shaped(self.devices)

    def order(self, device: int) -> Iterator[Action | OverlapFB]:
        feed = _Feed(self.placement[device], (0, 0))
        return _eight_steps(self.devices, device, self.microbatches, feed)


@dataclass(frozen=True)
class DualPipe(Schedule):
    """Two copies of the model in opposite directions, half of the microbatches each.

    Bubble (K/2-1)(F&B + B - 3W) for I as long as F, at most K+1 activations, twice the parameters. Devices
    and microbatches are even, with at least as many microbatches as devices in each direction.
    """

    def __post_init__(self):
        super().__post_init__()
        for name in ("devices", "microbatches"):
            if getattr(self, name) % 2:
                value = getattr(self, name)
                raise ValueError(
                    f"DualPipe needs an even number of {name} (got {value}); {value + 1} would work"
                )
        _require_filled("DualPipe", self.microbatches, 2 * self.devices)

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        return bidirectional(self.devices)

    def order(self, device: int) -> Iterator[Action | OverlapFB]:
        depth, half = self.devices // 2, self.microbatches // 2
        mirrored = device >= depth
        place = self.devices - 1 - device if mirrored else device
        feed = _Feed((place, self.devices - 1 - place), (half, 0) if mirrored else (0, half))
        return _eight_steps(depth, place, half, feed)


def _require_filled(name: str, microbatches: int, least: int) -> None:
    if microbatches < least:
        raise ValueError(f"{name} needs microbatches >= {least}, twice its devices (got {microbatches})")
