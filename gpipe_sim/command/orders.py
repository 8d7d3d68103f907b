"""Orders in files, and how long they take.

What a file is, its text says: ``READERS`` is the one place where that is told apart.
"""

import re
import sys
from collections.abc import Callable
from contextlib import nullcontext

import numpy as np

from gpipe_sim.core.cost_model import CostModel
from gpipe_sim.core.layers import mlp
from gpipe_sim.core.losses import mse
from gpipe_sim.core.problems import check
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.split import split
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.errors import require_few
from gpipe_sim.export.envelope import from_json
from gpipe_sim.export.torch_csv import from_torch_csv
from gpipe_sim.programs.device_programs import DevicePrograms, device_programs
from gpipe_sim.programs.run_programs import run_programs
from gpipe_sim.programs.transfers import Transfer

Order = Schedule | DevicePrograms
MOST_BYTES = 100_000_000  #: a text of ten million actions


def read_order(path: str) -> Order:
    """The order in a file, or in stdin for ``-``; OSError or ValueError, in a sentence, for one without."""
    name, text = ("stdin" if path == "-" else path), text_of(path)
    read = next(reader for looks, reader in READERS if re.match(looks, text))
    try:
        return read(text)
    except ValueError as error:
        raise ValueError(f"{name} holds no order: {error}") from None


def text_of(path: str) -> str:
    with nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as file:
        held = file.read(MOST_BYTES + 1)
    require_few(path, len(held), "bytes", MOST_BYTES)
    try:
        text = held.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ValueError(f"{path} is no text")
    if not text.strip():
        raise ValueError(f"{path} is empty; an order has a row for each device, such as 0F0 0B0")
    return text


def _rows(text: str, **options) -> Order:
    """Programs, if there is a send or a receive."""
    programs = device_programs(text, **options)
    transfers = any(isinstance(step, Transfer) for row in programs for step in row)
    return programs if transfers else programs.schedule


def _torch_csv(text: str) -> Order:
    """A device holds the stages on its line. Where PyTorch wrote its messages too, they are checked."""
    order = from_torch_csv(text)
    return _rows(text, placement=order.placement) if re.search("SEND|RECV", text) else order


def _json(text: str) -> Order:
    held = from_json(text)
    order = held.schedule if isinstance(held, Timeline) else held
    if not isinstance(order, Schedule):
        raise ValueError(f"it is JSON of {type(held).__name__}, not of a schedule or a timeline")
    return order


#: (what a text begins with, what reads such a text). The first that fits reads it.
READERS: tuple[tuple[str, Callable[[str], Order]], ...] = (
    (r"\s*[{[]", _json),
    (r"(?i)\s*(device|rank) ", _rows),
    (r"[^\n\[]*,", _torch_csv),
    ("", _rows),
)


def timed(order: Order, costs: CostModel | None = None, sends: str = "buffered") -> Timeline:
    """The timeline of an order; ScheduleError if it cannot run.

    Programs, and sends that block, take the time that they take on the smallest model there is.
    """
    check(order, sends)
    if isinstance(order, Schedule) and sends == "buffered":
        return simulate(order, costs)
    programs = device_programs(order)
    stages = 1 + max(stage for held in programs.placement for stage in held)
    samples = np.zeros((programs.microbatches, 1))
    partitions = split(mlp([1] * (stages + 1)), stages=stages)
    ran = run_programs(programs, partitions, (samples, samples), mse, sends=sends, costs=costs)
    return ran.timeline
