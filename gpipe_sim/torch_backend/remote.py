"""What a pipeline's process is told to do; it keeps its engines between the steps."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gpipe_sim.schedule import Schedule
from gpipe_sim.torch_backend.engine import Engine, Part
from gpipe_sim.torch_backend.modules import MeanLoss

_ENGINES: dict[int, Engine] = {}


def build(
    number: int,
    modules: dict[int, nn.Module],
    order: Schedule,
    recomputed: dict[int, set[int]],
    loss: MeanLoss,
    device: torch.device,
) -> None:
    """Make the engine of this process, or, on a process that the schedule leaves over, none."""
    group = dist.new_group(list(range(order.devices)))
    if modules:
        homes = {stage: device for stage in modules}
        _ENGINES[number] = Engine(modules, order, recomputed, loss, homes, group)


def step(number: int, states: dict[int, tuple[bool, dict[str, Any]]], x: Tensor, targets: Tensor) -> Any:
    """A step with the caller's weights: its part, and the buffers as the step left them."""
    if number not in _ENGINES:
        return None
    engine = _ENGINES[number]
    for stage, (training, state) in states.items():
        engine.modules[stage].train(training).load_state_dict(state)
    part: Part = engine.step(x, targets)
    for module in engine.modules.values():
        module.zero_grad()
    buffers = {stage: dict(module.named_buffers()) for stage, module in engine.modules.items()}
    return part, buffers


def forget(number: int) -> None:
    """The pipeline is gone."""
    _ENGINES.pop(number, None)
