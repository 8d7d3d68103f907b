"""Models of published sizes, by name: on paper, in 2-byte numbers."""

from typing import Any, NamedTuple

import numpy as np

from gpipe_sim.core.layers import Layer
from gpipe_sim.errors import one_of
from gpipe_sim.transformers.models import gpt, llama


class GPT(NamedTuple):
    """The sizes of a GPT; ``sequence`` is the longest text that it takes."""

    blocks: int
    features: int
    heads: int
    source: str
    tokens: int = 51_200  #: of GPT-2, padded to a multiple of 128 x 8
    sequence: int = 2_048
    norm: str = "pre"

    def layers(self) -> list[Layer]:
        """The model."""
        return gpt(
            self.blocks,
            self.features,
            self.heads,
            tokens=self.tokens,
            sequence=self.sequence,
            norm=self.norm,
            causal=self.norm == "pre",
            dropout=0.1,
            dtype=np.float16,
        )


class Llama(NamedTuple):
    """The sizes of a Llama; ``sequence`` is the length of text that it was trained on."""

    blocks: int
    features: int
    hidden: int
    heads: int
    kv_heads: int
    source: str
    tokens: int = 128_256
    sequence: int = 8_192
    rotary: float = 500_000.0

    def layers(self) -> list[Layer]:
        """The model."""
        return llama(
            self.blocks,
            self.features,
            self.heads,
            hidden=self.hidden,
            tokens=self.tokens,
            kv_heads=self.kv_heads,
            rotary=self.rotary,
            dtype="bfloat16",
        )


MEGATRON, SELECTIVE = "arXiv:2104.04473, table 1", "arXiv:2205.05198, table 3"
GPT3, BERT = "arXiv:2005.14165", "arXiv:1810.04805"
LLAMA2, LLAMA3 = "arXiv:2307.09288", "arXiv:2407.21783"
OLDER: dict[str, Any] = {"tokens": 32_000, "sequence": 4_096, "rotary": 10_000.0}  #: a Llama 2

KNOWN: dict[str, GPT | Llama] = {
    "bert-large": GPT(24, 1_024, 16, BERT, tokens=30_522, sequence=512, norm="post"),
    "gpt3-175b": GPT(96, 12_288, 96, GPT3),
    "gpt-1.7b": GPT(24, 2_304, 24, MEGATRON),
    "gpt-3.6b": GPT(30, 3_072, 32, MEGATRON),
    "gpt-7.5b": GPT(36, 4_096, 32, MEGATRON),
    "gpt-18b": GPT(40, 6_144, 48, MEGATRON),
    "gpt-39b": GPT(48, 8_192, 64, MEGATRON),
    "gpt-76b": GPT(60, 10_240, 80, MEGATRON),
    "gpt-146b": GPT(80, 12_288, 96, MEGATRON),
    "gpt-310b": GPT(96, 16_384, 128, MEGATRON),
    "gpt-22b": GPT(48, 6_144, 64, SELECTIVE),
    "gpt-530b": GPT(105, 20_480, 128, SELECTIVE),
    "gpt-1t": GPT(128, 25_600, 160, SELECTIVE),
    "llama2-7b": Llama(32, 4_096, 11_008, 32, 32, LLAMA2, **OLDER),
    "llama2-13b": Llama(40, 5_120, 13_824, 40, 40, LLAMA2, **OLDER),
    "llama2-70b": Llama(80, 8_192, 28_672, 64, 8, LLAMA2, **OLDER),
    "llama3-8b": Llama(32, 4_096, 14_336, 32, 8, LLAMA3),
    "llama3-70b": Llama(80, 8_192, 28_672, 64, 8, LLAMA3),
    "llama3-405b": Llama(126, 16_384, 53_248, 128, 8, LLAMA3),
}


def known_model(name: str) -> list[Layer]:
    """A model of a published size, on paper: "llama3-70b", "gpt3-175b", "bert-large", ...

    >>> layers = gp.known_model("llama2-7b")
    >>> len(layers), layers[1]
    (35, LlamaBlock(4096, 32, 11008))
    >>> f"{sum(array.size for layer in layers for array in layer.parameters.values()):,}"
    '6,738,415,616'

    GPTs are in float16, with dropout of 0.1, and a head of their own over a vocabulary padded to 51,200;
    BERT's segments and pooler are left out. Llamas are in bfloat16. ``transformers.KNOWN`` has the sizes of
    each, with the longest text and the source; ``gpt`` and ``llama`` make models of your own. ValueError,
    with all names, for another one.
    """
    one_of("known_model", "name", name, KNOWN)
    return KNOWN[name].layers()


def gpt3_175b() -> list[Layer]:
    """GPT-3 on paper, in 2-byte numbers: 96 blocks, 12,288 features, 96 heads, 2,048 positions.

    >>> layers = gp.gpt3_175b()
    >>> len(layers), layers[2]
    (100, TransformerBlock(12288, 96, norm='pre', causal=True))
    >>> f"{sum(array.size for layer in layers for array in layer.parameters.values()):,}"
    '175,245,043,712'

    Brown et al. 2020, arXiv:2005.14165; the vocabulary is padded to 51,200 as in arXiv:2104.04473.
    """
    return known_model("gpt3-175b")


def bert_large() -> list[Layer]:
    """BERT-large on paper, in 2-byte numbers: 24 blocks, 1,024 features, 16 heads, 512 positions.

    >>> layers = gp.bert_large()
    >>> f"{sum(array.size for layer in layers for array in layer.parameters.values()):,} weights"
    '365,375,290 weights'

    Devlin et al. 2018, arXiv:1810.04805. Segment embeddings and the pooler are left out.
    """
    return known_model("bert-large")
