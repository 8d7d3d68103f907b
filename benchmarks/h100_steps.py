"""NVIDIA's own tables of training steps on H100s with FP8: two rows are fitted, the others predicted.

The tables do not say what is recomputed, what is hidden behind products, or what stays in bfloat16. Here
nothing is recomputed, and sequences are dealt out over tensor-parallel devices.
Rows with context parallelism are not predicted: ``price`` does not deal attention out along the sequence.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from statistics import mean
from typing import Any

import numpy as np

import gpipe_sim as gp
from gpipe_sim.pricing import H100
from gpipe_sim.pricing.price import Priced
from gpipe_sim.transformers.known import GPT, KNOWN

#: NVLink in a DGX, and an adapter of 400 Gb/s for each device: four fifths of what they promise.
INSIDE = 360e9
LINKS = gp.Nodes(8, inside=gp.Link(bandwidth=INSIDE), between=gp.Link(bandwidth=40e9))
FITTED = 2, 4  #: the rows that are fitted: Llama 2 7B has no links to wait for, 70B has all of them


@dataclass(frozen=True)
class Fp8Step:
    """A row of ``data/measured/h100-fp8.csv``."""

    given: dict[str, str]

    @property
    def name(self) -> str:
        """Which one it is."""
        at = self.given
        return f"{at['model']} on {at['gpus']}, batch {at['global_batch']}, {at['source']}"

    @property
    def seconds(self) -> float:
        """Of a step, from the mean of what was printed."""
        printed = [float(self.given[name]) for name in ("tokens_per_s", "again") if self.given[name]]
        return self["global_batch"] * self["sequence"] / self["gpus"] / mean(printed)

    def __getitem__(self, name: str) -> int:
        return int(self.given[name])

    def error(self, accelerator: gp.Accelerator, links: gp.Nodes) -> float:
        """Predicted / printed - 1."""
        return self.priced(accelerator, links).time / self.seconds - 1

    def priced(self, accelerator: gp.Accelerator, links: gp.Nodes) -> Priced:
        """ValueError with context parallelism."""
        if self["context"] > 1:
            raise ValueError(f"{self.name} has context parallelism, which is not predicted")
        how: Any = {name: self[name] for name in ("tensor", "pipeline", "stages_per_device", "zero")}
        kind = gp.Interleaved1F1B if self["stages_per_device"] > 1 else gp.OneFOneB
        cluster = gp.Cluster(self["gpus"], accelerator, memory=80e9, links=links)
        x = gp.MetaArray((self["global_batch"], self["sequence"]), "i4")
        return gp.price(
            _model(self.given["model"]), cluster, (x, x), microbatch=self["micro_batch"],
            schedule=kind, sequence_parallel=self["tensor"] > 1, **how,
        )  # fmt: skip


def _model(name: str) -> list[gp.core.Layer]:
    known = KNOWN[name]
    if not isinstance(known, GPT):
        return known.layers()
    size = known.blocks, known.features, known.heads
    return gp.gpt(*size, tokens=known.tokens, sequence=known.sequence, flash=True, dtype="bfloat16")


def fp8_steps() -> Iterator[Fp8Step]:
    """All rows."""
    text = files("gpipe_sim").joinpath("data/measured/h100-fp8.csv").read_text()
    yield from map(Fp8Step, csv.DictReader(text.splitlines()))


def fitted(steps: Sequence[Fp8Step]) -> tuple[gp.Accelerator, gp.Nodes]:
    """Two numbers such that two rows come out: what products in FP8 reach, and the links inside a node.

    The links come out so fast that sums over them take nearly no time: they are hidden behind products.
    """
    from scipy.optimize import least_squares  # type: ignore[import-untyped]

    def changed(logs: Sequence[float]) -> tuple[gp.Accelerator, gp.Nodes]:
        linear, inside = (
            float(number * np.exp(x)) for number, x in zip((H100.linear, INSIDE), logs, strict=True)
        )
        return replace(H100, linear=linear), replace(LINKS, inside=gp.Link(bandwidth=inside))

    def off(logs: Sequence[float]) -> list[float]:
        return [step.error(*changed(logs)) for step in steps]

    return changed(least_squares(off, [0.0, 0.0], diff_step=1e-3, bounds=([-0.5, -1], [0.5, 3])).x)
