"""Closed forms of pipelines without a flush: how old weights are, how many versions there are, how long.

An update stands after every e microbatches, which are a mini-batch; j counts mini-batches, and k devices,
both from 0. What a delay counts is updates: mini-batch j comes after j of them, so with a delay of d it uses
version max(j - d, 0). Delays and versions are those of a stream that is long enough to reach them.
``formulas`` has all of these by name.
"""

from numbers import Integral, Real

from gpipe_sim.core.numbers import quotient
from gpipe_sim.errors import got, whole
from gpipe_sim.papers.domain import formula


@formula
def stashing_delay(devices: int, device: int, every: int = 1) -> int:
    """ceil((K-k-1)/e): how many updates old the weights of device k are with weight stashing.

    For e = 1 it is K-k-1, the rule w(t+1) = w(t) - rate * gradient at w1(t-K+1), w2(t-K+2), ..., wK(t) of
    Harlap et al. 2018, arXiv:1806.03377. For larger e it follows from 1F1B's warm-up: K-k-1
    microbatches are ahead of the one whose gradient comes back.
    """
    return -(-(devices - device - 1) // every)


@formula
def stashing_versions(devices: int, device: int, every: int = 1) -> int:
    """ceil((K-k-1)/e) + 1: the versions of its weights that device k holds, the newest among them.

    For e = 1 it is K-k: d on the first of d devices "in the worst case" (Narayanan et al. 2021,
    arXiv:2006.09503, section 2), and one on the last.
    """
    return stashing_delay(devices, device, every) + 1


@formula
def vertical_sync_delay(devices: int, every: int = 1) -> int:
    """ceil((K-1)/e): how many updates old the weights of every device are with vertical sync.

    All take the version that the first device has for a mini-batch: the gradient is at w1(t-K+1), ...,
    wK(t-K+1) for e = 1. Harlap et al. 2018, arXiv:1806.03377.
    """
    return stashing_delay(devices, 0, every)


@formula
def vertical_sync_versions(devices: int, every: int = 1) -> int:
    """ceil((K-1)/e) + 1: the versions that every device holds with vertical sync, K of them for e = 1.

    No weights travel between devices; each keeps its own until the version is used no more.
    """
    return stashing_versions(devices, 0, every)


@formula
def double_buffering_version(devices: int, every: int, microbatch: Integral) -> int:
    """max(floor(m/e) - 1, 0): the version that PipeDream-2BW uses for microbatch m, counted from 0.

    It is the same on every device, and one update old but for the first mini-batch: W(t+1) = W(t) - rate *
    gradient at W(t-1). A device holds two versions. Narayanan et al. 2021, arXiv:2006.09503, section 3.1,
    counts microbatches from 1: max(floor((k-1)/m) - 1, 0). ValueError for e below K, its condition.
    """
    microbatch = whole("double_buffering_version", "microbatch", microbatch, 0)
    if every < devices:
        raise ValueError(
            f"double_buffering_version is for every >= devices (got every = {every}, devices = {devices})"
        )
    return max(microbatch // every - 1, 0)


@formula
def noam(workers: int, input_workers: int = 1) -> int:
    """ceil(n/n_0): how many mini-batches PipeDream lets in, for each worker of the first stage.

    Of n workers in all, n_0 run copies of the first stage. With one worker for each stage it is the number of
    stages: what 1F1B holds on device 0. NUM_OPT_ACTIVE_MINIBATCHES in Harlap et al. 2018, arXiv:1806.03377.
    ValueError for more workers in the first stage than there are.
    """
    if input_workers > workers:
        raise ValueError(f"noam needs input_workers <= workers, here {workers} {got(input_workers)}")
    return -(-workers // input_workers)


@formula
def pipedream_makespan(devices: int, microbatches: int, forward: Real = 1, backward: Real = 2) -> Real:
    """(M+K-1)(t_f+t_b): how long a stream of M microbatches takes without a flush, however often it updates.

    It is that of one step of 1F1B with M microbatches: there is no bubble after the warm-up. Updates take no
    time here. Harlap et al. 2018, arXiv:1806.03377.
    """
    return (microbatches + devices - 1) * (forward + backward)


@formula
def flushed_makespan(
    devices: int, microbatches: int, every: int, forward: Real = 1, backward: Real = 2
) -> Real:
    """(M + n(K-1))(t_f+t_b) with n = ceil(M/e) flushes: how long 1F1B or GPipe takes for the same stream.

    Each flush empties the pipeline: the next mini-batch begins when the last one has ended.
    """
    flushes = -(-microbatches // every)
    return (microbatches + flushes * (devices - 1)) * (forward + backward)


@formula
def double_buffering_memory(devices: int, weights: Real, activations: Real, inputs: Real) -> Real:
    """2|W|/d + |A|/d + d|I|: what PipeDream-2BW with recompute holds on each of d devices.

    |W| are the weights of the whole model, |A| the activations that one microbatch leaves in all its layers,
    and |I| what comes into a stage for one microbatch; the result is in their unit. Two versions of the
    weights, the stage that is being recomputed, and a boundary input for each of d microbatches in flight.
    Gradients and the optimizer's state are not counted. Narayanan et al. 2021, arXiv:2006.09503.
    """
    return quotient(2 * weights + activations, devices) + devices * inputs


@formula
def gpipe_recompute_memory(
    devices: int, microbatches: int, weights: Real, activations: Real, inputs: Real
) -> Real:
    """|W|/d + |A|/d + m|I|: what GPipe with recompute holds on each of d devices, for m microbatches.

    As ``double_buffering_memory``, with one version of the weights and all m microbatches in flight.
    Narayanan et al. 2021, arXiv:2006.09503.
    """
    return quotient(weights + activations, devices) + microbatches * inputs
