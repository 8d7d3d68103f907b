"""Modules in another process: their structure as bytes, their numbers in memory that both see."""

import io
import os
import pickle
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

try:
    import cloudpickle
except ModuleNotFoundError:  # then what a script or a notebook defines cannot be sent, and that is said
    cloudpickle = pickle

ALIGNED = 64  #: bytes at whose multiples tensors begin
_SHORT_OF_CLOUDPICKLE = "" if cloudpickle is not pickle else "; without cloudpickle, those of a .py file"


class Spec(NamedTuple):
    """What memory a tensor takes."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    learns: bool  # whether there is to be room for a gradient

    @classmethod
    def of(cls, tensor: Tensor) -> "Spec":
        dense = torch.empty_like(tensor, device="meta")  # a view of something larger is not sent as one
        return cls(tuple(dense.shape), dense.stride(), dense.dtype, isinstance(tensor, nn.Parameter))

    @property
    def bytes(self) -> int:
        return -(-prod(self.shape) * self.dtype.itemsize // ALIGNED) * ALIGNED


class Packed(NamedTuple):
    """Anything, as bytes without the numbers of its tensors; two are equal if nothing but numbers differ."""

    data: bytes
    specs: tuple[Spec, ...]


class Area:
    """Memory for tensors, and for gradients of those that learn, in a file that two processes map."""

    def __init__(self, path: Path, specs: Sequence[Spec]):
        size = size_of(specs)
        whole = torch.empty(0, dtype=torch.uint8)
        if size:
            whole = torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8)
        offset, views = 0, []
        learning = [index for index, spec in enumerate(specs) if spec.learns]
        for spec in [*specs, *(specs[index] for index in learning)]:
            flat = whole[offset : offset + prod(spec.shape) * spec.dtype.itemsize].view(spec.dtype)
            views.append(flat.as_strided(spec.shape, spec.stride).data)  # each with changes of its own
            offset += spec.bytes
        self.tensors = views[: len(specs)]
        self.gradients = dict(zip(learning, views[len(specs) :], strict=True))


def size_of(specs: Sequence[Spec]) -> int:
    return sum(spec.bytes * (1 + spec.learns) for spec in specs)


def new_file(size: int, folder: Path) -> Path:
    """A file of that many bytes, all of which there is room for: in memory if there is, or else on disk."""
    for place in ("/dev/shm", folder):
        with suppress(OSError):
            handle, path = tempfile.mkstemp(prefix="gpipe_sim_", dir=place)
            try:
                if size and hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(handle, 0, size)
                return Path(path)
            except OSError:
                os.unlink(path)
                raise
            finally:
                os.close(handle)
    raise OSError(f"there is no room for {size} bytes of weights and gradients in {folder}")


def packed(what: Any) -> tuple[Packed, list[Tensor]]:
    """The structure of something, and its tensors in the order of their numbers there."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    explained(pickler.dump, what)
    return Packed(file.getvalue(), tuple(map(Spec.of, pickler.tensors))), pickler.tensors


def unpacked(data: bytes, tensors: Sequence[Tensor]) -> tuple[Any, list[Tensor]]:
    """The same with other tensors for its own, and what these became: parameters where they were."""
    unpickler = _Unpickler(data, tensors)
    return understood(unpickler.load), [unpickler.made[index] for index in range(len(tensors))]


def understood(load: Callable[[], Any]) -> Any:
    """Load what came from another process; what cannot be found here is told why."""
    try:
        return load()
    except (AttributeError, ImportError) as error:
        error.add_note(
            "processes cannot see what a notebook or a script defines, unless cloudpickle is installed: "
            "pip install cloudpickle, or put it in a .py file"
        )
        raise


class Reader(pickle.Unpickler):
    """Reads what a process sends back. A class that this process has stays as it is.

    Cloudpickle sends a class of the caller's script along with what it is the class of, and would give the
    caller's own one methods that no longer see the script's names.
    """

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        return found if name != "_class_setstate" else partial(_unless_there, found)


def _unless_there(change: Callable, kind: type, state: tuple) -> type:
    return kind if state[0].keys() <= vars(kind).keys() else change(kind, state)


def explained(pickle_it: Any, what: Any) -> Any:
    """Pickle it; what cannot be sent to another process is told so."""
    try:
        return pickle_it(what)
    except Exception as error:  # pickle raises what it likes: PicklingError, AttributeError, TypeError
        error.add_note(
            "this has to be sent to another process: give it modules and functions without anything that "
            f"belongs to this process alone, such as an open file or a lock{_SHORT_OF_CLOUDPICKLE}"
        )
        raise


class _Pickler(cloudpickle.Pickler):
    def __init__(self, file: io.BytesIO):
        super().__init__(file)
        self.tensors: list[Tensor] = []
        self._number: dict[int, int] = {}

    def persistent_id(self, value: Any) -> tuple | None:
        if type(value) not in (Tensor, nn.Parameter) or value.layout is not torch.strided or value.is_meta:
            return None
        if id(value) not in self._number:
            self._number[id(value)] = len(self.tensors)
            self.tensors.append(value)
        return self._number[id(value)], type(value), value.requires_grad, vars(value)


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, memory: Sequence[Tensor]):
        super().__init__(io.BytesIO(data))
        self.memory, self.made = memory, dict[int, Tensor]()

    def persistent_load(self, pid: tuple) -> Tensor:
        index, kind, asks, attributes = pid
        if index not in self.made:
            memory = self.memory[index]
            made = nn.Parameter(memory) if kind is nn.Parameter else memory.detach()
            vars(made.requires_grad_(asks)).update(attributes)
            self.made[index] = made
        return self.made[index]
