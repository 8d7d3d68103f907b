"""What an all-reduce takes: bytes and time, by the alpha-beta model of a ring."""

from fractions import Fraction
from numbers import Real

from gpipe_sim.core.numbers import quotient
from gpipe_sim.errors import got
from gpipe_sim.papers.domain import formula


@formula
def ring_all_reduce_bytes(devices: int, size: Real) -> Real:
    """2(n-1)/n S: what each device sends, and receives, to sum S bytes with n - 1 others.

    No algorithm sends less. Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of
    workstations"; nccl-tests (PERFORMANCE.md) calls 2(n-1)/n the factor of its bus bandwidth.
    """
    return size * Fraction(2 * (devices - 1), devices)


@formula
def ring_all_reduce_time(devices: int, size: Real, latency: Real, bandwidth: Real) -> Real:
    """2(n-1)(alpha + S/(nB)): n - 1 rounds of a reduce-scatter and as many of an all-gather.

    Each round every device sends S/n bytes to the next, over a link with ``latency`` alpha, in the unit of
    time, and ``bandwidth`` B, in bytes for each. Adding up takes no time. ValueError for a bandwidth of 0.
    Thakur, Rabenseifner and Gropp 2005, "Optimization of collective communication operations in MPICH".
    """
    if not bandwidth:
        raise ValueError(f"ring_all_reduce_time needs bandwidth > 0 {got(bandwidth)}")
    return 2 * (devices - 1) * (latency + quotient(size, devices * bandwidth))


@formula
def copy_and_compute_time(pieces: int, copy: Real, compute: Real) -> Real:
    """(copy + compute)/n + (n-1)/n max(copy, compute): n pieces, each computed while the next is copied.

    ``copy`` and ``compute`` are the times of all pieces together. With many pieces it comes down to the
    larger of the two, and never below: that is all that overlap can do. With one piece it is their sum.
    """
    return quotient(copy + compute + (pieces - 1) * max(copy, compute), pieces)
