"""What is set for all of torch, and another process is to compute under, too."""

from functools import partial

import torch

_KINDS = ("cpu", "cuda")
_GET_AND_SET = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    *((partial(torch.is_autocast_enabled, k), partial(torch.set_autocast_enabled, k)) for k in _KINDS),
    *((partial(torch.get_autocast_dtype, k), partial(torch.set_autocast_dtype, k)) for k in _KINDS),
)


def ambient() -> tuple:
    """The number type of new numbers, autocast of each kind of device, and whatever else is set."""
    return tuple(get() for get, _ in _GET_AND_SET)


def set_ambient(values: tuple) -> None:
    """Compute from now on as where these were taken."""
    for (_, put), value in zip(_GET_AND_SET, values, strict=True):
        put(value)
    torch.clear_autocast_cache()  # of weights as they were in a step before
