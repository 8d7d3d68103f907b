"""What the layers of a Transformer are on torch: its own functions, on weights named as in NumPy's layers."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpipe_sim.core.layers import Layer
from gpipe_sim.transformers import attention, llama, transformer


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
        self.heads, self.kv_heads, self.rotary = layer.heads, layer.kv_heads, layer.rotary
        self.causal, self.dropout = layer.causal, layer.dropout.rate

    def forward(self, x: Tensor, *along: Tensor) -> Tensor | tuple[Tensor, ...]:
        query, key, value = self._heads(self._linear(x, self.W, "b"))
        rate, seen = self.dropout if self.training else 0.0, None
        if along:
            seen = along[0][:, None, None]
            if self.causal:  # torch takes either of the two
                seen = seen & seen.new_ones(x.shape[1], x.shape[1]).tril()
        mixed = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            seen,
            dropout_p=rate,
            is_causal=self.causal and seen is None,
            enable_gqa=self.kv_heads < self.heads,
        )
        y = self._linear(mixed.transpose(1, 2).flatten(2), self.Wo, "bo")
        return (y, *along) if along else y

    def _linear(self, x: Tensor, weight: Tensor, bias: str) -> Tensor:
        return x @ weight + getattr(self, bias) if hasattr(self, bias) else x @ weight

    def _heads(self, qkv: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, each (batch, heads, sequence, d); with rotary positions turned."""
        many = self.heads, self.kv_heads, self.kv_heads
        query, key, value = qkv.unflatten(2, (sum(many), -1)).transpose(1, 2).split(many, dim=1)
        return (query, key, value) if self.rotary is None else (self._turn(query), self._turn(key), value)

    def _turn(self, x: Tensor) -> Tensor:
        """Pairs of features as complex numbers, as Meta's own code has it."""
        sequence, d = x.shape[2:]
        place = torch.arange(sequence, device=x.device, dtype=torch.float64)
        turns = self.rotary ** (-torch.arange(0, d, 2, device=x.device, dtype=torch.float64) / d)
        angles = torch.outer(place, turns).to(x.dtype)
        turned = torch.view_as_complex(x.unflatten(3, (-1, 2)).contiguous())
        return torch.view_as_real(turned * torch.polar(torch.ones_like(angles), angles)).flatten(3)


class RMSNorm(Weights):
    def __init__(self, layer: llama.RMSNorm):
        super().__init__(layer)
        self.eps = layer.eps

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.g.shape, self.g, self.eps)


class SwiGLU(Weights):
    def forward(self, x: Tensor) -> Tensor:
        gate, up = (x @ self.W).chunk(2, dim=-1)
        return functional.silu(gate) * up @ self.Wo


class Head(Weights):
    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.E)


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
