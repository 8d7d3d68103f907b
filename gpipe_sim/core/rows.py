"""What a device's row may be written as: actions, their spelling, or a mixture."""

from collections.abc import Iterable, Iterator

from gpipe_sim.core.actions import Action, Kind, OverlapFB, plain
from gpipe_sim.errors import each_of, got

SUCH_AS = "to list actions, such as [F(0, 0), B(0, 0)] or '0F0 0B0'"


def cells(owner: str, row: str | Iterable) -> Iterator:
    """What a row holds, one by one: a long order need not exist as a list."""
    return each_of(owner, SUCH_AS, row.split() if isinstance(row, str) else row)


def read_row(owner: str, row: str | Iterable) -> Iterator[Action | OverlapFB]:
    """The actions of a row, given as text ("0F0 0B0") or as a list; TypeError or ValueError otherwise."""
    return (read_action(owner, cell) for cell in cells(owner, row))


def read_action(owner: str, cell: object) -> Action | OverlapFB:
    """One cell of a row as an action or a pair; the cell may also be its spelling, such as '0F0'."""
    if type(cell) is Action and type(cell.stage) is type(cell.microbatch) is int and type(cell.kind) is Kind:
        return cell
    if isinstance(cell, str):
        return Action.parse(cell)
    if isinstance(cell, OverlapFB) and all(isinstance(part, Action) for part in cell):
        return OverlapFB(*map(plain, cell))
    if isinstance(cell, Action):
        return plain(cell)
    raise TypeError(f"{owner} takes actions or their spelling, such as '0F0' {got(cell)}")
