"""What a local process is told to do. It keeps the engines of pipelines between their steps."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gpipe_sim.actions import Kind
from gpipe_sim.schedule import Schedule
from gpipe_sim.torch_backend.engine import Engine, Part
from gpipe_sim.torch_backend.modules import MeanLoss, gradients_of
from gpipe_sim.torch_backend.stage import Recorder

_ENGINES: dict[int, Engine] = {}

States = dict[
    int, tuple[bool, dict[str, Tensor]]
]  #: per stage: whether it is in training mode, and its state
Buffers = dict[tuple[int, str], Tensor]


def build(
    number: int,
    modules: dict[int, nn.Module],
    order: Schedule,
    recomputed: dict[int, set[int]],
    loss: MeanLoss,
    device: torch.device,
    forget: Sequence[int],
) -> None:
    """Make the engine of this process, or none if the schedule leaves it over; drop those of ``forget``."""
    for gone in forget:
        _ENGINES.pop(gone, None)
    group = dist.new_group(list(range(order.devices)))
    if modules:
        for module in modules.values():
            module.to(device)
        _ENGINES[number] = Engine(modules, order, recomputed, loss, dict.fromkeys(modules, device), group)


def step(number: int, states: States, x: Tensor, targets: Tensor) -> tuple[Part, Buffers] | None:
    """A step with the caller's weights: its part, and the buffers as the step left them."""
    if number not in _ENGINES:
        return None
    modules = _ENGINES[number].modules
    for stage, (training, state) in states.items():
        modules[stage].train(training).load_state_dict(state)
    part = _ENGINES[number].step(x, targets)
    for module in modules.values():
        module.zero_grad()
    return part, {(s, name): buffer.cpu() for s, m in modules.items() for name, buffer in m.named_buffers()}


def replica(
    modules: list[nn.Module], loss: MeanLoss, x: Tensor, targets: Tensor, device: torch.device
) -> Part:
    """Two steps of data parallelism on this process's share of the batch; the second one is reported."""
    rank, count = dist.get_rank(), dist.get_world_size()
    own_x, own_targets = (whole.tensor_split(count)[rank].to(device) for whole in (x, targets))
    model = DistributedDataParallel(nn.Sequential(*modules).to(device))
    recorder = Recorder(device)
    for _ in range(2):
        model.zero_grad()
        dist.barrier()
        recorder.begin()
        with recorder.action(Kind.F, 0, rank):
            outputs = model(own_x)
            value = loss(outputs, own_targets)
        with recorder.action(Kind.B, 0, rank):
            value.backward()
    gradients = gradients_of(dict(enumerate(modules)))
    return Part(value.item(), outputs.detach().cpu().numpy(), gradients, recorder.spans())
