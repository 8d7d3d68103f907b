"""Arrays without contents: what a step will hold is counted on them, before anything runs."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpipe_sim.errors import as_dtype, called, got, listed, require, result_type, whole

if TYPE_CHECKING:  # it goes wherever an array may, so type checkers take it for one
    Standard = np.ndarray
else:
    Standard = object


class MetaArray(Standard):
    """Stands in for an array: it has a shape, a dtype and ``nbytes``, and knows whose bytes it views.

    >>> tokens = gp.MetaArray((256, 512), "i8")  # 256 sequences, and no memory for them
    >>> tokens.shape, tokens.nbytes
    ((256, 512), 1048576)
    >>> gp.profile(gp.split(gp.bert_large(), stages=4), (tokens, tokens), gp.cross_entropy)
    <Profile of 4 stages, 730,750,580 bytes of parameters>
    """

    __slots__ = ("__weakref__", "base", "dtype", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: Any, base: "MetaArray | None" = None):
        if type(shape) is not tuple or any(type(n) is not int or n < 0 for n in shape):
            shape = _read_shape(shape)
        if base is not None:
            require("MetaArray", base, MetaArray, "base to be the MetaArray whose bytes it views, or None")
        try:
            self.shape, self.dtype, self.base = shape, as_dtype(dtype), base  # type: ignore[misc]
        except (TypeError, ValueError):
            raise TypeError(f"MetaArray needs a dtype, such as np.float32 {got(dtype)}") from None

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many numbers it would hold."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """How many bytes these would take."""
        return self.size * self.dtype.itemsize

    def copy(self) -> "MetaArray":  # type: ignore[override]
        """One like it with bytes of its own."""
        return MetaArray(self.shape, self.dtype)

    def view(self, *shape: int) -> "MetaArray":  # type: ignore[override]
        """The same bytes in another shape."""
        return MetaArray(shape, self.dtype, self)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> "MetaArray":  # type: ignore[override]
        """Some of its rows: a view."""
        if not isinstance(rows, slice):
            raise self._no_contents()
        return self.view(len(range(*rows.indices(len(self)))), *self.shape[1:])

    def __iadd__(self, other: "MetaArray") -> "MetaArray":  # type: ignore
        """What is added in place takes no bytes."""
        return self

    def __array__(self, *_, **__):
        raise self._no_contents()

    def _no_contents(self) -> TypeError:
        return TypeError(f"{self!r} is on paper and has no contents to compute with; profile(...) takes it")

    def __repr__(self) -> str:
        return f"MetaArray({self.shape}, {called(self.dtype)})"


def _read_shape(shape: Any) -> tuple[int, ...]:
    sizes = listed("MetaArray", "a shape, such as (8, 64)", shape)
    return tuple(whole("MetaArray", "every size of its shape", size, low=0) for size in sizes)


Some = np.ndarray  #: or a MetaArray
ARRAYS = (np.ndarray, MetaArray)


def root_of(array: Some) -> Some:
    """The array that owns the bytes which this one views."""
    while isinstance(array.base, ARRAYS):
        array = array.base
    return array


def like(*arrays: Some, shape: tuple[int, ...] | None = None, dtype: Any = None) -> MetaArray:
    """A meta array for what is computed from these, in the first one's shape and NumPy's dtype for all."""
    dtype = dtype or result_type(*(array.dtype for array in arrays))
    return MetaArray(arrays[0].shape if shape is None else shape, dtype)


def floated(array: Some) -> MetaArray:
    """A meta array for the array times a Python float: whole numbers become float64."""
    return like(array, dtype=result_type(array.dtype, 1.0))


def of_parameters(parameters: dict[str, np.ndarray], *read: Some) -> dict[str, MetaArray]:
    """Gradients of these parameters, computed from what is ``read``."""
    return {name: like(*read, shape=array.shape) for name, array in parameters.items()}
