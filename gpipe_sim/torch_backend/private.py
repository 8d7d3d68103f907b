"""Every private name of torch that is touched, and what some releases get wrong.

A torch in which one of them is gone, or stands for something else, is found by the canary of ``canary.py``.
"""

import csv
import logging
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, schedules

from gpipe_sim.errors import ScheduleError

TESTED = "2.13"


class UnsupportedTorch(ImportError):
    """This torch's pipeline engine is not the one that this package knows."""

    def __str__(self) -> str:
        return (
            f"torch {torch.__version__} {self.args[0]}, so its pipeline engine is not the one that gpipe_sim "
            f"knows; it was tested with torch {TESTED}: pip install torch==2.13.0"
        )


def runtime(stages: Sequence[Any], microbatches: int, loss: Callable | None, order: str) -> Any:
    """PyTorch's engine with these stages, for an order as text. It adds gradients up and divides nothing."""
    engine = schedules._PipelineScheduleRuntime(stages, microbatches, loss_fn=loss, scale_grads=False)
    rows = enumerate(csv.reader(order.splitlines()))
    engine._prepare_schedule_with_comms({k: [*map(schedules._Action.from_str, row)] for k, row in rows})
    return engine


def with_messages(order: str, devices: int, stages: int, microbatches: int) -> list[list[str]]:
    """What the engine makes of an order as text: the row of each rank, with the messages that it adds."""
    stand_in = SimpleNamespace(num_stages=stages, group_size=devices, group_rank=0)  # no stage is run
    try:
        rows = runtime([stand_in], microbatches, None, order).pipeline_order_with_comms
    except (AttributeError, TypeError) as error:
        raise UnsupportedTorch(f"does not say which messages its engine adds ({error})") from error
    return [list(map(str, rows[rank])) for rank in range(devices)]


def stages_without_labels(given: Any) -> Sequence[Any]:
    """The stages of a schedule of torch's whose class labels no actions; stages themselves are all."""
    labelling = schedules._PipelineScheduleRuntime, schedules.ScheduleGPipe, schedules._ScheduleForwardOnly
    if isinstance(given, labelling):
        return []
    if isinstance(given, schedules._PipelineSchedule):
        return getattr(given, "_stages", None) or [given._stage]
    return given if isinstance(given, list | tuple) else [given]


@contextmanager
def unlogged() -> Iterator[None]:
    """Without the table of all that the engine was going to do, which it logs when a stage fails."""
    logger = logging.getLogger(schedules.__name__)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def raised_in(error: BaseException, package: str) -> bool:
    """Whether a line of this package raised it, or called what did and is not Python."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals["__name__"].startswith(package)


def unwrapped(error: BaseException) -> BaseException:
    """What a stage raised, where the engine raised an error of its own from it, which lists shapes."""
    cause = error.__cause__
    return cause if cause and raised_in(error, PipelineStage.__module__.rpartition(".")[0]) else error


def is_view(tensor: Tensor) -> bool:
    """Whether a tensor is a part of another one, as autograd sees it."""
    return tensor._is_view()


def version(tensor: Tensor) -> int:
    """How often a tensor was changed in place."""
    return tensor._version


def has_hooks(parameter: nn.Parameter) -> bool:
    """Whether somebody asked to be called when a parameter gets its gradient."""
    return bool(parameter._backward_hooks) or awaits_gradient(parameter)


def awaits_gradient(parameter: nn.Parameter) -> bool:
    """Whether somebody asked to be called once its gradient is added up; W of a split backward does not."""
    return bool(parameter._post_accumulate_grad_hooks)


class RepairedStage(PipelineStage):
    """PyTorch's stage without what some releases of torch get wrong.

    ``seen``: whether an input gradient was looked at.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen = False

    def _warmup_forward_vote(self, *args, **kwargs) -> Any:
        """A process's stages vote; those on another device than the one before cannot count."""
        here = (one.to(self.device) if isinstance(one, Tensor) else one for one in args)
        return super()._warmup_forward_vote(*here, **kwargs)

    def _prepare_backward_infra(self, *args, **kwargs) -> Any:
        """A first step tries the backward out beforehand."""
        try:
            return super()._prepare_backward_infra(*args, **kwargs)
        except Exception as error:
            if not getattr(error, "__notes__", None):  # or a loss, which is tried out with it, has said so
                error.add_note(f"in the backward of {self.submod}")
            raise

    def backward_maybe_with_nosync(self, backward_type: str, bwd_kwargs: dict, **kwargs) -> Any:
        """A part of a split backward: every gradient once, of each weight its own, or a ScheduleError.

        I stops at the nodes where the way to a weight leaves the way to the stage's input, and W goes on from
        there. So a weight without such a node is lost, one with two of them may count twice, and weights may
        be given one and the same tensor.
        """
        run = super().backward_maybe_with_nosync
        if backward_type == "full":
            return run(backward_type, bwd_kwargs, **kwargs)
        if backward_type == "input":
            return self._input_part(run, bwd_kwargs, **kwargs)
        fresh = [weight for weight in self.submod.parameters() if weight.grad is None]
        result = run(backward_type, bwd_kwargs, **kwargs)
        for weight in fresh:
            if weight.grad is not None:  # may be one tensor with another weight's, and is added to in place
                weight.grad = weight.grad.clone()
        return result

    def _input_part(self, run: Callable, bwd_kwargs: dict, **kwargs) -> Any:
        """I, and a look at what its W will do."""
        inputs, outputs, gradients = (bwd_kwargs[k] for k in ("input_values", "stage_output", "output_grads"))
        outputs = [outputs] if isinstance(outputs, Tensor) else outputs
        roots = [output.grad_fn for output in outputs]  # I takes them off their outputs
        behind = _followed(roots, gradients)
        result = run("input", bwd_kwargs, **kwargs)
        self._require_each_once(behind, set(inputs), [_weights_of(group) for group in result[1]])
        self.seen = True
        return result

    def _require_each_once(
        self, behind: list[set[Tensor]], inputs: set[Tensor], ways: list[frozenset]
    ) -> None:
        """``behind``: the leaves of each output. I goes on from an input's way only, so it misses others'."""
        found = Counter(weight for weights in ways for weight in weights)
        lost = set().union(*(leaves for leaves in behind if not leaves & inputs))
        lost |= set().union(*behind) - found.keys()
        twice = {weight for weight, times in found.items() if times > 1}
        for name, weight in self.submod.module.named_parameters():
            if weight in twice:
                raise self._refusal(f"count the gradient of {name} more than once")
            if weight in lost:
                raise self._refusal(f"lose gradient that {name} gets")

    def _refusal(self, what: str) -> ScheduleError:
        return ScheduleError(
            f"at stage {self.stage_index} the split backward of torch {torch.__version__} may {what}: "
            "use a schedule without I and W"
        )


def _weights_of(group: dict) -> frozenset[Tensor]:
    return frozenset(node.variable for node in group["params"])


def _followed(roots: Sequence[Any], gradients: Sequence[Tensor | None] | None) -> list[set[Tensor]]:
    """The leaves behind each output of a stage that a gradient comes back for."""
    gradients = [None] * len(roots) if gradients is None else gradients  # of a loss it is 1
    asked = (g is None or bool(g.any()) for g in gradients)
    return [_leaves_behind(root) for root, wanted in zip(roots, asked, strict=True) if wanted]


def _leaves_behind(root: Any) -> set[Tensor]:
    """The leaves that autograd reaches from here, a stage's inputs among them."""
    seen, waiting = set(), [root] if root is not None else []
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += [after for after, _ in node.next_functions if after is not None]
    leaves = (getattr(node, "variable", None) for node in seen)
    return {leaf for leaf in leaves if isinstance(leaf, Tensor)}
