"""Schedules and timelines in and out: JSON, CSV, files of PyTorch, and measured steps that ship with it.

It reads and makes plain schedules and timelines, so the core needs to know nothing of it. ``to_json`` and
``from_json`` keep schedules, costs, timelines and profiles exactly; ``to_csv`` makes a table of a timeline's
spans. ``to_torch_csv`` and ``from_torch_csv`` are for orders, ``recognize`` says what family one is of. A cut
is ``to_megatron_layout``, ``to_torch_split``, ``to_deepspeed_parts`` and ``to_torchgpipe_balance``.
``recorded_run`` and ``recorded_where`` have steps that were measured once.

A file of JSON says its format, the version of that, and what kind of thing it holds:

    {"format": "gpipe_sim", "version": 1, "kind": "costs", "value": {"forward": 1, "input_grad": 1, ...}}

``envelope`` reads and writes that, ``records`` what is inside. A file of version 1 stays readable.

The lesson is "On real devices".
"""

from gpipe_sim.export.cuts import to_deepspeed_parts, to_torch_split, to_torchgpipe_balance
from gpipe_sim.export.envelope import from_json, to_json
from gpipe_sim.export.megatron import to_megatron_layout
from gpipe_sim.export.recognize import recognize
from gpipe_sim.export.recorded import recorded_run, recorded_where
from gpipe_sim.export.span_csv import to_csv
from gpipe_sim.export.torch_csv import from_torch_csv, to_torch_csv
from gpipe_sim.signatures import readable

__all__ = [
    "from_json",
    "from_torch_csv",
    "recognize",
    "recorded_run",
    "recorded_where",
    "to_csv",
    "to_deepspeed_parts",
    "to_json",
    "to_megatron_layout",
    "to_torch_csv",
    "to_torch_split",
    "to_torchgpipe_balance",
]

readable(__name__)
