"""One process of a pipeline that Megatron runs itself, on stages that sleep: for ``test_torch_megatron.py``.

    python megatron_loop.py RANK FOLDER

Four of these meet through a file in the folder. Each runs four steps and an evaluation of megatron-core's
plain 1F1B, and the same of its interleaved schedule, on a CPU: what is asked for on a GPU is made here. All
but the first step are recorded. What really happened, by a clock below the recorder, is in a file beside it.
"""

import functools
import json
import sys
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

DEVICES, MICROBATCHES, STEPS = 4, 8, 3
TOOK = {"F": 20, "B": 30}  #: milliseconds that a stage sleeps
SLOW = {"plain": 2, "interleaved": 5}  #: this stage sleeps twice as long
CHUNKS = {"plain": 1, "interleaved": 2}
SHAPE = (4, 1, 8)  #: sequence, samples, features


class OnCpu(TorchFunctionMode):
    """What is asked for on a GPU is made on the CPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        given = dict(kwargs or {})
        if str(given.get("device", "")).startswith("cuda"):
            given["device"] = "cpu"
        return function(*args, **given)


class Asleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.seconds)
        return gradient.clone(), None


class Stage(torch.nn.Module):
    """A model chunk as Megatron wants one."""

    def __init__(self, config, model_type, stage: int, slow: bool, vp_stage: int | None):
        super().__init__()
        self.config, self.model_type, self.stage, self.vp_stage = config, model_type, stage, vp_stage
        self.sleeps = {kind: took * (2 if slow else 1) / 1000 for kind, took in TOOK.items()}
        self.weight = torch.nn.Parameter(torch.ones(SHAPE[-1]))
        self.given = None

    def set_input_tensor(self, given) -> None:
        self.given = given[0] if isinstance(given, list) else given

    def forward(self, x):
        time.sleep(self.sleeps["F"])
        return Asleep.apply((x if self.given is None else self.given) * self.weight, self.sleeps["B"])


def forward_step(data, model):
    return model(next(data)), lambda output: (output.mean(), {"loss": output.mean().detach()})


def noting(true: list, kind: str, function):
    """A function of Megatron's that says in ``true`` from when to when it ran, in milliseconds."""

    @functools.wraps(function)
    def noted(*args, **kwargs):
        start = time.time()
        result = function(*args, **kwargs)
        true.append([kind, start * 1000, time.time() * 1000])
        return result

    return noted


def pipeline(name: str, rank: int):
    """A step of Megatron's schedule, and the model that it runs on this rank."""
    from megatron.core import parallel_state
    from megatron.core.enums import ModelType
    from megatron.core.pipeline_parallel import schedules
    from megatron.core.transformer.transformer_config import TransformerConfig

    chunks = CHUNKS[name]
    parallel = {
        "pipeline_model_parallel_size": DEVICES,
        "virtual_pipeline_model_parallel_size": chunks if chunks > 1 else None,
    }
    parallel_state.initialize_model_parallel(**parallel, create_gloo_process_groups=False)
    config = TransformerConfig(
        num_layers=DEVICES * chunks,
        hidden_size=SHAPE[-1],
        num_attention_heads=1,
        pipeline_dtype=torch.float32,
        batch_p2p_comm=False,
        overlap_p2p_comm=chunks > 1,
        deallocate_pipeline_outputs=chunks == 1,  # gloo may still send what a stream on a GPU would have sent
        use_cpu_initialization=True,
        **parallel,
    )
    held = [(v, v * DEVICES + rank) for v in range(chunks)]
    model = [
        Stage(config, ModelType.encoder_or_decoder, stage, stage == SLOW[name], v if chunks > 1 else None)
        for v, stage in held
    ]

    def step(forward_only: bool = False) -> None:
        with OnCpu():
            schedules.get_forward_backward_func()(
                forward_step_func=forward_step,
                data_iterator=[iter([torch.ones(SHAPE)] * MICROBATCHES) for _ in model],
                model=model,
                num_microbatches=MICROBATCHES,
                seq_length=SHAPE[0],
                micro_batch_size=SHAPE[1],
                forward_only=forward_only,
            )

    return schedules, step, model


def recorded(name: str, rank: int, folder: Path) -> dict:
    """What really ran in the steps, and the gradients, with a recorder and without."""
    from gpipe_sim.traces import Recorder

    schedules, step, model = pipeline(name, rank)
    kept = schedules.forward_step, schedules.backward_step
    step()
    alone = [chunk.weight.grad.tolist() for chunk in model]
    true: list = []
    schedules.forward_step = noting(true, "F", kept[0])
    schedules.backward_step = noting(true, "B", kept[1])
    recorder, evaluated = Recorder(), 0
    with recorder.wrapped(schedules):
        for i in range(STEPS):
            for chunk in model:
                chunk.weight.grad = None
            dist.barrier()
            step()
            if i == 0:
                before = len(true)
                step(forward_only=True)
                evaluated = len(true) - before
                del true[before:]
    recorder.save(folder / f"{name}_{rank}.csv")
    schedules.forward_step, schedules.backward_step = kept
    gradients = [chunk.weight.grad.tolist() for chunk in model]
    return {"true": true, "alone": alone, "recorded": gradients, "evaluated": evaluated}


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    torch.autograd.set_multithreading_enabled(False)
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.synchronize = lambda *_: None
    store = dist.FileStore(str(folder / "meet"), DEVICES)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=DEVICES)
    from megatron.core import parallel_state

    found = {}
    for name in CHUNKS:
        found[name] = recorded(name, rank, folder)
        parallel_state.destroy_model_parallel()
    (folder / f"truth_{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(int(sys.argv[1]), Path(sys.argv[2]))
