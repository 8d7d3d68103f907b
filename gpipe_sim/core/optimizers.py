"""Optimizers: they turn gradients into new weights, and keep their own state between steps.

``step(parameters, gradients)`` changes the parameter arrays in place. Both are
``{(layer, name): array}``. Every gradient is checked before any parameter changes. What an optimizer keeps
for a parameter is there from the start, so its bytes are known before the first step (``prepare``).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpipe_sim.core.meta_array import MetaArray, Some, like
from gpipe_sim.errors import require, require_in

Key = tuple[int, str]
Arrays = dict[Key, np.ndarray]


class Optimizer(ABC):
    """An update rule with a ``learning_rate``. It keeps state per parameter, so each model needs its own."""

    #: The names of the arrays that the rule keeps for each parameter, in its shape and dtype.
    moments: tuple[str, ...] = ()

    def __init__(self, learning_rate: float):
        require_in(type(self).__name__, "learning_rate", learning_rate, 0, float("inf"))
        self.learning_rate = learning_rate
        self.state: dict[Key, dict] = {}

    def step(self, parameters: Arrays, gradients: Arrays) -> None:
        """Update every parameter in place.

        ValueError, before anything changes, if a gradient is missing or misshapen, or the state is another
        model's.
        """
        require_arrays("step", "parameters", parameters, "f")
        require_arrays("step", "gradients", gradients, "fiub")
        for key, parameter in parameters.items():
            if key not in gradients or gradients[key].shape != parameter.shape:
                there = gradients[key].shape if key in gradients else "none"
                raise ValueError(f"parameter {key} has shape {parameter.shape}, its gradient {there}")
        for key, state in self.prepare(parameters).items():
            self.update(parameters[key], gradients[key], state)

    def prepare(self, parameters: Arrays) -> dict[Key, dict]:
        """What is kept for each of these parameters, as it is before a first step if there was none.

        ValueError, before anything changes, if the state is another model's.
        """
        self.state |= (there := self.kept(parameters))
        return there

    def kept(self, parameters: Arrays) -> dict[Key, dict]:
        """The same without keeping it, so that it can be counted; of parameters on paper, on paper."""
        for key, parameter in parameters.items():
            there = {np.shape(value) for value in self.state.get(key, {}).values()}
            if there - {(), parameter.shape}:
                raise ValueError(f"the state of parameter {key} is another model's; make a new optimizer")
        return {
            key: self.state[key] if key in self.state else self.start(parameters[key]) for key in parameters
        }

    def start(self, parameter: Some) -> dict[str, Any]:
        """What is kept for a parameter before its first step: zeros; of one on paper, their shape."""
        return {name: filled(0, parameter) for name in self.moments}

    def update(self, parameter: np.ndarray, gradient: np.ndarray, state: dict) -> None:
        """Change one parameter in place."""
        parameter -= self.change(parameter, gradient, state)

    @abstractmethod
    def change(self, parameter: np.ndarray, gradient: np.ndarray, state: dict) -> np.ndarray:
        """What to subtract from a parameter, in its shape; the rule may keep things in ``state``."""


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if given: v = momentum v + g, w = w - learning_rate v.

    >>> partitions, data = gp.split(gp.mlp([64, 32, 10]), stages=2), gp.digits()
    >>> step, sgd = gp.with_updates(gp.OneFOneB(2, 4)), gp.SGD(0.1, momentum=0.9)
    >>> for _ in range(3):
    ...     result = gp.train_step(partitions, step, data[:2], gp.cross_entropy, optimizer=sgd)
    ...     print(f"{result.loss:.3f}")
    2.311
    2.268
    2.208
    """

    def __init__(self, learning_rate: float, momentum: float = 0.0):
        super().__init__(learning_rate)
        require_in("SGD", "momentum", momentum, 0, 1)
        self.momentum = momentum
        self.moments = ("velocity",) if momentum else ()

    def change(self, parameter: np.ndarray, gradient: np.ndarray, state: dict) -> np.ndarray:
        if self.momentum:
            fade(state["velocity"], self.momentum, gradient)
            gradient = state["velocity"]
        return self.learning_rate * gradient


def filled(value: Any, parameter: Some, dtype: Any = None) -> Some:
    """An array of its own in a parameter's shape; on paper if the parameter is."""
    if isinstance(parameter, MetaArray):
        return like(parameter, dtype=dtype)
    filled = np.empty(parameter.shape, dtype or parameter.dtype)
    filled[...] = value
    return filled


def fade(array: np.ndarray, decay: float, more: np.ndarray) -> None:
    """A running mean's next value, in place."""
    array *= decay
    array += more


def require_arrays(owner: str, name: str, arrays: Arrays, kinds: str) -> None:
    """TypeError unless it maps keys to arrays whose numbers are of these kinds."""
    such_as = f"{name} to be arrays of numbers by layer and name, as partition.parameters is"
    for array in require(owner, arrays, Mapping, such_as).values():
        if require(owner, array, np.ndarray, such_as).dtype.kind not in kinds:
            raise TypeError(f"{owner} needs {such_as} (got {array.dtype})")


def require_optimizer(owner: str, value) -> None:
    """TypeError unless the value is an optimizer: its class is not enough."""
    require(owner, value, Optimizer, "an optimizer, such as Adam(1e-3)")
