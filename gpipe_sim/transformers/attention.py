"""Attention: every position of a sequence takes a weighted mean of all positions that it may see.

It saves queries, keys and values as the one array that they were made as, not as three views of it.
"""

from copy import copy

import numpy as np
from numpy.typing import DTypeLike

from gpipe_sim.core.boundary import Boundary, first
from gpipe_sim.core.layers import Context, Layer, Weights, by_row, refused, size
from gpipe_sim.core.meta_array import MetaArray, Some, like
from gpipe_sim.core.work import Product, Work
from gpipe_sim.errors import got, require_flags, whole
from gpipe_sim.transformers.inside_layers import look_inside
from gpipe_sim.transformers.padding import mask_of, with_along
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
    recompute. Korthikanti et al. 2022, arXiv:2205.05198.
    """

    carries = True

    def __init__(
        self,
        features: int,
        heads: int,
        *,
        causal: bool = False,
        dropout: float = 0.0,
        recompute: bool = False,
        rng: np.random.Generator | None,
        dtype: "DTypeLike" = "float64",
    ):
        features, heads = size("Attention", "features", features), whole("Attention", "heads", heads)
        if features % heads:
            raise ValueError(f"Attention needs heads that divide {features} features {got(heads)}")
        require_flags("Attention", causal=causal, recompute=recompute)
        self.heads, self.causal, self.dropout = heads, bool(causal), Dropout(dropout)
        self.recompute = bool(recompute)
        draw, scale = Weights("Attention", rng, dtype), features**-0.5
        self.parameters = {
            "W": draw.normal(scale, features, 3 * features),
            "b": draw.full(0, 3 * features),
            "Wo": draw.normal(scale, features, features),
            "bo": draw.full(0, features),
        }

    def forward(self, boundary: Boundary, ctx: Context) -> tuple[Boundary, tuple]:
        x, mask = first(boundary), self._mask(boundary, ctx)
        qkv = x @ self.parameters["W"]
        qkv += self.parameters["b"]
        core = self._attention_weights(qkv, ctx, mask)
        mixed = (core[2] @ self._heads(qkv)[2]).swapaxes(1, 2).copy()
        y = mixed.reshape(*x.shape[:2], self.mixed) @ self.parameters["Wo"]
        y += self.parameters["bo"]
        return with_along(y, boundary), (x, qkv, (ctx, mask) if self.recompute else core, mixed)

    @property
    def mixed(self) -> int:
        """The features of all heads together: as many as x has, unless the heads are dealt out to devices."""
        return len(self.parameters["Wo"])

    def _mask(self, boundary: Boundary, ctx: Context) -> Some | None:
        """What travels along, if anything does, where both are as they must be."""
        x, features = first(boundary), len(self.parameters["W"])
        if x.ndim != 3 or x.shape[2] != features or not x.shape[1]:
            raise refused(self, ctx, f"(batch, sequence, {features})", x)
        return mask_of(self, boundary, ctx)

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
        weights, stays, dropped = self._attention_weights(qkv, *core) if self.recompute else core
        look_inside(saved, dy, weights, stays, dropped)
        query, key, value = self._heads(qkv)
        d_mixed = (dy @ self.parameters["Wo"].T).reshape(mixed.shape).swapaxes(1, 2)
        d_weights, _ = self.dropout.backward_input(stays, d_mixed @ value.swapaxes(2, 3))
        d_scores = weights * (d_weights - (d_weights * weights).sum(axis=3, keepdims=True))
        d_scores *= query.shape[3] ** -0.5
        d_qkv = np.empty(qkv.shape, dy.dtype)
        d_query, d_key, d_value = self._heads(d_qkv)
        d_query[:] = d_scores @ key
        d_key[:] = d_scores.swapaxes(2, 3) @ query
        d_value[:] = dropped.swapaxes(2, 3) @ d_mixed
        return d_qkv @ self.parameters["W"].T, (x, d_qkv, mixed, dy)

    def backward_weight(self, pending: tuple) -> dict[str, Array]:
        x, d_qkv, mixed, dy = pending
        return {
            "W": by_row(x).T @ by_row(d_qkv),
            "b": by_row(d_qkv).sum(axis=0),
            "Wo": mixed.reshape(-1, self.mixed).T @ by_row(dy),
            "bo": by_row(dy).sum(axis=0),
        }

    def outline(self, boundary: Boundary, ctx: Context) -> tuple[Boundary, tuple]:
        x, mask = first(boundary), self._mask(boundary, ctx)
        batch, sequence, _ = x.shape
        qkv = like(x, self.parameters["W"], shape=(batch, sequence, 3 * self.mixed))
        mixed = like(qkv, shape=(batch, sequence, self.heads, self.mixed // self.heads))
        core = (ctx, mask) if self.recompute else self._outlined_weights(qkv, ctx)
        return with_along(like(x, qkv), boundary), (x, qkv, core, mixed)

    def _outlined_weights(
        self, qkv: MetaArray, ctx: Context
    ) -> tuple[MetaArray, MetaArray | None, MetaArray]:
        batch, sequence, _ = qkv.shape
        weights = like(qkv, shape=(batch, self.heads, sequence, sequence))
        dropped, stays = self.dropout.outline(weights, ctx)
        return weights, stays, dropped

    def work(self, x: MetaArray) -> Work:
        """What the values give is saved, so with ``recompute`` the products with them are not done again.

        Softmax is one kernel, with its mask and scale, where samples times heads are a multiple of 4, as in
        Megatron-LM; elsewhere each of these reads and writes all scores.
        """
        batch, sequence, features = x.shape
        rows, each = batch * sequence, batch * self.heads
        number = like(x, self.parameters["W"]).dtype.itemsize
        scores = Product(each, sequence, sequence, self.mixed // self.heads, weight=False)
        fused = each % FUSED == 0
        drop = (2 * number + 1) * bool(self.dropout.rate)  # a byte says what dropout keeps
        core = Work((scores,), each * sequence**2 * ((2 if fused else 8) * number + drop), 2 if fused else 10)
        return Work(
            (
                Product(1, rows, 3 * self.mixed, features),
                *core.products,
                scores._replace(n=scores.k, k=sequence),
                Product(1, rows, features, self.mixed),
            ),
            core.moved,
            core.launches + 3 + bool(drop),
            core if self.recompute else None,
        )

    def selective(self) -> "Attention | None":
        if self.recompute:
            return None
        other = copy(self)
        other.recompute = True
        return other

    def outline_input(self, saved: tuple, dy: MetaArray) -> tuple[MetaArray, tuple]:
        x, qkv, core, mixed = saved
        look_inside(saved, dy, self._outlined_weights(qkv, core[0]) if self.recompute else core)
        d_qkv = like(qkv, dtype=dy.dtype)
        return like(dy, self.parameters["W"]), (x, d_qkv, mixed, dy)

    def outline_weight(self, pending: tuple) -> dict[str, MetaArray]:
        x, d_qkv, mixed, dy = pending
        read = {"W": (x, d_qkv), "b": (d_qkv,), "Wo": (mixed, dy), "bo": (dy,)}
        return {name: like(*read[name], shape=array.shape) for name, array in self.parameters.items()}

    def _heads(self, qkv: Array) -> Array:
        """Views of queries, keys and values, each (batch, heads, sequence, d)."""
        batch, sequence, three = qkv.shape
        return qkv.reshape(batch, sequence, 3, self.heads, three // 3 // self.heads).transpose(2, 0, 3, 1, 4)

    def _softmax(self, scores: Array, mask: Array | None) -> Array:
        """Over the last axis of scores (batch, heads, sequence, sequence), in place."""
        scores *= (self.mixed // self.heads) ** -0.5
        if self.causal:
            scores[..., np.triu(np.ones(scores.shape[2:], bool), k=1)] = -np.inf
        if mask is not None:
            np.copyto(scores, -np.inf, where=~mask[:, None, None])
        scores -= scores.max(axis=3, keepdims=True, initial=np.finfo(scores.dtype).min)  # not -inf: none seen
        np.exp(scores, out=scores)
        total = scores.sum(axis=3, keepdims=True)
        total[total == 0] = 1
        scores /= total
        return scores

    def __repr__(self) -> str:
        return f"Attention({len(self.parameters['W'])}, {self.heads}{', causal=True' * self.causal})"


__all__ = ["Attention"]
