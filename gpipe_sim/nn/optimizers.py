"""Optimizers: they turn gradients into new weights, and keep their own state between steps.

``step(parameters, gradients)`` changes the parameter arrays in place. Both are
``{(layer, name): array}``. Every gradient is checked before any parameter changes.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np

from gpipe_sim.errors import got, listed, require, require_in

Key = tuple[int, str]
Arrays = dict[Key, np.ndarray]


class Optimizer(ABC):
    """An update rule with a ``learning_rate``. It keeps state per parameter, so each model needs its own."""

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
            kept = {np.shape(value) for value in self.state.get(key, {}).values()}
            if kept - {(), parameter.shape}:
                raise ValueError(f"the state of parameter {key} is another model's; make a new optimizer")
        for key, parameter in parameters.items():
            parameter -= self.change(parameter, gradients[key], self.state.setdefault(key, {}))

    @abstractmethod
    def change(self, parameter: np.ndarray, gradient: np.ndarray, state: dict) -> np.ndarray:
        """What to subtract from a parameter, in its shape; the rule may keep things in ``state``."""


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if given: v = momentum v + g, w = w - learning_rate v."""

    def __init__(self, learning_rate: float, momentum: float = 0.0):
        super().__init__(learning_rate)
        require_in("SGD", "momentum", momentum, 0, 1)
        self.momentum = momentum

    def change(self, parameter: np.ndarray, gradient: np.ndarray, state: dict) -> np.ndarray:
        if self.momentum:
            gradient = state["velocity"] = self.momentum * state.get("velocity", 0.0) + gradient
        return self.learning_rate * gradient


class Adam(Optimizer):
    """Steps of about ``learning_rate``, whatever the gradient's scale.

    Kingma and Ba 2015, arXiv:1412.6980.
    """

    def __init__(
        self, learning_rate: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ):
        super().__init__(learning_rate)
        name = type(self).__name__
        if len(betas := tuple(listed(name, "two betas, such as (0.9, 0.999)", betas))) != 2:
            raise ValueError(f"{name} needs two betas {got(betas)}")
        for beta in betas:
            require_in(name, "betas", beta, 0, 1)
        require_in(name, "eps", eps, 0, float("inf"))
        if eps == 0:
            raise ValueError(f"{name} needs eps > 0, or a gradient of 0 is divided by 0")
        self.betas, self.eps = betas, eps

    def change(self, parameter: np.ndarray, gradient: np.ndarray, state: dict) -> np.ndarray:
        first, second = self.betas
        state["t"] = t = state.get("t", 0) + 1
        state["m"] = first * state.get("m", 0.0) + (1 - first) * gradient
        state["v"] = second * state.get("v", 0.0) + (1 - second) * gradient * gradient
        scale = np.sqrt(state["v"] / (1 - second**t)) + self.eps
        return self.learning_rate * (state["m"] / (1 - first**t)) / scale


class AdamW(Adam):
    """Adam that also subtracts learning_rate x weight_decay x w from each weight w.

    Loshchilov and Hutter 2019, arXiv:1711.05101.
    """

    def __init__(
        self,
        learning_rate: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ):
        super().__init__(learning_rate, betas, eps)
        require_in("AdamW", "weight_decay", weight_decay, 0, float("inf"))
        self.weight_decay = weight_decay

    def change(self, parameter: np.ndarray, gradient: np.ndarray, state: dict) -> np.ndarray:
        decay = self.learning_rate * self.weight_decay * parameter
        return super().change(parameter, gradient, state) + decay


def require_arrays(owner: str, name: str, arrays: Arrays, kinds: str) -> None:
    """TypeError unless it maps keys to arrays whose numbers are of these kinds."""
    such_as = f"{name} to be arrays of numbers by layer and name, as partition.parameters is"
    for array in require(owner, arrays, Mapping, such_as).values():
        if require(owner, array, np.ndarray, such_as).dtype.kind not in kinds:
            raise TypeError(f"{owner} needs {such_as} (got {array.dtype})")


def require_optimizer(owner: str, value) -> None:
    """TypeError unless the value is an optimizer: its class is not enough."""
    require(owner, value, Optimizer, "an optimizer, such as Adam(1e-3)")
