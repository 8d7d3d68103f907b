"""One stage on PyTorch's engine."""

from collections.abc import Callable
from itertools import count
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gpipe_sim.schedule.actions import Kind
from gpipe_sim.torch_backend.clock import Recorder
from gpipe_sim.torch_backend.private import RepairedStage, unwrapped

_DOING = {
    Kind.B: "the backward",
    Kind.I: "the input gradient",
    Kind.W: "the weight gradient",
}


class Stage(RepairedStage):
    """PyTorch's stage, which also notes its actions, recomputes where told, and moves what it is handed.

    The microbatches in ``recomputed`` go through ``torch.utils.checkpoint``. It runs the forward again within
    the backward, so a recompute is noted there: it waits for the gradient, as R in a schedule does not. It
    does so in every call of autograd: a split backward recomputes in I, and in W again for each layer with
    weights. ``inside`` is the stage's module in an ``Inside``.
    """

    def __init__(
        self, inside: nn.Module, index: int, stages: int, group: Any, recorder: Recorder, recomputed: set
    ):
        super().__init__(inside, index, stages, recorder.device, group=group)
        self.recorder, self.recomputed = recorder, recomputed
        self.microbatch = 0

    def forward_one_chunk(self, fwd_chunk_id: int, *args, **kwargs) -> Any:
        self.microbatch = fwd_chunk_id
        act = super().forward_one_chunk
        return self._noted(Kind.F, fwd_chunk_id, act, *args, **kwargs)

    def backward_one_chunk(self, bwd_chunk_id: int, *args, full_backward: bool = True, **kwargs) -> Any:
        kind, act = Kind.B if full_backward else Kind.I, super().backward_one_chunk
        return self._noted(kind, bwd_chunk_id, act, *args, full_backward=full_backward, **kwargs)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, *args, **kwargs) -> Any:
        return self._noted(Kind.W, bwd_chunk_id, super().backward_weight_one_chunk, *args, **kwargs)

    def _noted(self, kind: Kind, microbatch: int, act: Callable, *args, **kwargs) -> Any:
        """An action, with its times. What fails in it is raised as it was, and says where it did."""
        try:
            with self.recorder.action(kind, self.stage_index, microbatch):
                return act(microbatch, *args, **kwargs)
        except Exception as error:
            failure = unwrapped(error)
        if kind is not Kind.F:  # of a forward the module says so itself
            failure.add_note(f"in {_DOING[kind]} of {self.submod}")
        raise failure

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
