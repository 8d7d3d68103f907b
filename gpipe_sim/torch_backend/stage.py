"""One stage on PyTorch's engine, and the clock that notes when its actions start and end."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from gpipe_sim.actions import Action, Kind

Timed = tuple[
    Action, float, float
]  #: an action's start and end, in seconds of this machine's monotonic clock


class Recorder:
    """Notes when actions start and end on one torch device: by the clock, on a GPU by CUDA events.

    An action on a GPU starts when the GPU gets to it, not when Python asks for it.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self.marks: list[list] = []

    def begin(self) -> None:
        """Forget what was noted. On a GPU, also tie its clock to the machine's."""
        self.marks = []
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            self.origin, self.began = self.mark(), time.perf_counter()

    @contextmanager
    def action(self, kind: Kind, stage: int, microbatch: int) -> Iterator[None]:
        noted = [Action(stage, kind, microbatch), self.mark(), None]
        try:
            yield
        finally:
            noted[2] = self.mark()
            self.marks.append(noted)

    def extend(self) -> None:
        """The last action goes on until now: the loss belongs to the forward before it."""
        if self.marks:
            self.marks[-1][2] = self.mark()

    def mark(self) -> Any:
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def spans(self) -> list[Timed]:
        """What was noted, in the order of the ends; on a GPU this waits until it is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return [(action, self._seconds(start), self._seconds(end)) for action, start, end in self.marks]

    def _seconds(self, mark: Any) -> float:
        if self.device.type != "cuda":
            return mark
        return self.began + self.origin.elapsed_time(mark) / 1000


class Inside(nn.Module):
    """A stage's module as torch's engine sees it.

    The engine also runs it to see what comes out, and a checkpoint runs it again. Only an action's own
    forward changes buffers, such as the running statistics of a BatchNorm; any other has copies of them.

    What it sends on asks for a gradient even where nothing in the stage learns. Torch sends no gradient where
    none is asked for, and then its split backward leaves out the weights of the stage that would have sent
    it. A schedule has these messages whoever learns. And it is no view, which torch could not let go of.
    """

    def __init__(self, module: nn.Module, last: bool):
        super().__init__()
        self.module, self.last, self.acting = module, last, False

    def forward(self, *args, **kwargs) -> Any:
        if self.acting:
            output = self.module(*args, **kwargs)
        else:
            buffers = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
            output = functional_call(self.module, buffers, args, kwargs)
        asked = () if self.last else tuple(x for x in args if isinstance(x, Tensor) and x.requires_grad)

        def prepared(output: Tensor) -> Tensor:
            return _whole(output) if self.last else _asking(output, asked)

        return prepared(output) if isinstance(output, Tensor) else tuple(map(prepared, output))


def _whole(output: Tensor) -> Tensor:
    return output.clone() if output._is_view() else output


def _asking(output: Tensor, inputs: tuple[Tensor, ...]) -> Tensor:
    """The output, which asks for a gradient and, whatever the module did, hands one on to the inputs."""
    if output.requires_grad or not output.is_floating_point():
        return _whole(output)
    return _Unfollowed.apply(output, *inputs) if inputs else output.detach().clone().requires_grad_()


class _Unfollowed(torch.autograd.Function):
    """What autograd did not follow, as under no_grad: no change of an input changes it."""

    @staticmethod
    def forward(ctx, output: Tensor, *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*inputs)
        return output.clone()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple:
        return None, *map(torch.zeros_like, ctx.saved_tensors)


class NotedStage(PipelineStage):
    """PyTorch's stage, which also notes its actions, recomputes where told, and moves what it is handed.

    The microbatches in ``recomputed`` go through ``torch.utils.checkpoint``. It runs the forward again within
    the backward, so a recompute is noted there: it waits for the gradient, as R in a schedule does not. It
    does so in every call of autograd: a split backward recomputes in I, and in W again for each layer with
    weights.
    """

    def __init__(
        self, module: nn.Module, index: int, stages: int, group: Any, recorder: Recorder, recomputed: set
    ):
        super().__init__(Inside(module, index == stages - 1), index, stages, recorder.device, group=group)
        self.recorder, self.recomputed = recorder, recomputed
        self.microbatch = 0

    def forward_one_chunk(self, fwd_chunk_id: int, *args, **kwargs) -> Any:
        self.microbatch = fwd_chunk_id
        try:
            with self.recorder.action(Kind.F, self.stage_index, fwd_chunk_id):
                return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)
        except RuntimeError as error:  # torch wraps what the module raises, without its words
            failure = error.__cause__ or error
        raise failure

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, **kwargs
    ) -> Any:
        kind = Kind.B if full_backward else Kind.I
        with self.recorder.action(kind, self.stage_index, bwd_chunk_id):
            return super().backward_one_chunk(bwd_chunk_id, loss=loss, full_backward=full_backward, **kwargs)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, *args, **kwargs) -> Any:
        with self.recorder.action(Kind.W, self.stage_index, bwd_chunk_id):
            return super().backward_weight_one_chunk(bwd_chunk_id, *args, **kwargs)

    def forward_maybe_with_nosync(self, *args, **kwargs) -> Any:
        """The module's forward, through a checkpoint if this microbatch is to be recomputed."""
        forward, microbatch, runs = super().forward_maybe_with_nosync, self.microbatch, count()

        def run(*args, **kwargs):
            turn = next(runs)
            self.submod.acting = turn == 0
            try:
                if turn != 1:  # of several backwards, I and W, the first one's recompute is noted
                    return forward(*args, **kwargs)
                with self.recorder.action(Kind.R, self.stage_index, microbatch):
                    return forward(*args, **kwargs)
            finally:
                self.submod.acting = False

        if microbatch not in self.recomputed:
            return run(*args, **kwargs)
        return checkpoint(run, *args, use_reentrant=False, **kwargs)

    def set_local_fwd_input(self, prev_stage_outputs: Any, mb_index: int) -> None:
        super().set_local_fwd_input(self._here(prev_stage_outputs), mb_index)

    def set_local_bwd_input(self, next_stage_bwd_outputs: tuple, mb_index: int) -> None:
        super().set_local_bwd_input(self._here(next_stage_bwd_outputs), mb_index)

    def _here(self, given: Any) -> Any:
        """What a neighbour in this process hands over, on this stage's device."""
        if isinstance(given, Tensor):
            return given.to(self.device)
        return tuple(None if one is None else one.to(self.device) for one in given)
