"""Closed forms for models whose weights are cut or copied over devices: what each device keeps, and sends.

Psi is the number of weights. Weights, gradients and activations are in 2-byte numbers; an optimizer keeps
12 bytes more for each weight, as ``MixedPrecision(Adam())`` does: a copy of the weight, m and v, 4 bytes
each. Bytes sent are those of one of n devices, if each sends to the next one in a ring: (n-1)/n of an array
to gather it, as much to sum its pieces, and both for an all-reduce. ``formulas`` has all of these by name.
"""

from fractions import Fraction
from numbers import Integral

from gpipe_sim.errors import whole
from gpipe_sim.papers.domain import formula


@formula
def zero_memory(parameters: int, devices: int, stage: Integral) -> Fraction:
    """The bytes that each of n copies keeps of Psi weights: 16 Psi, and less by stage of ZeRO.

    Stage 0 is plain data parallelism. The copies share out the optimizer's state in stage 1, which leaves
    4 Psi + 12 Psi/n; the gradients too in stage 2, 2 Psi + 14 Psi/n; and the weights in stage 3, 16 Psi/n.
    Activations are not counted. Rajbhandari et al. 2020, arXiv:1910.02054, figure 1: 120, 31.4, 16.6 and
    1.9 GB for 7.5 billion weights on 64 devices.
    """
    shared = (0, 12, 14, 16)[_stage("zero_memory", stage)]
    return parameters * (16 - shared + Fraction(shared, devices))


@formula
def zero_bytes(parameters: int, devices: int, stage: Integral) -> Fraction:
    """The bytes that each of n copies sends in a step: 4 Psi (n-1)/n, and 6 Psi (n-1)/n in stage 3 of ZeRO.

    That is 2 Psi and 3 Psi numbers in Rajbhandari et al. 2020, arXiv:1910.02054, section 7, who leave out
    (n-1)/n. Stages 0 to 2 sum the gradients, Psi, and gather them, or the new weights, Psi. Stage 3 gathers
    the weights twice, once for the forward and once for the backward, and sums the gradients.
    """
    times = 3 if _stage("zero_bytes", stage) == 3 else 2
    return times * 2 * parameters * Fraction(devices - 1, devices)


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


def _stage(formula: str, stage: Integral) -> int:
    return whole(formula, "stage", stage, 0, 3)
