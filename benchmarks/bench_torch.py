"""PyTorch's engine against the simulator, and this backend against PyTorch's own 1F1B.

Needs torch (`make bench-torch` installs it). With stages that sleep, any machine can stand in for four
devices. Each target is a ratio within one run. On a machine with a GPU, the last part runs on the GPU.
"""

import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional

import gpipe_sim as gp
from benchmarks.timing import report
from gpipe_sim import torch_backend as tb

DEVICES, MICROBATCHES = 4, 8
SLEEP = {"forward": 20, "input_grad": 20, "weight_grad": 20}  #: milliseconds
ROUNDS = 7
RESULTS = Path(__file__).parent / "results"  #: one file per GPU, named after it


def schedules() -> list[gp.Schedule]:
    return [
        gp.GPipe(DEVICES, MICROBATCHES),
        gp.OneFOneB(DEVICES, MICROBATCHES),
        gp.Interleaved1F1B(DEVICES, MICROBATCHES, stages_per_device=2),
        gp.ZBH1(DEVICES, MICROBATCHES),
        gp.ZBV(DEVICES, MICROBATCHES),
    ]


def sleeping(processes: tb.LocalProcesses) -> bool:
    """Whether each schedule meets its target; on a machine that is too slow for 20 ms, with longer sleeps."""
    met = True
    for schedule in schedules():
        met &= any(ratio <= 1.05 for ratio in ratios(schedule, processes))
    return met


def ratios(schedule: gp.Schedule, processes: tb.LocalProcesses) -> Iterator[float]:
    """Measured / simulated makespan, with sleeps of 20, 40 and 80 ms.

    The fastest step counts, because whatever else the machine does only adds time. The engine adds a
    millisecond or two per action, which matters less the longer the sleep.
    """
    batch = [np.zeros((MICROBATCHES, 4), np.float32)] * 2
    for times in (1, 2, 4):
        stages = sleeping_stages(schedule.stages, times)
        pipeline = tb.Pipeline(stages, schedule, gp.mse, devices=processes)
        pipeline.step(batch)
        measured = min(pipeline.step(batch).timeline.makespan for _ in range(ROUNDS))
        costs = gp.Costs(*(times * milliseconds for milliseconds in SLEEP.values()))
        ratio = measured / gp.simulate(schedule, costs).makespan
        report(f"{type(schedule).__name__}, {times * 20} ms: measured / simulated", ratio, "x", 1.05)
        yield ratio


def sleeping_stages(count: int, times: int = 1) -> list[nn.Module]:
    return [tb.Sleep(**{name: times * took for name, took in SLEEP.items()}) for _ in range(count)]


def linear_stages(count: int, width: int) -> list[nn.Module]:
    """12 layers of Linear and ReLU, cut into ``count`` stages."""
    torch.manual_seed(0)
    layers = [layer for _ in range(12) for layer in (nn.Linear(width, width), nn.ReLU())]
    return tb.split(layers, stages=count)


def in_turn(modules: list[nn.Module], shape: tuple[int, int], rounds: int) -> tuple[float, float]:
    """Run on each process: median seconds per step of this backend's 1F1B and of PyTorch's, taken in turn."""
    rank, count = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same batch on each
    batch = torch.randn(*shape), torch.randn(*shape)
    ours = tb.Pipeline(modules, gp.OneFOneB(count, MICROBATCHES), functional.mse_loss)
    stage = PipelineStage(modules[rank], rank, count, torch.device("cpu"))
    stock = Schedule1F1B(stage, MICROBATCHES, loss_fn=functional.mse_loss)

    def step_of_torch() -> None:
        modules[rank].zero_grad()
        inputs = batch[:1] if rank == 0 else ()
        stock.step(*inputs, **({"target": batch[1], "losses": []} if rank == count - 1 else {}))

    def step_of_ours() -> None:
        modules[rank].zero_grad()
        ours.step(batch)

    taken: list[list[float]] = [[], []]
    for _ in range(rounds + 1):
        for step, times in zip((step_of_ours, step_of_torch), taken, strict=True):
            dist.barrier()
            start = time.perf_counter()
            step()
            dist.barrier()
            times.append(time.perf_counter() - start)
    return tuple(statistics.median(times[1:]) for times in taken)


def on_gpu() -> None:
    """All stages on one GPU in one process: how far gradients are from NumPy's, and what actions cost."""
    schedule, layers = gp.OneFOneB(DEVICES, MICROBATCHES), gp.mlp([1024] * 12 + [10], seed=0)
    rng = np.random.default_rng(0)
    batch = rng.normal(size=(512, 1024)), rng.integers(0, 10, 512)
    names = ["cuda:0"] * DEVICES
    modules = tb.place(tb.to_torch(gp.split(layers, stages=DEVICES)), schedule, names)
    pipeline = tb.Pipeline(modules, schedule, gp.cross_entropy, devices=names)
    steps = [pipeline.step(batch) for _ in range(ROUNDS)]
    alone = gp.single_device_step(layers, batch, gp.cross_entropy)
    apart = max(
        np.abs(steps[-1].gradients[key] - gradient).max() / np.abs(gradient).max()
        for key, gradient in alone.gradients.items()
    )
    costs = gp.fit_costs(steps[-1].timeline)
    device = torch.cuda.get_device_name(0)
    print(f"{device}: gradients apart by {apart:.1e}, {costs}")
    found = {
        "device": device,
        "torch": torch.__version__,
        "gradients_apart": apart,
        "costs_ms": asdict(costs),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{device.replace(' ', '_')}.json").write_text(json.dumps(found, indent=1) + "\n")


def slower(
    processes: tb.LocalProcesses, modules: list[nn.Module], shape: tuple[int, int], rounds: int
) -> float:
    """How many times as long as a step of PyTorch's own class our step takes, on the slowest process."""
    ours, stock = zip(*processes.run(in_turn, modules, shape, rounds), strict=True)
    return max(ours) / max(stock)


def run() -> bool:
    print(f"torch {torch.__version__}")
    with tb.LocalProcesses(DEVICES) as processes:
        met = sleeping(processes)
        ratio = slower(processes, sleeping_stages(DEVICES), (8, 4), ROUNDS)
        met &= report("1F1B, sleeping stages: this backend / Schedule1F1B", ratio, "x", 1.05)
    with tb.LocalProcesses(2) as processes:
        for width, rounds in ((256, 31), (1024, 9)):
            ratio = slower(processes, linear_stages(2, width), (512, width), rounds)
            name = f"1F1B, width {width}, 2 processes: this backend / Schedule1F1B"
            met &= report(name, ratio, "x", 1.15)
    if torch.cuda.is_available():
        on_gpu()
    return met
