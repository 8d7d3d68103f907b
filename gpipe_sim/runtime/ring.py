"""Ring all-reduce on real arrays: simulated devices send each other pieces until all have the sum."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpipe_sim.errors import got, listed, numbers
from gpipe_sim.runtime.partition import Gradients
from gpipe_sim.schedule.ring import ring_moves

Array = np.ndarray


class RingSum(NamedTuple):
    """``sums`` has each device's own array of the sum, ``sent`` the bytes that each device has sent."""

    sums: tuple[Array, ...]
    sent: tuple[int, ...]


def ring_all_reduce(arrays: Sequence[Array]) -> RingSum:
    """The sum of the arrays, one of each device, in 2 (n - 1) rounds, in which pieces go around a ring.

    All get the very same bits, because each piece is summed along the ring once and then copied. A device
    sends all pieces but one in each half: 2 (n - 1)/n of its array's bytes, on average over the devices where
    the array cannot be cut evenly. The arrays, (any shape, the same for all), are left as they are.

    TypeError for anything but arrays of numbers, ValueError without one, or if shapes or dtypes differ.
    Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations".
    """
    own = _read(arrays)
    devices, shape = len(own), own[0].shape
    vectors = [array.flatten() for array in own]
    held = [np.array_split(vector, devices) for vector in vectors]  # views: what changes is the vector
    sent = [0] * devices
    for _, source, target, piece, adds in ring_moves(devices):
        message = held[source][piece].copy()
        sent[source] += message.nbytes
        if adds:
            held[target][piece] += message
        else:
            held[target][piece][:] = message
    return RingSum(tuple(vector.reshape(shape) for vector in vectors), tuple(sent))


def _read(arrays: Sequence[Array]) -> list[Array]:
    such_as = "an array of each device, such as [np.ones(4), np.ones(4)]"
    own = [
        numbers("ring_all_reduce", "each array", each) for each in listed("ring_all_reduce", such_as, arrays)
    ]
    if not own:
        raise ValueError(f"ring_all_reduce needs {such_as} {got(arrays)}")
    for device, array in enumerate(own):
        if array.dtype.kind == "b":
            raise TypeError(f"ring_all_reduce needs numbers that can be added, but device {device} has bool")
        if (array.shape, array.dtype) != (own[0].shape, own[0].dtype):
            here, there = (f"{each.dtype} of shape {each.shape}" for each in (array, own[0]))
            raise ValueError(
                f"ring_all_reduce adds like to like, but device {device} has {here}, and device 0 {there}"
            )
    return own


def summed(copies: Sequence[Gradients]) -> tuple[Gradients, Sequence[int]]:
    """The gradients of a stage's copies, summed, as each device has them then; and the bytes that each sent.

    All of a dtype go around as one vector, as in PyTorch's buckets: small arrays would be all latency.
    """
    first, *others = copies
    if not others:
        return first, [0]
    found: Gradients = {}
    sent = np.zeros(len(copies), np.int64)
    for dtype in dict.fromkeys(gradient.dtype for gradient in first.values()):
        keys = [key for key, gradient in first.items() if gradient.dtype == dtype]
        around = ring_all_reduce([np.concatenate([copy[key].ravel() for key in keys]) for copy in copies])
        ends = np.cumsum([first[key].size for key in keys])[:-1]
        parts = np.split(around.sums[0], ends)
        found |= {key: part.reshape(first[key].shape) for key, part in zip(keys, parts, strict=True)}
        sent += around.sent
    return found, sent.tolist()
