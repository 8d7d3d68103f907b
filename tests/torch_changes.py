"""Releases of torch that might come: changes of its pipeline engine, made in this process."""

import inspect
import textwrap
from collections.abc import Callable
from unittest.mock import patch

import torch
from torch.distributed.pipelining import PipelineStage, _backward, microbatch, schedules, stage
from torch.utils.checkpoint import checkpoint
from torch_modules import linears, some_batch

import gpipe_sim as gp
from gpipe_sim.torch_backend import UnsupportedTorch, canary, train_step
from gpipe_sim.torch_backend.private import _leaves_behind

ENGINE, BASE = schedules._PipelineScheduleRuntime, PipelineStage.__mro__[1]


def scaled(theirs: Callable) -> Callable:
    return lambda self, factor: theirs(self, self.chunks)


def loss_divided(theirs: Callable) -> Callable:
    return lambda self, *args: theirs(self, *args) / self._n_microbatches


def reordered(theirs: Callable) -> Callable:
    def split(self, args, kwargs=None):
        pieces, named = theirs(self, args, kwargs)
        return pieces[::-1], named

    return split


def twice(theirs: Callable) -> Callable:
    def weights_twice(weights, groups, retain_graph=False):
        weights = list(weights)
        theirs(iter(weights), [dict(group) for group in groups], retain_graph=True)
        return theirs(iter(weights), groups, retain_graph)

    return weights_twice


def renamed(theirs: Callable) -> Callable:
    return lambda self, *args, targets=None, losses=None: theirs(self, *args, target=targets, losses=losses)


def rounded(theirs: Callable) -> Callable:
    def ops(self, microbatch):
        found = theirs(self, microbatch)
        for op in found:
            op.tensor = op.tensor.float().double()
        return found

    return ops


def one_buffer(theirs: Callable) -> Callable:
    def prepared(self, microbatches, *args, **options):
        result = theirs(self, microbatches, *args, **options)
        self.args_recv_info = dict.fromkeys(range(microbatches), self.args_recv_info[0])
        return result

    return prepared


def replaced(theirs: Callable) -> Callable:
    def backward(self, kind, *args, **options):
        if kind != "input":
            for parameter in self.submod.parameters():
                parameter.grad = None
        return theirs(self, kind, *args, **options)

    return backward


def strided(theirs: Callable) -> Callable:
    return lambda whole, spec, pieces: [whole[piece::pieces] for piece in range(pieces)]


def newest_loss(theirs: Callable) -> Callable:
    return lambda self, stage, microbatch: self._internal_losses[-1] if stage.is_last else None


def averaged(theirs: Callable) -> Callable:
    return lambda self, factor: theirs(self, self.group_size)


def autocast(theirs: Callable) -> Callable:
    return torch.autocast("cpu", torch.bfloat16)(theirs)


def merged_backwards(theirs: Callable) -> Callable:
    return lambda self, outputs: theirs(self, outputs[::-1])


def not_cleared(theirs: Callable) -> Callable:
    return lambda self: None


def reseeded(theirs: Callable) -> Callable:
    def step(self, *args, **options):
        torch.manual_seed(0)
        return theirs(self, *args, **options)

    return step


def evaluating(theirs: Callable) -> Callable:
    def forward(self, *args, **options):
        self.submod.eval()
        return theirs(self, *args, **options)

    return forward


def clipped(theirs: Callable) -> Callable:
    def reduce(self, factor):
        theirs(self, factor)
        torch.nn.utils.clip_grad_norm_(self.submod.parameters(), 1.0)

    return reduce


def strided_alike(theirs: Callable) -> Callable:
    """Cut and merged alike, so that only rows that need each other can tell."""

    def cut(tensor, _, pieces):
        return [tensor[first::pieces] for first in range(pieces)]

    def merged(pieces, _):
        return torch.stack(list(pieces), 1).flatten(0, 1)

    def step(self, *args, **options):
        here = patch.multiple(schedules, _split_tensor=cut, merge_chunks=merged)
        with here, patch.object(microbatch, "_split_tensor", cut):
            return theirs(self, *args, **options)

    return step


def loss_of_float32(theirs: Callable) -> Callable:
    return lambda self, output, *rest: theirs(self, output.float(), *rest)


def training(theirs: Callable) -> Callable:
    def step(self, *args, **options):
        for each in self._stages:
            each.submod.train()
        return theirs(self, *args, **options)

    return step


def forked(theirs: Callable) -> Callable:
    def run(self, *args, **options):
        with torch.random.fork_rng(devices=[]):
            return theirs(self, *args, **options)

    return run


def one_output(theirs: Callable) -> Callable:
    def merge(self, chunks):
        whole = theirs(self, chunks)
        self.whole = vars(self).get("whole", whole)
        return self.whole.detach().copy_(whole.detach())

    return merge


def not_zeroed(theirs: Callable) -> Callable:
    text = textwrap.dedent(inspect.getsource(theirs))
    assert "info.buffer.zero_()" in text
    exec(text.replace("info.buffer.zero_()", "info.buffer.fill_(7)"), own := dict(vars(stage)))
    return own[theirs.__name__]


def emptied(theirs: Callable) -> Callable:
    def weights(self, number, *args, **options):
        if number == 0:
            self.submod.zero_grad()
        return theirs(self, number, *args, **options)

    return weights


def unhooked(theirs: Callable) -> Callable:
    def backward(*args, **options):
        with patch.object(torch.autograd, "backward", without_hooks):
            return theirs(*args, **options)

    def without_hooks(outputs, grad_tensors=None, **options):
        leaves = list({leaf for output in outputs for leaf in _leaves_behind(output.grad_fn)})
        for leaf, found in zip(leaves, torch.autograd.grad(outputs, leaves, grad_tensors), strict=True):
            leaf.grad = found if leaf.grad is None else leaf.grad + found

    return backward


def not_clamped(theirs: Callable) -> Callable:
    text = inspect.getsource(theirs)
    assert 'if len(param_group["intermediates"]) > 1:' in text
    changed = text.replace('if len(param_group["intermediates"]) > 1:', "if False:")
    exec(changed, own := dict(vars(_backward)))
    return own[theirs.__name__]


def made_finite(theirs: Callable) -> Callable:
    def reduce(self, factor):
        for parameter in self.submod.parameters():
            if parameter.grad is not None:
                parameter.grad.nan_to_num_()
        return theirs(self, factor)

    return reduce


def first_outputs(theirs: Callable) -> Callable:
    def weights(own, groups, retain_graph=False):
        for group in groups:
            group["grads"] = [(first, *[None] * len(rest)) for first, *rest in group["grads"]]
        return theirs(own, groups, retain_graph)

    return weights


def zeros(theirs: Callable) -> Callable:
    def reduce(self, factor):
        for parameter in self.submod.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        theirs(self, factor)

    return reduce


def put_back(theirs: Callable) -> Callable:
    def forward(self, number, *args, **options):
        before = [buffer.clone() for buffer in self.submod.buffers()]
        output = theirs(self, number, *args, **options)
        if number != self.chunks - 1:
            for buffer, kept in zip(self.submod.buffers(), before, strict=True):
                buffer.copy_(kept)
        return output

    return forward


def drawn_again(theirs: Callable) -> Callable:
    return lambda self, *args, **options: checkpoint(
        self.submod, *args, use_reentrant=False, preserve_rng_state=False, **options
    )


#: What is changed: whose, which name, and to what.
CHANGES = {
    "nothing": (BASE, "perform_reduce_grad", lambda theirs: theirs),
    "scaled anyway": (BASE, "perform_reduce_grad", scaled),
    "loss divided": (schedules._PipelineSchedule, "_compute_loss", loss_divided),
    "microbatches reordered": (schedules._PipelineSchedule, "_split_inputs", reordered),
    "W twice": (stage, "stage_backward_weight", twice),
    "another name": (schedules.PipelineScheduleMulti, "step", renamed),
    "gradients sent in float32": (BASE, "get_bwd_send_ops", rounded),
    "one buffer for all microbatches": (PipelineStage, "_prepare_forward_infra", one_buffer),
    "each backward begins anew": (BASE, "backward_maybe_with_nosync", replaced),
    "targets strided": (schedules, "_split_tensor", strided),
    "the newest loss": (schedules._PipelineSchedule, "_maybe_get_loss", newest_loss),
    "averaged over processes": (BASE, "perform_reduce_grad", averaged),
    "autocast": (BASE, "forward_maybe_with_nosync", autocast),
    "outputs merged backwards": (schedules._PipelineSchedule, "_merge_outputs", merged_backwards),
    "not cleared between steps": (BASE, "clear_runtime_states", not_cleared),
    "reseeded": (schedules.PipelineScheduleMulti, "step", reseeded),
    "evaluating": (BASE, "forward_maybe_with_nosync", evaluating),
    "clipped": (BASE, "perform_reduce_grad", clipped),
    "loss in float32": (schedules._PipelineSchedule, "_compute_loss", loss_of_float32),
    "strided alike": (schedules.PipelineScheduleMulti, "step", strided_alike),
    "training": (schedules.PipelineScheduleMulti, "step", training),
    "random numbers of a step forgotten": (schedules.PipelineScheduleMulti, "step", forked),
    "random numbers of a forward forgotten": (BASE, "forward_maybe_with_nosync", forked),
    "outputs in one place": (schedules._PipelineSchedule, "_merge_outputs", one_output),
    "an unused output's gradient is not zero": (BASE, "set_local_bwd_input", not_zeroed),
    "emptied at the first W": (BASE, "backward_weight_one_chunk", emptied),
    "no hooks": (stage, "stage_backward", unhooked),
    "W counts a weight twice": (stage, "stage_backward_weight", not_clamped),
    "made finite": (BASE, "perform_reduce_grad", made_finite),
    "W of first outputs": (stage, "stage_backward_weight", first_outputs),
    "zeros for what has no gradient": (BASE, "perform_reduce_grad", zeros),
    "buffers put back": (BASE, "forward_one_chunk", put_back),
    "recomputed with other numbers": (BASE, "forward_maybe_with_nosync", drawn_again),
}
MESSAGES = {"gradients sent in float32", "averaged over processes"}  #: do nothing in one process


def said(change: str) -> str:
    """What a step says to a change: nothing if it goes well. Raised where others wait for this process."""
    owner, name, make = CHANGES[change]
    canary._FLEW.clear()
    with patch.object(owner, name, make(getattr(owner, name))):
        try:
            train_step(linears(2), gp.ZBH1(2, 3), some_batch(6), gp.mse)
        except UnsupportedTorch as error:
            if " fails " in str(error):
                raise
            return str(error)
    return ""
