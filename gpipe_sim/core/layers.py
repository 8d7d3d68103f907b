"""NumPy layers: each forward with its gradients beside it.

A layer keeps nothing about a microbatch. Its forward returns what its backward will read, and the code that
runs the layer decides where that is kept and for how long:

    forward(x, ctx)            -> y, saved
    backward_input(saved, dy)  -> dx, pending     pending: what the weight gradient still needs
    backward_weight(pending)   -> {name: gradient}

A full backward is ``backward_input`` and then ``backward_weight``, so splitting it cannot change a gradient.
Arrays are (batch, features), or (batch, sequence, features), and are never changed in place.

To add a layer, write its class here and name it in ``LAYERS`` at the end. ``core/__init__.pyi``
makes it ``gp.core.NAME``, and every law in ``tests/test_layers.py`` is tested on it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from gpipe_sim.core.meta_array import MetaArray, floated, like, of_parameters
from gpipe_sim.core.work import Product, Work
from gpipe_sim.errors import floating, got, listed, one_of, require, require_few, whole

Array = np.ndarray
LARGEST = 100_000_000  #: weights of a layer: 800 MB in float64
LONGEST = 10**12  #: features, tokens or positions of a layer, also of one on paper


class Context(NamedTuple):
    """What a layer may depend on besides its input: the mode, and a source of randomness.

    >>> linear = gp.core.Linear(3, 2, rng=np.random.default_rng(0))
    >>> y, saved = linear.forward(np.ones((4, 3)), gp.core.Context(training=True, seed=0))
    >>> y.shape
    (4, 2)

    The randomness depends only on (seed, step, layer, microbatch), so a layer that draws from it gives the
    same result under every schedule, and the same again when its forward is recomputed. ``layer`` is the
    number, along the model, of the layer that is being run, ``inner`` its place in a layer made of layers.
    """

    training: bool = True
    seed: int = 0
    step: int = 0
    microbatch: int = 0
    layer: int = 0
    inner: tuple[int, ...] = ()

    def rng(self) -> np.random.Generator:
        """A fresh generator for this layer and microbatch."""
        return np.random.default_rng((self.seed, self.step, self.layer, self.microbatch, *self.inner))


class Layer(ABC):
    """One layer; ``parameters`` maps names to arrays, and is empty for a layer without weights."""

    #: Whether it takes and gives what travels along with x, such as a mask: (x, mask). See ``core.boundary``.
    carries = False
    #: Whether its weights are another layer's too, so that the gradients of both are to be summed.
    tied = False

    def __init__(self):
        self.parameters: dict[str, Array] = {}

    @abstractmethod
    def forward(self, x: Array, ctx: Context) -> tuple[Any, Any]:
        """(output, what ``backward_input`` will read), for an input of shape (batch, features).

        A layer that makes a mask gives (output, mask) as its output, see ``core.boundary``.
        """

    @abstractmethod
    def backward_input(self, saved: Any, dy: Array) -> tuple[Array, Any]:
        """(gradient of the input, what ``backward_weight`` will read); ``dy`` has the output's shape."""

    def backward_weight(self, pending: Any) -> dict[str, Array]:
        """The gradient of each parameter, by name, in fresh arrays; called only if there are parameters."""
        return {}

    def outline(self, x: MetaArray, ctx: Context) -> tuple[Any, Any]:
        """What ``forward`` gives, in arrays without contents."""
        raise NotImplementedError(
            f"{self!r} does not say what it makes; give {type(self).__name__} the methods outline and "
            "outline_input, which do on MetaArray what forward and backward_input do on arrays"
        )

    def outline_input(self, saved: Any, dy: MetaArray) -> tuple[MetaArray, Any]:
        """What ``backward_input`` gives. The default fits a layer whose dx is dy times what it saved."""
        return like(dy, saved), None

    def outline_weight(self, pending: Any) -> dict[str, MetaArray]:
        """What ``backward_weight`` gives. By default in the dtype of what is pending, a tuple of arrays."""
        return of_parameters(self.parameters, *pending)

    def work(self, x: MetaArray) -> Work:
        """What a forward does. By default it has no products, reads its input and writes as much."""
        return Work(moved=2 * x.nbytes)

    def selective(self) -> "Layer | None":
        """The same layer, on the same weights, that recomputes its attention; None if it has none."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def refused(layer: Layer, ctx: Context, takes: str, x: Array) -> ValueError:
    """The error of a layer that takes another input."""
    return ValueError(f"layer {ctx.layer}, {layer!r}, takes {takes}, got {x.shape} of {x.dtype}")


class Weights:
    """Makes the weights of one layer: from a generator, or on paper where there is none.

    On paper a weight is a ``MetaArray``. Such a layer can be profiled, and its memory predicted, but not run.
    """

    def __init__(self, owner: str, rng: np.random.Generator | None, dtype: "DTypeLike"):
        self.owner, self.rng, self.dtype = owner, rng, floating(owner, dtype, rng is None)
        if rng is not None:
            such_as = "rng to be a generator, such as np.random.default_rng(0), or None for a layer on paper"
            require(owner, rng, np.random.Generator, such_as)

    def normal(self, scale: float, *shape: int) -> Array:
        """Drawn from a normal distribution with this standard deviation."""
        return self._made(shape, lambda rng: rng.normal(0.0, scale, shape).astype(self.dtype))

    def full(self, value: float, *shape: int) -> Array:
        """All of them this number."""
        return self._made(shape, lambda _: np.full(shape, value, self.dtype))

    def _made(self, shape: tuple[int, ...], make: Callable[[np.random.Generator], Array]) -> Array:
        if self.rng is None:
            return MetaArray(shape, self.dtype)
        require_few(self.owner, math.prod(shape), "weights", most=LARGEST)
        return make(self.rng)


def size(owner: str, name: str, value: Any) -> int:
    """How many features, tokens or positions; TypeError or ValueError if there cannot be so many."""
    number = whole(owner, name, value)
    require_few(owner, number, name, most=LONGEST)
    return number


def by_row(x: Array) -> Array:
    """(batch, sequence, features) as (batch x sequence, features), without a copy."""
    return x.reshape(-1, x.shape[-1])


class Linear(Layer):
    """y = x W + b, with x (batch, inputs), W (inputs, outputs) and b (outputs,).

    >>> linear = gp.core.Linear(64, 32, rng=np.random.default_rng(0))
    >>> {name: array.shape for name, array in linear.parameters.items()}
    {'W': (64, 32), 'b': (32,)}

    x may also be (batch, sequence, inputs): every place of a sequence is then treated alike.

    W is drawn from a normal distribution of variance 2 / inputs, b is 0. He et al. 2015,
    arXiv:1502.01852. With ``rng=None`` it exists on paper only. ValueError if an input has another number of
    features.
    """

    def __init__(
        self, inputs: int, outputs: int, *, rng: np.random.Generator | None, dtype: "DTypeLike" = "float64"
    ):
        inputs, outputs = size("Linear", "inputs", inputs), size("Linear", "outputs", outputs)
        draw = Weights("Linear", rng, dtype)
        self.parameters = {
            "W": draw.normal(np.sqrt(2.0 / inputs), inputs, outputs),
            "b": draw.full(0, outputs),
        }

    def forward(self, x: Array, ctx: Context) -> tuple[Array, Array]:
        self._require(x, ctx)
        y = x @ self.parameters["W"]
        y += self.parameters["b"]
        return y, x

    def _require(self, x: Array, ctx: Context) -> None:
        inputs = self.parameters["W"].shape[0]
        if x.ndim < 2 or x.shape[-1] != inputs:
            raise ValueError(
                f"layer {ctx.layer}, {self!r}, takes an input of shape (batch, {inputs}) or "
                f"(batch, sequence, {inputs}), got {x.shape}"
            )

    def backward_input(self, saved: Array, dy: Array) -> tuple[Array, tuple[Array, Array]]:
        return dy @ self.parameters["W"].T, (saved, dy)

    def backward_weight(self, pending: tuple[Array, Array]) -> dict[str, Array]:
        x, dy = map(by_row, pending)
        return {"W": x.T @ dy, "b": dy.sum(axis=0)}

    def outline(self, x: MetaArray, ctx: Context) -> tuple[MetaArray, MetaArray]:
        self._require(x, ctx)
        weight = self.parameters["W"]
        return like(x, weight, shape=(*x.shape[:-1], weight.shape[1])), x

    def outline_input(self, saved: MetaArray, dy: MetaArray) -> tuple[MetaArray, tuple[MetaArray, MetaArray]]:
        return like(dy, self.parameters["W"], shape=saved.shape), (saved, dy)

    def work(self, x: MetaArray) -> Work:
        inputs, outputs = self.parameters["W"].shape
        return Work((Product(1, x.size // inputs, outputs, inputs),))

    def outline_weight(self, pending: tuple[MetaArray, MetaArray]) -> dict[str, MetaArray]:
        _, dy = pending
        return of_parameters(self.parameters, *pending) | {"b": like(dy, shape=dy.shape[-1:])}

    def __repr__(self) -> str:
        inputs, outputs = self.parameters["W"].shape
        return f"Linear({inputs}, {outputs})"


class ReLU(Layer):
    """y = max(x, 0). It saves y; a Linear behind it saves the same array, so this takes no extra bytes."""

    def forward(self, x: Array, ctx: Context) -> tuple[Array, Array]:
        y = np.maximum(x, 0)
        return y, y

    def backward_input(self, saved: Array, dy: Array) -> tuple[Array, None]:
        return dy * (saved > 0), None

    def outline(self, x: MetaArray, ctx: Context) -> tuple[MetaArray, MetaArray]:
        y = like(x, dtype=np.result_type(x.dtype, 0))
        return y, y

    def outline_input(self, saved: MetaArray, dy: MetaArray) -> tuple[MetaArray, None]:
        return like(dy), None


class Tanh(Layer):
    """y = tanh(x), in float64 for whole numbers. It saves y."""

    def forward(self, x: Array, ctx: Context) -> tuple[Array, Array]:
        y = np.tanh(x, dtype=np.result_type(x.dtype, 1.0))
        return y, y

    def backward_input(self, saved: Array, dy: Array) -> tuple[Array, None]:
        return dy * (1 - saved * saved), None

    def outline(self, x: MetaArray, ctx: Context) -> tuple[MetaArray, MetaArray]:
        y = floated(x)
        return y, y


class GELU(Layer):
    """y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), the usual approximation. It saves x.

    Hendrycks and Gimpel 2016, arXiv:1606.08415.
    """

    SCALE, CUBIC = 0.7978845608028654, 0.044715  # sqrt(2/pi) and the paper's constant

    def forward(self, x: Array, ctx: Context) -> tuple[Array, Array]:
        return 0.5 * x * (1 + self._tanh(x)), x

    def backward_input(self, saved: Array, dy: Array) -> tuple[Array, None]:
        x, t = saved, self._tanh(saved)
        inner = self.SCALE * (1 + 3 * self.CUBIC * x * x)
        return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner), None

    def outline(self, x: MetaArray, ctx: Context) -> tuple[MetaArray, MetaArray]:
        return floated(x), x

    def _tanh(self, x: Array) -> Array:
        return np.tanh(self.SCALE * (x + self.CUBIC * x * x * x))


LAYERS = (Linear, ReLU, Tanh, GELU)

ACTIVATIONS: dict[str, type[Layer]] = {"relu": ReLU, "tanh": Tanh, "gelu": GELU}


def mlp(
    sizes: Sequence[int], *, activation: str = "relu", seed: int = 0, dtype: "DTypeLike" = "float64"
) -> list[Layer]:
    """Linear layers with an activation between them; ``sizes`` lists the features, from input to output.

    >>> gp.mlp([64, 32, 10])
    [Linear(64, 32), ReLU(), Linear(32, 10)]

    ``mlp([64, 32, 10])`` is Linear(64, 32), ReLU, Linear(32, 10). Weights are He-initialised from the
    seed. ValueError for fewer than two sizes, a size below 1, an unknown activation or a dtype that is not
    floating.
    """
    sizes = [
        whole("mlp", "every size", size) for size in listed("mlp", "a list of sizes, such as [64, 10]", sizes)
    ]
    if len(sizes) < 2:
        raise ValueError(f"mlp needs at least two sizes, input and output {got(sizes)}")
    one_of("mlp", "activation", activation, ACTIVATIONS)
    floating("mlp", dtype)
    rng = np.random.default_rng(whole("mlp", "seed", seed, low=0))
    layers: list[Layer] = []
    for inputs, outputs in pairwise(sizes):
        layers += [Linear(inputs, outputs, rng=rng, dtype=dtype), ACTIVATIONS[activation]()]
    return layers[:-1]
