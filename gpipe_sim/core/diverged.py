"""Training that runs away: it ends with a sentence, and with the losses up to there."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from math import isfinite

import numpy as np

from gpipe_sim.errors import DivergedError


def without_warnings() -> AbstractContextManager:
    """Numbers that grow beyond all bounds make NumPy warn over and over; ``require_finite`` says it once."""
    return np.errstate(over="ignore", invalid="ignore", divide="ignore")


def require_finite(losses: Sequence[float], before: Sequence[float] = ()) -> None:
    """DivergedError if a loss is infinite or no number; ``before`` are those of earlier steps."""
    bad = next((i for i, loss in enumerate(losses) if not isfinite(loss)), None)
    if bad is None:
        return
    there = [*before, *losses[:bad]]
    if not there:
        raise DivergedError(
            "the very first loss is not finite: do inputs or weights hold NaN, or huge numbers?", there
        )
    many = f"{len(there)} mini-batch{'es' if there[1:] else ''}"
    raise DivergedError(
        f"training diverged: after {many}, the first of loss {there[0]:.3g}, the last of {there[-1]:.3g}, "
        "the loss is no longer finite. A smaller learning rate would do",
        there,
    )
