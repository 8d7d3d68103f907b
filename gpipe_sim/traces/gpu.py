"""When an action ran on a GPU: the kernels that were launched while the CPU was in it.

A label covers the launches only, and most kernels of a backward are launched by autograd's own thread. So an
action has the kernels whose launch, on whatever thread, lies within its window on the CPU; they are found by
``correlation``. Kernels of NCCL are messages, and wait for the other side, so they count apart.
"""

from gpipe_sim.traces.kineto import RankTrace, Timed, began_in


def on_gpu(trace: RankTrace, low: float, high: float, messages: bool = False) -> tuple[float, float] | None:
    """From the first to the last kernel that was launched in [low, high); None if none was.

    With ``messages`` it is NCCL's kernels alone, otherwise all but those.
    """
    found = [
        kernel
        for _, correlation in began_in(trace.launches, low, high)
        for kernel in trace.kernels.get(correlation, ())
        if _is_message(kernel) == messages
    ]
    return (min(each.start for each in found), max(each.end for each in found)) if found else None


def _is_message(kernel: Timed) -> bool:
    return kernel.name.lower().startswith("nccl")
