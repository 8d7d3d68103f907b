"""The laws that every layer keeps; the rest of the package relies on them, also for a layer of yours."""

from collections.abc import Iterable, Iterator
from numbers import Number
from typing import Any

import numpy as np

from gpipe_sim.core.layers import Array, Context, Layer
from gpipe_sim.core.meta_array import ARRAYS, StandIn, root_of
from gpipe_sim.errors import numbers, require, require_flags

H = 1e-4  #: how far apart the points are from which a difference is taken
_PLAIN = (*ARRAYS, Number, np.generic, np.dtype, str, bytes, slice, range, type)  #: what may be kept
CLOSE = 1e-6  #: how far, relative to the largest entry, a gradient may be from differences


def check_layer(layer: Layer, x: Array, *, independent: bool = True) -> None:
    """ValueError if a layer breaks a law on the input ``x``, (batch, ...) with at least two samples.

    Outputs are contiguous. What is saved is the input, the output, or owns its bytes; it is made anew for
    each microbatch, in arrays that the meter finds. Nothing that it is given changes. A forward that is run
    again gives the same. Gradients have the shapes of what they are gradients of; those of weights are new
    arrays. In float64 they are what differences give. ``outline`` says what arrays there are, each of so many
    bytes for a sample and so many besides; NotImplementedError if it is missing. Samples do not see each
    other, unless ``independent`` is False, as for BatchNorm.
    """
    require("check_layer", layer, Layer, "a layer")
    require("check_layer", x, np.ndarray, "an array of inputs")
    numbers("check_layer", "x", x)
    require_flags("check_layer", independent=independent)
    if x.ndim < 2 or len(x) < 2 or not x.size:
        raise ValueError(f"check_layer needs at least two samples, (batch, ...) (got {x.shape})")
    if not isinstance(getattr(layer, "parameters", None), dict):
        raise ValueError(f"{layer!r} has no parameters; begin its __init__ with super().__init__()")
    run = _Run(layer, x)
    for law in (
        _found,
        _contiguous,
        _owned,
        _fresh,
        _untouched,
        _repeated,
        _anew,
        _shaped,
        _outlined,
        _linear,
    ):
        _require(layer, law(run))
    if independent:
        _require(layer, _independent(run))
    if x.dtype == np.float64:
        _require(layer, _differences(run))


def _require(layer: Layer, broken: str | None) -> None:
    if broken:
        raise ValueError(f"{layer!r} {broken}")


class _Run:
    """One forward and backward, with copies of what went in."""

    def __init__(self, layer: Layer, x: Array):
        self.layer, self.x, self.ctx = layer, (x := x.copy()), Context()
        self.before = [array.copy() for array in (x, *layer.parameters.values())]
        self.y, self.saved = _pair(layer, "forward", layer.forward(x, self.ctx))
        self.dy = np.random.default_rng(0).normal(size=self.y.shape).astype(self.y.dtype)
        self.given = self.dy.copy()
        self.dx, self.pending = _pair(layer, "backward_input", layer.backward_input(self.saved, self.dy))
        self.gradients = layer.backward_weight(self.pending) if layer.parameters else {}


def _pair(layer: Layer, method: str, made: Any) -> tuple[Array, Any]:
    if isinstance(made, tuple) and made and isinstance(made[0], tuple):
        raise ValueError(f"{layer!r} gives several arrays from {method}; check_layer takes a layer of one")
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], np.ndarray)):
        raise ValueError(f"{layer!r} must give from {method} an array and what it keeps, (y, saved)")
    return made


def _found(run: _Run) -> str | None:
    for value in _leaves(run.saved, run.pending):
        if not (value is None or isinstance(value, _PLAIN)):
            return (
                f"keeps a {type(value).__name__}, in which the meter finds no arrays; "
                "keep arrays, or tuples, lists or dicts of them"
            )
    return None


def _contiguous(run: _Run) -> str | None:
    for name, array in (("an output", run.y), ("an input gradient", run.dx)):
        if not array.flags.c_contiguous:
            return f"gives {name} that is not contiguous; np.ascontiguousarray makes it so"
    return None


def _owned(run: _Run) -> str | None:
    for array in arrays(run.saved, run.pending):
        if not (array is run.x or array is run.y or array is run.dy or array.base is None):
            return (
                f"keeps a view of shape {array.shape} of a larger array, which stays in memory as a whole; "
                "keep the input, the output, or a copy"
            )
    return None


def _fresh(run: _Run) -> str | None:
    there = [run.x, run.y, run.dx, run.dy, *run.layer.parameters.values(), *arrays(run.saved, run.pending)]
    for name, gradient in run.gradients.items():
        if any(np.may_share_memory(gradient, array) for array in there):
            return f"gives a gradient of {name} that is no new array; later microbatches are added to it"
        there.append(gradient)
    return None


def _untouched(run: _Run) -> str | None:
    now = run.x, *run.layer.parameters.values()
    if not all(np.array_equal(a, b) for a, b in zip(run.before, now, strict=True)):
        return "changes its input or its weights; make new arrays instead"
    if not np.array_equal(run.given, run.dy):
        return "changes the gradient that it is given; make a new array instead"
    return None


def _repeated(run: _Run) -> str | None:
    again, _ = run.layer.forward(run.x, run.ctx)
    if not np.array_equal(again, run.y):
        return "gives another output when its forward is run again; draw from ctx.rng() only"
    return None


def _anew(run: _Run) -> str | None:
    y, saved = run.layer.forward(run.x, run.ctx)
    dx, pending = run.layer.backward_input(saved, run.dy)
    given = run.x, run.dy
    before = [each for each in arrays(run.y, run.saved, run.dx, run.pending) if _is_none_of(given, each)]
    for array in arrays(y, saved, dx, pending):
        if not _is_none_of(before, array):
            return (
                f"keeps or gives an array of shape {array.shape} that is the same for every microbatch; "
                "one that is always there, such as a weight, is read in the backward and not saved"
            )
    return None


def _is_none_of(arrays: Iterable[Array], array: Array) -> bool:
    return not any(each is array for each in arrays)


def _shaped(run: _Run) -> str | None:
    if len(run.y) != len(run.x):
        return f"gives {len(run.y)} outputs for {len(run.x)} samples"
    if run.dx.shape != run.x.shape:
        return f"gives an input gradient of shape {run.dx.shape} for an input of {run.x.shape}"
    found = {name: array.shape for name, array in run.gradients.items()}
    if found != (wanted := {name: array.shape for name, array in run.layer.parameters.items()}):
        return f"gives weight gradients of shapes {found} for weights of {wanted}"
    return None


def _outlined(run: _Run) -> str | None:
    said = described(*_outlines(run, len(run.x)))
    made = described(run.x, run.y, run.saved, run.dy, run.dx, run.pending, run.gradients)
    if said != made:
        return f"says in its outlines that there will be {said}, and makes {made}"
    return None


def _outlines(run: _Run, samples: int) -> tuple:
    """(x, y, saved, dy, dx, pending, gradients) of so many samples, on paper."""
    x, dy = (StandIn((samples, *array.shape[1:]), array.dtype) for array in (run.x, run.dy))
    y, saved = run.layer.outline(x, run.ctx)
    dx, pending = run.layer.outline_input(saved, dy)
    gradients = run.layer.outline_weight(pending) if run.layer.parameters else {}
    return x, y, saved, dy, dx, pending, gradients


def _linear(run: _Run) -> str | None:
    each = zip(*(arrays(*_outlines(run, samples)) for samples in (1, 2, 4)), strict=True)
    for one, two, four in each:
        if four.nbytes - two.nbytes != 2 * (two.nbytes - one.nbytes):
            return (
                f"makes an array of {one.shape} for one sample, {two.shape} for two and {four.shape} for "
                "four; a profile has a number of bytes for each sample, and one besides"
            )
    return None


def _independent(run: _Run) -> str | None:
    evaluating = Context(training=False)
    both, _ = run.layer.forward(run.x, evaluating)
    first, _ = run.layer.forward(run.x[:1], evaluating)
    if not np.abs(first - both[:1]).max() <= _rounding(both) * np.abs(both).max():
        return (
            "gives sample 0 another output when the others leave its microbatch; over which axis does it "
            "mix? (independent=False allows it)"
        )
    return None


def _rounding(array: Array) -> float:
    """By how much of the largest entry a sum in another order may differ."""
    return float(np.finfo(array.dtype).eps ** 0.6) if array.dtype.kind == "f" else 0.0


def _differences(run: _Run) -> str | None:
    found = {"its input": (run.dx, run.x)}
    found |= {name: (run.gradients[name], array) for name, array in run.layer.parameters.items()}
    for name, (gradient, array) in found.items():
        if array.dtype != np.float64:  # differences at H would be its rounding
            continue
        expected = _numeric(run, array)
        off = float(np.abs(gradient - expected).max() / max(1e-12, np.abs(expected).max()))
        if not off <= CLOSE:  # NaN is not either
            return f"gives a gradient of {name} that is {off:.2g} off what differences give"
    return None


def _numeric(run: _Run, array: Array) -> Array:
    """The gradient of sum(dy y) by differences at H and 2H, whose errors of order H^2 cancel."""
    gradient = np.empty_like(array)
    for at in np.ndindex(array.shape):
        kept = array[at]
        near, far = (_difference(run, array, at, kept, h) for h in (H, 2 * H))
        array[at] = kept
        gradient[at] = (4 * near - far) / 3
    return gradient


def _difference(run: _Run, array: Array, at: tuple[int, ...], kept: float, h: float) -> float:
    values = []
    for step in (h, -h):
        array[at] = kept + step
        values.append(float((run.layer.forward(run.x, run.ctx)[0] * run.dy).sum()))
    return (values[0] - values[1]) / (2 * h)


def described(*values: Any) -> list[tuple]:
    """(shape, dtype, the number of its root) of every array inside; who shares bytes has the same number."""
    known: dict[int, int] = {}
    return [
        (array.shape, str(array.dtype), known.setdefault(id(root_of(array)), len(known)))
        for array in arrays(*values)
    ]


def arrays(*values: Any) -> Iterator[Any]:
    """The arrays, or stand-ins, inside nested tuples, lists and dicts, in order; a view as it is."""
    return (value for value in _leaves(*values) if isinstance(value, ARRAYS))


def _leaves(*values: Any) -> Iterator[Any]:
    """What is inside nested tuples, lists and dicts, in order."""
    for value in values:
        if isinstance(value, dict):
            yield from _leaves(*(value[name] for name in sorted(value)))
        elif isinstance(value, tuple | list):
            yield from _leaves(*value)
        else:
            yield value
