"""Microbatches from both ends at once; the forward of one overlaps with the backward of another.

A device works on two stages, near and far. Microbatches that enter at its own end meet the near one. The far
one is for microbatches from the other end; in a V, for the same ones on their way back. The order has eight
steps, as in the authors' program: DeepSeek-AI 2024, arXiv:2412.19437, and github.com/deepseek-ai/DualPipe.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from gpipe_sim.core.actions import Action, B, F, I, OverlapFB, W
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.families.placements import bidirectional, require_even, v_shaped

NEAR, FAR = 0, 1


class _Feed:
    """Makes a device's next action on its near or far stage, and remembers the weight gradients due."""

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
    """One device's order. Of the ``depth`` devices from its end to the middle it is number ``place``, from 0.

    For DualPipeV the end is device 0 and the middle is the turn of the V.
    """
    below = depth - place - 1
    yield from (feed.forward(NEAR) for _ in range(2 * below))
    for _ in range(place + 1):
        yield from (feed.forward(NEAR), feed.forward(FAR))
    for _ in range(below):
        yield from (feed.backward(FAR, split=True), feed.weights(), feed.forward(FAR))
    for i in range(microbatches - 2 * depth + place + 1):
        if i == 0 and below == 0:  # the authors' program leaves this first pair apart, too
            yield from (feed.forward(NEAR), feed.backward(FAR))
        else:
            yield feed.pair(NEAR, FAR)
        yield feed.pair(FAR, NEAR)
    for _ in range(below):
        yield from (feed.backward(FAR), feed.pair(FAR, NEAR))
    half, odd = divmod(place + 1, 2)
    for i in range(2 * (place + 1)):  # far and near in turn; split from about the middle of this loop on
        yield feed.backward((FAR, NEAR)[i % 2], split=i > 2 * half - (odd == 0))
    for _ in range(below):
        yield from (feed.weights(), feed.backward(NEAR, split=True))
    yield from (feed.weights() for _ in range(place + 1))


@dataclass(frozen=True)
class DualPipeV(Schedule):
    """DualPipe folded in the middle: one copy of the model that goes down the devices and back.

    Bubble (K-1)(F&B + B - 3W) if I takes as long as F, on K devices of two stages each. A device holds at
    most 2K+1 stage-activations. M must be at least 2K. The order is PyTorch's ScheduleDualPipeV, action for
    action. But PyTorch runs the halves of a pair one after the other: at 4 x 8 with unit costs, a step then
    takes 51; with each pair as one block it takes 54.
    """

    stages_per_device = 2

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
    """Two copies of the model in opposite directions, with half of the microbatches each.

    Bubble (K/2-1)(F&B + B - 3W) if I takes as long as F. A device holds at most K+1 activations, and twice
    the parameters. K and M must be even, and M at least 2K.
    """

    def __post_init__(self):
        super().__post_init__()
        require_even("DualPipe", devices=self.devices, microbatches=self.microbatches)
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
