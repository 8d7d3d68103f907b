"""PyTorch's engine against the simulator, and this backend against PyTorch's own classes.

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
from torch import Tensor, nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleZBVZeroBubble,
)
from torch.nn import functional

import gpipe_sim as gp
from benchmarks.timing import report
from gpipe_sim import torch_backend as tb
from gpipe_sim.core import Schedule

DEVICES, MICROBATCHES = 4, 8
SLEEP = {"forward": 20, "input_grad": 20, "weight_grad": 20}  #: milliseconds
ROUNDS = 7
RESULTS = Path(__file__).parent / "results"  #: one file per GPU, named after it


def schedules() -> list[Schedule]:
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


def ratios(schedule: Schedule, processes: tb.LocalProcesses) -> Iterator[float]:
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


class Block(nn.Module):
    """A Transformer's: attention and an MLP, each added to what came in."""

    def __init__(self, width: int, heads: int = 4):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norms[1](x))


def mlp(stages: int, width: int = 1024) -> list[nn.Module]:
    torch.manual_seed(0)
    return tb.split([layer for _ in range(16) for layer in (nn.Linear(width, width), nn.ReLU())], stages)


def language_model(stages: int, width: int = 128, words: int = 256) -> list[nn.Module]:
    """An embedding, eight blocks and a head: 1.7 million parameters."""
    torch.manual_seed(0)
    layers = [nn.Embedding(words, width), *(Block(width) for _ in range(8)), nn.Linear(width, words)]
    return tb.split(layers, stages)


def next_word(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def batch_for(model: str) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)  # the same on each process
    if model == "language model":
        return torch.randint(256, (32, 64)), torch.randint(256, (32, 64))
    shape = (MICROBATCHES, 4) if model == "sleeping stages" else (256, 1024)
    return torch.randn(shape), torch.randn(shape)


MODELS = {
    "sleeping stages": (sleeping_stages, functional.mse_loss),
    "MLP": (mlp, functional.mse_loss),
    "language model": (language_model, next_word),
}
THEIRS = {gp.GPipe: ScheduleGPipe, gp.OneFOneB: Schedule1F1B, gp.ZBV: ScheduleZBVZeroBubble}


def in_turn(model: str, schedule: Schedule, rounds: int) -> list[list[float]]:
    """Run on each process: seconds of each step of this backend, and of PyTorch's own class, in turn."""
    make, loss = MODELS[model]
    modules, batch, rank = make(schedule.stages), batch_for(model), dist.get_rank()
    ours = tb.Pipeline(modules, schedule, loss, measure=False)
    mine = schedule.placement[rank]
    held = [PipelineStage(modules[stage], stage, schedule.stages, torch.device("cpu")) for stage in mine]
    kind = THEIRS[type(schedule)]
    theirs = kind(held if len(held) > 1 else held[0], schedule.microbatches, loss_fn=loss)
    inputs = batch[:1] if 0 in mine else ()
    ends = {"target": batch[1], "losses": []} if schedule.stages - 1 in mine else {}
    steps = [lambda: ours.step(batch), lambda: theirs.step(*inputs, **ends)]
    taken: list[list[float]] = [[], []]
    for turn in range(rounds + 2):
        for which in (0, 1) if turn % 2 else (1, 0):
            for stage in mine:
                modules[stage].zero_grad()
            dist.barrier()
            start = time.perf_counter()
            steps[which]()
            dist.barrier()
            taken[which].append(time.perf_counter() - start)
    return [times[2:] for times in taken]


def slower(processes: tb.LocalProcesses, model: str, schedule: Schedule, rounds: int) -> list[float]:
    """How many times as long as PyTorch's own class ours takes, round by round in order; its seconds last."""
    ours, theirs = (
        [max(times) for times in zip(*each, strict=True)]
        for each in zip(*processes.run(in_turn, model, schedule, rounds), strict=True)
    )
    ratios = sorted(own / other for own, other in zip(ours, theirs, strict=True))
    return [*ratios, statistics.median(theirs)]


def middle(ratios: list[float]) -> tuple[float, float, float]:
    """The median, and an interval that has that of many more rounds in it in 95 of 100 cases."""
    below = max(0, int(len(ratios) / 2 - 0.98 * len(ratios) ** 0.5))
    return statistics.median(ratios), ratios[below], ratios[-1 - below]


def beside_torch(devices: int) -> bool:
    """This backend beside PyTorch's own classes, on one machine at one time. Neither measures."""
    met = True
    with tb.LocalProcesses(devices) as processes:
        for schedule in (kind(devices, MICROBATCHES) for kind in THEIRS):
            for model, rounds in (("MLP", 25), ("language model", 41)):
                *ratios, _ = slower(processes, model, schedule, rounds)
                ratio, low, high = middle(ratios)
                name = f"{type(schedule).__name__}, K={devices}, {model}: this backend / torch's class"
                met &= report(f"{name} ({low:.2f} to {high:.2f})", ratio, "x", 1.10)
    return met


def own_costs() -> bool:
    """Stages that only sleep: what a step takes beyond the simulated one is the engine's, and gloo's."""
    met = True
    with tb.LocalProcesses(DEVICES) as processes:
        for schedule in (kind(DEVICES, MICROBATCHES) for kind in (gp.GPipe, gp.OneFOneB)):
            name = f"{type(schedule).__name__}, sleeping stages"
            *ratios, theirs = slower(processes, "sleeping stages", schedule, ROUNDS)
            met &= report(f"{name}: this backend / torch's class", statistics.median(ratios), "x", 1.05)
            beyond = 1000 * theirs - gp.simulate(schedule, gp.Costs(*SLEEP.values())).makespan
            actions = 2 * (MICROBATCHES + DEVICES - 1)  # one after the other on the longest path
            each = 1000 * beyond / actions
            print(f"      {name}: torch's class takes {each:.0f} us more per action than simulated")
    return met


def moving() -> bool:
    """A call on local processes beside its timeline: numbers of 17 MB of weights go there and back."""
    modules, batch = mlp(DEVICES)[:DEVICES], batch_for("MLP")
    with tb.LocalProcesses(DEVICES) as processes:
        pipeline = tb.Pipeline(modules, gp.OneFOneB(DEVICES, MICROBATCHES), gp.mse, devices=processes)
        pipeline.step(batch)
        ratios = []
        for _ in range(ROUNDS):
            for module in modules:
                module.zero_grad()
            start = time.perf_counter()
            step = pipeline.step(batch)
            ratios.append((time.perf_counter() - start) * 1000 / step.timeline.makespan)
    megabytes = sum(p.numel() * 4 for module in modules for p in module.parameters()) / 1e6
    name = f"local processes, {megabytes:.0f} MB of weights: wall time / makespan"
    return report(name, statistics.median(ratios), "x", 1.3)


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


def run() -> bool:
    print(f"torch {torch.__version__}")
    with tb.LocalProcesses(DEVICES) as processes:
        met = sleeping(processes)
    met &= beside_torch(2)
    met &= beside_torch(DEVICES)
    met &= own_costs()
    met &= moving()
    if torch.cuda.is_available():
        on_gpu()
    return met
