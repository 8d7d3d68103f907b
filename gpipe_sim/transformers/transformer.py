"""The layers that a Transformer is made of, over arrays of shape (batch, sequence, features).

They keep the contract of ``core.layers``: a layer's output is contiguous, and what it saves is its input, its
output, or owns its bytes. Attention has a file of its own.
"""

import numpy as np
from numpy.typing import DTypeLike

from gpipe_sim.core.boundary import Boundary, first
from gpipe_sim.core.layers import Context, Layer, Weights, by_row, refused, size
from gpipe_sim.core.meta_array import MetaArray, Some, floated, like, of_parameters
from gpipe_sim.core.work import Work
from gpipe_sim.errors import require_flags, require_in
from gpipe_sim.transformers.padding import mask_of

Array = np.ndarray


class Embedding(Layer):
    """y = E[x]: a row of E (tokens, features) for each whole number in x (batch, sequence).

    E is drawn from a normal distribution of standard deviation 0.02, as in GPT-2. The gradient of the whole
    numbers is 0. ValueError for a number that is no token.
    """

    def __init__(
        self, tokens: int, features: int, *, rng: np.random.Generator | None, dtype: "DTypeLike" = "float64"
    ):
        tokens, features = size("Embedding", "tokens", tokens), size("Embedding", "features", features)
        self.parameters = {"E": Weights("Embedding", rng, dtype).normal(0.02, tokens, features)}

    def forward(self, x: Array, ctx: Context) -> tuple[Array, Array]:
        self._require(x, ctx)
        tokens = len(self.parameters["E"])
        if x.size and not 0 <= x.min() <= x.max() < tokens:
            found = f"{x.min()} to {x.max()}"
            raise ValueError(f"layer {ctx.layer}, {self!r}, takes tokens from 0 to {tokens - 1}, got {found}")
        return self.parameters["E"][x], x

    def _require(self, x: Some, ctx: Context) -> None:
        if x.ndim < 2 or x.dtype.kind not in "iu":
            raise refused(self, ctx, "whole numbers of shape (batch, sequence)", x)

    def backward_input(self, saved: Array, dy: Array) -> tuple[Array, tuple[Array, Array]]:
        return np.zeros(saved.shape, dy.dtype), (saved, dy)

    def backward_weight(self, pending: tuple[Array, Array]) -> dict[str, Array]:
        x, dy = pending
        gradient = np.zeros(self.parameters["E"].shape, dy.dtype)
        np.add.at(gradient, x, dy)
        return {"E": gradient}

    def outline(self, x: MetaArray, ctx: Context) -> tuple[MetaArray, MetaArray]:
        self._require(x, ctx)
        table = self.parameters["E"]
        return like(table, shape=(*x.shape, table.shape[1])), x

    def outline_input(self, saved: MetaArray, dy: MetaArray) -> tuple[MetaArray, tuple[MetaArray, MetaArray]]:
        return like(dy, shape=saved.shape), (saved, dy)

    def outline_weight(self, pending: tuple[MetaArray, MetaArray]) -> dict[str, MetaArray]:
        return of_parameters(self.parameters, pending[1])

    def work(self, x: MetaArray) -> Work:
        table = self.parameters["E"]
        return Work(moved=2 * x.size * table.shape[1] * table.dtype.itemsize)

    def __repr__(self) -> str:
        return "Embedding({}, {})".format(*self.parameters["E"].shape)


class Positions(Layer):
    """y = x + P: a learned row of P (longest, features) for each position. It saves nothing.

    ValueError for a sequence longer than ``longest``.
    """

    def __init__(
        self, longest: int, features: int, *, rng: np.random.Generator | None, dtype: "DTypeLike" = "float64"
    ):
        longest, features = size("Positions", "longest", longest), size("Positions", "features", features)
        self.parameters = {"P": Weights("Positions", rng, dtype).normal(0.02, longest, features)}

    def forward(self, x: Array, ctx: Context) -> tuple[Array, None]:
        self._require(x, ctx)
        return x + self.parameters["P"][: x.shape[1]], None

    def _require(self, x: Some, ctx: Context) -> None:
        longest, features = self.parameters["P"].shape
        if x.ndim != 3 or x.shape[1] > longest or x.shape[2] != features:
            raise refused(self, ctx, f"(batch, at most {longest}, {features})", x)

    def backward_input(self, saved: None, dy: Array) -> tuple[Array, Array]:
        return dy, dy

    def backward_weight(self, pending: Array) -> dict[str, Array]:
        gradient = np.zeros(self.parameters["P"].shape, pending.dtype)
        gradient[: pending.shape[1]] = pending.sum(axis=0)
        return {"P": gradient}

    def outline(self, x: MetaArray, ctx: Context) -> tuple[MetaArray, None]:
        self._require(x, ctx)
        return like(x, self.parameters["P"]), None

    def outline_input(self, saved: None, dy: MetaArray) -> tuple[MetaArray, MetaArray]:
        return dy, dy

    def outline_weight(self, pending: MetaArray) -> dict[str, MetaArray]:
        return of_parameters(self.parameters, pending)

    def __repr__(self) -> str:
        return "Positions({}, {})".format(*self.parameters["P"].shape)


class LayerNorm(Layer):
    """y = g (x - mean) / std + b, mean and std over the features of each sample, or of each position.

    It saves what is normalised, and 1/std. It draws nothing; ``on_paper`` leaves its weights out. Ba, Kiros
    and Hinton 2016, arXiv:1607.06450.
    """

    def __init__(
        self, features: int, *, eps: float = 1e-5, on_paper: bool = False, dtype: "DTypeLike" = "float64"
    ):
        owner = type(self).__name__
        features = size(owner, "features", features)
        require_in(owner, "eps", eps, 0, 1)
        require_flags(owner, on_paper=on_paper)
        self.eps = float(eps)  # a number of NumPy's own would turn float32 into float64
        make = Weights(owner, None if on_paper else np.random.default_rng(0), dtype)
        self.parameters = {"g": make.full(1, features), "b": make.full(0, features)}

    def axes(self, x: Array) -> int | tuple[int, ...]:
        """Over which axes the mean is taken."""
        return -1

    def forward(self, x: Array, ctx: Context) -> tuple[Array, tuple[Array, Array]]:
        self._require(x, ctx)
        centred = x - x.mean(axis=self.axes(x), keepdims=True)
        scale = 1 / np.sqrt((centred * centred).mean(axis=self.axes(x), keepdims=True) + self.eps)
        centred *= scale
        return centred * self.parameters["g"] + self.parameters["b"], (centred, scale)

    def _require(self, x: Some, ctx: Context) -> None:
        features = len(self.parameters["g"])
        if x.ndim < 2 or x.shape[-1] != features:
            raise refused(self, ctx, f"(batch, {features}) or (batch, sequence, {features})", x)

    def backward_input(self, saved: tuple[Array, Array], dy: Array) -> tuple[Array, tuple[Array, Array]]:
        normal, scale = saved
        dn, axes = dy * self.parameters["g"], self.axes(dy)
        along = (dn * normal).mean(axis=axes, keepdims=True)
        return (dn - dn.mean(axis=axes, keepdims=True) - normal * along) * scale, (normal, dy)

    def backward_weight(self, pending: tuple[Array, Array]) -> dict[str, Array]:
        normal, dy = pending
        return {"g": by_row(dy * normal).sum(axis=0), "b": by_row(dy).sum(axis=0)}

    def outline(self, x: MetaArray, ctx: Context) -> tuple[MetaArray, tuple[MetaArray, MetaArray]]:
        self._require(x, ctx)
        axes, normal = np.atleast_1d(self.axes(x)) % x.ndim, floated(x)
        scale = like(normal, shape=tuple(1 if i in axes else n for i, n in enumerate(x.shape)))
        return like(normal, self.parameters["g"]), (normal, scale)

    def outline_input(self, saved: tuple, dy: MetaArray) -> tuple[MetaArray, tuple[MetaArray, MetaArray]]:
        return like(dy, self.parameters["g"], *saved), (saved[0], dy)

    def outline_weight(self, pending: tuple[MetaArray, MetaArray]) -> dict[str, MetaArray]:
        return of_parameters(self.parameters, *pending) | {"b": like(pending[1], shape=pending[1].shape[-1:])}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.parameters['g'])})"


class BatchNorm(LayerNorm):
    """The same with mean and std over the samples of one microbatch, for each feature.

    So its gradient depends on how a batch is cut into microbatches. It has no running statistics: in
    evaluation too it uses the batch that it is given. Ioffe and Szegedy 2015, arXiv:1502.03167.
    """

    def axes(self, x: Array) -> tuple[int, ...]:
        return tuple(range(x.ndim - 1))


class Dropout(Layer):
    """In training, an entry becomes 0 with probability ``rate``; the others are divided by 1 - rate.

    It saves which entries stay, a byte each. They depend only on the context, so a recomputed forward draws
    the same ones, and so does every schedule. Srivastava et al. 2014.
    """

    def __init__(self, rate: float):
        super().__init__()
        require_in("Dropout", "rate", rate, 0, 1)
        self.rate = float(rate)  # a number of NumPy's own would turn float32 into float64

    def forward(self, x: Array, ctx: Context) -> tuple[Array, Array | None]:
        if not (ctx.training and self.rate):
            return x, None
        stays = ctx.rng().random(x.shape) >= self.rate
        return x * stays * (1 / (1 - self.rate)), stays

    def backward_input(self, saved: Array | None, dy: Array) -> tuple[Array, None]:
        return (dy if saved is None else dy * saved * (1 / (1 - self.rate))), None

    def outline(self, x: MetaArray, ctx: Context) -> tuple[MetaArray, MetaArray | None]:
        return (floated(x), like(x, dtype=bool)) if ctx.training and self.rate else (x, None)

    def outline_input(self, saved: MetaArray | None, dy: MetaArray) -> tuple[MetaArray, None]:
        return (dy if saved is None else like(dy)), None

    def work(self, x: MetaArray) -> Work:
        return Work(moved=2 * x.nbytes + x.size) if self.rate else Work(launches=0)

    def __repr__(self) -> str:
        return f"Dropout({self.rate})"


class SequenceMean(Layer):
    """The mean over a sequence: (batch, sequence, features) becomes (batch, features).

    With a mask that travels along, it is the mean over the positions that are seen; the mask ends here.
    """

    carries = True

    def forward(self, boundary: Boundary, ctx: Context) -> tuple[Array, tuple[int, Array | None]]:
        x, mask = self._read(boundary, ctx)
        if mask is None:
            return x.mean(axis=1), (x.shape[1], None)
        total = (x * mask[..., None]).sum(axis=1, dtype=np.result_type(x.dtype, 1.0))
        return total / self._seen(mask, total), (x.shape[1], mask)

    def _read(self, boundary: Boundary, ctx: Context) -> tuple[Some, Some | None]:
        x = first(boundary)
        if x.ndim != 3 or not x.shape[1]:
            raise refused(self, ctx, "(batch, sequence, features)", x)
        return x, mask_of(self, boundary, ctx)

    def _seen(self, mask: Array, total: Array) -> Array:
        """How many positions of each sample, at least 1, in the numbers of a total."""
        return np.maximum(mask.sum(axis=1, keepdims=True), 1).astype(total.dtype)

    def backward_input(self, saved: tuple[int, Array | None], dy: Array) -> tuple[Array, None]:
        positions, mask = saved
        if mask is None:
            return np.repeat(dy[:, None] / positions, positions, axis=1), None
        return (dy / self._seen(mask, dy))[:, None] * mask[..., None], None

    def outline(self, boundary: Boundary, ctx: Context) -> tuple[MetaArray, tuple[int, Some | None]]:
        x, mask = self._read(boundary, ctx)
        return like(floated(x), shape=(len(x), x.shape[2])), (x.shape[1], mask)

    def outline_input(self, saved: tuple[int, MetaArray | None], dy: MetaArray) -> tuple[MetaArray, None]:
        return like(dy, shape=(len(dy), saved[0], dy.shape[1])), None


__all__ = ["BatchNorm", "Dropout", "Embedding", "LayerNorm", "Positions", "SequenceMean"]
