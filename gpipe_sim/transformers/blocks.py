"""Layers made of layers: a chain, a checkpoint, a residual, and a Transformer's block.

``split`` cannot cut them apart. They name the parameters of their layers by place: ``1.0.W`` is W of the
first layer in the second.
"""

from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from gpipe_sim.core.boundary import Boundary, apply_layer, first
from gpipe_sim.core.layers import GELU, Array, Context, Layer, Linear
from gpipe_sim.core.meta_array import MetaArray, Some, like
from gpipe_sim.core.work import Work
from gpipe_sim.errors import one_of, require
from gpipe_sim.transformers.attention import Attention
from gpipe_sim.transformers.inside_layers import alive, look_inside
from gpipe_sim.transformers.padding import with_along
from gpipe_sim.transformers.transformer import Dropout, LayerNorm

AGAIN = {"backward_input": "forward", "outline_input": "outline"}  #: what a checkpoint runs before each


class Chain(Layer):
    """Layers one after another, as one layer: they cannot be cut apart by ``split``."""

    carries = True

    def __init__(self, *layers: Layer):
        for layer in layers:
            require(type(self).__name__, layer, Layer, "layers")
            if layer.tied:
                raise ValueError(f"{type(self).__name__} cannot hold {layer!r}, which a step has to find")
        if not layers:
            raise ValueError(f"{type(self).__name__} needs at least one layer")
        self.layers = layers
        self.parameters = {
            f"{i}.{name}": array for i, layer in enumerate(layers) for name, array in layer.parameters.items()
        }
        if len(set(map(id, self.parameters.values()))) < len(self.parameters):
            raise ValueError(f"{self!r} has a layer twice; every layer with weights must be one of its own")

    def forward(self, x: Boundary, ctx: Context) -> tuple[Boundary, Any]:
        return self._down("forward", x, ctx)

    def backward_input(self, saved: Any, dy: Array) -> tuple[Array, list[Any]]:
        return self._up("backward_input", saved, dy)

    def backward_weight(self, pending: list[Any]) -> dict[str, Array]:
        return self._each("backward_weight", pending)

    def outline(self, x: Boundary, ctx: Context) -> tuple[Boundary, Any]:
        return self._down("outline", x, ctx)

    def outline_input(self, saved: Any, dy: MetaArray) -> tuple[MetaArray, list[Any]]:
        return self._up("outline_input", saved, dy)

    def outline_weight(self, pending: list[Any]) -> dict[str, MetaArray]:
        return self._each("outline_weight", pending)

    def work(self, x: MetaArray) -> Work:
        return Work.total(*self._works(x))

    def selective(self) -> "Chain | None":
        found = [layer.selective() for layer in self.layers]
        if found.count(None) == len(found):
            return None
        other = copy(self)
        other.layers = tuple(b if a is None else a for a, b in zip(found, self.layers, strict=True))
        return other

    def _works(self, x: Any) -> Iterator[Work]:
        """What each of its layers does."""
        for layer in self.layers:
            yield layer.work(first(x))  # type: ignore[arg-type]
            x, _ = apply_layer(layer, layer.outline, x, Context())

    def _down(self, method: str, x: Boundary, ctx: Context, keep: bool = True) -> tuple[Boundary, Any]:
        kept: list[Any] = []
        with alive(x, kept):
            for i, layer in enumerate(self.layers):
                x, saved = apply_layer(layer, getattr(layer, method), x, self._context(ctx, i))
                if keep:
                    kept.append(saved)
                del saved
                look_inside(x)
        return x, kept

    def _context(self, ctx: Context, i: int) -> Context:
        return ctx._replace(inner=(*ctx.inner, i))

    def _up(self, method: str, saved: Any, dy: Some) -> tuple[Any, list[Any]]:
        kept: list[Any] = []
        with alive(saved, dy, kept):
            for layer, layer_saved in zip(reversed(self.layers), reversed(saved), strict=True):
                dy, pending = getattr(layer, method)(layer_saved, dy)
                kept.append(pending)
                look_inside(dy)
        return dy, kept[::-1]

    def _each(self, method: str, pending: list[Any]) -> dict[str, Any]:
        gradients: dict[str, Any] = {}
        for i, (layer, layer_pending) in enumerate(zip(self.layers, pending, strict=True)):
            if layer.parameters:
                fresh = getattr(layer, method)(layer_pending)
                gradients |= {f"{i}.{name}": array for name, array in fresh.items()}
        return gradients

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.layers))})"


class Checkpoint(Chain):
    """The same layers, but only their input is saved; the backward runs their forward again first.

    A single layer draws the same random numbers as without. Chen et al. 2016, arXiv:1604.06174.
    """

    def _down(self, method: str, x: Boundary, ctx: Context, keep: bool = False) -> tuple[Boundary, Any]:
        y, _ = super()._down(method, x, ctx, keep)
        return y, (x, ctx)

    def _up(self, method: str, saved: Any, dy: Some) -> tuple[Any, list[Any]]:
        with alive(saved[0], dy):
            again = super()._down(AGAIN[method], *saved)[1]  # its output goes at once
            return super()._up(method, again, dy)

    def _context(self, ctx: Context, i: int) -> Context:
        return super()._context(ctx, i) if len(self.layers) > 1 else ctx

    def work(self, x: MetaArray) -> Work:
        done = super().work(x)
        again = [done._replace(again=None), *([done.again] if done.again else [])]
        return done._replace(again=Work.total(*again))

    def selective(self) -> None:
        """All of it is recomputed already."""


class Residual(Chain):
    """y = x + what its layers make of x, in x's shape. He et al. 2016, arXiv:1512.03385."""

    def _down(self, method: str, x: Boundary, ctx: Context, keep: bool = True) -> tuple[Boundary, Any]:
        change, saved = super()._down(method, x, ctx, keep)
        kept, got = first(x).shape, first(change).shape
        if kept != got:
            raise ValueError(f"layer {ctx.layer}, {self!r}, must keep the shape {kept}, got {got}")
        y = with_along(_plus(first(x), first(change)), x)
        look_inside(x, change, saved, y)
        return y, saved

    def _up(self, method: str, saved: Any, dy: Some) -> tuple[Any, list[Any]]:
        change, pending = super()._up(method, saved, dy)
        dx = _plus(dy, change)
        look_inside(saved, dy, change, pending, dx)
        return dx, pending

    def work(self, x: MetaArray) -> Work:
        """A sum right after dropout is one kernel with it, as in Megatron-LM, and only x is read beside."""
        fused = isinstance(self.layers[-1], Dropout)
        added = Work(moved=x.nbytes * (1 if fused else 3), launches=1 - fused)
        return Work.total(*self._works(x), added)


def _plus(a: Some, b: Some) -> Some:
    """The sum of two arrays, or its outline."""
    return like(a, b) if isinstance(a, MetaArray) else a + b


class TransformerBlock(Chain):
    """Attention and a network of two linear layers, each with a residual around it.

    ``norm="pre"`` normalises what goes into each, as GPT-2 and GPT-3 do; ``"post"`` normalises what comes out
    of each sum, as BERT and the first Transformer do. The network is 4 times as wide as the block, with a
    GELU in its middle. ``dropout`` acts on the softmax and on what either adds; ``recompute`` and ``flash``
    are those of attention.
    """

    def __init__(
        self,
        features: int,
        heads: int,
        *,
        norm: str = "pre",
        causal: bool = False,
        dropout: float = 0.0,
        recompute: bool = False,
        flash: bool = False,
        rng: np.random.Generator | None,
        dtype: "DTypeLike" = "float64",
    ):
        one_of("TransformerBlock", "norm", norm, ("pre", "post"))
        how: dict[str, Any] = {"causal": causal, "dropout": dropout, "recompute": recompute, "flash": flash}
        attention = Attention(features, heads, **how, rng=rng, dtype=dtype)
        wide = Linear(features, 4 * features, rng=rng, dtype=dtype)
        narrow = Linear(4 * features, features, rng=rng, dtype=dtype)
        layers: list[Layer] = []
        for part in ((attention,), (wide, GELU(), narrow)):
            normal = LayerNorm(features, on_paper=rng is None, dtype=dtype)
            drop = (Dropout(dropout),) if dropout else ()
            if norm == "pre":
                layers.append(Residual(normal, *part, *drop))
            else:
                layers += [Residual(*part, *drop), normal]
        super().__init__(*layers)
        told = ", causal=True" * bool(causal) + ", flash=True" * bool(flash)
        self.described = f"{features}, {heads}, norm={norm!r}{told}"

    def __repr__(self) -> str:
        return f"TransformerBlock({self.described})"


__all__ = ["Checkpoint", "Residual", "TransformerBlock"]
