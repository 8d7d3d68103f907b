"""Whole training steps that papers and logs print: what was run, and the seconds of a step. A100s, GPTs.

What the groups in ``ONE_FACTOR`` printed cannot be explained by what is known of the runs. The results have a
factor for each, which its first step says; it is never taken for a device's rate.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import gpipe_sim as gp

NODE, INSIDE, BETWEEN = 8, 200e9, 20e9
LINKS = gp.Nodes(NODE, inside=gp.Link(bandwidth=INSIDE), between=gp.Link(bandwidth=BETWEEN))
#: Jean Zay, BLOOM's cluster: four Omni-Path links of 100 Gb/s for the eight A100s of a node. One rail, as the
#: rows of Megatron-DeepSpeed elsewhere say, which BLOOM was trained with too.
JEAN_ZAY = gp.pricing.OneRail(NODE, inside=LINKS.inside, between=gp.Link(bandwidth=50e9), per="node")


@dataclass(frozen=True)
class Step:
    """A model (blocks, features, heads, tokens), how it was laid out, and what a step took, in seconds."""

    group: str
    model: tuple[int, int, int, int]
    devices: int
    batch: int
    seconds: float
    how: dict[str, Any] = field(default_factory=dict)
    links: gp.Nodes = LINKS

    def priced(self, accelerator: gp.Accelerator) -> "gp.pricing.Priced":
        blocks, features, heads, tokens = self.model
        cluster = gp.Cluster(self.devices, accelerator, memory=80e9, links=self.links)
        x = gp.MetaArray((self.batch, 2048), "i4")
        layers = gp.gpt(blocks, features, heads, tokens=tokens, sequence=2048, dropout=0.1, dtype="f2")
        return gp.price(layers, cluster, (x, x), **self.how)


def recompute() -> Iterator[Step]:
    """Korthikanti et al. 2022, arXiv:2205.05198, table 5: full, and selective with sequences dealt out."""
    table = (
        (48, 6144, 64, 1, 1, 4, 4, 1.42, 1.10),
        (96, 12288, 96, 8, 3, 64, 1, 18.13, 13.75),
        (105, 20480, 128, 35, 3, 280, 1, 49.05, 37.83),
        (128, 25600, 160, 64, 1, 512, 1, 94.42, 71.49),
    )
    for blocks, features, heads, pipeline, several, batch, size, full, selective in table:
        kind = gp.Interleaved1F1B if several > 1 else gp.OneFOneB
        how = {"tensor": 8, "pipeline": pipeline, "schedule": kind}
        how |= {"microbatch": size, "stages_per_device": several}
        model, devices = (blocks, features, heads, 51_200), 8 * pipeline
        yield Step("2205.05198 table 5", model, devices, batch, full, how | {"recompute": "full"})
        how |= {"recompute": "selective", "sequence_parallel": True}
        yield Step("2205.05198 table 5", model, devices, batch, selective, how)


def megatron() -> Iterator[Step]:
    """Narayanan et al. 2021, arXiv:2104.04473, table 1: TFLOP/s per GPU, from which the seconds follow.

    Samples of a microbatch are not printed: as many as fit the batch, at most 4 without a pipeline, and one
    with it, as in the paper's figures; stages per device neither: two where that divides, three for 530B.
    """
    table = (
        (24, 2304, 24, 1, 1, 32, 512, 137),
        (30, 3072, 32, 2, 1, 64, 512, 138),
        (36, 4096, 32, 4, 1, 128, 512, 142),
        (40, 6144, 48, 8, 1, 256, 1024, 135),
        (48, 8192, 64, 8, 2, 512, 1536, 138),
        (60, 10240, 80, 8, 4, 1024, 1792, 140),
        (80, 12288, 96, 8, 8, 1536, 2304, 148),
        (96, 16384, 128, 8, 16, 1920, 2160, 155),
        (105, 20480, 128, 8, 35, 2520, 2520, 163),
        (128, 25600, 160, 8, 64, 3072, 3072, 163),
    )
    for blocks, features, heads, tensor, pipeline, devices, batch, rate in table:
        flops = gp.formulas.transformer_flops(blocks, features, 51_200, 2048, batch)
        several = 3 if blocks == 105 else 2
        how: dict[str, Any] = {"tensor": tensor, "pipeline": pipeline, "recompute": "full"}
        replicas = devices // (tensor * pipeline)
        if pipeline > 1 and batch // replicas % pipeline == 0 and blocks % (pipeline * several) == 0:
            how |= {"schedule": gp.Interleaved1F1B, "stages_per_device": several}
        how["microbatch"] = 1 if pipeline > 1 else min(4, batch // replicas)
        yield Step(
            "2104.04473 table 1", (blocks, features, heads, 51_200), devices, batch,
            flops / devices / rate / 1e12, how,
        )  # fmt: skip


def scaled() -> Iterator[Step]:
    """The same, table 2: GPT-3 on more and more replicas."""
    for replicas, rate in ((4, 153), (8, 149), (16, 141)):
        devices = 96 * replicas
        seconds = gp.formulas.transformer_flops(96, 12288, 51_200, 2048, 1536) / devices / rate / 1e12
        how = {"tensor": 8, "pipeline": 12, "recompute": "full"}
        yield Step("2104.04473 table 2", (96, 12288, 96, 51_200), devices, 1536, seconds, how)


def bloom() -> Iterator[Step]:
    """BLOOM 176B, bigscience's chronicles of tr11-176B-ml."""
    cut = [9, *[7] * 10, 3]
    for batch, seconds in ((512, 35.77), (1024, 59.65), (1536, 83.11), (2048, 107.12)):
        how = {"tensor": 4, "pipeline": 12, "microbatch": 2, "recompute": "full", "zero": 1, "cut": cut}
        yield Step("BLOOM", (78, 13824, 96, 250_880), 384, batch, seconds, how, JEAN_ZAY)


def mt_nlg() -> Iterator[Step]:
    """Megatron-Turing 530B, Smith et al. 2022, arXiv:2201.11990, section 2.4."""
    for replicas, seconds in ((8, 60.1), (10, 50.2), (12, 44.4)):
        how = {"tensor": 8, "pipeline": 35, "recompute": "full"}
        yield Step("MT-NLG", (105, 20480, 128, 51_200), 280 * replicas, 1920, seconds, how)


FREE, ONE_FACTOR = (recompute, megatron, scaled), (bloom, mt_nlg)
