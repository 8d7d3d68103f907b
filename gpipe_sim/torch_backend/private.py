"""Every private name of torch that is touched, and what some releases get wrong."""

import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage

from gpipe_sim.errors import ScheduleError

TESTED = "2.11, 2.12, 2.13 and 2.15"

_COUNTS_ONCE = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
#: What a stage's engine calls, and ``RepairedStage`` and ``Stage`` look into.
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


@contextmanager
def unlogged() -> Iterator[None]:
    """Without the table of all that the engine was going to do, which it logs when a stage fails."""
    logger = logging.getLogger(torch.distributed.pipelining.schedules.__name__)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def unwrapped(error: Exception) -> BaseException:
    """What a stage raised, where torch wrapped it in an error of its own that lists shapes."""
    wrapped = isinstance(error, RuntimeError) and "ailed to run " in str(error)
    return error.__cause__ if wrapped and error.__cause__ else error


def is_view(tensor: Tensor) -> bool:
    """Whether a tensor is a part of another one, as autograd sees it."""
    return tensor._is_view()


class RepairedStage(PipelineStage):
    """PyTorch's stage without what some releases of torch get wrong."""

    def _get_init_p2p_neighbors_ops(self) -> list[dist.P2POp]:
        """Torch 2.11 greets a stage's neighbours even in the same process, where gloo cannot."""
        return [op for op in super()._get_init_p2p_neighbors_ops() if op.peer != dist.get_rank()]

    def _warmup_forward_vote(self, has_backward: bool, received_acc: Tensor | None = None) -> Any:
        """Since 2.12 a process's stages vote; those on another device than the one before cannot count."""
        if received_acc is not None:
            received_acc = received_acc.to(self.device)
        return super()._warmup_forward_vote(has_backward, received_acc)

    def _prepare_backward_infra(self, *args, **kwargs) -> Any:
        """Since 2.12 a first step tries the backward out beforehand."""
        try:
            return super()._prepare_backward_infra(*args, **kwargs)
        except Exception as error:
            error.add_note(f"in the backward of {self.submod}")
            raise

    def backward_maybe_with_nosync(self, backward_type: str, bwd_kwargs: dict, **kwargs) -> Any:
        """A part of a split backward: every gradient once, of each weight its own, or a ScheduleError.

        I stops at the nodes where the way to a weight leaves the way to the stage's input, and W goes on from
        there. So a weight without such a node is lost, one with two of them may count twice, and weights may
        be given one and the same tensor.
        """
        if backward_type == "full":
            return super().backward_maybe_with_nosync(backward_type, bwd_kwargs, **kwargs)
        if backward_type == "input":
            inputs, outputs = set(bwd_kwargs["input_values"]), bwd_kwargs["stage_output"]
            outputs = [outputs] if isinstance(outputs, Tensor) else outputs
            behind = _followed(outputs, bwd_kwargs["output_grads"])
            result = super().backward_maybe_with_nosync(backward_type, bwd_kwargs, **kwargs)
            self._require_each_once(behind, inputs, result[1])
            return result
        fresh = [weight for weight in self.submod.parameters() if weight.grad is None]
        with self._once_through(bwd_kwargs["param_groups"]):
            result = super().backward_maybe_with_nosync(backward_type, bwd_kwargs, **kwargs)
        for weight in fresh:
            if weight.grad is not None:  # may be one tensor with another weight's, and is added to in place
                weight.grad = weight.grad.clone()
        return result

    def _require_each_once(self, behind: list[set[Tensor]], inputs: set[Tensor], groups: list[dict]) -> None:
        """``behind``: the leaves of each output. I goes on from an input's way only, so it misses others'."""
        found = Counter(weight for group in groups for weight in _weights_of(group))
        lost = set().union(*(leaves for leaves in behind if not leaves & inputs))
        lost |= set().union(*behind) - found.keys()
        twice = {weight for weight, times in found.items() if times > 1}
        if not _COUNTS_ONCE:
            twice |= {weight for group in groups if _meets(group) > 1 for weight in _weights_of(group)}
        for name, weight in self.submod.named_parameters():
            if weight in twice:
                raise self._refusal(f"count the gradient of {_bare(name)} more than once")
            if weight in lost:
                raise self._refusal(f"lose gradient that {_bare(name)} gets")

    @contextmanager
    def _once_through(self, groups: list[dict]) -> Iterator[None]:
        """Two ways to one weight may share a node, which autograd goes through once only."""
        met_twice = {weight for group in groups if _meets(group) > 1 for weight in _weights_of(group)}
        try:
            yield
        except RuntimeError as error:
            if not met_twice or "second time" not in str(unwrapped(error)):
                raise
            names = [_bare(name) for name, weight in self.submod.named_parameters() if weight in met_twice]
            raise self._refusal(f"go twice through the same way to {' and '.join(names)}") from error

    def _refusal(self, what: str) -> ScheduleError:
        return ScheduleError(
            f"at stage {self.stage_index} the split backward of torch {torch.__version__} may {what}: "
            "use a schedule without I and W"
        )


def _followed(outputs: Sequence[Tensor], gradients: Sequence[Tensor | None] | None) -> list[set[Tensor]]:
    """The leaves behind each output of a stage that a gradient comes back for."""
    gradients = [None] * len(outputs) if gradients is None else gradients  # of a loss it is 1
    asked = (g is None or bool(g.any()) for g in gradients)
    return [_leaves_behind(output) for output, wanted in zip(outputs, asked, strict=True) if wanted]


def _weights_of(group: dict) -> Iterable[Tensor]:
    return {node.variable for node in group["params"]}


def _meets(group: dict) -> int:
    """At how many nodes the ways to its weights leave the way to the input."""
    return len(group["intermediates"])


def _leaves_behind(output: Tensor) -> set[Tensor]:
    """The leaves that autograd reaches from an output of a stage, its inputs among them."""
    seen, waiting = set(), [output.grad_fn] if output.grad_fn is not None else []
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += [after for after, _ in node.next_functions if after is not None]
    leaves = (getattr(node, "variable", None) for node in seen)
    return {leaf for leaf in leaves if isinstance(leaf, Tensor)}


def _bare(name: str) -> str:
    """A parameter's name in the stage's own module, which an ``Inside`` holds."""
    return name.removeprefix("module.")
