"""Measure steps of small GPTs on the card that is here, as rows for ``gp.pricing.calibrate``.

python -m benchmarks.probe ROWS.csv                  time whole steps on one GPU, or else on the CPU
python -m benchmarks.probe ROWS.csv --check          20 others too, which are then predicted from ROWS.csv
python -m benchmarks.measured --fit ROWS.csv --predict OTHERS.csv --out OUT.csv

A row is a step on one device: microbatches forward and backward, each block recomputed, then Adam on a
float32 copy of the weights, all in one array, as in Megatron-LM. Needs torch; ``--check`` also scipy.
"""

import argparse
import csv
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import gpipe_sim as gp
from benchmarks.measured import predicted, starting_from
from gpipe_sim.pricing.calibrate import Errors, calibrate
from gpipe_sim.pricing.rows import DTYPES, Row, read_rows
from gpipe_sim.torch_backend.counterparts import mean_loss, to_torch
from gpipe_sim.torch_backend.modules import device_named
from gpipe_sim.transformers.blocks import Chain

CHECKED, TIMES = 20, 3  #: configurations that --check predicts; steps of which a round takes the median
#: What is asked for unless one says: on a GPU, and on a CPU.
GPU = {"hidden": [1024, 2048, 3072], "sequence": [1024, 2048], "microbatch": [1, 2, 4], "layers": [2, 6]}
CPU = {"hidden": [128, 256, 384], "sequence": [64, 128], "microbatch": [1, 2, 4], "layers": [2, 6]}

#: All of a block is computed again, where torch alone would stop before its last product.
AGAIN: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False, "early_stop": False}


class Asked(NamedTuple):
    """One configuration."""

    hidden: int
    sequence: int
    microbatch: int
    layers: int
    microbatches: int

    @property
    def shape(self) -> tuple[int, ...]:
        """What a factor is known for."""
        return self[:3]


def probed(asked: argparse.Namespace) -> list[Asked]:
    """Each shape of block twice, with other layers and microbatches."""
    rng, pairs = random.Random(0), [*product(asked.layers, asked.microbatches)]
    shapes = product(asked.hidden, asked.sequence, asked.microbatch)
    return [Asked(*shape, *pair) for shape in shapes for pair in rng.sample(pairs, min(2, len(pairs)))]


def others(asked: argparse.Namespace, known: Sequence[Asked], count: int = CHECKED) -> list[Asked]:
    """Configurations that are not probed, of up to twice the layers; every other one has a shape that is."""
    rng, found, tries = random.Random(1), [], 1000
    steps = {"hidden": asked.head, "sequence": 16, "microbatch": 1, "layers": 1, "microbatches": 1}
    given = {name: getattr(asked, name) for name in steps} | {
        "layers": [*asked.layers, 2 * max(asked.layers)]
    }
    ranges = [range(min(given[name]), max(given[name]) + 1, step) for name, step in steps.items()]
    for i in range(tries):
        new = Asked(*map(rng.choice, ranges))
        if i % 2 == 0:
            new = Asked(*rng.choice(known).shape, *new[3:])
        if new not in (*known, *found):
            found.append(new)
    return found[:count]


def written(path: Path, configurations: Iterable[Asked], asked: argparse.Namespace, ms: Sequence[float] = ()):
    """The rows of a table, read back; without ``ms`` nobody has measured them."""
    rows: list[dict[str, Any]] = [
        {
            "gpus": 1, "global_batch": each.microbatch * each.microbatches, "micro_batch": each.microbatch,
            "hidden": each.hidden, "heads": each.hidden // asked.head, "layers": each.layers,
            "sequence": each.sequence, "tensor": 1, "pipeline": 1, "vocabulary": asked.vocabulary,
            "dropout": 0, "dtype": asked.dtype, "flash": "yes", "recompute": asked.recompute,
            "card": asked.card, "ms": f"{ms[i]:.6g}" if ms else "",
        }
        for i, each in enumerate(configurations)
    ]  # fmt: skip
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return read_rows(path)


class Step:
    """A training step as a row says it, on one torch device; a call takes it once."""

    def __init__(self, row: Row, device: str):
        layout = row.layout
        dtype = getattr(torch, row.given["dtype"])
        self.modules = nn.ModuleList(to_torch([_with_zeros(layer) for layer in layout.model]))
        self.modules.to(device, dtype)
        self.recomputed = [isinstance(layer, Chain) and layout.recompute == "full" for layer in layout.model]
        parameters = list(self.modules.parameters())
        self.weights = torch.empty(sum(each.numel() for each in parameters), dtype=dtype, device=device)
        self.weights.normal_(0, 0.02)
        self.gradients = torch.zeros_like(self.weights)
        for one, weight, gradient in zip(
            parameters, *(_like(parameters, flat) for flat in (self.weights, self.gradients)), strict=True
        ):
            one.data, one.grad = weight, gradient
        self.copy = self.weights.float()
        self.adam = torch.optim.Adam([self.copy], lr=1e-4, fused=True)
        self.copy.grad = torch.zeros_like(self.copy)
        tokens = layout.batch[0].shape
        vocabulary = layout.model[0].parameters["E"].shape[0]
        self.batch = [torch.randint(vocabulary, tokens, device=device) for _ in range(2)]
        self.microbatch, self.loss = layout.microbatch, mean_loss(gp.cross_entropy)

    def __call__(self) -> None:
        self.gradients.zero_()
        for x, y in zip(*(each.split(self.microbatch) for each in self.batch), strict=True):
            (self.loss(self.forward(x), y) * (len(x) / len(self.batch[0]))).backward()
        self.copy.grad.copy_(self.gradients)
        self.adam.step()
        self.weights.copy_(self.copy)

    def forward(self, x: Tensor) -> Tensor:
        for module, again in zip(self.modules, self.recomputed, strict=True):
            x = checkpoint(module, x, **AGAIN) if again else module(x)
        return x


def _with_zeros(layer: Any) -> Any:
    """A layer on paper, with weights that take no memory until torch copies them."""
    made = copy(layer)
    if isinstance(layer, Chain):
        made.layers = tuple(map(_with_zeros, layer.layers))
    made.parameters = {
        name: np.broadcast_to(np.float32(0), array.shape) for name, array in layer.parameters.items()
    }
    return made


def _like(parameters: Sequence[Tensor], flat: Tensor) -> Iterable[Tensor]:
    """Pieces of one array, in the shapes of these."""
    pieces = flat.split([each.numel() for each in parameters])
    return (piece.view_as(each) for piece, each in zip(pieces, parameters, strict=True))


def milliseconds(step: Callable[[], None], device: str) -> float:
    """Of one step: between two events on a GPU; on a CPU of this process, as others may want the core too."""
    if not device.startswith("cuda"):
        start = time.process_time()
        step()
        return 1000 * (time.process_time() - start)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    step()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def measured(rows: Sequence[Row], asked: argparse.Namespace) -> list[list[float]]:
    """The milliseconds of each row, each round in another order: a slow moment is not one row's alone."""
    found: list[list[float]] = [[] for _ in rows]
    for turn in range(asked.rounds):
        for i in random.Random(turn).sample(range(len(rows)), len(rows)):
            step = Step(rows[i], asked.device)
            taken = [milliseconds(step, asked.device) for _ in range(1 + TIMES)]
            found[i].append(statistics.median(taken[1:]))
            del step  # a card may have no room for two
        print(f"round {turn + 1} of {asked.rounds}: {len(rows)} rows", flush=True)
    return found


def checked(rows: Sequence[Row], others: Sequence[Row]) -> dict[str, Errors]:
    """How far off is what the rows predict of others: of all, and apart by whether their shapes are known."""
    found = calibrate(starting_from(rows), rows)
    print(f"{found.cluster.accelerator}\n{found}")
    errors = [*map(Row.off, others, predicted(found, others))]
    new = [bool(found.price(row).unseen) for row in others]
    parts = {"all": errors}
    parts["shapes that were probed"] = [e for e, unseen in zip(errors, new, strict=True) if not unseen]
    parts["other shapes"] = [e for e, unseen in zip(errors, new, strict=True) if unseen]
    return {name: Errors.of(some) for name, some in parts.items() if some}


def run(asked: argparse.Namespace) -> dict[str, Errors]:
    """Measure, write the rows; with ``check`` also predict the others. The errors, and the noise."""
    path, known = Path(asked.rows), probed(asked)
    new = others(asked, known) if asked.check else []
    every = [*known, *new]
    rounds = measured(written(path, every, asked), asked)
    ms = [statistics.median(times) for times in rounds]
    apart = [one / each - 1 for each, times in zip(ms, rounds, strict=True) for one in times]
    said = {"noise": Errors.of(apart)} if asked.rounds > 1 else {}
    if new:
        unseen = written(path.with_name(f"{path.stem}-others.csv"), new, asked, ms[len(known) :])
    rows = written(path, known, asked, ms[: len(known)])
    said |= checked(rows, unseen) if new else {}
    for name, errors in said.items():
        print(f"{name:24}{errors}", flush=True)
    return said


def above_0(text: str) -> int:
    """For argparse, which says the option's name."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def options(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.probe", description=__doc__.split("\n")[0])
    parser.add_argument("rows", help="where the rows go, CSV")
    parser.add_argument(
        "--check", action="store_true", help=f"predict {CHECKED} others that are measured too"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=DTYPES, help="bfloat16 on a GPU, float32 on a CPU")
    for name in GPU:
        parser.add_argument(f"--{name}", type=above_0, nargs="+")
    parser.add_argument("--microbatches", type=above_0, nargs="+", default=[2, 6], help="in a step")
    parser.add_argument("--head", type=above_0, default=64, help="features of a head of attention")
    parser.add_argument("--vocabulary", type=above_0)
    parser.add_argument("--recompute", choices=("full", "none"), default="full")
    parser.add_argument("--rounds", type=above_0, default=3, help="times that each row is measured")
    asked = parser.parse_args(words)
    try:
        gpu = device_named(asked.device).type == "cuda"
    except ValueError as error:
        parser.error(str(error))
    usual = GPU | {"vocabulary": 51_200, "dtype": "bfloat16"} if gpu else CPU
    for name, value in ({"vocabulary": 1024, "dtype": "float32"} | usual).items():
        if getattr(asked, name) is None:
            setattr(asked, name, value)
    asked.card = torch.cuda.get_device_name(asked.device) if gpu else "CPU"
    if any(hidden % asked.head for hidden in asked.hidden):
        parser.error(f"--hidden {asked.hidden} have to be multiples of --head {asked.head}")
    return asked


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    run(options())
