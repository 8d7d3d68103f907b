"""What a step will hold, before it runs: the same devices and the same meter, on arrays without contents."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gpipe_sim.core.boundary import Boundary
from gpipe_sim.core.cost_model import CostModel
from gpipe_sim.core.device import Device
from gpipe_sim.core.layers import Context, Layer
from gpipe_sim.core.losses import Loss
from gpipe_sim.core.memory import Memory, MemoryTrace
from gpipe_sim.core.meta_array import MetaArray, Some
from gpipe_sim.core.optimizers import Arrays, Key, Optimizer
from gpipe_sim.core.partition import Partition
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.core.step import kind_of_step, simulate_once
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.errors import require
from gpipe_sim.memory.meter import InsideMeter
from gpipe_sim.memory.profile import Array, LayerProfile, LossProfile, Profile, Size, names_of
from gpipe_sim.transformers.inside_layers import look_inside


def predict_memory(
    schedule: Schedule, profile: Profile, costs: CostModel | None = None, weights: str | None = None
) -> tuple[MemoryTrace, ...]:
    """One trace for each device, equal (``==``) to what ``train_step`` meters on such a model and batch.

    >>> partitions, data = gp.split(gp.mlp([64, 32, 32, 10]), stages=2), gp.digits()
    >>> profile, schedule = gp.profile(partitions, data[:2], gp.cross_entropy), gp.OneFOneB(2, 4)
    >>> gp.predict_memory(schedule, profile)[0]
    <MemoryTrace: at most 694,528 bytes after 0F2 at 7, 879,616 while 0B0 runs>
    >>> step = gp.train_step(partitions, schedule, data[:2], gp.cross_entropy)
    >>> gp.predict_memory(schedule, profile) == step.memory
    True

    ``weights`` is that of ``train_step``.
    ValueError if the schedule has another number of stages than the profile, or more microbatches than the
    batch has samples; ScheduleError or DeadlockError for a schedule that cannot run.
    """
    require_schedule("predict_memory", schedule)
    require("predict_memory", profile, Profile, "a profile, such as profile(partitions, batch, loss)")
    profile.require_stages(schedule)
    devices = devices_on_paper(simulate_once(schedule, costs), profile, InsideMeter, weights)
    return tuple(device.memory.trace() for device in devices if isinstance(device.memory, InsideMeter))


def devices_on_paper(
    timeline: Timeline, profile: Profile, memory: type[Memory], weights: str | None = None
) -> list[Device]:
    """The devices of a step after they have done what the timeline says, with arrays without contents."""
    schedule = timeline.schedule
    batch = _rows(profile.samples, profile.input), _rows(profile.samples, profile.target)
    loss, optimizer = _MetaLoss(profile.loss), _MetaOptimizer(profile)
    step = kind_of_step(schedule, weights)("predict_memory", schedule, batch, loss, optimizer, weights)
    partitions = _partitions(profile, [piece.samples for piece in step.inputs.pieces])
    return step.run_devices(partitions, timeline, memory)


def _rows(samples: int, size: Size) -> MetaArray:
    return MetaArray((samples, size.per_sample), "u1")


def _partitions(profile: Profile, samples: list[int]) -> list[Partition]:
    layers = {id(layer): layer for layer in profile.layers}  # equal blocks may be one and the same
    packed = {number: _packed(layer) for number, layer in layers.items()}
    return [
        Partition([_MetaLayer(packed[id(layer)], samples) for layer in stage], end - len(stage))
        for stage, end in zip(profile.stages, profile.ends, strict=True)
    ]


def _packed(layer: LayerProfile) -> LayerProfile:
    """The same layer with arrays that come and go together as one: a Transformer's block has dozens."""
    read = {i for i in layer.pending if isinstance(i, int)}  # what W reads of what was saved
    named = [(i, one) for i, one in enumerate(layer.saved) if not isinstance(one, Size)]
    own = [(i, one) for i, one in enumerate(layer.saved) if isinstance(one, Size)]
    kept, freed = (_sum(one for i, one in own if (i in read) is still) for still in (True, False))
    place = dict.fromkeys((i for i, _ in own), 0) if kept else {}
    place |= {i: len(kept) + at for at, (i, _) in enumerate(named)}
    gradients = _sum(layer.gradients.values())
    fresh = _sum(one for one in layer.pending if isinstance(one, Size))
    others = [one for one in layer.pending if not isinstance(one, int | Size)]
    return replace(
        layer,
        parameters={"all": sum(layer.parameters.values())} if layer.parameters else {},
        gradients={"all": gradients[0]} if gradients else {},
        saved=(*kept, *(one for _, one in named), *freed),
        pending=(*{place[i] for i in read if i in place}, *others, *fresh),
    )


def _sum(sizes: Iterable[Size]) -> tuple[Size, ...]:
    """All of them as one array, or none if they take no bytes."""
    fixed, per_sample = map(sum, zip(*sizes, (0, 0), strict=True))
    return (Size(fixed, per_sample),) if fixed or per_sample else ()


class _Bytes(MetaArray):
    """So many bytes: a meta array that is quick to make and to count."""

    __slots__ = ("nbytes",)

    def __init__(self, nbytes: int):
        self.shape, self.dtype, self.base, self.nbytes = (nbytes,), _BYTE, None, nbytes  # type: ignore[misc]


_BYTE = np.dtype("u1")


def _array(what: Array | int, samples: int, known: Mapping[Any, Some]) -> Some:
    """One of the known arrays, or a new one of this size."""
    return _Bytes(what.of(samples)) if isinstance(what, Size) else known[what]


class _MetaLayer(Layer):
    """Makes what its profile says, out of nothing. ``samples`` are those of each microbatch."""

    carries = True

    def __init__(self, profile: LayerProfile, samples: list[int]):
        self.profile, self.samples = profile, samples
        self.parameters = {name: _Bytes(size) for name, size in profile.parameters.items()}

    def __deepcopy__(self, memo: dict) -> "_MetaLayer":
        """With parameters of its own; the sizes are those of all, or each older version would copy them."""
        return _MetaLayer(self.profile, self.samples)

    def forward(self, x: Boundary, ctx: Context) -> tuple[Boundary, Any]:
        samples, known = self.samples[ctx.microbatch], names_of("x", x)
        output = _array(self.profile.output, samples, known)
        along = [_array(one, samples, known) for one in self.profile.along]
        y = (output, *along) if along else output
        known |= names_of("y", y)
        for size in self.profile.forward_inside:
            look_inside(x, _Bytes(size.of(samples)))
        return y, (samples, [_array(one, samples, known) for one in self.profile.saved])

    def backward_input(self, saved: Any, dy: Some) -> tuple[Some, Any]:
        samples, arrays = saved
        for size in self.profile.backward_inside:
            look_inside(dy, _Bytes(size.of(samples)))
        dx = _array(self.profile.input_gradient, samples, {"dy": dy})
        known = {"dy": dy, "dx": dx} | dict(enumerate(arrays))
        return dx, (samples, [_array(one, samples, known) for one in self.profile.pending])

    def backward_weight(self, pending: Any) -> dict[str, Some]:
        samples, _ = pending
        return {name: _Bytes(size.of(samples)) for name, size in self.profile.gradients.items()}


class _MetaLoss(Loss):
    """Keeps and makes what its profile says; its value is 0."""

    def __init__(self, profile: LossProfile):
        self.profile = profile

    def forward(self, outputs: Some, targets: Some) -> tuple[float, Any]:
        known = {"x": outputs, "target": targets}
        return 0.0, (len(targets), [_array(one, len(targets), known) for one in self.profile.saved])

    def backward(self, saved: Any, weight: float) -> Some:
        return _Bytes(self.profile.gradient.of(saved[0]))


class _MetaOptimizer(Optimizer):
    """Keeps what its profile says; an update changes no bytes."""

    def __init__(self, profile: Profile):
        super().__init__(0)
        self.state = {(i, "all"): {"kept": _Bytes(layer.state)} for i, layer in enumerate(profile.layers)}

    def prepare(self, parameters: Arrays) -> dict[Key, dict]:
        return {key: self.state[key] for key in parameters}

    def step(self, parameters: Arrays, gradients: Arrays) -> None:
        """Nothing is computed."""

    def change(self, parameter: np.ndarray, gradient: np.ndarray, state: dict) -> np.ndarray:
        return gradient
