"""What a local process is told to do. It keeps the engines of pipelines between their steps."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gpipe_sim.schedule.actions import Kind
from gpipe_sim.schedule.base import Schedule
from gpipe_sim.torch_backend.clock import Recorder
from gpipe_sim.torch_backend.engine import Engine, Part
from gpipe_sim.torch_backend.gradients import as_array, gradients_of
from gpipe_sim.torch_backend.losses import MeanLoss, mean_of

_ENGINES: dict[int, Engine] = {}
_GROUPS: dict[int, dist.ProcessGroup] = {}  # by size: of the first so many processes

Buffers = dict[tuple[int, str], Tensor]


class State(NamedTuple):
    """What may have changed in a module between two steps."""

    training: list[bool]  # of each module inside
    learning: list[bool]  # of each parameter: whether it asks for a gradient
    tensors: list[Tensor]  # parameters, then buffers

    @classmethod
    def of(cls, module: nn.Module) -> "State":
        training = [inside.training for inside in module.modules()]
        learning = [parameter.requires_grad for parameter in module.parameters()]
        return cls(training, learning, [tensor.detach() for tensor in _tensors(module)])

    def load(self, module: nn.Module) -> None:
        for inside, training in zip(module.modules(), self.training, strict=True):
            inside.training = training
        for parameter, learning in zip(module.parameters(), self.learning, strict=True):
            parameter.requires_grad_(learning)
        for own, given in zip(_tensors(module), self.tensors, strict=True):
            own.detach().copy_(given)


def _tensors(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


def fresh_seed() -> int:
    """A fresh seed from the caller's generator, which ``torch.manual_seed`` sets."""
    return int(torch.randint(2**31, ()))


def build(
    number: int,
    modules: dict[int, nn.Module],
    order: Schedule,
    recomputed: dict[int, set[int]],
    loss: MeanLoss,
    device: torch.device,
    forget: Sequence[int],
    seed: int,
) -> None:
    """Make the engine of this process, or none if the schedule leaves it over; drop those of ``forget``.

    What is random here follows from the caller's seed, and differs from process to process.
    """
    torch.manual_seed(seed + dist.get_rank())
    for gone in forget:
        _ENGINES.pop(gone, None)
    if order.devices not in _GROUPS:
        _GROUPS[order.devices] = dist.new_group(list(range(order.devices)))
    if modules:
        for module in modules.values():
            module.to(device)
        homes = dict.fromkeys(modules, device)
        _ENGINES[number] = Engine(modules, order, recomputed, loss, homes, _GROUPS[order.devices])


def step(number: int, states: dict[int, State], x: Tensor, targets: Tensor) -> tuple[Part, Buffers] | None:
    """A step with the caller's weights: its part, and the buffers as the step left them."""
    if number not in _ENGINES:
        return None
    modules = _ENGINES[number].modules
    for stage, state in states.items():
        state.load(modules[stage])
    part = _ENGINES[number].step(x, targets)
    for module in modules.values():
        module.zero_grad()
    return part, {(s, name): buffer.cpu() for s, m in modules.items() for name, buffer in m.named_buffers()}


def replica(
    modules: list[nn.Module], loss: MeanLoss, seed: int, device: torch.device, x: Tensor, targets: Tensor
) -> Part:
    """Two steps of data parallelism on this process's share of the batch; the second one is reported.

    Gradients are the same on each, so the first one alone reports them.
    """
    rank = dist.get_rank()
    torch.manual_seed(seed + rank)
    x, targets = x.to(device), targets.to(device)
    model = DistributedDataParallel(nn.Sequential(*modules).to(device), find_unused_parameters=True)
    recorder = Recorder(device)
    for _ in range(2):
        model.zero_grad()
        dist.barrier()
        recorder.begin()
        with recorder.action(Kind.F, 0, rank):
            outputs = model(x)
            value = mean_of(loss, outputs, targets)
        with recorder.action(Kind.B, 0, rank):
            value.backward()
    gradients = gradients_of(dict(enumerate(modules))) if rank == 0 else {}
    return Part(value.item(), as_array(outputs), gradients, recorder.spans())
