"""The ring all-reduce: who sends which piece to whom, as plain data and on real arrays.

Every device has a vector, cut into as many pieces as there are devices. Each round each device sends one
piece to the next one. In the first n - 1 rounds, the reduce-scatter, the receiver adds what arrives to its
own; then each device has one piece of the sum. In n - 1 more, the all-gather, these pieces go around:

    round         0      1      2      3         pieces that device 0 sends: 0, then those that reached it
    0 to 1      p0     p2     p1     p0
    1 to 2      p1     p0     p2     p1
    2 to 0      p2     p1     p0     p2
                 added         copied

Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations".
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpipe_sim.core.device import Device
from gpipe_sim.core.meta_array import MetaArray
from gpipe_sim.core.partition import Gradients
from gpipe_sim.errors import got, listed, numbers, require_few, whole

Array = np.ndarray


class Move(NamedTuple):
    """In this round device ``source`` sends a piece to ``target``, which adds it to its own, or keeps it."""

    round: int
    source: int
    target: int
    piece: int
    adds: bool


def ring_moves(devices: int) -> list[Move]:
    """The moves of a ring of so many devices, in an order in which they can be done one by one.

    ValueError for less than 1 device, or for more than 10,000,000 moves; TypeError for no whole number.
    """
    devices = whole("ring_moves", "devices", devices)
    rounds = 2 * (devices - 1)
    require_few("ring_moves", rounds * devices, "moves")
    return [
        Move(turn, source, (source + 1) % devices, (source - turn) % devices, adds=turn < devices - 1)
        for turn in range(rounds)
        for source in range(devices)
    ]


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


def sum_copies(held: Sequence[Device], stage: int) -> None:
    """Sum the gradients of a stage's copies, in place, on the devices that have any; each notes what it sent.

    What is summed already is left alone. Meta arrays have no numbers to add.
    """
    if any(stage in device.summed for device in held):
        return
    copies = [device.gradients[stage] for device in held]
    if isinstance(next(iter(copies[0].values())), MetaArray):
        return
    for device, sent in zip(held, _go_around(copies), strict=True):
        device.summed.add(stage)
        device.ring_bytes += sent


def _go_around(copies: Sequence[Gradients]) -> list[int]:
    """Sum them in place; the bytes that each device sent.

    All of a dtype go around as one vector, as in PyTorch's buckets: small arrays would be all latency.
    """
    sent = np.zeros(len(copies), np.int64)
    for dtype in dict.fromkeys(gradient.dtype for gradient in copies[0].values()):
        keys = [key for key, gradient in copies[0].items() if gradient.dtype == dtype]
        around = ring_all_reduce([np.concatenate([copy[key].ravel() for key in keys]) for copy in copies])
        ends = np.cumsum([copies[0][key].size for key in keys])[:-1]
        for copy, total in zip(copies, around.sums, strict=True):
            for key, part in zip(keys, np.split(total, ends), strict=True):
                copy[key][...] = part.reshape(copy[key].shape)
        sent += around.sent
    return sent.tolist()
