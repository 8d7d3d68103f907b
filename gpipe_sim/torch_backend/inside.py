"""A stage's module as torch's engine is to see it."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gpipe_sim.torch_backend.private import is_view

_IN_PLACE = ": if it changes what comes in, use inplace=False in its first layer, or x = x + 1 for x += 1"


class Inside(nn.Module):
    """Passes everything on to the module inside, and looks after what torch's engine does not.

    The engine also runs it to see what comes out, and a checkpoint runs it again. Only an action's own
    forward changes buffers, such as the running statistics of a BatchNorm; any other has copies of them.

    What it sends on asks for a gradient even where nothing in the stage learns. Torch sends no gradient where
    none is asked for, and then its split backward leaves out the weights of the stage that would have sent
    it. A schedule has these messages whoever learns. And it is no view, which torch could not let go of, nor
    an input or a weight itself, of which it would let go.
    """

    def __init__(self, module: nn.Module, stage: int, last: bool):
        super().__init__()
        self.module, self.stage, self.last = module, stage, last
        self.acting, self.acted = False, False

    def forward(self, *args, **kwargs) -> Any:
        try:
            output = self._output(*args, **kwargs)
        except Exception as error:
            error.add_note(f"in the forward of {self}{_IN_PLACE if 'leaf Variable' in str(error) else ''}")
            raise
        if not isinstance(output, Tensor):
            self._require_tensors(output)
        asked = () if self.last else tuple(x for x in args if isinstance(x, Tensor) and x.requires_grad)

        def prepared(output: Tensor) -> Tensor:
            own = output.clone() if output.is_leaf or is_view(output) else output
            return own if self.last else _asking(own, asked)

        return prepared(output) if isinstance(output, Tensor) else tuple(map(prepared, output))

    def _output(self, *args, **kwargs) -> Any:
        if self.acting:
            self.acted = True
            return self.module(*args, **kwargs)
        if not self.acted:
            args = map(_tried, args)
        buffers = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        return functional_call(self.module, buffers, tuple(args), kwargs)

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


def _asking(output: Tensor, inputs: tuple[Tensor, ...]) -> Tensor:
    """The output, which asks for a gradient and, whatever the module did, hands one on to the inputs."""
    if output.requires_grad or not output.is_floating_point():
        return output
    return _Unfollowed.apply(output, *inputs) if inputs else output.detach().clone().requires_grad_()


class _Unfollowed(torch.autograd.Function):
    """What autograd did not follow, as under no_grad: no change of an input changes it.

    Torch before 2.13 fails where an input is not behind the output.
    """

    @staticmethod
    def forward(ctx, output: Tensor, *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*inputs)
        return output.clone()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple:
        return None, *map(torch.zeros_like, ctx.saved_tensors)
