"""Schedules as files of PyTorch, and measured steps that ship with the package.

It reads and makes plain schedules and timelines, so the core needs to know nothing of it: ``to_torch_csv``
and ``from_torch_csv`` for orders, ``recognize`` for what family an order is of, ``recorded_run`` and
``recorded_where`` for steps that were measured once.
The lesson is "On real devices".
"""

from gpipe_sim import signatures
from gpipe_sim.export.recognize import recognize
from gpipe_sim.export.recorded import recorded_run, recorded_where
from gpipe_sim.export.torch_csv import from_torch_csv, to_torch_csv

__all__ = ["from_torch_csv", "recognize", "recorded_run", "recorded_where", "to_torch_csv"]

signatures.readable(__name__)
