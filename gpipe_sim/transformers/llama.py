"""What a Llama has in place of GPT's layers: RMSNorm, SwiGLU, a head without bias, and the block of them.

Touvron et al. 2023, arXiv:2307.09288 (Llama 2); Grattafiori et al. 2024, arXiv:2407.21783 (Llama 3).
"""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from gpipe_sim.core.layers import Context, Layer, Weights, by_row, refused, size
from gpipe_sim.core.meta_array import MetaArray, Some, floated, like, of_parameters
from gpipe_sim.core.work import Product, Work
from gpipe_sim.errors import got, require, require_flags, require_in
from gpipe_sim.transformers.attention import Attention
from gpipe_sim.transformers.blocks import Chain, Residual
from gpipe_sim.transformers.transformer import Embedding

Array = np.ndarray


class RMSNorm(Layer):
    """y = g x / rms, the root of the mean square over the features of each sample, or of each position.

    It saves x and 1/rms. It draws nothing; ``on_paper`` leaves its weights out. Zhang and Sennrich 2019,
    arXiv:1910.07467.
    """

    def __init__(
        self, features: int, *, eps: float = 1e-5, on_paper: bool = False, dtype: "DTypeLike" = "float64"
    ):
        features = size("RMSNorm", "features", features)
        require_in("RMSNorm", "eps", eps, 0, 1)
        require_flags("RMSNorm", on_paper=on_paper)
        self.eps = float(eps)  # a number of NumPy's own would turn float32 into float64
        make = Weights("RMSNorm", None if on_paper else np.random.default_rng(0), dtype)
        self.parameters = {"g": make.full(1, features)}

    def forward(self, x: Array, ctx: Context) -> tuple[Array, tuple[Array, Array]]:
        self._require(x, ctx)
        squares = np.square(x, dtype=np.result_type(x.dtype, 1.0))
        scale = 1 / np.sqrt(squares.mean(axis=-1, keepdims=True) + self.eps)
        return x * scale * self.parameters["g"], (x, scale)

    def _require(self, x: Some, ctx: Context) -> None:
        features = len(self.parameters["g"])
        if x.ndim < 2 or x.shape[-1] != features:
            raise refused(self, ctx, f"(batch, {features}) or (batch, sequence, {features})", x)

    def backward_input(self, saved: tuple[Array, Array], dy: Array) -> tuple[Array, tuple]:
        x, scale = saved
        dn, normal = dy * self.parameters["g"], x * scale
        along = (dn * normal).mean(axis=-1, keepdims=True)
        return (dn - normal * along) * scale, (x, scale, dy)

    def backward_weight(self, pending: tuple[Array, Array, Array]) -> dict[str, Array]:
        x, scale, dy = pending
        return {"g": by_row(dy * (x * scale)).sum(axis=0)}

    def outline(self, x: MetaArray, ctx: Context) -> tuple[MetaArray, tuple[MetaArray, MetaArray]]:
        self._require(x, ctx)
        scale = like(floated(x), shape=(*x.shape[:-1], 1))
        return like(x, scale, self.parameters["g"]), (x, scale)

    def outline_input(self, saved: tuple, dy: MetaArray) -> tuple[MetaArray, tuple]:
        return like(dy, self.parameters["g"], *saved), (*saved, dy)

    def outline_weight(self, pending: tuple[MetaArray, MetaArray, MetaArray]) -> dict[str, MetaArray]:
        return of_parameters(self.parameters, *pending)

    def __repr__(self) -> str:
        return f"RMSNorm({len(self.parameters['g'])})"


class SwiGLU(Layer):
    """y = (swish(x G) * x U) Wo, with swish(z) = z / (1 + exp(-z)): a network whose middle is gated.

    W (features, 2 hidden) has the gate G and then U; Wo is (hidden, features); there are no biases. It saves
    x, x W, and what Wo reads. Shazeer 2020, arXiv:2002.05202.
    """

    def __init__(
        self, features: int, hidden: int, *, rng: np.random.Generator | None, dtype: "DTypeLike" = "float64"
    ):
        features, hidden = size("SwiGLU", "features", features), size("SwiGLU", "hidden", hidden)
        draw = Weights("SwiGLU", rng, dtype)
        self.parameters = {
            "W": draw.normal(features**-0.5, features, 2 * hidden),
            "Wo": draw.normal(hidden**-0.5, hidden, features),
        }

    def forward(self, x: Array, ctx: Context) -> tuple[Array, tuple[Array, Array, Array]]:
        self._require(x, ctx)
        wide = x @ self.parameters["W"]
        gate, up = np.split(wide, 2, axis=-1)
        middle = gate * _sigmoid(gate) * up
        return middle @ self.parameters["Wo"], (x, wide, middle)

    def _require(self, x: Some, ctx: Context) -> None:
        features = len(self.parameters["W"])
        if x.ndim < 2 or x.shape[-1] != features:
            raise refused(self, ctx, f"(batch, {features}) or (batch, sequence, {features})", x)

    def backward_input(self, saved: tuple[Array, Array, Array], dy: Array) -> tuple[Array, tuple]:
        x, wide, middle = saved
        d_middle, (gate, up) = dy @ self.parameters["Wo"].T, np.split(wide, 2, axis=-1)
        share = _sigmoid(gate)
        d_gate = d_middle * up * share * (1 + gate * (1 - share))
        d_wide = np.concatenate([d_gate, d_middle * gate * share], axis=-1)
        return d_wide @ self.parameters["W"].T, (x, d_wide, middle, dy)

    def backward_weight(self, pending: tuple[Array, Array, Array, Array]) -> dict[str, Array]:
        x, d_wide, middle, dy = map(by_row, pending)
        return {"W": x.T @ d_wide, "Wo": middle.T @ dy}

    def outline(self, x: MetaArray, ctx: Context) -> tuple[MetaArray, tuple[MetaArray, MetaArray, MetaArray]]:
        self._require(x, ctx)
        hidden, features = self.parameters["Wo"].shape
        wide = like(x, self.parameters["W"], shape=(*x.shape[:-1], 2 * hidden))
        middle = like(wide, shape=(*x.shape[:-1], hidden))
        return like(wide, shape=(*x.shape[:-1], features)), (x, wide, middle)

    def outline_input(self, saved: tuple, dy: MetaArray) -> tuple[MetaArray, tuple]:
        x, wide, middle = saved
        d_wide = like(wide, dy, self.parameters["Wo"])
        return like(d_wide, shape=x.shape), (x, d_wide, middle, dy)

    def outline_weight(self, pending: tuple[MetaArray, ...]) -> dict[str, MetaArray]:
        x, d_wide, middle, dy = pending
        read = {"W": (x, d_wide), "Wo": (middle, dy)}
        return {name: like(*read[name], shape=array.shape) for name, array in self.parameters.items()}

    def work(self, x: MetaArray) -> Work:
        """What is in the middle is one kernel: it reads the gate and the other half, and writes a product."""
        hidden, features = self.parameters["Wo"].shape
        rows, number = x.size // features, like(x, self.parameters["W"]).dtype.itemsize
        products = Product(1, rows, 2 * hidden, features), Product(1, rows, features, hidden)
        return Work(products, moved=3 * rows * hidden * number, launches=3)

    def __repr__(self) -> str:
        hidden, features = self.parameters["Wo"].shape
        return f"SwiGLU({features}, {hidden})"


def _sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), in a form in which nothing overflows."""
    return 0.5 * (1 + np.tanh(0.5 * x))


class Head(Layer):
    """y = x E^T, without biases: a number for each token. E is (tokens, features), as in ``Embedding``.

    It saves x. With ``tied_to``, an ``Embedding`` of the same model, E is that one's weight, and both ends
    always have the same: a step sums their gradients, in a ring where the ends are on two devices. Each end
    has an array of its own, as in Megatron-LM, also where one device has both. Press and Wolf 2017,
    arXiv:1608.05859.
    """

    def __init__(
        self,
        features: int,
        tokens: int,
        *,
        tied_to: Embedding | None = None,
        rng: np.random.Generator | None,
        dtype: "DTypeLike" = "float64",
    ):
        features, tokens = size("Head", "features", features), size("Head", "tokens", tokens)
        draw = Weights("Head", rng, dtype)
        if tied_to is None:
            self.parameters = {"E": draw.normal(features**-0.5, tokens, features)}
        else:
            such_as = "tied_to to be the model's Embedding, or None"
            table = require("Head", tied_to, Embedding, such_as).parameters["E"]
            if table.shape != (tokens, features):
                raise ValueError(
                    f"Head({features}, {tokens}) needs Embedding({tokens}, {features}) {got(tied_to)}"
                )
            self.tied, self.parameters = True, {"E": table.copy()}

    def forward(self, x: Array, ctx: Context) -> tuple[Array, Array]:
        self._require(x, ctx)
        return x @ self.parameters["E"].T, x

    def _require(self, x: Some, ctx: Context) -> None:
        features = self.parameters["E"].shape[1]
        if x.ndim < 2 or x.shape[-1] != features:
            raise refused(self, ctx, f"(batch, {features}) or (batch, sequence, {features})", x)

    def backward_input(self, saved: Array, dy: Array) -> tuple[Array, tuple[Array, Array]]:
        return dy @ self.parameters["E"], (saved, dy)

    def backward_weight(self, pending: tuple[Array, Array]) -> dict[str, Array]:
        x, dy = map(by_row, pending)
        return {"E": dy.T @ x}

    def outline(self, x: MetaArray, ctx: Context) -> tuple[MetaArray, MetaArray]:
        self._require(x, ctx)
        table = self.parameters["E"]
        return like(x, table, shape=(*x.shape[:-1], len(table))), x

    def outline_input(self, saved: MetaArray, dy: MetaArray) -> tuple[MetaArray, tuple[MetaArray, MetaArray]]:
        return like(dy, self.parameters["E"], shape=saved.shape), (saved, dy)

    def outline_weight(self, pending: tuple[MetaArray, MetaArray]) -> dict[str, MetaArray]:
        return of_parameters(self.parameters, *pending)

    def work(self, x: MetaArray) -> Work:
        tokens, features = self.parameters["E"].shape
        return Work((Product(1, x.size // features, tokens, features),))

    def __repr__(self) -> str:
        tokens, features = self.parameters["E"].shape
        return f"Head({features}, {tokens}{', tied' * self.tied})"


class LlamaBlock(Chain):
    """Attention and a SwiGLU, each with an RMSNorm before it and a residual around it; no biases.

    Causal, with rotary positions, and computed in tiles unless ``flash=False``. ``hidden`` is the width of
    the SwiGLU, ``kv_heads`` and ``rotary`` are those of ``Attention``.
    """

    def __init__(
        self,
        features: int,
        heads: int,
        hidden: int,
        *,
        kv_heads: int | None = None,
        rotary: float | None = 10_000.0,
        flash: bool = True,
        recompute: bool = False,
        rng: np.random.Generator | None,
        dtype: "DTypeLike" = "float64",
    ):
        how: dict[str, Any] = {"kv_heads": kv_heads, "rotary": rotary, "flash": flash, "recompute": recompute}
        parts = (
            Attention(features, heads, causal=True, bias=False, rng=rng, dtype=dtype, **how),
            SwiGLU(features, hidden, rng=rng, dtype=dtype),
        )
        paper = rng is None
        super().__init__(*(Residual(RMSNorm(features, on_paper=paper, dtype=dtype), part) for part in parts))
        shared = "" if kv_heads in (None, heads) else f", kv_heads={kv_heads}"
        self.described = f"{features}, {heads}, {hidden}{shared}{', flash=False' * (not flash)}"

    def __repr__(self) -> str:
        return f"LlamaBlock({self.described})"


__all__ = ["Head", "LlamaBlock", "RMSNorm", "SwiGLU"]
