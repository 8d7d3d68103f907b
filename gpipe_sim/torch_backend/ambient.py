"""What is set for all of torch, and another process is to compute under, too."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch

_KINDS = ("cpu", "cuda")


class Ambient(NamedTuple):
    """Autocast of each kind of device as (on, number type), its cache, and what ``torch.set_...`` set."""

    autocast: tuple[tuple[bool, torch.dtype], ...]
    cached: bool
    default_dtype: torch.dtype
    matmul_precision: str
    deterministic: int  # 0 is no, 1 is with a warning, 2 with an error
    anomaly: tuple[bool, bool]

    @classmethod
    def here(cls) -> "Ambient":
        return cls(
            tuple((torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in _KINDS),
            torch.is_autocast_cache_enabled(),
            torch.get_default_dtype(),
            torch.get_float32_matmul_precision(),
            torch.get_deterministic_debug_mode(),
            (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        )

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Compute as where this was taken."""
        torch.set_default_dtype(self.default_dtype)
        torch.set_float32_matmul_precision(self.matmul_precision)
        torch.use_deterministic_algorithms(self.deterministic > 0, warn_only=self.deterministic == 1)
        with ExitStack() as stack:
            for kind, (on, dtype) in zip(_KINDS, self.autocast, strict=True):
                if on:
                    cast = torch.autocast(kind, dtype, enabled=on, cache_enabled=self.cached)
                    stack.enter_context(cast)
            if self.anomaly[0]:
                stack.enter_context(torch.autograd.set_detect_anomaly(*self.anomaly))
            yield
