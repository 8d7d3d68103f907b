"""Closed forms from papers, exact as ``Fraction``. No metric calls one.

There are K devices, M microbatches and V stages per device; t_f and t_b are the times of one microbatch's
forward and full backward at one stage. All formulas assume equal stages, and that messages take no time,
unless they take ``comm``, how long a message is on its way: see ``bubble_times``.

The zero-bubble papers write M_B and M_W for what one microbatch holds from F until I, and from I until W.
"""

from fractions import Fraction
from math import ceil
from numbers import Rational, Real

from gpipe_sim.papers.bubble_times import (  # noqa: F401 (they are formulas too)
    gpipe_bubble_time,
    interleaved_bubble_time,
    one_f_one_b_bubble_time,
    zbh1_bubble_time,
    zbh2_bubble_time,
)
from gpipe_sim.papers.collectives import (  # noqa: F401
    copy_and_compute_time,
    ring_all_reduce_bytes,
    ring_all_reduce_time,
)
from gpipe_sim.papers.domain import formula
from gpipe_sim.papers.shards import (  # noqa: F401
    tensor_parallel_block_memory,
    tensor_parallel_bytes,
    zero_bytes,
    zero_memory,
)
from gpipe_sim.papers.staleness import (  # noqa: F401
    double_buffering_memory,
    double_buffering_version,
    flushed_makespan,
    gpipe_recompute_memory,
    noam,
    pipedream_makespan,
    stashing_delay,
    stashing_versions,
    vertical_sync_delay,
    vertical_sync_versions,
)
from gpipe_sim.papers.transformers import (  # noqa: F401
    attention_core_bytes_per_flop,
    attention_core_flops_share,
    attention_core_memory,
    attention_memory,
    block_memory,
    block_pending_memory,
    full_recompute_memory,
    message_bytes,
    mlp_bytes_per_flop,
    mlp_memory,
    norms_memory,
    selective_recompute_freed,
    selective_recompute_memory,
    transformer_flops,
    transformer_parameters,
)


@formula
def naive_idle(devices: int) -> Fraction:
    """(K-1)/K: the bubble fraction if only one device works at a time."""
    return Fraction(devices - 1, devices)


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
def gpipe_overhead(devices: int, microbatches: int) -> Fraction:
    """(K-1)/M: the bubble overhead, idle time over useful time, of GPipe and of 1F1B.

    Narayanan et al. 2021, arXiv:2104.04473, section 2.2.1, where it is called the bubble.
    """
    return Fraction(devices - 1, microbatches)


@formula
def gpipe_speedup(devices: int, microbatches: int) -> Fraction:
    """KM/(K+M-1): how many times faster than one device GPipe is. The inverse is (1/K) (1 + (K-1)/M)."""
    return Fraction(devices * microbatches, devices + microbatches - 1)


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
def one_f_one_b_in_flight(devices: int, microbatches: int, device: int) -> int:
    """min(K-k, M): the most microbatches that 1F1B holds on device k, counted from 0.

    Narayanan et al. 2021, arXiv:2006.09503, section 3.2.
    """
    return min(devices - device, microbatches)


@formula
def interleaved_in_flight(devices: int, microbatches: int, stages_per_device: int, device: int) -> int:
    """2(K-k-1) + (V-1)K + 1, but at most VM: the stage-activations that interleaved 1F1B holds on device k.

    For K dividing M. It follows from the warm-up in Narayanan et al. 2021, arXiv:2104.04473, section 2.2.2.
    """
    if microbatches % devices:
        raise ValueError(f"interleaved_in_flight is for K dividing M (got K = {devices}, M = {microbatches})")
    warmup = 2 * (devices - device - 1) + (stages_per_device - 1) * devices
    return min(warmup + 1, stages_per_device * microbatches)


@formula
def interleaved_memory_factor(devices: int, stages_per_device: int) -> Fraction:
    """1 + (K-1)/(KV): what interleaved 1F1B holds on device 0, over what 1F1B does, for K dividing M >= 2K.

    1F1B holds K microbatches there, of 1/K of the model each: as much as one microbatch leaves in the whole
    model. Korthikanti et al. 2022, arXiv:2205.05198, section 4.
    """
    return 1 + Fraction(devices - 1, devices * stages_per_device)


@formula
def zbh1_memory(devices: int, device: int, before_input_grad: Real = 1, before_weight_grad: Real = 1) -> Real:
    """(K-k) M_B + k M_W: the most that ZB-H1 holds on device k, counted from 0, for M >= K.

    Qi et al. 2024, arXiv:2401.10241, section 2.3, where workers count from 1. ValueError for M_W > M_B: then
    a device holds most after an I, which is more than this.
    """
    _require_shrinks("zbh1_memory", before_input_grad, before_weight_grad)
    return (devices - device) * before_input_grad + device * before_weight_grad


@formula
def zbh2_memory(devices: int, device: int, before_input_grad: Real = 1, before_weight_grad: Real = 1) -> Real:
    """(2(K-k)-1) M_B + 2k M_W: the most that ZB-H2 holds on device k, counted from 0, for M >= 2K-1.

    Qi et al. 2024, arXiv:2401.10241, section 2.3, where workers count from 1. ValueError for M_W > M_B: then
    a device holds most after an I, which is more than this.
    """
    _require_shrinks("zbh2_memory", before_input_grad, before_weight_grad)
    return (2 * (devices - device) - 1) * before_input_grad + 2 * device * before_weight_grad


@formula
def v_half_in_flight(devices: int) -> int:
    """2((K+2)//2): the most stage-activations of V-Half; a microbatch leaves two on each device.

    Qi et al. 2024, arXiv:2405.15362.
    """
    return 2 * ((devices + 2) // 2)


@formula
def v_min_in_flight(devices: int) -> int:
    """2((K+4)//3): the most stage-activations of V-Min. Qi et al. 2024, arXiv:2405.15362."""
    return 2 * ((devices + 4) // 3)


@formula
def dualpipe_bubble_time(devices: int, pair: Real, backward: Real, weight_grad: Real) -> Real:
    """(K/2-1)(F&B + B - 3W): times of a pair, a full backward and a weight gradient, for T_F = T_B >= T_W.

    If a pair does not take as long as its two halves, this is how long the two middle devices wait.
    DeepSeek-AI 2024, arXiv:2412.19437, table 2, in times of one stage. ValueError for an odd K.
    """
    _require_even("dualpipe_bubble_time", devices)
    if 2 * weight_grad > backward:
        raise ValueError(
            f"dualpipe_bubble_time is for a weight gradient of at most half a full backward "
            f"(got {weight_grad} of {backward})"
        )
    return (devices // 2 - 1) * (pair + backward - 3 * weight_grad)


@formula
def dualpipev_bubble_time(devices: int, pair: Real, backward: Real, weight_grad: Real) -> Real:
    """(K-1)(F&B + B - 3W): as DualPipe on twice as many devices, which has as many stages.

    github.com/deepseek-ai/DualPipe, in times of one stage.
    """
    return dualpipe_bubble_time(2 * devices, pair, backward, weight_grad)


@formula
def dualpipe_in_flight(devices: int) -> int:
    """K+1: the most activations on every device; DualPipeV on half as many devices holds as many.

    DeepSeek-AI 2024, arXiv:2412.19437, table 2. ValueError for an odd K.
    """
    _require_even("dualpipe_in_flight", devices)
    return devices + 1


@formula
def chimera_bubble(devices: int, microbatches: int) -> Fraction:
    """(K-2)/(2M+K-2): the bubble fraction if a backward takes as long as a forward and K divides M.

    Li and Hoefler 2021, arXiv:2107.06925. ValueError for an odd K, or one that does not divide M.
    """
    _require_even("chimera_bubble", devices)
    if microbatches % devices:
        raise ValueError(f"chimera_bubble is for K dividing M (got K = {devices}, M = {microbatches})")
    return Fraction(devices - 2, 2 * microbatches + devices - 2)


@formula
def chimera_bubble_of_one_unit(devices: int) -> Fraction:
    """(K-2)/(3K/2+K-2): the bubble fraction if M = K and a backward takes as long as two forwards.

    Li and Hoefler 2021, arXiv:2107.06925. ValueError for an odd K.
    """
    _require_even("chimera_bubble_of_one_unit", devices)
    return Fraction(2 * (devices - 2), 3 * devices + 2 * (devices - 2))


@formula
def chimera_in_flight(devices: int, device: int) -> int:
    """K/2+1 on the two outer devices, up to K on the two inner ones: the most activations, if K divides M.

    Li and Hoefler 2021, arXiv:2107.06925, table 2. ValueError for an odd K.
    """
    _require_even("chimera_in_flight", devices)
    return devices // 2 + 1 + min(device, devices - 1 - device)


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
        raise ValueError(f"microbatches_for_bubble needs a bubble between 0 and 1 (got {str(bubble)[:50]})")
    group = devices if stages_per_device > 1 else 1
    return group * max(1, ceil((devices - 1) * (1 - target) / (target * stages_per_device * group)))


@formula
def remat_activation_units(microbatches_held: int, boundary_input: Real, working_set: Real) -> Real:
    """The boundary inputs of all microbatches in flight, plus the working set of the one being recomputed.

    The result is in the unit of the arguments. Huang et al. 2019, arXiv:1811.06965, section 2.3:
    N + (L/K)(N/M).
    """
    return microbatches_held * boundary_input + working_set


def _fraction_between_0_and_1(number: Rational | str | float) -> Fraction | None:
    """The number exactly, a float as it prints; None unless it is one between 0 and 1, and not too long."""
    text = str(number)
    try:
        near = float(Fraction(text)) if "/" in text else float(text)
        return Fraction(text) if 0 < near < 1 and len(text) < 1000 else None
    except (ValueError, ZeroDivisionError, OverflowError):
        return None


def _require_even(formula: str, devices: int) -> None:
    if devices % 2:
        raise ValueError(f"{formula} needs an even number of devices (got {devices})")


def _require_shrinks(formula: str, before_input_grad: Real, before_weight_grad: Real) -> None:
    if before_weight_grad > before_input_grad:
        raise ValueError(
            f"{formula} is for M_W at most M_B (got M_W = {before_weight_grad}, M_B = {before_input_grad})"
        )
