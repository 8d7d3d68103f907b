"""A profile of a model: every layer says in its outlines what it makes, in arrays without contents.

They are asked twice, for one sample and for two. What differs grows with the samples, the rest is fixed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from gpipe_sim.core.boundary import Boundary, apply_layer, first, rest
from gpipe_sim.core.device import Batch, as_batch
from gpipe_sim.core.layers import Context, Layer
from gpipe_sim.core.losses import Loss
from gpipe_sim.core.memory import roots
from gpipe_sim.core.meta_array import MetaArray, root_of
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
from gpipe_sim.transformers.inside_layers import listening


def profile(
    partitions: Sequence[Partition], batch: Batch, loss: Loss, optimizer: Optimizer | None = None
) -> Profile:
    """What each layer of each stage makes of this batch, in bytes; nothing is computed.

    The batch may be on paper, as a model may: a ``MetaArray`` for the inputs and one for the targets. With an
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
    one, two = _twice(partitions, x, targets, loss, optimizer)
    return replace(_merged(one, two), samples=len(x))


def _state(i: int, layer: Layer, optimizer: Optimizer | None) -> int:
    """The bytes of what an optimizer keeps, or will keep, for the weights of a layer."""
    if optimizer is None:
        return 0
    kept = optimizer.kept({(i, name): weight for name, weight in layer.parameters.items()})
    return sum(root.nbytes for root in roots(kept))


def _read_batch(batch: Any) -> tuple[Any, Any]:
    """(inputs, targets): two arrays, or two meta arrays."""
    require_batch(batch)
    on_paper = [isinstance(part, MetaArray) for part in batch]
    if not any(on_paper):
        return as_batch(batch)
    if not all(on_paper):
        raise TypeError("profile needs inputs and targets that are both arrays, or both MetaArrays")
    for part in batch:
        if part.dtype.kind not in "fiub":
            raise TypeError(f"profile needs a batch of real numbers {got(part)}")
    return batch


def _twice(*model: Any) -> list[Profile]:
    """For one sample and for two. What is refused there is refused once more, in the shape of the batch."""
    try:
        return [_outlined(samples, *model) for samples in (1, 2)]
    except (TypeError, ValueError) as error:
        refused = error
    _outlined(len(model[1]), *model)
    raise refused


def _outlined(
    samples: int,
    partitions: Sequence[Partition],
    x: Any,
    targets: Any,
    loss: Loss,
    optimizer: Optimizer | None,
) -> Profile:
    """One pass through the model: a profile with arrays without contents in place of their sizes."""
    start = y = MetaArray((samples, *x.shape[1:]), x.dtype)
    target = MetaArray((samples, *targets.shape[1:]), targets.dtype)
    steps = []
    for i, layer in enumerate(layer for partition in partitions for layer in partition.layers):
        x, inside = y, []
        with listening(_beside(y, inside)):
            y, saved = apply_layer(layer, layer.outline, x, Context(layer=i))
        steps.append((i, layer, x, y, saved, inside))
    loss_saved = loss.outline(first(y), target)
    loss_gradient = dy = loss.outline_gradient(loss_saved)
    layers = []
    for *step, inside in reversed(steps):
        dx, made = _layer(*step, dy)
        layers.append(replace(made, forward_inside=tuple(inside), state=_state(*step[:2], optimizer)))
        dy = dx
    ends = np.cumsum([len(partition) for partition in partitions]).tolist()
    stages = tuple(tuple(layers[::-1][a:b]) for a, b in pairwise([0, *ends]))
    kept = LossProfile(_named(loss_saved, {INPUT: first(y), "target": target}), loss_gradient)
    return Profile(samples, start, target, stages, kept)


def _layer(
    i: int, layer: Layer, x: Boundary, y: Boundary, saved: Any, dy: MetaArray
) -> tuple[MetaArray, LayerProfile]:
    """(the gradient of its input, what it makes): each array by name where it is one of the others."""
    inside: list[MetaArray] = []
    with listening(_beside((saved, dy), inside)):
        dx, pending = layer.outline_input(saved, dy)
    forward = names_of(INPUT, x) | names_of(OUTPUT, y)
    backward = {OUTPUT_GRADIENT: dy, INPUT_GRADIENT: dx, **dict(enumerate(roots(saved)))}
    [output], [input_gradient] = _named(first(y), {INPUT: first(x)}), _named(dx, {OUTPUT_GRADIENT: dy})
    return dx, LayerProfile(
        {name: array.nbytes for name, array in layer.parameters.items()},
        layer.flops(first(x)),
        layer.outline_weight(pending) if layer.parameters else {},
        output,
        _named(saved, forward),
        input_gradient,
        _named(pending, backward),
        weight_flops=layer.weight_flops(first(x)),
        recompute_flops=layer.recompute_flops(first(x)),
        selective=_selective(layer.selective(), x),
        along=_named(list(rest(y)), names_of(INPUT, x)),
        backward_inside=tuple(inside),
    )


def _beside(there: Any, found: list[MetaArray]) -> Callable[[Any], None]:
    """A listener that adds what exists inside a layer, but not what was there before, as one array."""
    known = {id(root) for root in roots(there)}

    def listen(alive: Any) -> None:
        size = sum(root.nbytes for root in roots(alive) if id(root) not in known)
        found.append(MetaArray((size,), np.uint8))

    return listen


def _largest(sizes: Iterable[Size]) -> tuple[Size, ...]:
    """Those of the sizes that are the most for some number of samples."""
    most: list[Size] = []
    for size in sorted({*sizes}, key=lambda each: (each.of(1), each.per_sample), reverse=True):
        if not most or size.per_sample > most[-1].per_sample:
            most.append(size)
    return tuple(most)


def _selective(layer: Layer | None, x: Boundary) -> Selective | None:
    """What the layer that recomputes its attention saves, if there is one."""
    if layer is None:
        return None
    y, kept = apply_layer(layer, layer.outline, x, Context())
    return Selective(_named(kept, names_of(INPUT, x) | names_of(OUTPUT, y)), layer.recompute_flops(first(x)))


def _named(value: Any, names: dict) -> tuple:
    """The roots inside a value: by the name that one of them has, or as themselves."""
    known = {id(root_of(array)): name for name, array in reversed(names.items())}
    return tuple(known.get(id(root), root) for root in roots(value))


def _merged(one: Any, two: Any) -> Any:
    """Two profiles with arrays, for one sample and for two, as one with sizes; names stay names."""
    if isinstance(one, MetaArray):
        per_sample = two.nbytes - one.nbytes
        return Size(one.nbytes - per_sample, per_sample)
    if isinstance(one, dict):
        return {name: _merged(value, two[name]) for name, value in one.items()}
    if isinstance(one, Selective):
        return Selective(_merged(one.saved, two.saved), one.recompute_flops)
    if isinstance(one, tuple):
        return tuple(_merged(a, b) for a, b in zip(one, two, strict=True))
    if not is_dataclass(one):
        return one
    found = {field.name: _merged(getattr(one, field.name), getattr(two, field.name)) for field in fields(one)}
    inside = {name: _largest(sizes) for name, sizes in found.items() if name.endswith("_inside")}
    return type(one)(**found | inside)
