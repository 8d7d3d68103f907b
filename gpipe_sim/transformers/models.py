"""Models: plain lists of layers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from gpipe_sim.core.layers import Layer, Linear
from gpipe_sim.errors import listed, require, require_few, require_flags, whole
from gpipe_sim.transformers.blocks import TransformerBlock
from gpipe_sim.transformers.llama import Head, LlamaBlock, RMSNorm
from gpipe_sim.transformers.transformer import Embedding, LayerNorm, Positions

MOST_BLOCKS = 10_000  #: a hundred times those of GPT-3


def gpt(
    blocks: int,
    features: int,
    heads: int,
    *,
    tokens: int,
    sequence: int,
    norm: str = "pre",
    causal: bool = True,
    dropout: float = 0.0,
    flash: bool = False,
    tied: bool = False,
    rng: np.random.Generator | None = None,
    dtype: "DTypeLike" = "float32",
) -> list[Layer]:
    """A language model: embedding, positions, Transformer blocks, LayerNorm, and a linear head over tokens.

    Inputs are whole numbers (batch, at most ``sequence``), outputs (batch, sequence, tokens). The head has
    weights of its own; if ``tied``, those of the embedding, and no biases (``Head``). With ``flash``,
    attention is computed tile by tile. Without ``rng`` the model is on paper: it can be profiled, but not
    run; there ``dtype`` may also be "bfloat16".
    """
    _require_blocks("gpt", blocks)
    require_flags("gpt", tied=tied)
    how: dict[str, Any] = {
        "norm": norm,
        "causal": causal,
        "dropout": dropout,
        "flash": flash,
        "rng": rng,
        "dtype": dtype,
    }
    embedding = Embedding(tokens, features, rng=rng, dtype=dtype)
    ends: dict[str, Any] = {"rng": rng, "dtype": dtype}
    return [
        embedding,
        Positions(sequence, features, rng=rng, dtype=dtype),
        *(TransformerBlock(features, heads, **how) for _ in range(blocks)),
        LayerNorm(features, on_paper=rng is None, dtype=dtype),
        Head(features, tokens, tied_to=embedding, **ends) if tied else Linear(features, tokens, **ends),
    ]


def llama(
    blocks: int,
    features: int,
    heads: int,
    *,
    hidden: int,
    tokens: int,
    kv_heads: int | None = None,
    rotary: float | None = 10_000.0,
    flash: bool = True,
    tied: bool = False,
    rng: np.random.Generator | None = None,
    dtype: "DTypeLike" = "float32",
) -> list[Layer]:
    """A Llama: embedding, blocks of attention and SwiGLU, RMSNorm, and a head over tokens; no biases.

    >>> layers = gp.llama(2, 16, 4, hidden=40, kv_heads=2, tokens=100, rng=np.random.default_rng(0))
    >>> layers[1], layers[-1]
    (LlamaBlock(16, 4, 40, kv_heads=2), Head(16, 100))

    Inputs are whole numbers (batch, sequence), outputs (batch, sequence, tokens). ``hidden`` is the width of
    the SwiGLU; ``kv_heads`` heads of keys and values are shared by all heads; ``rotary`` is the base of the
    positions; if ``tied``, the head has the embedding's weights. Without ``rng`` the model is on paper: it
    can be profiled, but not run; there ``dtype`` may also be "bfloat16". ``known_model`` has Llamas of
    published sizes.
    """
    _require_blocks("llama", blocks)
    require_flags("llama", tied=tied)
    how: dict[str, Any] = {"kv_heads": kv_heads, "rotary": rotary, "flash": flash, "rng": rng, "dtype": dtype}
    embedding = Embedding(tokens, features, rng=rng, dtype=dtype)
    return [
        embedding,
        *(LlamaBlock(features, heads, hidden, **how) for _ in range(blocks)),
        RMSNorm(features, on_paper=rng is None, dtype=dtype),
        Head(features, tokens, tied_to=embedding if tied else None, rng=rng, dtype=dtype),
    ]


def _require_blocks(owner: str, blocks: int) -> None:
    require_few(owner, whole(owner, "blocks", blocks), "blocks", most=MOST_BLOCKS)


def unpacked(layers: Sequence[Layer]) -> list[Layer]:
    """The same layers, but in place of each Transformer block those that it is made of.

    Then ``split`` and ``recompute_plan`` can treat attention and network apart. The weights are the same
    arrays. Dropout draws other entries, because a layer has another number. TypeError for what is no layer.
    """
    for layer in (layers := listed("unpacked", "a list of layers, such as mlp([64, 10])", layers)):
        require("unpacked", layer, Layer, "a list of layers, such as mlp([64, 10])")
    return [
        part
        for layer in layers
        for part in (layer.layers if isinstance(layer, TransformerBlock | LlamaBlock) else [layer])
    ]
