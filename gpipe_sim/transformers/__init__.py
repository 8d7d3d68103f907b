"""The layers of a Transformer, on arrays and on paper, and models of known sizes.

Adds to the core's layers: ``Embedding``, ``Positions``, ``LayerNorm``, ``BatchNorm``, ``Dropout``,
``SequenceMean``, ``Attention``; a Llama's ``RMSNorm``, ``SwiGLU`` and ``Head``; ``Experts``, on paper alone;
and layers made of layers: ``Residual``, ``Checkpoint``, ``TransformerBlock``, ``LlamaBlock``. ``gpt`` and
``llama`` make models of them, ``known_model`` those of published sizes (``KNOWN``), such as ``gpt3_175b`` and
``bert_large``; ``unpacked`` takes blocks apart.

Each is a ``core.layers.Layer``: a forward with its gradients beside it, and an outline that says on arrays
without contents what it would make. Lesson 16, "Transformers and giants, in bytes".
"""

from gpipe_sim.signatures import readable
from gpipe_sim.transformers.attention import Attention
from gpipe_sim.transformers.blocks import Checkpoint, Residual, TransformerBlock
from gpipe_sim.transformers.experts import Experts
from gpipe_sim.transformers.known import KNOWN
from gpipe_sim.transformers.llama import Head, LlamaBlock, RMSNorm, SwiGLU
from gpipe_sim.transformers.models import unpacked
from gpipe_sim.transformers.optimizers import AdamW, RMSProp
from gpipe_sim.transformers.padding import PaddingMask
from gpipe_sim.transformers.transformer import (
    BatchNorm,
    Dropout,
    Embedding,
    LayerNorm,
    Positions,
    SequenceMean,
)

__all__ = [
    "KNOWN",
    "AdamW",
    "Attention",
    "BatchNorm",
    "Checkpoint",
    "Dropout",
    "Embedding",
    "Experts",
    "Head",
    "LayerNorm",
    "LlamaBlock",
    "PaddingMask",
    "Positions",
    "RMSNorm",
    "RMSProp",
    "Residual",
    "SequenceMean",
    "SwiGLU",
    "TransformerBlock",
    "unpacked",
]

readable(__name__)
