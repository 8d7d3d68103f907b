"""What each device really holds in a step on PyTorch's engine, to stand beside what ``predict_memory`` says.

    step = train_step(modules, schedule, batch, loss, devices=["cpu"] * 4, meter=True)
    predicted = gp.predict_memory(schedule, gp.profile(partitions, batch, loss))
    [(torchs.activation_peak, numpys.activation_peak) for torchs, numpys in zip(step.memory, predicted)]

Two things are measured. The first works everywhere. Autograd hands over every tensor that it saves
(``torch.autograd.graph.saved_tensors_hooks``), and lets go of it when its backward is done. Where an action
ends, the meter counts the memory behind those that are still held: each piece once, however many tensors look
at it, a weight as a parameter only, and of the batch only the part that a microbatch is. Beside it stand
parameters (with buffers), their gradients, and what the engine keeps between I and W. The second is what
CUDA's allocator says, ``allocated``, where a device of the schedule has a GPU that no other device of this
process uses. A CPU has no such count.

For an MLP without I, W and R the two agree on every device, but for the loss: torch's cross entropy saves one
number more per microbatch. Elsewhere they differ where torch saves something else than NumPy's layers:

- A block of a Transformer, as torch runs it on a CPU, saves one number for each row of the softmax, and makes
  the rest again. NumPy's saves the softmax: heads x sequence squared. For each row of a LayerNorm torch saves
  one more, the mean.
- Torch's LayerNorm saves its input, NumPy's what is normalised. As many bytes, but if it comes first in a
  stage, torch's are a boundary input, and NumPy's a saved activation.
- On a CPU, dropout saves a whole number where NumPy's saves a byte. Inside attention, torch then saves the
  softmax, and queries, keys and values once more each.
- Autocast saves copies of the weights.
- I frees only what lies between the last weights of a stage and its end: the rest belongs to the graph that W
  needs. On stage 0 the engine does nothing in I: all stays until W, and is not joined by gradients.
- R runs within B, I or W, after the loss has let go of what it saved. R does not repeat the loss: until its
  backward that holds what it saved in F.

Not counted by the first: what lives within an action; what another hook takes first, such as a checkpoint
inside a module; and what the engine keeps for itself, which is each stage's output until its backward, those
of the last stage until the end, and memory to receive every microbatch in. ``allocated`` has all of it.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from gpipe_sim.runtime.memory import CATEGORIES, GRADIENTS, PARAMETERS, MemoryTrace, Moment
from gpipe_sim.schedule.actions import Action, Kind
from gpipe_sim.schedule.rules import BOUNDARY, PENDING, SAVED
from gpipe_sim.torch_backend.private import hooks_around, strided_parts, version

ON_CPU = "a CPU has no allocator that counts"
_ACTIVATIONS = (BOUNDARY, SAVED, PENDING)
_COUNTED = (PARAMETERS, GRADIENTS, *_ACTIVATIONS)  #: in order of precedence
Key = tuple[int, int]  #: a stage and a microbatch


class Allocated(NamedTuple):
    """Bytes that CUDA's allocator had given out on one GPU: when the step began, and at most during it."""

    start: int
    peak: int


class Metered(NamedTuple):
    """What one device's meter found: bytes of each counted category after each action, in their order."""

    samples: list[tuple[Action, tuple[int, ...]]]
    allocated: Allocated | None
    reason: str


@dataclass(frozen=True, repr=False)
class MeasuredMemory(MemoryTrace):
    """A ``MemoryTrace`` of what torch held on one device, in bytes, on the clock of the step's timeline.

    The actions are those whose ends the ``times`` are. Messages are not counted, nor is optimizer state, and
    there is no ``inside``. ``allocated`` is what CUDA's allocator says, which
    counts all that this process has on that GPU; a step starts its peak anew (``reset_peak_memory_stats``).
    It is None where ``reason`` says why.
    """

    actions: tuple[Action, ...] = ()
    allocated: Allocated | None = None
    reason: str = ""

    @property
    def peak_moment(self) -> Moment:
        held = self.over_time()
        i = held.index(max(held))
        return Moment(self.times[i], held[i], self.actions[i])

    def __repr__(self) -> str:
        at = self.peak_moment
        gpu = f", {self.allocated.peak:,} allocated on its GPU" if self.allocated else ""
        return f"<MeasuredMemory: at most {at.bytes:,} bytes after {at.action} at {at.time:.4g} ms{gpu}>"


def measured_memory(
    found: Metered, ends: Mapping[Action, float], named: Callable[[Action], Action]
) -> MeasuredMemory:
    """The samples of a meter as columns, each at the end of its action, under the name that it has here."""
    rows = [dict(zip(_COUNTED, row, strict=True)) for _, row in found.samples]
    columns = {category: tuple(row.get(category, 0) for row in rows) for category in CATEGORIES}
    times = tuple(ends[action] for action, _ in found.samples)
    actions = tuple(named(action) for action, _ in found.samples)
    return MeasuredMemory(times, columns, (), actions, found.allocated, found.reason)


class Unmetered:
    """A meter that counts nothing."""

    def saving(self, stage: int, microbatch: int, inputs: Sequence[Any]) -> AbstractContextManager:
        """Note what autograd saves meanwhile in a forward; what came in is a boundary input."""
        return nullcontext()

    def saving_more(self) -> AbstractContextManager:
        """The same for the loss, which belongs to the forward before it."""
        return nullcontext()

    def restoring(self, stage: int, microbatch: int, inputs: Sequence[Any]) -> AbstractContextManager:
        """Note what a checkpoint makes again meanwhile."""
        return nullcontext()

    def left_to_w(self, stage: int, microbatch: int, gradients: Iterable[Tensor]) -> None:
        """The engine keeps these from I to W."""

    def sample(self, action: Action) -> None:
        """Called when an action ends."""

    def sample_again(self) -> None:
        """The last action goes on until now: the loss belongs to the forward before it."""


class _Kept:
    """What autograd holds instead of a tensor that it saved. It is gone when autograd has let go of it.

    Detached, because a tensor that knows the graph which keeps it would keep that graph for ever.
    """

    __slots__ = ("__weakref__", "place", "tensor", "version")

    def __init__(self, tensor: Tensor, place: "_Place"):
        self.tensor, self.place = tensor.detach(), place
        self.version = version(tensor)

    def back(self) -> Tensor:
        """The tensor; RuntimeError if it has changed, which autograd no longer sees for itself."""
        if version(self.tensor) != self.version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace "
                f"operation: a tensor of shape {tuple(self.tensor.shape)}; use x = x + 1 for x += 1"
            )
        return self.tensor


class _Place(NamedTuple):
    """The memory behind a tensor, as its bytes by where it starts; for whose backward; and if it came in."""

    memory: Mapping[int, int]
    key: Key
    boundary: bool


class Meter(Unmetered):
    """Counts what one device of the schedule holds for its stages, the modules given.

    ``gpu`` is where CUDA's allocator is asked, or None where ``reason`` says why it is not.
    """

    def __init__(
        self, device: int, modules: Sequence[nn.Module], gpu: torch.device | None = None, reason: str = ""
    ):
        self.device, self.modules, self.gpu, self.reason = device, modules, gpu, reason

    def begin(self, batch: Iterable[Tensor]) -> None:
        """Forget what was noted; of this batch a microbatch is a part."""
        self.samples: list[tuple[Action, tuple[int, ...]]] = []
        self._saved: weakref.WeakSet[_Kept] = weakref.WeakSet()
        self._restored: list[tuple[weakref.ref, _Place]] = []  # there until the storage is gone
        self._left: dict[Key, Mapping[int, int]] = {}  # what the engine keeps, for each I before its W
        self._key, self._inputs = (0, 0), set()
        self._batch = {tensor.untyped_storage().data_ptr() for tensor in batch}
        if self.gpu is not None:
            torch.cuda.reset_peak_memory_stats(self.gpu)
            self._start = torch.cuda.memory_allocated(self.gpu)

    def found(self) -> Metered:
        """What was noted since the beginning."""
        if self.gpu is None:
            return Metered(self.samples, None, self.reason)
        peak = torch.cuda.max_memory_allocated(self.gpu)
        return Metered(self.samples, Allocated(self._start, peak), "")

    def saving(self, stage: int, microbatch: int, inputs: Sequence[Any]) -> AbstractContextManager:
        self._came_in(stage, microbatch, inputs)
        return self.saving_more()

    def saving_more(self) -> AbstractContextManager:
        return saved_tensors_hooks(self._pack, _Kept.back)

    def _pack(self, tensor: Tensor) -> _Kept:
        kept = _Kept(tensor, self._placed(tensor))
        self._saved.add(kept)
        return kept

    @contextmanager
    def restoring(self, stage: int, microbatch: int, inputs: Sequence[Any]) -> Iterator[None]:
        """A checkpoint's own hooks take what it makes again; this looks on."""
        self._came_in(stage, microbatch, inputs)
        pack, unpack = hooks_around()

        def noted(tensor: Tensor) -> Any:
            for part in strided_parts(tensor):
                place = self._placed(part)
                if not place.boundary:  # the checkpoint saved that in F, and the engine has it for longer
                    self._restored.append((weakref.ref(part.untyped_storage()), place))
            return pack(tensor)

        with saved_tensors_hooks(noted, unpack):
            yield

    def _came_in(self, stage: int, microbatch: int, inputs: Sequence[Any]) -> None:
        self._key = stage, microbatch
        self._inputs = set(self._memory(one for one in inputs if isinstance(one, Tensor)))

    def _placed(self, tensor: Tensor) -> _Place:
        memory = self._memory([tensor])
        return _Place(memory, self._key, not self._inputs.isdisjoint(memory))

    def left_to_w(self, stage: int, microbatch: int, gradients: Iterable[Tensor]) -> None:
        self._left[stage, microbatch] = self._memory(gradients)

    def sample(self, action: Action) -> None:
        if action.kind is Kind.I:
            self._left.setdefault((action.stage, action.microbatch), {})
        elif action.kind is Kind.W:
            self._left.pop((action.stage, action.microbatch), None)
        self.samples.append((action, self._bytes()))

    def sample_again(self) -> None:
        if self.samples:  # or the engine only tries the loss out
            self.sample(self.samples.pop()[0])

    def _bytes(self) -> tuple[int, ...]:
        weights = {id(tensor): tensor for module in self.modules for tensor in module.parameters()}
        gradients = self._memory(weight.grad for weight in weights.values() if weight.grad is not None)
        weights |= {id(tensor): tensor for module in self.modules for tensor in module.buffers()}
        parameters = sum(part.nbytes for weight in weights.values() for part in strided_parts(weight))
        counted = {**self._memory(weights.values()), **gradients}
        found = [parameters, sum(gradients.values())]
        held = self._held()
        for category in _ACTIVATIONS:
            fresh = {start: nbytes for start, nbytes in held[category].items() if start not in counted}
            found.append(sum(fresh.values()))
            counted |= fresh
        return tuple(found)

    def _held(self) -> dict[str, dict[int, int]]:
        """What is held for a backward, by category."""
        found: dict[str, dict[int, int]] = {category: {} for category in _ACTIVATIONS}
        self._restored = [(storage, place) for storage, place in self._restored if storage() is not None]
        for place in [*(kept.place for kept in self._saved), *(place for _, place in self._restored)]:
            own = BOUNDARY if place.boundary else PENDING if place.key in self._left else SAVED
            found[own] |= place.memory
        for memory in self._left.values():
            found[PENDING] |= memory
        return found

    def _memory(self, tensors: Iterable[Tensor]) -> dict[int, int]:
        """The memory behind tensors: how many bytes from where. Of the batch, only what each reads."""
        found = {}
        for part in (part for tensor in tensors for part in strided_parts(tensor)):
            storage = part.untyped_storage()
            whole = part if storage.data_ptr() in self._batch else storage
            found[whole.data_ptr()] = whole.nbytes if whole is part else storage.nbytes()
        return found


def meters(
    placement: Sequence[Sequence[int]], modules: Mapping[int, nn.Module], homes: Mapping[int, torch.device]
) -> dict[int, Meter]:
    """For each stage of this process the meter of its device; devices without a stage here have none."""
    here = {
        device: [stage for stage in held if stage in modules]
        for device, held in enumerate(placement)
        if any(stage in modules for stage in held)
    }
    users: dict[torch.device, list[int]] = {}
    for device, held in here.items():
        users.setdefault(homes[held[0]], []).append(device)
    made: dict[int, Meter] = {}
    for device, held in here.items():
        home = homes[held[0]]
        reason = _reason(home, users[home])
        meter = Meter(device, [modules[stage] for stage in held], None if reason else home, reason)
        made |= dict.fromkeys(held, meter)
    return made


def _reason(home: torch.device, users: list[int]) -> str:
    """Why the allocator says nothing about a device of the schedule; empty if it does."""
    if home.type != "cuda":
        return ON_CPU
    if len(users) > 1:
        return f"devices {', '.join(map(str, users))} share {home}, whose allocator does not tell them apart"
    return ""
