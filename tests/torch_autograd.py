"""What plain autograd says, to compare a step on PyTorch's engine with."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numeric import apart
from torch import Tensor, nn

from gpipe_sim import mse
from gpipe_sim.core import Schedule
from gpipe_sim.core.step import StepResult
from gpipe_sim.torch_backend import train_step


def by_autograd(
    modules: list[nn.Module], batch: tuple, microbatches: int, loss: Callable
) -> tuple[list[nn.Module], float, np.ndarray]:
    """Copies of the modules, with gradients of the loss averaged over microbatches; that loss; outputs."""
    copies, whole, outputs = copy.deepcopy(modules), 0.0, []
    x, targets = (torch.as_tensor(part).tensor_split(microbatches) for part in batch)
    for piece, wanted in zip(x, targets, strict=True):
        for module in copies:
            piece = module(*piece) if isinstance(piece, tuple) else module(piece)
        share = loss(piece, wanted) / microbatches
        share.backward()
        whole += share.item()
        outputs.append(piece.detach().numpy())
    return copies, whole, np.concatenate(outputs)


def assert_like_autograd(
    modules: list[nn.Module],
    schedule: Schedule,
    batch: tuple,
    loss: tuple[Callable, Callable] = (mse, nn.functional.mse_loss),
    **options,
) -> StepResult:
    """Loss and outputs are plain autograd's, and every ``.grad`` grows by its gradient.

    Where autograd has none, by none or by zeros. Weights stay, and buffers change as in one forward each.
    """
    copies, value, outputs = by_autograd(modules, batch, schedule.microbatches, loss[1])
    before = [_dense(p.grad) for p in nn.ModuleList(modules).parameters()]
    step = train_step(modules, schedule, batch, loss[0], **options)
    assert step.loss == pytest.approx(value, rel=1e-10)
    assert np.allclose(step.outputs, outputs, rtol=1e-10, atol=1e-12)
    found, expected = nn.ModuleList(modules), nn.ModuleList(copies)
    parameters = zip(found.named_parameters(), expected.parameters(), before, strict=True)
    for (name, own), wanted, kept in parameters:
        assert torch.equal(own, wanted), name
        grown = _dense(own.grad) - kept
        if wanted.grad is None:
            assert not grown.any(), name
        else:
            assert apart(grown.numpy(), wanted.grad.to_dense().numpy()) < 1e-10, name
    for (name, own), wanted in zip(found.named_buffers(), expected.buffers(), strict=True):
        assert torch.allclose(own.double(), wanted.double(), rtol=1e-12), name
    return step


def _dense(gradient: Tensor | None) -> Tensor:
    return torch.zeros(()) if gradient is None else gradient.detach().to_dense().clone()
