"""Steps that were measured, as rows of a table: a GPT, how it was laid out, and what a step took."""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from gpipe_sim.core.layers import Layer
from gpipe_sim.core.losses import cross_entropy
from gpipe_sim.core.meta_array import MetaArray
from gpipe_sim.core.one_f_one_b import OneFOneB
from gpipe_sim.errors import duration, got, one_of, short
from gpipe_sim.pricing.cluster import Cluster
from gpipe_sim.pricing.layout import Layout, read_layout
from gpipe_sim.pricing.price import Factors, Priced
from gpipe_sim.transformers.models import gpt

NEEDED = (
    "gpus", "global_batch", "micro_batch", "hidden", "heads", "layers", "sequence", "tensor", "pipeline",
)  # fmt: skip
#: What a row may say besides, and what holds where it does not: Megatron-DeepSpeed's, and GPT-2's vocabulary,
#: padded as in Megatron-LM.
USUAL = {"vocabulary": "51200", "dropout": "0.1", "dtype": "float16", "flash": "no", "recompute": "full"}
DTYPES = "float16", "bfloat16", "float32"
MOST_ROWS = 100_000
COMMITTED = "one-node", "many-nodes"


@dataclass(frozen=True, eq=False)
class Row:
    """One measured step: its ``layout`` on so many ``devices``, and its ``time`` in seconds, None if unknown.

    ``given`` are the columns of the table as they stand there.
    """

    layout: Layout
    devices: int
    time: float | None
    given: Mapping[str, str]

    def priced(self, cluster: Cluster, factors: Factors | None = None) -> Priced:
        """The step on as many devices of this cluster as it had."""
        same = cluster.devices == self.devices
        return Priced(self.layout, cluster if same else _resized(cluster, self.devices), factors or {})

    @property
    def seconds(self) -> float:
        """Its ``time``; ValueError if nobody measured it."""
        if self.time is None:
            raise ValueError("a row has no time: its column ms is empty")
        return self.time

    def off(self, seconds: float) -> float:
        """The share by which these are more than it took."""
        return seconds / self.seconds - 1


def read_rows(path: str | PathLike) -> list[Row]:
    """The rows of a CSV file.

    Columns: gpus, global_batch, micro_batch (of one replica), hidden, heads, layers, sequence, tensor,
    pipeline; and ms, what a step took, where it was measured. Models are GPTs, by 1F1B, and ZeRO 1 shares
    out the optimizer's state. Unless further columns say otherwise, they are as in Megatron-DeepSpeed:
    vocabulary 51200, dropout 0.1, dtype float16 (or bfloat16, float32), flash no (or yes), recompute
    full (or selective, none), per block. Gradients take 4 bytes. ValueError, with the line, for a row that
    is none.
    """
    with open(path, newline="") as file:
        return list(_rows(file, Path(path).name))


def measured_rows(name: str) -> list[Row]:
    """The rows that come with the package: "one-node" (698, of 2 to 8 A100s) or "many-nodes" (58, 64 to 512).

    Measured by VIA-Research for vTrain, with Megatron-DeepSpeed; see ``data/README.md``.
    """
    return [*_committed(one_of("measured_rows", "name", name, COMMITTED))]


@cache
def _committed(name: str) -> tuple[Row, ...]:
    text = files("gpipe_sim").joinpath(f"data/measured/{name}.csv").read_text()
    return tuple(_rows(text.splitlines(), f"{name}.csv"))


def _rows(lines: Iterable[str], name: str) -> Iterable[Row]:
    reader = csv.DictReader(lines)
    if missing := [column for column in NEEDED if column not in (reader.fieldnames or ())]:
        raise ValueError(
            f"{short(name)} has no column {', '.join(missing)}: rows need {', '.join(NEEDED)}, and ms"
        )
    for line, given in enumerate(reader, start=2):
        if line > MOST_ROWS:
            raise ValueError(f"{short(name)} has more than {MOST_ROWS:,} rows")
        try:
            yield _row(given)
        except (TypeError, ValueError) as error:
            raise ValueError(f"line {line} of {short(name)}: {error}") from None


def _row(given: dict[str, Any]) -> Row:
    if None in given or None in given.values():
        raise ValueError("it has not as many columns as the first line")
    at = {column: _whole(column, given[column]) for column in NEEDED}
    text = (given.get("ms") or "").strip()
    time = float(duration("a row", "ms", float(text))) / 1000 if text else None
    if time == 0:
        raise ValueError("a step cannot take 0 ms")
    data = given.get("data")
    replicas = _whole("data", data) if data else None
    says = {name: (given.get(name) or "").strip() or usual for name, usual in USUAL.items()}
    dtype = one_of("a row", "dtype", says["dtype"], DTYPES)
    model = _model(
        *(at[name] for name in ("layers", "hidden", "heads", "sequence")),
        _whole("vocabulary", says["vocabulary"]),
        float(says["dropout"]),
        dtype,
        one_of("a row", "flash", says["flash"], ("no", "yes")) == "yes",
    )
    tokens = MetaArray((at["global_batch"], at["sequence"]), "i4")
    layout = read_layout(
        model, at["gpus"], (tokens, tokens), cross_entropy, tensor=at["tensor"], pipeline=at["pipeline"],
        replicas=replicas, microbatch=at["micro_batch"], schedule=OneFOneB, zero=1,
        recompute=says["recompute"],
    )  # fmt: skip
    return Row(layout, at["gpus"], time, given)


def _whole(column: str, text: str) -> int:
    if not (text := text.strip()).isascii() or not text.isdecimal() or len(text) > 9 or not int(text):
        raise ValueError(f"{column} has to be a whole number above 0 {got(text)}")
    return int(text)


@lru_cache(maxsize=256)
def _model(
    layers: int, hidden: int, heads: int, sequence: int, tokens: int, dropout: float, dtype: str, flash: bool
) -> tuple[Layer, ...]:
    how: dict[str, Any] = {"dropout": dropout, "dtype": dtype, "flash": flash}
    return tuple(gpt(layers, hidden, heads, tokens=tokens, sequence=sequence, **how))


@lru_cache(maxsize=1024)
def _resized(cluster: Cluster, devices: int) -> Cluster:
    """The same cluster with so many devices."""
    return Cluster(devices, cluster.accelerator, cluster.memory, cluster.links)
