"""A batch as tensors: of equal microbatches, where it is needed."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn


def require_batch(batch: Sequence, microbatches: int) -> None:
    """ValueError unless it is (inputs, targets), equally long, and cuts into equal microbatches."""
    if len(batch) != 2 or len(batch[0]) != len(batch[1]):
        lengths = " and ".join(str(len(part)) for part in batch)
        raise ValueError(f"a batch is (inputs, targets) of equal length (got lengths {lengths})")
    samples = len(batch[0])
    if samples and samples % microbatches == 0:
        return
    fits = [size for size in (samples - samples % microbatches, samples + microbatches - samples % microbatches) if size]
    cuts = [m for m in range(1, samples + 1) if samples % m == 0]
    near = sorted(sorted(cuts, key=lambda m: abs(m - microbatches))[:2])
    other = f", or {' or '.join(map(str, near))} microbatches" if near else ""
    raise ValueError(
        f"a batch of {samples} does not cut into {microbatches} equal microbatches, and PyTorch's engine receives "
        f"them all into buffers of one size: use a batch of {' or '.join(map(str, fits))}{other}"
    )


def dtype_of(modules: Sequence[nn.Module]) -> torch.dtype:
    """The type of the model's numbers: that of its first parameter that has a fraction."""
    parameters = (parameter for module in modules for parameter in module.parameters())
    return next((p.dtype for p in parameters if p.is_floating_point()), torch.get_default_dtype())


def as_tensor(name: str, array: np.ndarray | Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """A NumPy array on the device, as the model's type if it has fractions; a tensor as it is, if it is there."""
    if not isinstance(array, Tensor):
        array = np.asarray(array)
        return torch.as_tensor(array, dtype=dtype if array.dtype.kind == "f" else None).to(device)
    if array.device != device:
        raise ValueError(f"the {name} are on {array.device}, but are needed on {device}: .to({str(device)!r})")
    return array
