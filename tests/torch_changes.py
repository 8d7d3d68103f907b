"""Releases of torch that might come: changes of its pipeline engine, made in this process."""

from collections.abc import Callable
from unittest.mock import patch

import torch
from torch.distributed.pipelining import PipelineStage, schedules, stage
from torch_modules import linears, some_batch

import gpipe_sim as gp
from gpipe_sim.torch_backend import UnsupportedTorch, canary, train_step

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
