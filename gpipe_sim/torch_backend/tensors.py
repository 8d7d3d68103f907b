"""Between arrays and tensors: batches on their way in, outputs and gradients on their way out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from gpipe_sim.errors import require_batch

Given: TypeAlias = np.ndarray | Tensor | None
Batch: TypeAlias = tuple[Given, Given]  #: None is for processes that need no inputs, or no targets
Named = tuple[int, str]  #: a parameter: its stage, and its name in the stage's module


def require_even(batch: Batch, pieces: int, partial: bool = False) -> None:
    """ValueError, with sizes that would work, unless it is (inputs, targets) of equal microbatches.

    ``partial``: either may be None.
    """
    if partial and isinstance(batch, tuple | list) and len(batch) == 2:
        given = [part for part in batch if part is not None]
        if not given:
            return
        batch = given[0], given[-1]
    require_batch(batch)
    samples = len(batch[1])  # type: ignore[arg-type]  # None is refused by now
    if samples and samples % pieces == 0:
        return
    below = samples - samples % pieces
    sizes = " or ".join(str(size) for size in (below, below + pieces) if size)
    cuts = sorted((m for m in range(1, samples + 1) if samples % m == 0), key=lambda m: abs(m - pieces))[:2]
    other = f", or {' or '.join(map(str, sorted(cuts)))} microbatches" if cuts else ""
    raise ValueError(
        f"a batch of {samples} does not cut into {pieces} equal microbatches, which PyTorch's engine needs: "
        f"it receives into buffers of one size, and averages evenly; use a batch of {sizes}{other}"
    )


def dtype_of(modules: Sequence[nn.Module]) -> torch.dtype | None:
    """The type of the model's numbers: that of its first parameter that has a fraction, if any has."""
    parameters = (parameter for module in modules for parameter in module.parameters())
    return next((p.dtype for p in parameters if p.is_floating_point()), None)


def shape_of(tensor: Tensor | None) -> tuple | None:
    """What makes tensors fit into the same memory."""
    return None if tensor is None else (tuple(tensor.shape), tensor.dtype)


def as_tensor(name: str, array: Given, device: torch.device, dtype: torch.dtype) -> Tensor | None:
    """A copy on the device: of a NumPy array, fractions in the model's type, or of a tensor that is there.

    A module may change it in place; and sent to a process, a part would take along all that it is cut from.
    """
    if array is None:
        return None
    if not isinstance(array, Tensor):
        array = np.asarray(array)
        plain = np.array(array, array.dtype.newbyteorder("="), order="C")  # torch reads no other bytes
        return torch.from_numpy(plain).to(device, dtype if plain.dtype.kind == "f" else None)
    if array.device != device:
        raise ValueError(
            f"the {name} are on {array.device}, but are needed on {device}: .to({str(device)!r})"
        )
    return array.detach().clone()


def as_array(tensor: Tensor) -> np.ndarray:
    """A copy of a tensor; bfloat16, which NumPy does not have, as float32."""
    tensor = tensor.detach().cpu()
    tensor = tensor.to_dense() if tensor.is_sparse else tensor
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy().copy()


def parameters_of(modules: Mapping[int, nn.Module]) -> Iterator[tuple[Named, nn.Parameter]]:
    """Every parameter by its stage and name; one that two stages share comes with each."""
    for stage, module in modules.items():
        for name, parameter in module.named_parameters():
            yield (stage, name), parameter


def grow(modules: Mapping[int, nn.Module], fresh: Mapping[Named, Tensor]) -> None:
    """Let ``.grad`` grow by these gradients, in place where there is one already, as autograd does."""
    grown = set()
    for key, parameter in parameters_of(modules):
        if key in fresh and parameter not in grown:
            parameter.grad = _sum(parameter.grad, fresh[key])
            grown.add(parameter)


def _sum(kept: Tensor | None, fresh: Tensor) -> Tensor:
    if kept is None:
        return fresh
    return fresh + kept if kept.is_sparse and not fresh.is_sparse else kept.add_(fresh)
