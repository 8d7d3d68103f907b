"""Closed forms of bubbles as times, also where messages take time. ``formulas`` has all of these by name.

The zero-bubble papers write T_F, T_B and T_W for the times of F, I and W of one microbatch on one device, and
c for how long a message is on its way; sending keeps no device busy, and messages do not wait for each other.
The bubble is a time: by how much the longest span (last end - first start) of any device exceeds its work,
M (T_F + T_B + T_W). Every dependency between stages counts.

The terms without c are the papers'. Those with c follow from the orders. Each says up to which c it is exact;
with longer messages the bubble grows faster than that, because then a device waits for some that it did not
wait for before.
"""

from fractions import Fraction
from numbers import Real

from gpipe_sim.core.timeline import number
from gpipe_sim.papers.domain import formula


@formula
def gpipe_bubble_time(
    devices: int, forward: Real = 1, input_grad: Real = 1, weight_grad: Real = 1, comm: Real = 0
) -> Real:
    """(K-1)(T_F+T_B+T_W) + 2(K-1)c for any M and c: each boundary is waited for once there and once back.

    After that, messages arrive as fast as they are worked on. Huang et al. 2019, arXiv:1811.06965, section
    2.3, without c.
    """
    return (devices - 1) * (forward + input_grad + weight_grad + 2 * comm)


@formula
def one_f_one_b_bubble_time(
    devices: int,
    microbatches: int,
    forward: Real = 1,
    input_grad: Real = 1,
    weight_grad: Real = 1,
    comm: Real = 0,
) -> Real:
    """(K-1)(T_F+T_B+T_W) + (2(K-1) + 2 floor((M-1)(K-1)/K)) c for any M and c: 1F1B's bubble time.

    For K dividing M the latter is (2(K-1)(M/K+1) - 2)c. It grows with M because 1F1B waits for messages in
    its steady state too: it lets no forward run ahead of the backward before it. Qi et al. 2024,
    arXiv:2401.10241, table 2, without c.
    """
    steady = (microbatches - 1) * (devices - 1) // devices
    return (devices - 1) * (forward + input_grad + weight_grad) + 2 * (devices - 1 + steady) * comm


@formula
def interleaved_bubble_time(
    devices: int,
    stages_per_device: int,
    forward: Real = 1,
    input_grad: Real = 1,
    weight_grad: Real = 1,
    comm: Real = 0,
) -> Real:
    """(K-1)(T_F+T_B+T_W)/V + (2VK-2)c, for K dividing M; T_F, T_B and T_W are those of all V stages.

    Exact up to c = min(T_F, T_B+T_W)/V; ValueError for longer messages. One device sends none: 0 for K = 1.

    Narayanan et al. 2021, arXiv:2104.04473, section 2.2.2, without c. The interleaved column of Qi et al.
    2024, arXiv:2401.10241, table 5, has Kc less: there, between two stages of a device, only the first of
    each group of K microbatches waits for the stage before.
    """
    if devices == 1:
        return 0
    shorter = min(forward, input_grad + weight_grad)
    _require_short("interleaved_bubble_time", comm, "min(T_F, T_B+T_W)/V", shorter, stages_per_device)
    work = Fraction(devices - 1, stages_per_device) * (forward + input_grad + weight_grad)
    return work + (2 * stages_per_device * devices - 2) * comm


@formula
def zbh1_bubble_time(
    devices: int, forward: Real = 1, input_grad: Real = 1, weight_grad: Real = 1, comm: Real = 0
) -> Real:
    """(K-1)(T_F + T_B - T_W) + 4(K-1)c, for T_W at most T_F and T_B; if c > 0, for M >= 2K-1.

    Exact up to c = T_W/2; ValueError for longer messages, or a longer W. Qi et al. 2024, arXiv:2401.10241,
    table 2, without c.
    """
    _require_small("zbh1_bubble_time", forward, input_grad, weight_grad)
    _require_short("zbh1_bubble_time", comm, "T_W/2", weight_grad, 2)
    return (devices - 1) * (forward + input_grad - weight_grad + 4 * comm)


@formula
def zbh2_bubble_time(
    devices: int, forward: Real = 1, input_grad: Real = 1, weight_grad: Real = 1, comm: Real = 0
) -> Real:
    """(K-1)(T_F + T_B - 2 T_W) + 2(K-1)c, for T_W at most T_F and T_B, and M >= 2K-1.

    Exact up to c = (T_F + T_B)/2; ValueError for longer messages, or a longer W. Qi et al. 2024,
    arXiv:2401.10241, table 2, without c.
    """
    _require_small("zbh2_bubble_time", forward, input_grad, weight_grad)
    _require_short("zbh2_bubble_time", comm, "(T_F + T_B)/2", forward + input_grad, 2)
    return (devices - 1) * (forward + input_grad - 2 * weight_grad + 2 * comm)


def _require_small(formula: str, forward: Real, input_grad: Real, weight_grad: Real) -> None:
    """The zero-bubble papers' condition: with a longer W the formulas do not hold."""
    if weight_grad > min(forward, input_grad):
        raise ValueError(
            f"{formula} is for T_W at most T_F and T_B (got T_W = {weight_grad}, "
            f"T_F = {forward}, T_B = {input_grad})"
        )


def _require_short(formula: str, comm: Real, words: str, times: Real, parts: int) -> None:
    """With longer messages a device waits for more of them than the formula counts."""
    if parts * comm > times:
        most = number(times / parts)
        raise ValueError(f"{formula} is for c at most {words}, which is {most} (got c = {number(comm)})")
