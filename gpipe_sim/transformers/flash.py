"""Attention that never has an array of shape (sequence, sequence): it goes over it tile by tile.

    keys     0 1  2 3  4        For its queries it keeps, from tile to tile, the largest score so far and the
    0 1      [  ]               sum of the exponentials; when a larger score comes, what was summed before
    2 3      [  ] [  ]          shrinks. With a causal mask, tiles in which nothing is seen are left out, as
    4        [  ] [  ] []       here.

The backward computes each tile of scores again. For it the forward leaves one number for each query: the
logarithm of its sum. The results are those of the plain softmax but for rounding. Milakov and Gimelshein
2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

Array = np.ndarray


class Tile(NamedTuple):
    """Some queries and some keys."""

    rows: slice
    columns: slice

    @classmethod
    def whole(cls, sequence: int) -> "Tile":
        """All of them."""
        return cls(slice(0, sequence), slice(0, sequence))

    @property
    def shape(self) -> tuple[int, int]:
        """How many queries, and how many keys."""
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start


@lru_cache(maxsize=64)
def tiles(sequence: int, side: int, causal: bool) -> tuple[Tile, ...]:
    """Those that are computed, row by row; the last ones may be smaller."""
    stretches = [slice(start, min(start + side, sequence)) for start in range(0, sequence, side)]
    return tuple(
        Tile(rows, columns)
        for i, rows in enumerate(stretches)
        for columns in (stretches[: i + 1] if causal else stretches)
    )


class Seen(NamedTuple):
    """Which keys a query sees, and in tiles of how many queries and keys this is gone over."""

    causal: bool
    mask: Array | None  # (batch, sequence): True for the keys that are seen
    side: int

    def hide(self, scores: Array, tile: Tile) -> Array:
        """The scores of a tile (batch, heads, queries, keys), with -inf in place where nothing is seen."""
        rows, columns = tile
        if self.causal:
            later = np.triu(np.ones(scores.shape[2:], bool), k=1 + rows.start - columns.start)
            scores[..., later] = -np.inf
        if self.mask is not None:
            np.copyto(scores, -np.inf, where=~self.mask[:, None, None, columns])
        return scores


def forward(query: Array, key: Array, value: Array, seen: Seen) -> tuple[Array, Array]:
    """(what each query mixes of the values, the logarithm of its sum).

    Queries, keys and values are (batch, heads, sequence, d); the logarithm is (batch, heads, sequence, 1).
    """
    mixed, total = np.zeros(query.shape, query.dtype), np.zeros((*query.shape[:3], 1), query.dtype)
    largest = np.full_like(total, np.finfo(query.dtype).min)  # not -inf: a query may see nothing
    for (rows, columns), scores in _scores(query, key, seen):
        before = largest[:, :, rows]
        now = np.maximum(before, scores.max(axis=3, keepdims=True))
        shrink, scores = np.exp(before - now), np.exp(scores - now)
        mixed[:, :, rows] = shrink * mixed[:, :, rows] + scores @ value[:, :, columns]
        total[:, :, rows] = shrink * total[:, :, rows] + scores.sum(axis=3, keepdims=True)
        largest[:, :, rows] = now
    total[total == 0] = 1
    return mixed / total, largest + np.log(total)


def backward(
    arrays: tuple[Array, Array, Array], mixed: Array, log: Array, d_mixed: Array, seen: Seen
) -> tuple[Array, Array, Array]:
    """The gradients of (query, key, value), from what the forward gave and the gradient of its first."""
    query, key, value = arrays
    d_query, d_key, d_value = (np.zeros(array.shape, d_mixed.dtype) for array in arrays)
    along = (d_mixed * mixed).sum(axis=3, keepdims=True)
    for (rows, columns), scores in _scores(query, key, seen):
        weights, d_own = np.exp(scores - log[:, :, rows]), d_mixed[:, :, rows]
        d_value[:, :, columns] += weights.swapaxes(2, 3) @ d_own
        d_scores = weights * (d_own @ value[:, :, columns].swapaxes(2, 3) - along[:, :, rows])
        d_scores *= query.shape[3] ** -0.5
        d_query[:, :, rows] += d_scores @ key[:, :, columns]
        d_key[:, :, columns] += d_scores.swapaxes(2, 3) @ query[:, :, rows]
    return d_query, d_key, d_value


def _scores(query: Array, key: Array, seen: Seen) -> Iterator[tuple[Tile, Array]]:
    """The scores of each tile."""
    for tile in tiles(query.shape[2], seen.side, seen.causal):
        scores = query[:, :, tile.rows] @ key[:, :, tile.columns].swapaxes(2, 3)
        scores *= query.shape[3] ** -0.5
        yield tile, seen.hide(scores, tile)
