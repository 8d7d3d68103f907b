"""How long the layers of real partitions take on this computer: warm-up runs, then medians."""

from collections.abc import Sequence
from statistics import median
from time import perf_counter

import numpy as np

from gpipe_sim.core.boundary import Boundary, first
from gpipe_sim.core.device import Batch, as_batch, cut_batch
from gpipe_sim.core.layers import Context
from gpipe_sim.core.partition import Partition, require_partitions
from gpipe_sim.errors import require_few, whole

Seconds = tuple[list[float], ...]  #: of F, of I and of W, for each partition


def measured(
    partitions: Sequence[Partition], batch: Batch, microbatches: int = 1, runs: int = 5, warmup: int = 1
) -> Seconds:
    """The median seconds of F, I and W of each partition, for the largest of so many microbatches.

    ValueError for more microbatches than samples, or for layers on paper.
    """
    x, _ = as_batch(batch)
    [largest, *_] = cut_batch(len(x), whole("measured", "microbatches", microbatches))
    return seconds(partitions, x[largest.rows], runs, warmup)


def seconds(partitions: Sequence[Partition], x: np.ndarray, runs: int, warmup: int) -> Seconds:
    """The median seconds of F, I and W of each partition; ``x`` are the inputs of one microbatch."""
    require_partitions("measured", partitions, runnable=True)
    runs, warmup = whole("measured", "runs", runs), whole("measured", "warmup", warmup, low=0)
    require_few("measured", runs + warmup, "runs, warmup included")
    x = np.ascontiguousarray(x)
    taken = [_run(partitions, x) for _ in range(warmup + runs)][warmup:]
    return tuple([median(times) for times in zip(*kind, strict=True)] for kind in zip(*taken, strict=True))


def _run(partitions: Sequence[Partition], x: Boundary) -> Seconds:
    """Once through all partitions and back."""
    forward, saved = [], []
    ctx = Context(True, 0, 0, 0)
    for partition in partitions:
        start = perf_counter()
        x, kept = partition.forward(x, ctx)
        forward.append(perf_counter() - start)
        saved.append(kept)
    dy = np.ones_like(first(x))
    input_grad, weight_grad = [], []
    for partition in reversed(partitions):
        start = perf_counter()
        dy, pending = partition.backward_input(saved.pop(), dy)
        between = perf_counter()
        partition.backward_weight(pending, {})
        weight_grad.append(perf_counter() - between)
        input_grad.append(between - start)
    return forward, input_grad[::-1], weight_grad[::-1]
