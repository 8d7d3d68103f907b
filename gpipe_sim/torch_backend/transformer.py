"""What the layers of a Transformer are on torch: its own functions, on weights named as in NumPy's layers."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpipe_sim.nn import transformer
from gpipe_sim.nn.layers import Layer


class _Weights(nn.Module):
    """A module with a copy of each of a layer's parameters, under its name."""

    def __init__(self, layer: Layer):
        super().__init__()
        for name, array in layer.parameters.items():
            self.register_parameter(name, nn.Parameter(torch.tensor(array)))


class Embedding(_Weights):
    def forward(self, x: Tensor) -> Tensor:
        return functional.embedding(x.long(), self.E)  # torch itself takes int32 and int64 only


class Positions(_Weights):
    def forward(self, x: Tensor) -> Tensor:
        return x + self.P[: x.shape[1]]


class LayerNorm(_Weights):
    def __init__(self, layer: transformer.LayerNorm):
        super().__init__(layer)
        self.eps = layer.eps

    def forward(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, self.g.shape, self.g, self.b, self.eps)


class BatchNorm(LayerNorm):
    """Features are last here, where torch wants them second; no running statistics."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, -2)
        return functional.batch_norm(rows, None, None, self.g, self.b, training=True, eps=self.eps).view_as(x)


class Attention(_Weights):
    """Dropout draws other entries than NumPy's."""

    def __init__(self, layer: transformer.Attention):
        super().__init__(layer)
        self.heads, self.causal, self.dropout = layer.heads, layer.causal, layer.dropout.rate

    def forward(self, x: Tensor) -> Tensor:
        three = (x @ self.W + self.b).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        rate = self.dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(*three, dropout_p=rate, is_causal=self.causal)
        return mixed.transpose(1, 2).flatten(2) @ self.Wo + self.bo


class SequenceMean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=1)


class Residual(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)
