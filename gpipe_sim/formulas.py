"""Closed forms from papers, exact as ``Fraction``. A measurement never calls one.

K devices, M microbatches, V stages per device; t_f and t_b are the times of one microbatch's forward
and full backward at one stage. All of them assume equal stages and no communication time.
"""

from fractions import Fraction
from math import ceil
from numbers import Rational, Real

from gpipe_sim.schedule import require_count


def naive_idle(devices: int) -> Fraction:
    """(K-1)/K: the idle share of model parallelism without microbatches in parallel."""
    _require(devices=devices)
    return Fraction(devices - 1, devices)


def gpipe_bubble(devices: int, microbatches: int) -> Fraction:
    """(K-1)/(K-1+M): idle over all device time, for GPipe and for 1F1B.

    Huang et al. 2019, arXiv:1811.06965, section 2.3.
    """
    return interleaved_bubble(devices, microbatches, stages_per_device=1)


def interleaved_bubble(devices: int, microbatches: int, stages_per_device: int) -> Fraction:
    """(K-1)/(K-1+VM): interleaved 1F1B, when K divides M.

    Narayanan et al. 2021, arXiv:2104.04473, section 2.2, there as overhead (K-1)/(VM).
    """
    _require(devices=devices, microbatches=microbatches, stages_per_device=stages_per_device)
    return Fraction(devices - 1, devices - 1 + stages_per_device * microbatches)


def gpipe_overhead(devices: int, microbatches: int) -> Fraction:
    """(K-1)/M: idle over useful time, for GPipe and for 1F1B.

    Narayanan et al. 2021, arXiv:2104.04473, section 2.2.1, where it is called the bubble.
    """
    _require(devices=devices, microbatches=microbatches)
    return Fraction(devices - 1, microbatches)


def gpipe_speedup(devices: int, microbatches: int) -> Fraction:
    """KM/(K+M-1): how many times faster than one device. The inverse of 1/K times 1 + (K-1)/M."""
    _require(devices=devices, microbatches=microbatches)
    return Fraction(devices * microbatches, devices + microbatches - 1)


def gpipe_makespan(devices: int, microbatches: int, forward: Real = 1, backward: Real = 2) -> Real:
    """(M+K-1)(t_f+t_b): one step of GPipe or 1F1B."""
    _require(devices=devices, microbatches=microbatches)
    return (microbatches + devices - 1) * (forward + backward)


def gpipe_remat_makespan(devices: int, microbatches: int, forward: Real = 1, backward: Real = 2) -> Real:
    """(M+K-1)(t_f+t_b) + M t_f: GPipe that recomputes everything, each recompute starting early.

    Only the bubble of the plain schedule stays, because while a device waits for its first gradient
    it recomputes. Huang et al. 2019, arXiv:1811.06965, section 2.3, says so in words.
    """
    return gpipe_makespan(devices, microbatches, forward, backward) + microbatches * forward


def one_f_one_b_in_flight(devices: int, microbatches: int, device: int) -> int:
    """min(K-k, M): the most microbatches that 1F1B holds on device k, counted from 0.

    Narayanan et al. 2021, arXiv:2006.09503, section 3.2.
    """
    _require(devices=devices, microbatches=microbatches)
    _require_device(device, devices)
    return min(devices - device, microbatches)


def interleaved_in_flight(devices: int, microbatches: int, stages_per_device: int, device: int) -> int:
    """2(K-k-1) + (V-1)K + 1, at most VM: what interleaved 1F1B holds on device k, in stages.

    For K dividing M; follows from the warm-up in Narayanan et al. 2021, arXiv:2104.04473, section 2.2.2.
    """
    _require(devices=devices, microbatches=microbatches, stages_per_device=stages_per_device)
    _require_device(device, devices)
    warmup = 2 * (devices - device - 1) + (stages_per_device - 1) * devices
    return min(warmup + 1, stages_per_device * microbatches)


def gpipe_messages(devices: int, microbatches: int, stages_per_device: int = 1) -> int:
    """2(KV-1)M: every boundary between stages carries each microbatch's activation and its gradient.

    One device sends none; on more, neighbouring stages are on different devices.
    """
    _require(devices=devices, microbatches=microbatches, stages_per_device=stages_per_device)
    if devices == 1:
        return 0
    return 2 * (devices * stages_per_device - 1) * microbatches


def microbatches_for(devices: int, bubble: Rational | str | float) -> int:
    """The smallest M whose GPipe bubble (K-1)/(K-1+M) is at most the target.

    Exact: give the target as Fraction or text ("0.1"); a float is read as it prints. ValueError
    unless 0 < target < 1.
    """
    _require(devices=devices)
    try:
        target = Fraction(str(bubble))
    except ValueError:
        target = None
    if target is None or not 0 < target < 1:
        raise ValueError(f"microbatches_for needs a bubble between 0 and 1 (got {bubble})")
    return max(1, ceil((devices - 1) * (1 - target) / target))


def remat_activation_units(microbatches_held: int, boundary_input: Real, working_set: Real) -> Real:
    """Boundary inputs of all microbatches in flight, plus the working set of the one being recomputed.

    In the unit of its arguments. Huang et al. 2019, arXiv:1811.06965, section 2.3: N + (L/K)(N/M).
    """
    return microbatches_held * boundary_input + working_set


def _require_device(device: int, devices: int) -> None:
    if not 0 <= device < devices:
        raise ValueError(f"the formula needs a device from 0 to {devices - 1} (got {device})")


def _require(**counts: int) -> None:
    for name, value in counts.items():
        require_count("the formula", name, value)
