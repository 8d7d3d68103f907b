"""Padding: which positions of a sequence hold no token, and the mask that says so to every attention."""

from gpipe_sim.core.boundary import Boundary, rest
from gpipe_sim.core.layers import Array, Context, Layer, refused
from gpipe_sim.core.meta_array import MetaArray, Some, like
from gpipe_sim.errors import whole


class PaddingMask(Layer):
    """Gives its input, whole numbers (batch, sequence), and a mask: where they are not ``padding``.

    The mask travels along to every attention, which then sees no padding, and to a mean over the positions.
    It is no output. ValueError for an input of another shape.
    """

    def __init__(self, padding: int = 0):
        super().__init__()
        self.padding = whole("PaddingMask", "padding", padding, low=0)

    def forward(self, x: Array, ctx: Context) -> tuple[tuple[Array, Array], None]:
        self._require(x, ctx)
        return (x, x != self.padding), None

    def _require(self, x: Some, ctx: Context) -> None:
        if x.ndim != 2 or x.dtype.kind not in "iu":
            raise refused(self, ctx, "whole numbers (batch, sequence)", x)

    def backward_input(self, saved: None, dy: Array) -> tuple[Array, None]:
        return dy, None

    def outline(self, x: MetaArray, ctx: Context) -> tuple[tuple[MetaArray, MetaArray], None]:
        self._require(x, ctx)
        return (x, like(x, dtype=bool)), None

    def outline_input(self, saved: None, dy: MetaArray) -> tuple[MetaArray, None]:
        return dy, None

    def __repr__(self) -> str:
        return f"PaddingMask({self.padding})"


def mask_of(layer: Layer, x: Boundary, ctx: Context) -> Some | None:
    """The mask that travels along with x (batch, sequence, ...), or None if nothing does.

    ValueError for one of another shape.
    """
    if not isinstance(x, tuple):
        return None
    mask, wanted = x[1], x[0].shape[:2]
    if mask.shape != wanted or mask.dtype != bool:
        raise refused(layer, ctx, f"a mask of truth values {wanted}, one for each place", mask)
    return mask


def with_along(y: Some, boundary: Boundary) -> Boundary:
    """y, and what travels along with the boundary that it was made of."""
    return (y, *rest(boundary)) if rest(boundary) else y
