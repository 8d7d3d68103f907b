"""Modules on their way to another process: their structure as bytes, and their numbers."""

import io
import pickle
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

try:
    import cloudpickle
except ModuleNotFoundError:  # then what a script or a notebook defines cannot be sent, and that is said
    cloudpickle = pickle

_SHORT_OF_CLOUDPICKLE = "" if cloudpickle is not pickle else "; without cloudpickle, those of a .py file"


def packed(what: Any) -> tuple[bytes, list[Tensor]]:
    """The structure of something, equal where nothing but numbers differs; and its tensors in order."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    explained(pickler.dump, what)
    return file.getvalue(), pickler.tensors


def unpacked(structure: bytes, numbers: Sequence[Tensor]) -> tuple[Any, list[Tensor]]:
    """The same with these numbers, and what they became: parameters where they were."""
    unpickler = _Unpickler(structure, numbers)
    return understood(unpickler.load), [unpickler.made[index] for index in range(len(numbers))]


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
        kind = type(value), value.requires_grad, value.dtype, value.shape
        return self._number[id(value)], kind, vars(value)


class _Unpickler(pickle.Unpickler):
    def __init__(self, structure: bytes, numbers: Sequence[Tensor]):
        super().__init__(io.BytesIO(structure))
        self.numbers, self.made = numbers, dict[int, Tensor]()

    def persistent_load(self, pid: tuple) -> Tensor:
        index, (kind, asks, *_), attributes = pid
        if index not in self.made:
            made = kind(self.numbers[index]).requires_grad_(asks)
            vars(made).update(attributes)
            self.made[index] = made
        return self.made[index]


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
