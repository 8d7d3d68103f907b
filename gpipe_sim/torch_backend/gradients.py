"""Gradients between ``.grad`` and arrays, {(stage, parameter name): array}."""

import numpy as np
import torch
from torch import Tensor, nn


def as_array(tensor: Tensor) -> np.ndarray:
    """A copy of a tensor; bfloat16, which NumPy does not have, as float32."""
    tensor = tensor.detach().cpu()
    tensor = tensor.to_dense() if tensor.is_sparse else tensor
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy().copy()


def gradients_of(modules: dict[int, nn.Module]) -> dict[tuple[int, str], np.ndarray]:
    """Copies of what is in ``.grad``, as {(stage, parameter name): array}."""
    return {
        (stage, name): as_array(parameter.grad)
        for stage, module in modules.items()
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }


def add_gradients(modules: dict[int, nn.Module], gradients: dict[tuple[int, str], np.ndarray]) -> None:
    """Let ``.grad`` grow by gradients that were computed elsewhere, {(stage, parameter name): array}."""
    for stage, module in modules.items():
        for name, parameter in module.named_parameters():
            if (stage, name) in gradients:
                fresh = torch.tensor(gradients[stage, name], device=parameter.device, dtype=parameter.dtype)
                parameter.grad = grown(parameter.grad, fresh)


def grown(kept: Tensor | None, fresh: Tensor | None) -> Tensor | None:
    """A gradient grown in place, as autograd does; only a sparse one cannot hold a dense one."""
    if kept is None or fresh is None:
        return fresh if kept is None else kept
    return fresh + kept if kept.is_sparse and not fresh.is_sparse else kept.add_(fresh)
