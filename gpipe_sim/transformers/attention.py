"""Attention: every position of a sequence takes a weighted mean of all positions that it may see.

It saves queries, keys and values as the one array that they were made as, not as three views of it.
"""

from collections import Counter
from collections.abc import Sequence
from copy import copy
from math import inf
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from gpipe_sim.core.boundary import Boundary, first
from gpipe_sim.core.layers import Context, Layer, Weights, by_row, refused, size
from gpipe_sim.core.meta_array import MetaArray, Some, like
from gpipe_sim.core.work import Product, Work
from gpipe_sim.errors import got, require_flags, require_in, whole
from gpipe_sim.transformers import flash
from gpipe_sim.transformers.inside_layers import look_inside
from gpipe_sim.transformers.padding import mask_of, with_along
from gpipe_sim.transformers.rotary import turn
from gpipe_sim.transformers.transformer import Dropout

Array = np.ndarray
FUSED = 4  #: samples times heads, of which softmax with its mask is one kernel


class Attention(Layer):
    """Multi-head self-attention over the sequence axis: softmax(Q K^T / sqrt(d)) V, then a linear layer.

    x is (batch, sequence, features); each of ``heads`` sees d = features / heads of them. With ``causal``,
    no position sees a later one. ``dropout`` acts on the softmax's output. It saves x, the queries, keys and
    values as one array, the softmax, and what the last linear layer reads; with dropout also which entries
    stay, and the softmax without the others. Vaswani et al. 2017, arXiv:1706.03762.

    A mask that travels along, (x, mask), is True at the positions that are seen (``PaddingMask``). A position
    that sees none gets zeros.

    With ``recompute``, everything of shape (sequence, sequence) is made again in the backward: selective
    recompute. Korthikanti et al. 2022, arXiv:2205.05198. With ``flash`` there never is such an array: the
    softmax is computed tile by tile, and again in the backward. Dao et al. 2022, arXiv:2205.14135.

    With fewer ``kv_heads`` than heads, several heads share their keys and values: grouped-query attention.
    Ainslie et al. 2023, arXiv:2305.13245. ``rotary`` is the base of rotary positions, such as 10,000:
    queries and keys are turned by angles that grow with their places. Su et al. 2021, arXiv:2104.09864.
    """

    carries = True
    tile = 128  #: queries, and keys, of a tile with ``flash``

    def __init__(
        self,
        features: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        causal: bool = False,
        dropout: float = 0.0,
        recompute: bool = False,
        flash: bool = False,
        rotary: float | None = None,
        bias: bool = True,
        rng: np.random.Generator | None,
        dtype: "DTypeLike" = "float64",
    ):
        features, heads = size("Attention", "features", features), whole("Attention", "heads", heads)
        if features % heads:
            raise ValueError(f"Attention needs heads that divide {features} features {got(heads)}")
        require_flags("Attention", causal=causal, recompute=recompute, flash=flash, bias=bias)
        self.heads, self.causal, self.dropout = heads, bool(causal), Dropout(dropout)
        self.kv_heads = _shared(heads, kv_heads)
        self.recompute, self.flash = bool(recompute), bool(flash)
        self.rotary = None if rotary is None else _base(rotary, features // heads)
        if flash and (recompute or self.dropout.rate):
            other = "recompute, as it recomputes anyway" if recompute else "dropout, which draws all at once"
            raise ValueError(f"Attention has flash without {other}")
        draw, scale = Weights("Attention", rng, dtype), features**-0.5
        three = features // heads * (heads + 2 * self.kv_heads)
        self.parameters = {
            "W": draw.normal(scale, features, three),
            **({"b": draw.full(0, three)} if bias else {}),
            "Wo": draw.normal(scale, features, features),
            **({"bo": draw.full(0, features)} if bias else {}),
        }

    def forward(self, boundary: Boundary, ctx: Context) -> tuple[Boundary, tuple]:
        x, mask = first(boundary), self._mask(boundary, ctx)
        qkv = self._linear(x, "W", "b")
        if self.rotary:
            turn(self._turned(qkv), self.rotary)
        if self.flash:
            mixed, log = flash.forward(*self._heads(qkv), self._seen(mask))
            core: tuple = log, mask
        else:
            core = self._attention_weights(qkv, ctx, mask)
            mixed = core[2] @ self._heads(qkv)[2]
        mixed = mixed.swapaxes(1, 2).copy()
        y = self._linear(mixed.reshape(*x.shape[:2], self.mixed), "Wo", "bo")
        return with_along(y, boundary), (x, qkv, (ctx, mask) if self.recompute else core, mixed)

    def _linear(self, x: Array, weight: str, bias: str) -> Array:
        y = x @ self.parameters[weight]
        if bias in self.parameters:
            y += self.parameters[bias]
        return y

    @property
    def mixed(self) -> int:
        """The features of all heads together: as many as x has, unless the heads are dealt out to devices."""
        return len(self.parameters["Wo"])

    @property
    def stretches(self) -> tuple[int, int, int]:
        """How many columns of W make queries, keys and values."""
        keys = self.mixed // self.heads * self.kv_heads
        return self.mixed, keys, keys

    def _mask(self, boundary: Boundary, ctx: Context) -> Some | None:
        """What travels along, if anything does, where both are as they must be."""
        x, features = first(boundary), len(self.parameters["W"])
        if x.ndim != 3 or x.shape[2] != features or not x.shape[1]:
            raise refused(self, ctx, f"(batch, sequence, {features})", x)
        return mask_of(self, boundary, ctx)

    def _seen(self, mask: Array | None) -> flash.Seen:
        return flash.Seen(self.causal, mask, self.tile)

    def _attention_weights(
        self, qkv: Array, ctx: Context, mask: Array | None
    ) -> tuple[Array, Array | None, Array]:
        """(the weights of all positions for each one, which entries dropout keeps, the weights after it)."""
        query, key, _ = self._heads(qkv)
        weights = self._softmax(query @ key.swapaxes(2, 3), mask)
        dropped, stays = self.dropout.forward(weights, ctx)
        return weights, stays, dropped

    def backward_input(self, saved: tuple, dy: Array) -> tuple[Array, tuple]:
        x, qkv, core, mixed = saved
        d_mixed = (dy @ self.parameters["Wo"].T).reshape(mixed.shape).swapaxes(1, 2)
        if self.flash:
            log, mask = core
            ends = mixed.swapaxes(1, 2), log, d_mixed
            gradients = flash.backward(self._heads(qkv), *ends, self._seen(mask))
        else:
            weights = self._attention_weights(qkv, *core) if self.recompute else core
            look_inside(saved, dy, *weights)
            gradients = self._gradients(self._heads(qkv), weights, d_mixed)
        d_qkv = self._joined(gradients, qkv.shape, dy.dtype)
        if self.rotary:
            turn(self._turned(d_qkv), self.rotary, back=True)
        return d_qkv @ self.parameters["W"].T, (x, d_qkv, mixed, dy)

    def _gradients(self, heads: tuple, core: tuple, d_mixed: Array) -> tuple[Array, Array, Array]:
        """Of queries, keys and values, each (batch, heads, sequence, d)."""
        (query, key, value), (weights, stays, dropped) = heads, core
        d_weights, _ = self.dropout.backward_input(stays, d_mixed @ value.swapaxes(2, 3))
        d_scores = weights * (d_weights - (d_weights * weights).sum(axis=3, keepdims=True))
        d_scores *= query.shape[3] ** -0.5
        return d_scores @ key, d_scores.swapaxes(2, 3) @ query, dropped.swapaxes(2, 3) @ d_mixed

    def backward_weight(self, pending: tuple) -> dict[str, Array]:
        x, d_qkv, mixed, dy = pending
        found = {
            "W": by_row(x).T @ by_row(d_qkv),
            "b": by_row(d_qkv).sum(axis=0),
            "Wo": mixed.reshape(-1, self.mixed).T @ by_row(dy),
            "bo": by_row(dy).sum(axis=0),
        }
        return {name: found[name] for name in self.parameters}

    def outline(self, boundary: Boundary, ctx: Context) -> tuple[Boundary, tuple]:
        x, mask = first(boundary), self._mask(boundary, ctx)
        batch, sequence, _ = x.shape
        weight = self.parameters["W"]
        qkv = like(x, weight, shape=(batch, sequence, weight.shape[1]))
        mixed = like(qkv, shape=(batch, sequence, self.heads, self.mixed // self.heads))
        core: tuple = (ctx, mask) if self.recompute else self._outlined_weights(qkv, ctx)
        if self.flash:
            core = like(qkv, shape=(batch, self.heads, sequence, 1)), mask
        return with_along(like(x, qkv), boundary), (x, qkv, core, mixed)

    def _outlined_weights(
        self, qkv: MetaArray, ctx: Context
    ) -> tuple[MetaArray, MetaArray | None, MetaArray]:
        batch, sequence, _ = qkv.shape
        weights = like(qkv, shape=(batch, self.heads, sequence, sequence))
        dropped, stays = self.dropout.outline(weights, ctx)
        return weights, stays, dropped

    def work(self, x: MetaArray) -> Work:
        """What the values give is saved, so with ``recompute`` the products with them are not done again."""
        batch, sequence, features = x.shape
        weight = self.parameters["W"]
        qkv = like(x, weight, shape=(batch, sequence, weight.shape[1]))
        rows, number = batch * sequence, qkv.dtype.itemsize
        core = self._flash_work(qkv) if self.flash else self._core_work(qkv)
        turned = rows * (weight.shape[1] + self.mixed) // 2 * number if self.rotary else 0
        return Work(
            (
                Product(1, rows, weight.shape[1], features),
                *core.products,
                Product(1, rows, features, self.mixed),
            ),
            core.moved + 2 * turned,
            launches=2 + core.launches + bool(turned),
            again=core.again,
        )

    def _core_work(self, qkv: MetaArray) -> Work:
        """Scores, softmax and what they mix.

        Softmax is one kernel, with its mask and scale, where samples times heads are a multiple of 4, as in
        Megatron-LM; elsewhere each of these reads and writes all scores.
        """
        batch, sequence, _ = qkv.shape
        each, number, drops = batch * self.heads, qkv.dtype.itemsize, bool(self.dropout.rate)
        scores = Product(each, sequence, sequence, self.mixed // self.heads, weight=False)
        mixes = scores._replace(n=scores.k, k=sequence)
        passes, kernels = (2, 1) if each % FUSED == 0 else (8, 5)
        moved = each * sequence**2 * (passes * number + (2 * number + 1) * drops)  # a byte says what stays
        again = Work((scores,), moved, launches=1 + kernels + drops) if self.recompute else None
        return Work((scores, mixes), moved, launches=2 + kernels + drops, again=again)

    def _flash_work(self, qkv: MetaArray) -> Work:
        """One kernel, which reads queries, keys and values and writes what they give; scores stay inside."""
        batch, sequence, three = qkv.shape
        shapes = Counter(tile.shape for tile in flash.tiles(sequence, self.tile, self.causal))
        d, each = self.mixed // self.heads, batch * self.heads
        scores = tuple(
            Product(each * many, m, n, d, weight=False, inside=True) for (m, n), many in shapes.items()
        )
        mixes = tuple(product._replace(n=d, k=product.n) for product in scores)
        moved = batch * sequence * (three + self.mixed) * qkv.dtype.itemsize
        return Work(scores + mixes, moved, again=Work(scores, launches=0))

    def selective(self) -> "Attention | None":
        if self.recompute or self.flash:
            return None
        other = copy(self)
        other.recompute = True
        return other

    def outline_input(self, saved: tuple, dy: MetaArray) -> tuple[MetaArray, tuple]:
        x, qkv, core, mixed = saved
        if not self.flash:
            look_inside(saved, dy, self._outlined_weights(qkv, core[0]) if self.recompute else core)
        d_qkv = like(qkv, dtype=dy.dtype)
        return like(dy, self.parameters["W"]), (x, d_qkv, mixed, dy)

    def outline_weight(self, pending: tuple) -> dict[str, MetaArray]:
        x, d_qkv, mixed, dy = pending
        read = {"W": (x, d_qkv), "b": (d_qkv,), "Wo": (mixed, dy), "bo": (dy,)}
        return {name: like(*read[name], shape=array.shape) for name, array in self.parameters.items()}

    def _split(self, qkv: Array) -> Array:
        """A view of the heads of all queries, then of keys, then of values: (batch, these, sequence, d)."""
        batch, sequence, _ = qkv.shape
        return qkv.reshape(batch, sequence, -1, self.mixed // self.heads).swapaxes(1, 2)

    def _turned(self, qkv: Array) -> Array:
        """Those that rotary positions turn: queries and keys."""
        return self._split(qkv)[:, : self.heads + self.kv_heads]

    def _heads(self, qkv: Array) -> tuple[Array, Array, Array]:
        """Queries, keys and values, each (batch, heads, sequence, d); keys and values as often as shared."""
        query, key, value = np.split(self._split(qkv), [self.heads, self.heads + self.kv_heads], axis=1)
        shared = self.heads // self.kv_heads
        if shared == 1:
            return query, key, value
        return query, key.repeat(shared, axis=1), value.repeat(shared, axis=1)

    def _joined(self, gradients: Sequence[Array], shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """The gradients of queries, keys and values as one array; heads that share keys add up."""
        joined = np.empty(shape, dtype)
        own, at = self._split(joined), 0
        for gradient, many in zip(gradients, (self.heads, self.kv_heads, self.kv_heads), strict=True):
            batch, heads, *rest = gradient.shape
            own[:, at : at + many] = gradient.reshape(batch, many, heads // many, *rest).sum(axis=2)
            at += many
        return joined

    def _softmax(self, scores: Array, mask: Array | None) -> Array:
        """Over the last axis of scores (batch, heads, sequence, sequence), in place."""
        scores *= (self.mixed // self.heads) ** -0.5
        self._seen(mask).hide(scores, flash.Tile.whole(scores.shape[2]))
        scores -= scores.max(axis=3, keepdims=True, initial=np.finfo(scores.dtype).min)  # not -inf: none seen
        np.exp(scores, out=scores)
        total = scores.sum(axis=3, keepdims=True)
        total[total == 0] = 1
        scores /= total
        return scores

    def __repr__(self) -> str:
        how = f", kv_heads={self.kv_heads}" * (self.kv_heads < self.heads)
        how += ", causal=True" * self.causal + ", flash=True" * self.flash
        how += f", rotary={self.rotary}" * bool(self.rotary) + ", bias=False" * ("b" not in self.parameters)
        return f"Attention({len(self.parameters['W'])}, {self.heads}{how})"


def _shared(heads: int, kv_heads: int | None) -> int:
    """How many heads of keys and values there are."""
    shared = heads if kv_heads is None else whole("Attention", "kv_heads", kv_heads)
    if heads % shared:
        raise ValueError(f"Attention needs kv_heads that divide {heads} heads {got(kv_heads)}")
    return shared


def _base(rotary: Any, d: int) -> float:
    """The base of rotary positions, for heads of d features."""
    require_in("Attention", "rotary", rotary, 1, inf)
    if d % 2:
        raise ValueError(f"Attention with rotary needs an even number of features for each head {got(d)}")
    return float(rotary)


__all__ = ["Attention"]
