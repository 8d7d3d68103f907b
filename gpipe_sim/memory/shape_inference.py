"""A profile of a model: every layer says in its outlines what it makes, in arrays without contents.

They are asked twice, for one sample and for two. What differs grows with the samples, the rest is fixed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import numpy as np

from gpipe_sim.core.boundary import Boundary, apply_layer, rest
from gpipe_sim.core.device import Batch, as_batch
from gpipe_sim.core.layers import Context, Layer
from gpipe_sim.core.losses import Loss
from gpipe_sim.core.memory import roots
from gpipe_sim.core.meta_array import MetaArray, Some, root_of
from gpipe_sim.core.optimizers import Optimizer, require_optimizer
from gpipe_sim.core.partition import Partition, require_partitions
from gpipe_sim.core.work import Work
from gpipe_sim.errors import got, require, require_batch
from gpipe_sim.memory.profile import LayerProfile, LossProfile, Profile, Selective, Size, names_of
from gpipe_sim.transformers.inside_layers import listening


def profile(
    partitions: Sequence[Partition], batch: Batch, loss: Loss, optimizer: Optimizer | None = None
) -> Profile:
    """What each layer of each stage makes of this batch, in bytes; nothing is computed.

    >>> partitions, data = gp.split(gp.mlp([64, 32, 32, 10]), stages=2), gp.digits()
    >>> profile = gp.profile(partitions, data[:2], gp.cross_entropy)
    >>> profile
    <Profile of 2 stages, 27,728 bytes of parameters>
    >>> profile.stages[0][0].parameters, profile.stages[0][0].flops  # bytes, and FLOPs of a sample's forward
    ({'W': 16384, 'b': 256}, 4096)

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
        return [_outline_layer(samples, *model) for samples in (1, 2)]
    except (TypeError, ValueError) as error:
        refused = error
    _outline_layer(len(model[1]), *model)
    raise refused


def _outline_layer(
    samples: int,
    partitions: Sequence[Partition],
    x: Any,
    targets: Any,
    loss: Loss,
    optimizer: Optimizer | None,
) -> Profile:
    """One pass through the model: a profile for just so many samples, in which all bytes are fixed."""
    start = MetaArray((samples, *x.shape[1:]), x.dtype)
    y: Boundary = start
    target = MetaArray((samples, *targets.shape[1:]), targets.dtype)
    steps, layers = [], list[LayerProfile]()
    for i, layer in enumerate(layer for partition in partitions for layer in partition.layers):
        x, inside = y, list[Size]()
        with listening(_beside(y, inside)):
            y, saved = apply_layer(layer, layer.outline, x, Context(layer=i))
        steps.append((i, layer, x, y, saved, inside))
    reads = {"x": names_of("x", y)["x"], "target": target}
    loss_saved = loss.outline(*reads.values())
    loss_gradient = dy = loss.outline_gradient(loss_saved)
    for i, layer, x, y, saved, inside in reversed(steps):
        dy, made = _layer(layer, x, y, saved, dy)
        layers.append(replace(made, forward_inside=tuple(inside), state=_state(i, layer, optimizer)))
    ends = np.cumsum([len(partition) for partition in partitions]).tolist()
    stages = tuple(tuple(layers[::-1][a:b]) for a, b in pairwise([0, *ends]))
    kept = LossProfile(_name_arrays(loss_saved, reads), _size(loss_gradient))
    return Profile(samples, _size(start), _size(target), stages, kept)


def _size(array: Some) -> Size:
    """All bytes as fixed, before the profiles for one sample and for two are compared."""
    return Size(array.nbytes, 0)


def _layer(
    layer: Layer, x: Boundary, y: Boundary, saved: Any, dy: MetaArray
) -> tuple[MetaArray, LayerProfile]:
    """(the gradient of its input, what it makes): each array by name where it is one of the others."""
    inside: list[Size] = []
    with listening(_beside((saved, dy), inside)):
        dx, pending = layer.outline_input(saved, dy)
    comes, goes = names_of("x", x), names_of("y", y)
    x_array = comes["x"]
    backward = {"dy": dy, "dx": dx} | dict(enumerate(roots(saved)))
    [output] = _name_arrays(goes["y"], {"x": x_array})
    [input_gradient] = _name_arrays(dx, {"dy": dy})
    gradients = layer.outline_weight(pending) if layer.parameters else {}
    work = layer.work(x_array)
    return dx, LayerProfile(
        {name: array.nbytes for name, array in layer.parameters.items()},
        work.flops,
        {name: _size(array) for name, array in gradients.items()},
        output,
        _name_arrays(saved, comes | goes),
        input_gradient,
        _name_arrays(pending, backward),
        weight_flops=work.weight_flops,
        recompute_flops=(work.again or Work()).flops,
        selective=_selective(layer.selective(), x),
        along=_name_arrays(rest(y), comes),
        backward_inside=tuple(inside),
    )


def _beside(there: Any, found: list[Size]) -> Callable[[Any], None]:
    """A listener that adds what exists inside a layer, but not what was there before, as one array."""
    known = {id(root) for root in roots(there)}

    def listen(alive: Any) -> None:
        found.append(Size(sum(root.nbytes for root in roots(alive) if id(root) not in known), 0))

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
    comes = names_of("x", x)
    again = layer.work(comes["x"]).again or Work()
    return Selective(_name_arrays(kept, comes | names_of("y", y)), again.flops)


def _name_arrays(value: Any, names: dict) -> tuple:
    """The roots inside a value: by the name that one of them has, or as their sizes."""
    known = {id(root_of(array)): name for name, array in reversed(names.items())}
    return tuple(known[id(root)] if id(root) in known else _size(root) for root in roots(value))


def _merged(one: Any, two: Any) -> Any:
    """Two profiles, for one sample and for two, as one; names stay names."""
    if isinstance(one, Size):
        per_sample = two.fixed - one.fixed
        return Size(one.fixed - per_sample, per_sample)
    if isinstance(one, dict):
        return {name: _merged(value, two[name]) for name, value in one.items()}
    if isinstance(one, Selective):
        return Selective(_merged(one.saved, two.saved), one.recompute_flops)
    if isinstance(one, tuple):
        return tuple(_merged(a, b) for a, b in zip(one, two, strict=True))
    if not isinstance(one, Profile | LayerProfile | LossProfile):
        return one
    found = {field.name: _merged(getattr(one, field.name), getattr(two, field.name)) for field in fields(one)}
    inside = {name: _largest(sizes) for name, sizes in found.items() if name.endswith("_inside")}
    return replace(one, **found | inside)
