"""Closed forms from papers that several tests compare with what is simulated, held and counted.

K devices, M microbatches and V stages per device. T_F, T_B and T_W are the times of F, I and W of one
microbatch on one device, and c is how long a message is on its way; the terms with c follow from the orders.
M_B and M_W are what one microbatch holds from F until I, and from I until W. Those that lessons read are in
``gp.formulas``.
"""

from fractions import Fraction


def gpipe_speedup(K, M) -> Fraction:
    """How many times faster than one device GPipe is. The inverse is (1/K) (1 + (K-1)/M)."""
    return Fraction(K * M, K + M - 1)


def gpipe_bubble_time(K, T_F=1, T_B=1, T_W=1, c=0):
    """For any M and c: it waits at each boundary once there and once back. arXiv:1811.06965, section 2.3."""
    return (K - 1) * (T_F + T_B + T_W + 2 * c)


def one_f_one_b_bubble_time(K, M, T_F=1, T_B=1, T_W=1, c=0):
    """For any M and c: it waits in its steady state too. arXiv:2401.10241, table 2, without c."""
    return (K - 1) * (T_F + T_B + T_W) + 2 * (K - 1 + (M - 1) * (K - 1) // K) * c


def interleaved_bubble_time(K, V, T_F=1, T_B=1, T_W=1, c=0):
    """For K dividing M, times of all V stages, and c up to min(T_F, T_B+T_W)/V.

    arXiv:2104.04473, section 2.2.2, without c. Table 5 of arXiv:2401.10241 has Kc less: there, between two
    stages of a device, only the first of each group of K microbatches waits for the stage before.
    """
    return Fraction(K - 1, V) * (T_F + T_B + T_W) + (2 * V * K - 2) * c * (K > 1)


def zbh1_bubble_time(K, T_F=1, T_B=1, T_W=1, c=0):
    """For T_W at most T_F and T_B, and c up to T_W/2. arXiv:2401.10241, table 2, without c."""
    return (K - 1) * (T_F + T_B - T_W + 4 * c)


def zbh2_bubble_time(K, T_F=1, T_B=1, T_W=1, c=0):
    """For T_W at most T_F and T_B, M >= 2K-1, and c up to (T_F+T_B)/2. arXiv:2401.10241, table 2."""
    return (K - 1) * (T_F + T_B - 2 * T_W + 2 * c)


def zbh1_memory(K, k, M_B=1, M_W=1):
    """The most that device k holds, for M >= K and M_W at most M_B. arXiv:2401.10241, section 2.3."""
    return (K - k) * M_B + k * M_W


def zbh2_memory(K, k, M_B=1, M_W=1):
    """The most that device k holds, for M >= 2K-1 and M_W at most M_B. arXiv:2401.10241, section 2.3."""
    return (2 * (K - k) - 1) * M_B + 2 * k * M_W


def transformer_parameters(blocks, features, tokens, sequence) -> int:
    """A GPT whose head shares the embedding's, without the last LayerNorm. arXiv:2104.04473, equation 2."""
    return (12 * features + 13) * blocks * features + (tokens + sequence) * features
