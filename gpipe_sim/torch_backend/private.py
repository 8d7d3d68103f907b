"""Every private name of torch that is touched, and what some releases get wrong."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage

from gpipe_sim.torch_backend.stage import NotedStage
from gpipe_sim.validate import ScheduleError

TESTED = "2.11, 2.12, 2.13 and 2.15"

_COUNTS_ONCE = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
#: What a stage's engine calls, and ``Stage`` and ``NotedStage`` look into.
HOOKS = (
    "forward_one_chunk",
    "forward_maybe_with_nosync",
    "backward_one_chunk",
    "backward_maybe_with_nosync",
    "backward_weight_one_chunk",
    "set_local_fwd_input",
    "set_local_bwd_input",
)


def runtime(stages: Sequence[PipelineStage], microbatches: int, loss: Callable, order: str) -> Any:
    """PyTorch's engine with these stages, for an order as text. It adds gradients up and divides nothing."""
    engine = _engine()(stages, microbatches, loss_fn=loss, scale_grads=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "order.csv"
        path.write_text(order)
        engine._load_csv(str(path))
    return engine


def _engine() -> type:
    """Its class; ImportError for a torch that lacks it, or the places where a stage is looked into."""
    engine = getattr(torch.distributed.pipelining.schedules, "_PipelineScheduleRuntime", None)
    wanted = [(engine, "_load_csv"), *((PipelineStage, name) for name in HOOKS)]
    if missing := [name for owner, name in wanted if not hasattr(owner, name)]:
        raise ImportError(
            f"torch {torch.__version__} has no pipeline engine that reads an order, or another one "
            f"({', '.join(missing)} missing); gpipe_sim was tested with torch {TESTED}"
        )
    return engine


def is_view(tensor: Tensor) -> bool:
    """Whether a tensor is a part of another one, as autograd sees it."""
    return tensor._is_view()


class Stage(NotedStage):
    """A stage without what some releases of torch get wrong."""

    def _get_init_p2p_neighbors_ops(self) -> list[dist.P2POp]:
        """Torch 2.11 greets a stage's neighbours even in the same process, where gloo cannot."""
        return [op for op in super()._get_init_p2p_neighbors_ops() if op.peer != dist.get_rank()]

    def _warmup_forward_vote(self, has_backward: bool, received_acc: Tensor | None = None) -> Any:
        """Since 2.12 a process's stages vote; those on another device than the one before cannot count."""
        if received_acc is not None:
            received_acc = received_acc.to(self.device)
        return super()._warmup_forward_vote(has_backward, received_acc)

    def backward_maybe_with_nosync(self, backward_type: str, bwd_kwargs: dict, **kwargs) -> Any:
        """What a split backward gets wrong: weights used more than once, and several with one gradient."""
        groups = bwd_kwargs.get("param_groups") or ()
        if not _COUNTS_ONCE and any(len(group["intermediates"]) > 1 for group in groups):
            raise ScheduleError(
                f"stage {self.stage_index} uses a weight more than once, which torch {torch.__version__} "
                "counts double in a split backward: use torch 2.13 or newer, or a schedule without I and W"
            )
        fresh = [weight for weight in self.submod.parameters() if weight.grad is None]
        result = super().backward_maybe_with_nosync(backward_type, bwd_kwargs, **kwargs)
        for weight in fresh if backward_type == "weight" else ():
            if weight.grad is not None:  # may be one tensor with another weight's, and is added to in place
                weight.grad = weight.grad.clone()
        return result
