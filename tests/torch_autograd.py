"""What plain autograd says, to compare a step on PyTorch's engine with."""

import copy
from collections.abc import Callable

import torch
from numeric import apart
from torch import nn

from gpipe_sim import mse
from gpipe_sim.torch_backend import train_step


def by_autograd(modules: list[nn.Module], batch: tuple, microbatches: int, loss: Callable) -> list[nn.Module]:
    """Copies of the modules, with the gradients of the loss averaged over microbatches."""
    copies = copy.deepcopy(modules)
    x, targets = (torch.tensor(part).tensor_split(microbatches) for part in batch)
    for piece, wanted in zip(x, targets, strict=True):
        (loss(nn.Sequential(*copies)(piece), wanted) / microbatches).backward()
    return copies


def assert_like_autograd(modules, schedule, batch, loss=(mse, nn.functional.mse_loss), **options) -> None:
    """``.grad`` of every parameter; where autograd has none, none or zeros."""
    copies = by_autograd(modules, batch, schedule.microbatches, loss[1])
    train_step(modules, schedule, batch, loss[0], **options)
    for module, expected in zip(modules, copies, strict=True):
        for (name, found), wanted in zip(module.named_parameters(), expected.parameters(), strict=True):
            if wanted.grad is None:
                assert found.grad is None or not found.grad.any(), name
            else:
                assert apart(found.grad.to_dense().numpy(), wanted.grad.to_dense().numpy()) < 1e-10, name
