"""What the layers of a Transformer are on torch: its own functions, on weights named as in NumPy's layers."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpipe_sim.core.layers import Layer
from gpipe_sim.transformers import attention, transformer


class Weights(nn.Module):
    """A module with a copy of each of a layer's parameters, under its name."""

    def __init__(self, layer: Layer):
        super().__init__()
        self.called = repr(layer)
        for name, array in layer.parameters.items():
            self.register_parameter(name, nn.Parameter(torch.tensor(array)))

    def refusal(self, takes: str, x: Tensor) -> ValueError:
        return ValueError(f"{self.called} takes {takes}, got {tuple(x.shape)} of {x.dtype}")


class Embedding(Weights):
    """ValueError for a number that is no token.

    On a GPU they are not looked at, because every forward would wait for the GPU: there an unknown token is
    torch's own assertion.
    """

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim < 2 or x.is_floating_point() or x.is_complex() or x.dtype is torch.bool:
            raise self.refusal("whole numbers of shape (batch, sequence)", x)
        x = x.long()  # torch itself takes int32 and int64 only
        if x.device.type == "cpu" and x.numel():
            low, high = (one.item() for one in torch.aminmax(x))
            if low < 0 or high >= len(self.E):
                raise ValueError(
                    f"{self.called} takes tokens from 0 to {len(self.E) - 1}, got {low} to {high}"
                )
        return functional.embedding(x, self.E)


class Positions(Weights):
    """ValueError for a sequence longer than there are places."""

    def forward(self, x: Tensor) -> Tensor:
        longest, features = self.P.shape
        if x.ndim != 3 or x.shape[1] > longest or x.shape[2] != features:
            raise self.refusal(f"(batch, at most {longest}, {features})", x)
        return x + self.P[: x.shape[1]]


class LayerNorm(Weights):
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


class Chain(nn.Sequential):
    """Modules one after another; what travels along goes past those that do not carry it (``boundary``)."""

    carries = True

    def forward(self, *given: Tensor) -> Tensor | tuple[Tensor, ...]:
        for module in self:
            carries = getattr(module, "carries", False)
            made = module(*given) if carries else (module(given[0]), *given[1:])
            given = made if isinstance(made, tuple) else (made,)
        return given if len(given) > 1 else given[0]


class PaddingMask(nn.Module):
    carries = True

    def __init__(self, padding: int):
        super().__init__()
        self.padding = padding

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x != self.padding


class Attention(Weights):
    """Dropout draws other entries than NumPy's."""

    carries = True

    def __init__(self, layer: attention.Attention):
        super().__init__(layer)
        self.heads, self.causal, self.dropout = layer.heads, layer.causal, layer.dropout.rate

    def forward(self, x: Tensor, *along: Tensor) -> Tensor | tuple[Tensor, ...]:
        three = (x @ self.W + self.b).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        rate, seen = self.dropout if self.training else 0.0, None
        if along:
            seen = along[0][:, None, None]
            if self.causal:  # torch takes either of the two
                seen = seen & seen.new_ones(x.shape[1], x.shape[1]).tril()
        causal = self.causal and seen is None
        mixed = functional.scaled_dot_product_attention(*three, seen, dropout_p=rate, is_causal=causal)
        y = mixed.transpose(1, 2).flatten(2) @ self.Wo + self.bo
        return (y, *along) if along else y


class SequenceMean(nn.Module):
    carries = True

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            return x.mean(dim=1)
        return (x * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)


class Residual(Chain):
    def forward(self, x: Tensor, *along: Tensor) -> Tensor | tuple[Tensor, ...]:
        made = super().forward(x, *along)
        change = made[0] if isinstance(made, tuple) else made
        return (x + change, *along) if along else x + change
