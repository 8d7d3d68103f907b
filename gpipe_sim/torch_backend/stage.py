"""One stage, between what a user's module does and what PyTorch's engine expects."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from gpipe_sim.core.actions import Kind
from gpipe_sim.torch_backend.private import RepairedStage, is_view, unwrapped, version
from gpipe_sim.traces.notes import Notes

_IN_PLACE = ": if it changes what comes in, use inplace=False in its first layer, or x = x + 1 for x += 1"
_SPLIT = (
    "torch cannot split every backward: use a schedule without I and W (or for a compiled stage, which "
    "reuses memory that W needs, torch._functorch.config.donated_buffer = False before the first step)"
)
_DOING = {Kind.B: "the backward", Kind.I: "the input gradient", Kind.W: "the weight gradient"}


class StageModule(nn.Module):
    """Passes everything on to the user's module inside, and looks after what the engine does not.

    The engine also runs it to see what comes out, and a checkpoint runs it again. Only an action's own
    forward changes buffers, such as the running statistics of a BatchNorm; any other has copies of them:
    ``found`` are those that the action found and changed, for a recompute to find again.

    What it sends on asks for a gradient even where nothing in the stage learns. Torch sends no gradient where
    none is asked for, and then its split backward leaves out the weights of the stage that would have sent
    it. A schedule has these messages whoever learns. And it is no view, which torch could not let go of, nor
    an input or a weight itself, of which it would let go; and it is contiguous, as gloo wants it,
    and as are the gradients that go back.
    """

    def __init__(self, module: nn.Module, stage: int, last: bool):
        super().__init__()
        self.module, self.stage, self.last = module, stage, last
        self.acting, self.acted, self.sent = False, False, 0
        self.found: dict[str, Tensor] = {}

    def forward(self, *args, **kwargs) -> Any:
        for x in args:
            if isinstance(x, Tensor) and x.requires_grad:
                x.register_hook(Tensor.contiguous)
        try:
            output = self._output(*args, **kwargs)
        except Exception as error:
            error.add_note(f"in the forward of {self}{_IN_PLACE if 'leaf Variable' in str(error) else ''}")
            raise
        if not isinstance(output, Tensor):
            self._require_tensors(output)
            output = self._without_along(output)

        def prepared(output: Tensor) -> Tensor:
            if output.is_leaf or is_view(output) or not output.is_contiguous():
                output = output.clone(memory_format=torch.contiguous_format)
            if output.is_complex() and not self.last:
                raise TypeError(
                    f"{self} gives complex numbers, of which PyTorch's engine sends no gradient back: send "
                    "torch.view_as_real(x) on, and begin the next stage with torch.view_as_complex(x)"
                )
            return output if self.last else _asking(output)

        sent = prepared(output) if isinstance(output, Tensor) else tuple(map(prepared, output))
        self.sent = id(sent)
        return sent

    def _output(self, *args, **kwargs) -> Any:
        if self.acting:
            self.acted = True
            return self.module(*args, **kwargs)
        if not self.acted:
            args = tuple(map(_tried, args))
        buffers = {name: self.found.get(name, now).clone() for name, now in self.module.named_buffers()}
        return (
            functional_call(self.module, buffers, args, kwargs) if buffers else self.module(*args, **kwargs)
        )

    @contextmanager
    def finding(self, found: dict[str, Tensor]) -> Iterator[None]:
        """Put into ``found`` what the buffers that change meanwhile were before."""
        before = {name: (kept, version(kept), kept.clone()) for name, kept in self.module.named_buffers()}
        yield
        after = dict(self.module.named_buffers())
        for name, (kept, number, copy) in before.items():
            if after.get(name) is not kept or version(kept) != number:
                found[name] = copy

    def _without_along(self, output: tuple[Tensor, ...]) -> Any:
        """At the last stage what travels along, such as a mask, is no output."""
        first, *along = output
        if self.last and along and not any(one.is_floating_point() or one.is_complex() for one in along):
            return first
        return output

    def _require_tensors(self, output: Any) -> None:
        if isinstance(output, tuple | list) and output and all(isinstance(one, Tensor) for one in output):
            return
        found = type(output).__name__
        if isinstance(output, tuple | list):
            found += f" of {', '.join(type(one).__name__ for one in output) or 'nothing'}"
        raise TypeError(f"{self} gives {found}, but stages send a tensor or a tuple of tensors")

    def __repr__(self) -> str:
        return f"stage {self.stage}, {type(self.module).__name__}"


def _tried(given: Any) -> Any:
    """What a trial runs on: memory as it was found, where any number is a fraction, but not a token."""
    return given if not isinstance(given, Tensor) or given.is_floating_point() else torch.zeros_like(given)


def _asking(output: Tensor) -> Tensor:
    """The output, which asks for a gradient, whatever the module did."""
    if output.requires_grad or not output.is_floating_point():
        return output
    return output.detach().clone().requires_grad_()


class StageAdapter(RepairedStage):
    """PyTorch's stage, which also notes its actions, recomputes where told, and moves what it is handed.

    The microbatches in ``recomputed`` go through ``torch.utils.checkpoint``. It runs the forward again within
    the backward, so a recompute is noted there: it waits for the gradient, as R in a schedule does not. It
    does so in every call of autograd: a split backward recomputes in I, and in W again for each layer with
    weights. ``module`` is the user's, in a ``StageModule``.
    """

    def __init__(
        self,
        module: StageModule,
        stages: int,
        group: Any,
        recorder: Notes,
        recomputed: set[int],
    ):
        super().__init__(module, module.stage, stages, recorder.device, group=group)
        self.recorder, self.recomputed = recorder, recomputed
        self.microbatch = 0
        self.sends: list[tuple] = []

    def forward_one_chunk(self, fwd_chunk_id: int, *args, **kwargs) -> Any:
        self.microbatch, self.submod.acted = fwd_chunk_id, False
        output = self._noted(Kind.F, fwd_chunk_id, super().forward_one_chunk, *args, **kwargs)
        if not self.is_last and dist.get_world_size(self.group) > 1:
            self._require_alike(output if isinstance(output, tuple) else (output,))
        return output

    def _require_alike(self, outputs: tuple[Tensor, ...]) -> None:
        """ValueError if it would not fit into what another process receives it into."""
        found = [(tuple(output.shape), output.dtype) for output in outputs]
        self.sends = self.sends or found
        if found != self.sends:
            raise ValueError(
                f"{self.submod} gives {found}, after {self.sends}: between processes every microbatch has "
                "one size and type of number; if the model has changed, make a new Pipeline"
            )

    def backward_one_chunk(self, bwd_chunk_id: int, *args, full_backward: bool = True, **kwargs) -> Any:
        self.microbatch = bwd_chunk_id
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
            raise self._explained(unwrapped(error), kind) from None

    def _explained(self, failure: BaseException, kind: Kind) -> BaseException:
        if kind is not Kind.F:  # of a forward the module says so itself
            failure.add_note(f"in {_DOING[kind]} of {self.submod}")
        if kind in (Kind.I, Kind.W) and type(failure) is RuntimeError:
            failure.add_note(_SPLIT)
        return failure

    def forward_maybe_with_nosync(self, *args, **kwargs) -> Any:
        """The module's forward, through a checkpoint if this microbatch is to be recomputed."""
        forward, microbatch, runs = super().forward_maybe_with_nosync, self.microbatch, count()
        found: dict[str, Tensor] = {}

        def run(*args, **kwargs):
            turn = next(runs)
            self.submod.acting, self.submod.found = turn == 0, found
            try:
                if turn != 1:  # of several backwards, I and W, the first one's recompute is noted
                    return forward(*args, **kwargs)
                with self.recorder.action(Kind.R, self.stage_index, microbatch):
                    return forward(*args, **kwargs)
            finally:
                self.submod.acting, self.submod.found = False, {}

        if microbatch not in self.recomputed:
            return run(*args, **kwargs)
        with self.submod.finding(found):
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
