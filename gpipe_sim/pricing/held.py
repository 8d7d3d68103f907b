"""What the devices of a configuration hold: weights, gradients and optimizer state, and what is computed.

    zero=0   every replica has all three          zero=2   gradients are shared out too
    zero=1   the optimizer's state is shared out  zero=3   weights too: whole ones are there when used

Rajbhandari et al. 2020, arXiv:1910.02054. With weights of 2 bytes, gradients of 4 and Adam on a float32 copy
of the weights that is 2 + 4 + 12 bytes for each.

What is computed is found by the core's own devices and meter, on arrays without contents. With sequence
parallelism it is that of the uncut model, dealt out: what tensor parallelism leaves whole is cut along the
sequence (Korthikanti et al. 2022, arXiv:2205.05198).
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, groupby
from typing import Any, NamedTuple, TypeVar

from gpipe_sim.core.layers import Layer
from gpipe_sim.core.losses import Loss
from gpipe_sim.core.memory import ACTIVATIONS, MESSAGES
from gpipe_sim.core.meta_array import MetaArray
from gpipe_sim.core.optimizers import Optimizer
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.split import split
from gpipe_sim.memory.prediction import predict_memory
from gpipe_sim.memory.profile import Profile
from gpipe_sim.memory.shape_inference import profile
from gpipe_sim.pricing.layout import Layout, recomputed, weights_of
from gpipe_sim.pricing.tensor_parts import tensor_parts

Held = dict[str, int]  #: bytes by category
T = TypeVar("T")
#: What is there all the time, and with which ``zero`` the replicas share it out.
STATIC = {"weights": 3, "gradients": 2, "optimizer": 1}
AT_ONCE = 2  #: layers whose weights are whole: one is used while the next one comes


def held(layout: Layout) -> tuple[Held, ...]:
    """For each device of a pipeline, the most bytes that it holds of each category."""
    stages = _stages(layout.cut, static_bytes(layout))
    found = []
    for on, computed in zip(layout.schedule.placement, _computed(layout), strict=True):
        layers = [layer for stage in on for layer in stages[stage]]
        sums = zip(STATIC.items(), zip(*layers, strict=True), strict=True)
        shared = {
            name: -(-sum(sizes) // (layout.replicas if layout.zero >= least else 1))
            for (name, least), sizes in sums
        }
        found.append(shared | {"gathered": _gathered(layout, [layer[0] for layer in layers])} | computed)
    return tuple(found)


def _stages(cut: Sequence[int], layers: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    """The layers of a model, stage by stage."""
    return tuple(tuple(layers[end - size : end]) for size, end in zip(cut, accumulate(cut), strict=True))


def static_bytes(layout: Layout) -> list[tuple[int, int, int]]:
    """Of each layer the bytes of its weights, of their gradients and of their state."""
    outlined = outlined_on(layout, layout.tensor)
    runs = zip(outlined.profile.layers, outlined.weights, strict=True)
    sizes = [(sum(one.parameters.values()), many * layout.gradient_bytes, one.state) for one, many in runs]
    return outlined.of_each(sizes)


def _gathered(layout: Layout, weights: Sequence[int]) -> int:
    """With ``zero=3``, the bytes of weights that are whole at once."""
    if layout.zero < 3 or layout.replicas == 1:
        return 0
    return sum(weights if layout.unshard == "step" else sorted(weights)[-AT_ONCE:])


def _computed(layout: Layout) -> tuple[Held, ...]:
    """What is kept between actions and what is on its way; and what an action has beside that."""
    share = layout.tensor if layout.sequence_parallel else 1
    samples = len(layout.batch[0]) // layout.replicas
    return _metered(layout.schedule, layout.cut, samples, share, *_what(layout, layout.tensor // share))


@lru_cache(maxsize=64)  # it is the same for every ``zero``
def _metered(
    schedule: Schedule, cut: tuple[int, ...], samples: int, share: int, *what: Any
) -> tuple[Held, ...]:
    outlined = _of(*what)
    layers = [replace(layer, parameters={}, gradients={}, state=0) for layer in outlined.profile.layers]
    stages = _stages(cut, outlined.of_each(layers))
    found = []
    for trace in predict_memory(schedule, replace(outlined.profile, samples=samples, stages=stages)):
        kept = trace.peak(*ACTIVATIONS, MESSAGES)
        inside = max(0, trace.peak_inside.bytes - kept)
        found.append({"activations": -(-kept // share), "running": -(-inside // share)})
    return tuple(found)


class Outlined(NamedTuple):
    """A model's profile with one layer in place of several equal ones in a row; how many, their weights."""

    profile: Profile
    counts: tuple[int, ...]
    weights: tuple[int, ...]

    def of_each(self, values: Sequence[T]) -> list[T]:
        """What is given for each run of equal layers, for each layer of the model."""
        return [value for value, count in zip(values, self.counts, strict=True) for _ in range(count)]


def outlined_on(layout: Layout, tensor: int) -> Outlined:
    return _of(*_what(layout, tensor))


def _what(layout: Layout, tensor: int) -> tuple[Any, ...]:
    """What ``_of`` outlines."""
    shapes = [each for array in layout.batch for each in (array.shape[1:], array.dtype.str)]
    return layout.model, tensor, layout.recompute, layout.loss, layout.optimizer, *shapes


@lru_cache(maxsize=64)
def _of(
    model: tuple[Layer, ...], tensor: int, again: str, loss: Loss, optimizer: Optimizer | None, *shapes: Any
) -> Outlined:
    runs = [(part.layer, len(list(run))) for part, run in groupby(tensor_parts(model, tensor))]
    layers = [deepcopy(recomputed(layer, again)) for layer, _ in runs]
    x, y = (MetaArray((1, *shape), dtype) for shape, dtype in (shapes[:2], shapes[2:]))
    found = profile(split(layers, stages=1), (x, y), loss, optimizer)
    return Outlined(found, tuple(count for _, count in runs), tuple(map(weights_of, layers)))
