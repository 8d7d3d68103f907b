"""Orders as PyTorch writes them: a line of comma-separated actions per rank, in the same spelling.

``torch.distributed.pipelining`` reads such a file, and adds the messages itself. If an order has something
that PyTorch's format cannot express, the error names it.
"""

import csv
import re
from collections.abc import Iterator

from gpipe_sim.core.actions import Action, Kind, OverlapFB
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.problems import check
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.errors import ScheduleError, require

#: What PyTorch adds to an order before it runs it: messages, and the book-keeping of sharded weights.
_ADDED = re.compile(r"[0-9]+(WAIT_)?((SEND|RECV)_[FB][0-9]+|UNSHARD|RESHARD|REDUCE_GRAD)")


def to_torch_csv(schedule: Schedule) -> str:
    """The order as text that PyTorch's ``_load_csv`` reads: a line per rank, cells such as ``2F0``.

    ScheduleError for an order that cannot run, or that PyTorch's format cannot express: one with R or U
    actions, a stage on two devices, or a device without work.
    """
    require_torch(schedule)
    if recompute := _first(schedule, Kind.R):
        raise ScheduleError(
            f"{recompute} of {schedule!r} has no counterpart in PyTorch's format, which cannot say R: "
            "write the order without remat; torch_backend.train_step takes it as it is"
        )
    return "".join(",".join(map(str, row)) + "\n" for row in schedule.actions)


def from_torch_csv(text: str) -> Explicit:
    """Read what ``to_torch_csv`` or PyTorch's ``_dump_csv`` wrote. A device holds the stages on its line.

    Empty cells (PyTorch's padding) and what PyTorch adds by itself (messages, UNSHARD, RESHARD, REDUCE_GRAD)
    are left out. ValueError, with line and cell, for a cell that cannot be read.
    """
    require("from_torch_csv", text, str, "a text")
    try:
        lines = [next(csv.reader([line], strict=True)) for line in text.splitlines()]
    except csv.Error as error:
        raise ValueError(f"from_torch_csv cannot read the text: {error}") from None
    rows = [list(_read(line, rank)) for rank, line in enumerate(lines)]
    held = [sorted({part.stage for action in row for part in action.parts}) for row in rows]
    return Explicit(rows, placement=held)


def require_torch(schedule: Schedule) -> None:
    """ScheduleError unless PyTorch's engine can run the order; the message says what is in the way."""
    require_schedule("PyTorch's engine", schedule)
    check(schedule)
    if update := _first(schedule, Kind.U):
        raise ScheduleError(
            f"{update} of {schedule!r} updates weights within the step. PyTorch's engine runs one "
            "synchronous step and knows no such action, so no asynchronous updates: run a step without them, "
            "such as OneFOneB's, and step an optimizer after it, or simulate this one with train_step"
        )
    homes: dict[int, int] = {}
    for device, held in enumerate(schedule.placement):
        for stage in held:
            if homes.setdefault(stage, device) != device:
                raise ScheduleError(
                    f"{schedule!r} holds stage {stage} on devices {homes[stage]} and {device}, "
                    "and PyTorch's engine gives a stage one rank: it cannot run schedules that keep two "
                    "copies of the model, such as Chimera and DualPipe; DualPipeV has one"
                )
    for device, row in enumerate(schedule.actions):
        if not row:
            raise ScheduleError(
                f"device {device} of {schedule!r} has no work; PyTorch wants some on each rank"
            )


def _first(schedule: Schedule, kind: Kind) -> Action | None:
    parts = (part for row in schedule.actions for action in row for part in action.parts)
    return next((part for part in parts if part.kind is kind), None)


def _read(cells: list[str], rank: int) -> Iterator[Action | OverlapFB]:
    for column, cell in enumerate(cells):
        if not cell.strip() or _ADDED.fullmatch(cell.strip()):
            continue
        try:
            yield Action.parse(cell)
        except ValueError as error:
            raise ValueError(f"line {rank + 1}, cell {column + 1}: {error}") from None
