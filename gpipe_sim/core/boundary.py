"""A boundary of several arrays: (x, mask, ...). The first is computed on, the others travel along.

A layer that makes a mask gives (y, mask). From then on every layer passes the mask on, also to the next
stage; most never see it, and those that do, attention and a mean over positions, say so (``carries``). Only
the first array has a gradient. So whole numbers and truth values may travel along, but no activations: with
them a skip connection across stages would need a gradient of its own on its way back.
"""

from collections.abc import Callable
from typing import Any

from gpipe_sim.core.layers import Context, Layer
from gpipe_sim.core.meta_array import Some

Boundary = Some | tuple[Some, ...]


def first(boundary: Boundary) -> Some:
    """The array that is computed on."""
    return boundary[0] if isinstance(boundary, tuple) else boundary


def rest(boundary: Boundary) -> tuple[Some, ...]:
    """What travels along."""
    return boundary[1:] if isinstance(boundary, tuple) else ()


def copy_boundary(boundary: Boundary) -> Boundary:
    """Copies of all of its arrays."""
    return tuple(each.copy() for each in boundary) if isinstance(boundary, tuple) else boundary.copy()


def apply_layer(layer: Layer, forward: Callable, x: Boundary, ctx: Context) -> tuple[Boundary, Any]:
    """(output, saved) of a layer's forward, or outline, with what travels along.

    ValueError if the layer sends off an array that would need a gradient.
    """
    if type(x) is tuple and not layer.carries:
        y, saved = forward(x[0], ctx)
        y = (*y, *x[1:]) if type(y) is tuple else (y, *x[1:])
    else:
        y, saved = forward(x, ctx)
    if type(y) is tuple:
        _require_no_gradient(layer, y, ctx)
    return y, saved


def _require_no_gradient(layer: Layer, y: tuple[Some, ...], ctx: Context) -> None:
    for array in y[1:]:
        if array.dtype.kind not in "biu":
            raise ValueError(
                f"layer {ctx.layer}, {layer!r}, lets an array of {array.dtype} travel along, as a skip "
                "connection across stages would. What travels along has no gradient, so it must be whole "
                "numbers or truth values; Residual(...) keeps both ends of a skip connection in one stage"
            )
