"""A profile of a model: every layer says in its outlines what it makes, in arrays without contents.

They are asked twice, for one sample and for two. What differs grows with the samples, the rest is fixed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpipe_sim.core.boundary import Boundary, applied, first, rest
from gpipe_sim.core.device import Batch, as_batch
from gpipe_sim.core.inside_layers import listening
from gpipe_sim.core.layers import Context, Layer
from gpipe_sim.core.losses import Loss
from gpipe_sim.core.memory import roots
from gpipe_sim.core.meta_array import StandIn, root_of
from gpipe_sim.core.optimizers import Optimizer, require_optimizer
from gpipe_sim.core.partition import Partition, require_partitions
from gpipe_sim.errors import got, require, require_batch
from gpipe_sim.memory.profile import (
    INPUT,
    INPUT_GRADIENT,
    OUTPUT,
    OUTPUT_GRADIENT,
    LayerProfile,
    LossProfile,
    Profile,
    Selective,
    Size,
    names_of,
)


def profile(
    partitions: Sequence[Partition], batch: Batch, loss: Loss, optimizer: Optimizer | None = None
) -> Profile:
    """What each layer of each stage makes of this batch, in bytes; nothing is computed.

    The batch may be on paper, as a model may: a ``StandIn`` for the inputs and one for the targets. With an
    ``optimizer``, what it keeps for each weight belongs to the profile.
    NotImplementedError for a layer or a loss that does not say what it makes (``Layer.outline``). ValueError
    if layers, batch and loss do not fit each other, or the optimizer is another model's, TypeError for
    arguments of another kind.
    """
    require_partitions("profile", partitions)
    require("profile", loss, Loss, "a loss, such as cross_entropy or mse")
    if optimizer is not None:
        require_optimizer("profile", optimizer)
    x, targets = _read_batch(batch)
    one, two = _outlined(partitions, x, targets, loss)
    layers = [
        LayerProfile(
            {name: array.nbytes for name, array in layer.parameters.items()},
            one.flops[i],
            {name: _size(a, two.gradients[i][name]) for name, a in one.gradients[i].items()},
            *(_merged(a, b) for a, b in zip(one.made[i], two.made[i], strict=True)),
            state=_state(i, layer, optimizer),
            weight_flops=layer.weight_flops(first(one.inputs[i])),
            recompute_flops=layer.recompute_flops(first(one.inputs[i])),
            selective=_selective(layer.selective(), one.inputs[i], two.inputs[i]),
            along=_merged(one.along[i], two.along[i]),
            forward_inside=_largest(one.forward_inside[i], two.forward_inside[i]),
            backward_inside=_largest(one.backward_inside[i], two.backward_inside[i]),
        )
        for i, layer in enumerate(one.layers)
    ]
    ends = np.cumsum([len(partition) for partition in partitions]).tolist()
    starts = [0, *ends[:-1]]
    return Profile(
        len(x),
        _size(one.x, two.x),
        _size(one.target, two.target),
        tuple(tuple(layers[a:b]) for a, b in zip(starts, ends, strict=True)),
        LossProfile(_merged(one.loss_saved, two.loss_saved), _size(one.loss_gradient, two.loss_gradient)),
    )


def _state(i: int, layer: Layer, optimizer: Optimizer | None) -> int:
    """The bytes of what an optimizer keeps, or will keep, for the weights of a layer."""
    if optimizer is None:
        return 0
    kept = optimizer.kept({(i, name): weight for name, weight in layer.parameters.items()})
    return sum(root.nbytes for root in roots(kept))


def _read_batch(batch: Any) -> tuple[Any, Any]:
    """(inputs, targets): two arrays, or two stand-ins."""
    require_batch(batch)
    on_paper = [isinstance(part, StandIn) for part in batch]
    if not any(on_paper):
        return as_batch(batch)
    if not all(on_paper):
        raise TypeError("profile needs inputs and targets that are both arrays, or both StandIns")
    for part in batch:
        if part.dtype.kind not in "fiub":
            raise TypeError(f"profile needs a batch of real numbers {got(part)}")
    return batch


def _outlined(*model: Any) -> list["_Outlined"]:
    """For one sample and for two. What is refused there is refused once more, in the shape of the batch."""
    try:
        return [_Outlined(*model, samples) for samples in (1, 2)]
    except (TypeError, ValueError) as error:
        refused = error
    _Outlined(*model, len(model[1]))
    raise refused


class _Outlined:
    """One pass through the model in arrays without contents, for a microbatch of so many samples."""

    def __init__(self, partitions: Sequence[Partition], x: Any, targets: Any, loss: Loss, samples: int):
        self.layers: list[Layer] = [layer for partition in partitions for layer in partition.layers]
        self.x = y = StandIn((samples, *x.shape[1:]), x.dtype)
        self.target = StandIn((samples, *targets.shape[1:]), targets.dtype)
        outputs, inputs, kept = [], [], []
        self.inputs = inputs
        self.flops: list[int] = []
        self.forward_inside, self.backward_inside = ([_Seen() for _ in self.layers] for _ in range(2))
        for i, layer in enumerate(self.layers):
            inputs.append(y)
            with listening(self.forward_inside[i].beside(y)):
                y, saved = applied(layer, layer.outline, y, Context(layer=i))
            self.flops.append(layer.flops(first(inputs[-1])))  # of an input that the layer takes
            outputs.append(y)
            kept.append(saved)
        self.along = [_named(list(rest(y)), names_of(INPUT, x)) for x, y in zip(inputs, outputs, strict=True)]
        saved = loss.outline(first(y), self.target)
        self.loss_saved = _named(saved, {INPUT: first(y), "target": self.target})
        self.loss_gradient = dy = loss.outline_gradient(saved)
        self.made: list[tuple] = []
        self.gradients: list[dict[str, StandIn]] = []
        each = zip(self.layers, inputs, outputs, kept, self.backward_inside, strict=True)
        for layer, x, y, saved, seen in reversed(list(each)):
            with listening(seen.beside((saved, dy))):
                dx, pending = layer.outline_input(saved, dy)
            self.gradients.append(layer.outline_weight(pending) if layer.parameters else {})
            self.made.append(_made(x, y, saved, dy, dx, pending))
            dy = dx
        self.made.reverse()
        self.gradients.reverse()


class _Seen(list):
    """The bytes of what exists inside a layer, each time that it looks."""

    def beside(self, there: Any) -> Callable[[Any], None]:
        """A listener that counts everything but these."""
        known = {id(root) for root in roots(there)}
        return lambda alive: self.append(sum(root.nbytes for root in roots(alive) if id(root) not in known))


def _largest(one: _Seen, two: _Seen) -> tuple[Size, ...]:
    """Those of the sizes that are the most for some number of samples."""
    sizes = {Size(2 * a - b, b - a) for a, b in zip(one, two, strict=True)}
    most: list[Size] = []
    for size in sorted(sizes, key=lambda each: (each.of(1), each.per_sample), reverse=True):
        if not most or size.per_sample > most[-1].per_sample:
            most.append(size)
    return tuple(most)


def _made(x: Boundary, y: Boundary, saved: Any, dy: StandIn, dx: StandIn, pending: Any) -> tuple:
    """(output, saved, input gradient, pending), each array by name where it is one of the others."""
    forward = names_of(INPUT, x) | names_of(OUTPUT, y)
    backward = {OUTPUT_GRADIENT: dy, INPUT_GRADIENT: dx, **dict(enumerate(roots(saved)))}
    return (
        *_named(first(y), {INPUT: first(x)}),
        _named(saved, forward),
        *_named(dx, {OUTPUT_GRADIENT: dy}),
        _named(pending, backward),
    )


def _selective(layer: Layer | None, one: Boundary, two: Boundary) -> Selective | None:
    """What the layer that recomputes its attention saves, if there is one, from inputs of 1 and 2 samples."""
    if layer is None:
        return None
    saved = []
    for x in (one, two):
        y, kept = applied(layer, layer.outline, x, Context())
        saved.append(_named(kept, names_of(INPUT, x) | names_of(OUTPUT, y)))
    return Selective(_merged(*saved), layer.recompute_flops(first(one)))


def _named(value: Any, names: dict) -> tuple:
    """The roots inside a value: by the name that one of them has, or as themselves."""
    known = {id(root_of(array)): name for name, array in reversed(names.items())}
    return tuple(known.get(id(root), root) for root in roots(value))


def _merged(one: Any, two: Any) -> Any:
    """Two microbatches' arrays as sizes; names stay names."""
    if isinstance(one, tuple):
        return tuple(_merged(a, b) for a, b in zip(one, two, strict=True))
    return _size(one, two) if isinstance(one, StandIn) else one


def _size(one: StandIn, two: StandIn) -> Size:
    """From the bytes for one sample and for two."""
    per_sample = two.nbytes - one.nbytes
    return Size(one.nbytes - per_sample, per_sample)
