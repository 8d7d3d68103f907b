"""A mixture of experts, on paper: its weights, what it computes and keeps, and what its tokens send.

Each token goes through a few of many networks, those that a router chooses. So the weights are those of all
experts, and the FLOPs those of the chosen. Where the experts are dealt out to devices, every token is sent to
the devices of its experts and back: an all-to-all before the experts, and one behind them.
"""

from fractions import Fraction

import numpy as np
from numpy.typing import DTypeLike

from gpipe_sim.core.layers import Array, Context, Layer, Weights, refused, size
from gpipe_sim.core.meta_array import MetaArray, floated, like
from gpipe_sim.core.work import Product, Work
from gpipe_sim.errors import got, whole


class Experts(Layer):
    """``experts`` SwiGLUs of width ``hidden``, of which a router chooses ``chosen`` for each token.

    It is on paper: it can be profiled and planned with, but not run, so ``rng`` has to be None. Assumed is
    that every expert gets as many tokens as every other, and that none is dropped. The experts are without
    biases, as is the router. It saves x, the router's numbers, a copy of each token for each of its experts,
    what these make of them (as in a ``SwiGLU``), and which experts a token has, 4 bytes each. Shazeer et al.
    2017, arXiv:1701.06538; with SwiGLUs in Mixtral, Jiang et al. 2024, arXiv:2401.04088.
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        *,
        experts: int,
        chosen: int,
        rng: None = None,
        dtype: "DTypeLike" = "float64",
    ):
        features, hidden = size("Experts", "features", features), size("Experts", "hidden", hidden)
        self.experts = size("Experts", "experts", experts)
        self.chosen = whole("Experts", "chosen", chosen, 1, self.experts)
        if rng is not None:
            raise ValueError(f"Experts is on paper, and has no forward on arrays: rng is None {got(rng)}")
        draw = Weights("Experts", None, dtype)
        self.parameters = {
            "R": draw.full(0, features, self.experts),
            "W": draw.full(0, self.experts, features, 2 * hidden),
            "Wo": draw.full(0, self.experts, hidden, features),
        }

    @property
    def active(self) -> int:
        """The weights that a token meets: the router, and its own experts."""
        router, *own = (array.size for array in self.parameters.values())
        return router + sum(own) // self.experts * self.chosen

    def exchanged(self, devices: int) -> Fraction:
        """The bytes that a token sends in a forward, on average, if so many devices share out the experts.

        A copy goes to each of its experts and one comes back; of these, 1/devices stay. The backward sends
        as many again. ValueError unless the devices divide the experts.
        """
        devices = whole("exchanged", "devices", devices)
        if self.experts % devices:
            raise ValueError(f"exchanged needs devices that divide {self.experts} experts {got(devices)}")
        router = self.parameters["R"]
        copies = 2 * self.chosen * len(router) * router.dtype.itemsize
        return Fraction(copies * (devices - 1), devices)

    def forward(self, x: Array, ctx: Context) -> tuple[Array, tuple]:
        raise self._on_paper(ctx)

    def backward_input(self, saved: tuple, dy: Array) -> tuple[Array, tuple]:
        raise self._on_paper(Context())

    def _on_paper(self, ctx: Context) -> ValueError:
        return ValueError(
            f"layer {ctx.layer}, {self!r}, is on paper and cannot run; "
            "profile(...) and predict_memory(...) say what it would hold"
        )

    def outline(self, x: MetaArray, ctx: Context) -> tuple[MetaArray, tuple]:
        _, hidden, features = self.parameters["Wo"].shape
        if x.ndim < 2 or x.shape[-1] != features:
            raise refused(self, ctx, f"(batch, {features}) or (batch, sequence, {features})", x)
        places, weight = x.shape[:-1], self.parameters["W"]

        def each(many: int, dtype: object = None) -> MetaArray:
            """An array of so many numbers for each token and each of its experts."""
            return like(x, weight, shape=(*places, self.chosen, many), dtype=dtype)

        routed = like(floated(x), weight, shape=(*places, self.experts))
        made = each(features), each(2 * hidden), each(hidden), each(features)
        return like(x, weight), (x, routed, each(1, np.int32), *made)

    def outline_input(self, saved: tuple, dy: MetaArray) -> tuple[MetaArray, tuple]:
        x, routed, which, sent, wide, middle, back = saved
        d_routed, d_wide, d_back = (like(each, dy) for each in (routed, wide, back))
        return like(dy, self.parameters["W"], shape=x.shape), (
            x,
            d_routed,
            which,
            sent,
            d_wide,
            middle,
            d_back,
        )

    def outline_weight(self, pending: tuple) -> dict[str, MetaArray]:
        x, d_routed, _, sent, d_wide, middle, d_back = pending
        read = {"R": (x, d_routed), "W": (sent, d_wide), "Wo": (middle, d_back)}
        return {name: like(*read[name], shape=array.shape) for name, array in self.parameters.items()}

    def work(self, x: MetaArray) -> Work:
        """The products of the router and of each expert, with as equally many tokens as can be.

        Kernels beside them: the router's softmax; one that copies tokens to their experts, and one that adds
        up what comes back; and the experts' middle, as in a SwiGLU.
        """
        _, hidden, features = self.parameters["Wo"].shape
        rows, number = x.size // features, like(x, self.parameters["W"]).dtype.itemsize
        copies = rows * self.chosen
        fewer, more = divmod(copies, self.experts)
        shares = ((self.experts - more, fewer), (more, fewer + 1))
        products = [Product(1, rows, self.experts, features)]
        for many, tokens in shares:
            if many and tokens:
                products.append(Product(many, tokens, 2 * hidden, features))
                products.append(Product(many, tokens, features, hidden))
        moved = 2 * rows * self.experts + 2 * (rows + copies) * features + 3 * copies * hidden
        return Work(tuple(products), moved * number, launches=7)

    def __repr__(self) -> str:
        _, hidden, features = self.parameters["Wo"].shape
        return f"Experts({features}, {hidden}, experts={self.experts}, chosen={self.chosen})"


__all__ = ["Experts"]
