"""Closed forms from papers, exact as ``Fraction``. No metric calls one.

There are K devices, M microbatches and V stages per device; t_f and t_b are the times of one microbatch's
forward and full backward at one stage. Forms of bubbles and makespans assume equal stages, and that messages
take no time.

In those for Transformers a model has L blocks of h features and a heads, and knows V tokens; a microbatch is
b sequences of s places. The network in a block is 4h wide. Activations are in 2-byte numbers, and dropout
keeps a byte for each entry.

In those for copies, n is how many there are, t the devices that share a layer, and Psi the number of weights.
Weights, gradients and activations are in 2-byte numbers; an optimizer keeps 12 bytes more for each weight, as
``MixedPrecision(Adam())`` does: a copy of the weight, m and v, 4 bytes each. Bytes sent are those of one
device, if each sends to the next one in a ring: (n-1)/n of an array to gather it, as much to sum its pieces,
and both for an all-reduce.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import wraps
from inspect import signature
from math import ceil
from numbers import Integral, Rational

from gpipe_sim.core.numbers import quotient
from gpipe_sim.errors import Real, duration, got, whole


def formula(function: Callable) -> Callable:
    """A formula whose sizes are whole numbers of at least 1, and whose times are finite and not negative.

    TypeError or ValueError, by the name of the argument, for anything else.
    """
    parameters, owner = signature(function), function.__name__

    @wraps(function)
    def checked(*args, **kwargs):
        given = parameters.bind(*args, **kwargs)
        read = given.arguments
        for name, value in list(read.items()):
            kind = parameters.parameters[name].annotation
            if kind is int:
                read[name] = whole(owner, name, value)
            elif kind is Real:
                read[name] = duration(owner, name, value)
        return function(*given.args, **given.kwargs)

    return checked


@formula
def gpipe_bubble(devices: int, microbatches: int) -> Fraction:
    """(K-1)/(K-1+M): the bubble fraction, idle time over all device time, of GPipe and of 1F1B.

    Huang et al. 2019, arXiv:1811.06965, section 2.3.
    """
    return interleaved_bubble(devices, microbatches, stages_per_device=1)


@formula
def interleaved_bubble(devices: int, microbatches: int, stages_per_device: int) -> Fraction:
    """(K-1)/(K-1+VM): the bubble fraction of interleaved 1F1B, if K divides M.

    Narayanan et al. 2021, arXiv:2104.04473, section 2.2, gives it as the bubble overhead (K-1)/(VM).
    """
    return Fraction(devices - 1, devices - 1 + stages_per_device * microbatches)


@formula
def gpipe_makespan(devices: int, microbatches: int, forward: Real = 1, backward: Real = 2) -> Real:
    """(M+K-1)(t_f+t_b): the makespan of one step of GPipe or 1F1B."""
    return (microbatches + devices - 1) * (forward + backward)


@formula
def gpipe_remat_makespan(devices: int, microbatches: int, forward: Real = 1, backward: Real = 2) -> Real:
    """(M+K-1)(t_f+t_b) + M t_f: GPipe that recomputes every microbatch, with recomputes that start early.

    The bubble is no longer than without recompute, because a device recomputes while it waits for its first
    gradient. Huang et al. 2019, arXiv:1811.06965, section 2.3, says so in words.
    """
    return gpipe_makespan(devices, microbatches, forward, backward) + microbatches * forward


@formula
def gpipe_messages(devices: int, microbatches: int, stages_per_device: int = 1) -> int:
    """2(KV-1)M: each microbatch's activation, and its gradient, crosses every boundary between stages.

    It counts on neighbouring stages being on different devices. A single device sends none.
    """
    if devices == 1:
        return 0
    return 2 * (devices * stages_per_device - 1) * microbatches


@formula
def microbatches_for_bubble(devices: int, bubble: Rational | str | float, stages_per_device: int = 1) -> int:
    """The smallest M for which the bubble fraction (K-1)/(K-1+VM) is at most ``bubble``.

    It is that of GPipe and 1F1B, and with several stages per device that of interleaved 1F1B; then M is the
    smallest multiple of K. It is computed exactly: give ``bubble`` as a Fraction or as text ("0.1"); a float
    is read as it prints. ValueError unless 0 < bubble < 1.
    """
    target = _fraction_between_0_and_1(bubble)
    if target is None:
        raise ValueError(f"microbatches_for_bubble needs a bubble between 0 and 1 {got(bubble)}")
    group = devices if stages_per_device > 1 else 1
    return group * max(1, ceil((devices - 1) * (1 - target) / (target * stages_per_device * group)))


@formula
def remat_activation_units(microbatches_held: int, boundary_input: Real, working_set: Real) -> Real:
    """The boundary inputs of all microbatches in flight, plus the working set of the one being recomputed.

    The result is in the unit of the arguments. Huang et al. 2019, arXiv:1811.06965, section 2.3:
    N + (L/K)(N/M).
    """
    return microbatches_held * boundary_input + working_set


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
def zero_memory(parameters: int, devices: int, stage: Integral) -> Fraction:
    """The bytes that each of n copies keeps of Psi weights: 16 Psi, and less by stage of ZeRO.

    Stage 0 is plain data parallelism. The copies share out the optimizer's state in stage 1, which leaves
    4 Psi + 12 Psi/n; the gradients too in stage 2, 2 Psi + 14 Psi/n; and the weights in stage 3, 16 Psi/n.
    Activations are not counted. Rajbhandari et al. 2020, arXiv:1910.02054, figure 1: 120, 31.4, 16.6 and
    1.9 GB for 7.5 billion weights on 64 devices.
    """
    shared = (0, 12, 14, 16)[whole("zero_memory", "stage", stage, 0, 3)]
    return parameters * (16 - shared + Fraction(shared, devices))


@formula
def tensor_parallel_bytes(sequence: int, batch: int, features: int, devices: int) -> Fraction:
    """16bsh (t-1)/t: the bytes that each of t devices sends for a block and a microbatch, both ways.

    Four all-reduces of bsh numbers: one in the forward and one in the backward, of attention and of the
    network. Narayanan et al. 2021, arXiv:2104.04473, section 3.2, count 8bsh (t-1)/t numbers. What a stage
    sends to the next one, ``message_bytes``, does not grow with its blocks.
    """
    return 16 * batch * sequence * features * Fraction(devices - 1, devices)


@formula
def tensor_parallel_block_memory(
    sequence: int, batch: int, features: int, heads: int, devices: int
) -> Fraction:
    """sbh (10 + 24/t + 5as/(ht)): the bytes that each of t devices saves of a block for one microbatch.

    The 10sbh that every device has are the two LayerNorms, what goes into attention and into the network, and
    the two dropouts behind them. Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.1; they go on to deal
    out these as well, by places of the sequence. ValueError unless t divides the heads.
    """
    if heads % devices:
        raise ValueError(
            "tensor_parallel_block_memory is for devices that divide the heads "
            f"(got t = {devices}, a = {heads})"
        )
    shared = 24 * sequence * batch * features + 5 * heads * sequence**2 * batch
    return 10 * sequence * batch * features + Fraction(shared, devices)


@formula
def transformer_flops(blocks: int, features: int, tokens: int, sequence: int, batch: int) -> int:
    """96 b s L h^2 (1 + s/6h + V/16Lh): the FLOPs of a step on b sequences that recomputes every block.

    A block runs its forward twice, and its backward takes as long as two; the head is not recomputed.
    Narayanan et al. 2021, arXiv:2104.04473, equation 3.
    """
    return 2 * batch * sequence * features * (8 * blocks * (6 * features + sequence) + 3 * tokens)


@formula
def message_bytes(sequence: int, batch: int, features: int) -> int:
    """2sbh: the bytes of one message from stage to stage, of b sequences, in 2-byte numbers; as many go back.

    Narayanan et al. 2021, arXiv:2104.04473, section 3.2, which counts bsh numbers for each pair of devices
    that follow each other and each microbatch; V stages per device make it V times as many.
    """
    return 2 * sequence * batch * features


@formula
def block_memory(sequence: int, batch: int, features: int, heads: int) -> int:
    """sbh (34 + 5as/h): the bytes that a block saves of one microbatch.

    Korthikanti et al. 2022, arXiv:2205.05198, section 4. They leave out what is small: 1/std of a LayerNorm.
    """
    if features % heads:
        raise ValueError(f"attention needs heads that divide its features (got a = {heads}, h = {features})")
    return 34 * sequence * batch * features + 5 * heads * sequence**2 * batch


def _fraction_between_0_and_1(number: Rational | str | float) -> Fraction | None:
    """The number exactly, a float as it prints; None unless it is one between 0 and 1, and not too long."""
    try:
        text = str(number)
        near = float(Fraction(text)) if "/" in text else float(text)
        return Fraction(text) if 0 < near < 1 and len(text) < 1000 else None
    except Exception:  # no number, a whole one of 5,000 digits, or of a class of one's own
        return None
