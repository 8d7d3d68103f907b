"""The ring all-reduce, as plain data: who sends which piece to whom, round by round.

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

from collections.abc import Iterator
from typing import NamedTuple

from gpipe_sim.errors import require_few, whole


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
    require_few("ring_moves", 2 * (devices - 1) * devices, "moves")
    return list(_moves(devices))


def _moves(devices: int) -> Iterator[Move]:
    for turn in range(2 * (devices - 1)):
        for source in range(devices):
            target, piece = (source + 1) % devices, (source - turn) % devices
            yield Move(turn, source, target, piece, turn < devices - 1)
