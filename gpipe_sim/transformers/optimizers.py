"""The optimizers of giants: what each keeps for a weight is most of what a device holds."""

from typing import Any

import numpy as np

from gpipe_sim.core.meta_array import Some
from gpipe_sim.core.optimizers import Optimizer, fade, filled, require_optimizer
from gpipe_sim.errors import got, listed, require_in


def require_positive(owner: str, eps: float) -> None:
    require_in(owner, "eps", eps, 0, float("inf"))
    if eps == 0:
        raise ValueError(f"{owner} needs eps > 0, or a gradient of 0 is divided by 0")


class RMSProp(Optimizer):
    """Divides each gradient by the root of a running mean of its squares: v = decay v + (1 - decay) g^2.

    Tieleman and Hinton 2012, lecture 6e of "Neural Networks for Machine Learning". GPipe's giants were
    trained with it: 4 bytes each for a weight, its gradient and v (Huang et al. 2019, arXiv:1811.06965).
    """

    moments = ("v",)

    def __init__(self, learning_rate: float = 1e-3, decay: float = 0.9, eps: float = 1e-8):
        super().__init__(learning_rate)
        require_in("RMSProp", "decay", decay, 0, 1)
        require_positive("RMSProp", eps)
        self.decay, self.eps = decay, eps

    def change(self, parameter: np.ndarray, gradient: np.ndarray, state: dict) -> np.ndarray:
        fade(state["v"], self.decay, (1 - self.decay) * gradient * gradient)
        return self.learning_rate * gradient / (np.sqrt(state["v"]) + self.eps)


class Adam(Optimizer):
    """Steps of about ``learning_rate``, whatever the gradient's scale.

    >>> partitions, data = gp.split(gp.mlp([64, 32, 10]), stages=2), gp.digits()
    >>> step, adam = gp.with_updates(gp.OneFOneB(2, 4)), gp.Adam(learning_rate=0.01)
    >>> for _ in range(3):
    ...     result = gp.train_step(partitions, step, data[:2], gp.cross_entropy, optimizer=adam)
    ...     print(f"{result.loss:.3f}")
    2.311
    2.165
    2.048

    Kingma and Ba 2015, arXiv:1412.6980.
    """

    moments = ("m", "v")

    def __init__(
        self, learning_rate: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ):
        super().__init__(learning_rate)
        name = type(self).__name__
        if len(betas := tuple(listed(name, "two betas, such as (0.9, 0.999)", betas))) != 2:
            raise ValueError(f"{name} needs two betas {got(betas)}")
        for beta in betas:
            require_in(name, "betas", beta, 0, 1)
        require_positive(name, eps)
        self.betas, self.eps = betas, eps

    def change(self, parameter: np.ndarray, gradient: np.ndarray, state: dict) -> np.ndarray:
        first, second = self.betas
        state["t"] = t = state.get("t", 0) + 1
        fade(state["m"], first, (1 - first) * gradient)
        fade(state["v"], second, (1 - second) * gradient * gradient)
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


class MixedPrecision(Optimizer):
    """Another rule, on a float32 copy of each weight; the weights themselves are that copy, rounded.

    >>> batch = gp.MetaArray((8, 512), "i8"), gp.MetaArray((8, 512), "i8")
    >>> partitions, adam = gp.split(gp.bert_large(), stages=1), gp.MixedPrecision(gp.Adam(1e-4))
    >>> [layers] = gp.profile(partitions, batch, gp.cross_entropy, adam).stages
    >>> sum(layer.state for layer in layers) / 365_375_290  # bytes for each weight
    12.0

    For models in 2-byte numbers, in which a small change would vanish beside a weight. With Adam, a weight
    takes 2 + 2 + 12 bytes: itself, its gradient, and the float32 copy, m and v (Rajbhandari et al. 2020,
    arXiv:1910.02054, section 3.1). A weight that is changed from outside is forgotten at the next step.
    """

    def __init__(self, optimizer: Optimizer):
        require_optimizer("MixedPrecision", optimizer)
        self.optimizer = optimizer
        super().__init__(optimizer.learning_rate)

    @property
    def learning_rate(self) -> float:
        """That of the other rule."""
        return self.optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self.optimizer.learning_rate = rate

    def start(self, parameter: Some) -> dict[str, Any]:
        weights = filled(parameter, parameter, np.float32)
        return {"weights": weights, **self.optimizer.start(weights)}

    def update(self, parameter: np.ndarray, gradient: np.ndarray, state: dict) -> None:
        super().update(state["weights"], gradient.astype(np.float32), state)
        parameter[...] = state["weights"]

    def change(self, parameter: np.ndarray, gradient: np.ndarray, state: dict) -> np.ndarray:
        return self.optimizer.change(parameter, gradient, state)
