"""The layers of a Transformer, on arrays and on paper, and models of known sizes.

Adds to the core's layers: ``Embedding``, ``Positions``, ``LayerNorm``, ``BatchNorm``, ``Dropout``,
``SequenceMean``, ``Attention``, and layers made of layers: ``Residual``, ``Checkpoint``,
``TransformerBlock``. ``mlp``, ``gpt``, ``gpt3_175b`` and ``bert_large`` make models of them; ``unpacked``
takes blocks apart.

Each is a ``core.layers.Layer``: a forward with its gradients beside it, and an outline that says on arrays
without contents what it would make. Lesson 16, "Transformers and giants, in bytes".
"""

from gpipe_sim import signatures
from gpipe_sim.transformers.attention import Attention
from gpipe_sim.transformers.blocks import Checkpoint, Residual, TransformerBlock
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
    "AdamW",
    "Attention",
    "BatchNorm",
    "Checkpoint",
    "Dropout",
    "Embedding",
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

signatures.readable(__name__)
