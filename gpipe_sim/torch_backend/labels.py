"""Labels in a profiler's trace for schedules of PyTorch's that write none."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import wraps
from inspect import signature
from typing import Any

from torch.profiler import record_function

from gpipe_sim.errors import got
from gpipe_sim.torch_backend.private import stages_without_labels
from gpipe_sim.traces.notes import replaced

#: What a schedule calls of a stage, and the kind of that action.
KINDS = {"forward_one_chunk": "F", "backward_one_chunk": "B", "backward_weight_one_chunk": "W"}


@contextmanager
def labelled(schedule: Any) -> Iterator[None]:
    """Around steps under ``torch.profiler``: gives each action the label ``PP:2F0`` that a reader looks for.

        with torch.profiler.profile(...) as prof, gp.torch_backend.labelled(schedule):
            schedule.step(x)

    Of PyTorch's classes ``Schedule1F1B`` writes no labels. One that labels its actions itself, such as
    ``ScheduleInterleaved1F1B`` or, without the stage, ``ScheduleGPipe``, stays as it is. Where a loop of
    one's own calls ``forward_one_chunk`` and ``backward_one_chunk`` of PyTorch's stages, give it the stage,
    or a list of those of this process; in any other loop ``torch.profiler.record_function("PP:2F0")`` around
    each action does the same.

    A label covers a stage's work, without the wait for a message before it and without the loss. Gradients do
    not change, and afterwards the stages are as before, whatever happened. TypeError for anything else.
    """
    with ExitStack() as stack:
        for stage in stages_without_labels(schedule):
            acts: dict[str, Any] = {name: getattr(stage, name, None) for name in KINDS}
            if not all(map(callable, acts.values())):
                raise TypeError(
                    f"labelled needs a schedule of PyTorch's, or a list of its stages {got(schedule)}"
                )
            if not hasattr(acts["forward_one_chunk"], "labels"):  # or each action would have two
                made = {name: _with_label(stage, kind, acts[name]) for name, kind in KINDS.items()}
                stack.enter_context(replaced(stage, **made))
        yield


def _with_label(stage: Any, kind: str, act: Callable) -> Callable:
    reads = signature(act)

    @wraps(act)
    def with_label(*args, **kwargs) -> Any:
        given = reads.bind(*args, **kwargs).arguments
        microbatch, part = next(iter(given.values())), kind if given.get("full_backward", True) else "I"
        does = kind == "F" or stage.has_backward
        with record_function(f"PP:{stage.stage_index}{part}{microbatch}") if does else nullcontext():
            return act(*args, **kwargs)

    with_label.labels = True  # type: ignore[attr-defined]
    return with_label
