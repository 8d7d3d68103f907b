"""A meter of what one device holds: what autograd has saved."""

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.core.memory import ACTIVATIONS
from gpipe_sim.core.rules import BOUNDARY, PENDING, SAVED
from gpipe_sim.torch_backend.memory import Samples
from gpipe_sim.torch_backend.private import hooks_around, strided_parts, version

Key = tuple[int, int]  #: a stage and a microbatch


class Unmetered:
    """A meter that counts nothing."""

    saving = saving_more = restoring = staticmethod(lambda *_: nullcontext())
    left_to_w = sample = sample_again = staticmethod(lambda *_: None)


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


class Meter:
    """Counts what one device of the schedule holds for its stages, the modules given."""

    def __init__(self, device: int, modules: Sequence[nn.Module]):
        self.device, self.modules = device, modules

    def begin(self, batch: Iterable[Tensor]) -> None:
        """Forget what was noted; of this batch a microbatch is a part."""
        self.samples: Samples = []
        self._saved: weakref.WeakSet[_Kept] = weakref.WeakSet()
        self._restored: list[tuple[weakref.ref, _Place]] = []  # there until the storage is gone
        self._left: dict[Key, Mapping[int, int]] = {}  # what the engine keeps, for each I before its W
        self._key: Key = (0, 0)
        self._inputs: set[int] = set()
        self._batch = {tensor.untyped_storage().data_ptr() for tensor in batch}

    def saving(self, stage: int, microbatch: int, inputs: Sequence[Any]) -> AbstractContextManager:
        """Note what autograd saves meanwhile in a forward; what came in is a boundary input."""
        self._came_in(stage, microbatch, inputs)
        return self.saving_more()

    def saving_more(self) -> AbstractContextManager:
        """The same for the loss, which belongs to the forward before it."""
        return saved_tensors_hooks(self._pack, _Kept.back)

    def _pack(self, tensor: Tensor) -> _Kept:
        kept = _Kept(tensor, self._placed(tensor))
        self._saved.add(kept)
        return kept

    @contextmanager
    def restoring(self, stage: int, microbatch: int, inputs: Sequence[Any]) -> Iterator[None]:
        """Note what a checkpoint makes again meanwhile; its own hooks take it, and this looks on."""
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
        """The engine keeps these from I to W."""
        self._left[stage, microbatch] = self._memory(gradients)

    def sample(self, action: Action) -> None:
        """Count, because this action has ended."""
        if action.kind is Kind.I:
            self._left.setdefault((action.stage, action.microbatch), {})
        elif action.kind is Kind.W:
            self._left.pop((action.stage, action.microbatch), None)
        self.samples.append((action, self._bytes()))

    def sample_again(self) -> None:
        """The last action goes on until now: the loss belongs to the forward before it."""
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
        for category in ACTIVATIONS:
            fresh = {start: nbytes for start, nbytes in held[category].items() if start not in counted}
            found.append(sum(fresh.values()))
            counted |= fresh
        return tuple(found)

    def _held(self) -> dict[str, dict[int, int]]:
        """What is held for a backward, by category."""
        found: dict[str, dict[int, int]] = {category: {} for category in ACTIVATIONS}
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


def meters(placement: Sequence[Sequence[int]], modules: Mapping[int, nn.Module]) -> dict[int, Meter]:
    """For each stage of this process the meter of its device; devices without a stage here have none."""
    made: dict[int, Meter] = {}
    for device, held in enumerate(placement):
        here = [stage for stage in held if stage in modules]
        made |= dict.fromkeys(here, Meter(device, [modules[stage] for stage in here]))
    return made
