"""Models: plain lists of layers."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from gpipe_sim.core.layers import Layer, Linear
from gpipe_sim.errors import listed, require, require_few, whole
from gpipe_sim.transformers.blocks import TransformerBlock
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
    rng: np.random.Generator | None = None,
    dtype: "DTypeLike" = "float32",
) -> list[Layer]:
    """A language model: embedding, positions, Transformer blocks, LayerNorm, and a linear head over tokens.

    Inputs are whole numbers (batch, at most ``sequence``), outputs (batch, sequence, tokens). The head has
    weights of its own. Without ``rng`` the model is on paper: it can be profiled, but not run.
    """
    blocks = whole("gpt", "blocks", blocks)
    require_few("gpt", blocks, "blocks", most=MOST_BLOCKS)
    return [
        Embedding(tokens, features, rng=rng, dtype=dtype),
        Positions(sequence, features, rng=rng, dtype=dtype),
        *(
            TransformerBlock(features, heads, norm=norm, causal=causal, dropout=dropout, rng=rng, dtype=dtype)
            for _ in range(blocks)
        ),
        LayerNorm(features, on_paper=rng is None, dtype=dtype),
        Linear(features, tokens, rng=rng, dtype=dtype),
    ]


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
        for part in (layer.layers if isinstance(layer, TransformerBlock) else [layer])
    ]


def gpt3_175b() -> list[Layer]:
    """GPT-3 on paper, in 2-byte numbers: 96 blocks, 12,288 features, 96 heads, 2,048 positions.

    >>> layers = gp.gpt3_175b()
    >>> len(layers), layers[2]
    (100, TransformerBlock(12288, 96, norm='pre', causal=True))
    >>> f"{sum(array.size for layer in layers for array in layer.parameters.values()):,}"
    '175,245,043,712'

    Brown et al. 2020, arXiv:2005.14165; the vocabulary is padded to 51,200 as in arXiv:2104.04473.
    """
    return gpt(96, 12_288, 96, tokens=51_200, sequence=2_048, dropout=0.1, dtype=np.float16)


def bert_large() -> list[Layer]:
    """BERT-large on paper, in 2-byte numbers: 24 blocks, 1,024 features, 16 heads, 512 positions.

    >>> layers = gp.bert_large()
    >>> f"{sum(array.size for layer in layers for array in layer.parameters.values()):,} weights"
    '365,375,290 weights'

    Devlin et al. 2018, arXiv:1810.04805. Segment embeddings and the pooler are left out.
    """
    return gpt(
        24, 1_024, 16, tokens=30_522, sequence=512, norm="post", causal=False, dropout=0.1, dtype=np.float16
    )
