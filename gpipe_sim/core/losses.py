"""Losses, averaged over the samples that they are given; each stands beside its gradient.

``loss(outputs, targets)`` is the mean over the batch. Inside a step, each microbatch's loss is weighted by
its share of the batch, so the microbatches' gradients add up to that of the whole batch, whatever the sizes.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from math import isfinite
from typing import Any

import numpy as np

from gpipe_sim.core.layers import by_row
from gpipe_sim.core.meta_array import MetaArray, floated, like
from gpipe_sim.errors import DivergedError, numbers

Array = np.ndarray


class Loss(ABC):
    """A loss. Call it for its value; a step uses ``forward`` and ``backward``."""

    def __call__(self, outputs: Array, targets: Array) -> float:
        """The mean loss over the batch."""
        owner = type(self).__name__
        outputs, targets = numbers(owner, "outputs", outputs), numbers(owner, "targets", targets)
        if not outputs.size:
            raise ValueError(f"{owner} needs at least one output (got shape {outputs.shape})")
        return self.forward(outputs, targets)[0]

    def require(self, outputs: Array, targets: Array) -> None:
        """Raise ValueError or TypeError if targets do not fit outputs. ``forward`` calls this first."""
        if len(outputs) != len(targets):
            raise ValueError(f"a loss needs a target for each of {len(outputs)} outputs, got {len(targets)}")

    @abstractmethod
    def forward(self, outputs: Array, targets: Array) -> tuple[float, Any]:
        """(mean loss, what ``backward`` will read)."""

    @abstractmethod
    def backward(self, saved: Any, weight: float) -> Array:
        """The gradient of weight x mean loss with respect to the outputs, in their shape."""

    def outline(self, outputs: MetaArray, targets: MetaArray) -> Any:
        """What ``forward`` keeps, in arrays without contents."""
        raise NotImplementedError(
            f"{type(self).__name__} does not say what it keeps; give it outline and outline_gradient"
        )

    def outline_gradient(self, saved: Any) -> MetaArray:
        """What ``backward`` gives. By default it is like what is saved."""
        return like(saved)


def floating(array: Array) -> Array:
    """Floats as they are, whole numbers as float64, which does not overflow; TypeError for anything else."""
    numbers("a loss", "outputs", array)
    return array if array.dtype.kind == "f" else array.astype(np.float64)


class MSE(Loss):
    """The mean squared error over all elements. ``targets`` has the shape of ``outputs``.

    >>> gp.mse(np.array([[1.0, 2.0]]), np.array([[1.0, 4.0]]))
    2.0
    """

    def require(self, outputs: Array, targets: Array) -> None:
        numbers("mse", "targets", targets)
        self._require_shapes(outputs, targets)

    def _require_shapes(self, outputs: Array, targets: Array) -> None:
        if outputs.shape != targets.shape:
            raise ValueError(f"mse needs targets of shape {outputs.shape}, got {targets.shape}")
        if not outputs.size:
            raise ValueError(f"mse needs at least one output, got {outputs.shape}")

    def forward(self, outputs: Array, targets: Array) -> tuple[float, Array]:
        self.require(outputs, targets)
        outputs = floating(outputs)
        error = outputs - targets.astype(outputs.dtype, copy=False)  # float64 targets make no float64 error
        return float(np.mean(error * error)), error

    def backward(self, saved: Array, weight: float) -> Array:
        return saved * (2 * weight / saved.size)

    def outline(self, outputs: MetaArray, targets: MetaArray) -> MetaArray:
        self._require_shapes(outputs, targets)
        return floated(outputs)


class CrossEntropy(Loss):
    """The mean of -log softmax(outputs)[target]. ``outputs`` (batch, classes), ``targets`` (batch,) ints.

    >>> outputs, classes = np.array([[2.0, 0.0], [1.0, 0.0]]), np.array([0, 1])
    >>> f"{gp.cross_entropy(outputs, classes):.4f}"
    '0.7201'

    Of sequences it is the mean over all positions: (batch, sequence, classes) and (batch, sequence).
    """

    def require(self, outputs: Array, targets: Array) -> None:
        self._require_shapes(outputs, targets)
        if targets.min() < 0 or targets.max() >= outputs.shape[-1]:
            raise ValueError(
                f"cross_entropy needs targets from 0 to {outputs.shape[-1] - 1}, "
                f"got {targets.min()} to {targets.max()}"
            )

    def _require_shapes(self, outputs: Array, targets: Array) -> None:
        if outputs.ndim < 2 or targets.shape != outputs.shape[:-1]:
            needs = "outputs (batch, classes) and targets (batch,)"
            if outputs.ndim == 3:
                needs = "outputs (batch, sequence, classes) and targets (batch, sequence)"
            raise ValueError(f"cross_entropy needs {needs}, got {outputs.shape} and {targets.shape}")
        if targets.dtype.kind not in "iu":
            raise TypeError(f"cross_entropy needs targets to be class numbers, got {targets.dtype}")
        if not targets.size:
            raise ValueError(f"cross_entropy needs at least one target, got {targets.shape}")
        if not outputs.size:
            raise ValueError(f"cross_entropy needs at least one class, got outputs {outputs.shape}")

    def forward(self, outputs: Array, targets: Array) -> tuple[float, tuple[Array, Array]]:
        self.require(outputs, targets)
        outputs = floating(outputs)
        shifted = outputs - outputs.max(axis=-1, keepdims=True)
        exp = np.exp(shifted)
        total = exp.sum(axis=-1, keepdims=True)
        of_target = np.take_along_axis(shifted, targets[..., None], axis=-1)
        log_likelihood = (of_target - np.log(total))[..., 0]
        return float(-log_likelihood.mean()), (exp / total, targets)

    def backward(self, saved: tuple[Array, Array], weight: float) -> Array:
        probabilities, targets = saved
        gradient = probabilities.copy()
        by_row(gradient)[np.arange(targets.size), targets.reshape(-1)] -= 1
        gradient *= weight / targets.size
        return gradient

    def outline(self, outputs: MetaArray, targets: MetaArray) -> tuple[MetaArray, MetaArray]:
        self._require_shapes(outputs, targets)
        return floated(outputs), targets

    def outline_gradient(self, saved: tuple[MetaArray, MetaArray]) -> MetaArray:
        return like(saved[0])


mse = MSE()
cross_entropy = CrossEntropy()


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
