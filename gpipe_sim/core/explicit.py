"""A schedule given row by row; or made from another: with updates, several steps of it, without pairs."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpipe_sim.core.actions import Action, OverlapFB, require_labels
from gpipe_sim.core.placement import looped, read_placement, require_gapless
from gpipe_sim.core.rows import SUCH_AS, read_row
from gpipe_sim.core.schedule import WEIGHTS, Schedule
from gpipe_sim.errors import listed, require, whole

#: A row may begin with "device 0:", "device 0, stages 0 7:" or "device 0, no stage:"; also with "rank 0:".
_HEAD = re.compile(r"(?:(?i:device|rank) ([0-9]{1,18})(?:, (stages?(?: [0-9]{1,18})+|no stage))?:)?(.*)")
MOST_PAIRS = 10_000  #: how many (stage, microbatch) pairs rows may span, besides 100 for each action


@dataclass(frozen=True, init=False, repr=False)
class Explicit(Schedule):
    """A schedule given row by row: a student's own, or one read from a file.

    >>> schedule = gp.Explicit(["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"])
    >>> schedule == gp.Explicit.parse("0F0 0F1 0B0 0B1\\n1F0 1B0 1F1 1B1")
    True
    >>> gp.simulate(schedule).makespan
    9

    ``rows`` holds one row per device, of actions or of their spelling ("0F0 0B0" or ["0F0", "0B0"]).
    ``placement`` lists the stages that each device holds; unless given, device s mod K holds stage s.
    ``microbatches`` is one more than the largest label unless given. ValueError for text that spells no
    action, for no action at all, or for labels far beyond what is there.
    """

    name = "An order written out"

    rows: tuple[tuple[Action | OverlapFB, ...], ...]
    placement: tuple[tuple[int, ...], ...] = ()
    weights: tuple[str, ...] = WEIGHTS

    def __init__(
        self,
        rows: Sequence[str | Iterable[str | Action | OverlapFB]],
        *,
        placement: Sequence[Sequence[int]] | None = None,
        microbatches: int | None = None,
    ):
        found: list[tuple[Action | OverlapFB, ...]] = []
        for row in listed("Explicit", "one row per device, such as ['0F0 0B0']", rows):
            owner = f"row {len(found)} of Explicit"
            found.append(tuple(read_row(owner, row if isinstance(row, str) else listed(owner, SUCH_AS, row))))
        parts = [part for row in found for action in row for part in action.parts]
        if not parts:
            raise ValueError("Explicit needs at least one action, such as 0F0")
        require_labels("Explicit", (label for part in parts for label in part[::2]))
        if microbatches is None:
            microbatches = 1 + max(part.microbatch for part in parts)
        microbatches = whole("Explicit", "microbatches", microbatches)
        if placement is None:
            stages = 1 + max(part.stage for part in parts)
            _require_room(stages, microbatches, len(parts))
            placement = looped(len(found), stages)
        held = read_placement("Explicit", placement, len(found))
        require_gapless(held)
        _require_room(len({stage for stages in held for stage in stages}), microbatches, len(parts))
        values = {"devices": len(held), "microbatches": microbatches, "rows": tuple(found), "placement": held}
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    @classmethod
    def parse(cls, text: str, **options) -> "Explicit":
        """Read one row per line, as ``str(schedule)`` writes it: "device 0: 0F0 0B0", or only "0F0 0B0".

        "rank 0: 0F0 0B0" is read too. Either every row or none also names the stages that its device holds:
        "device 0, stages 0 7: 0F0 ...". If none does, ``placement`` says it, and without that, device s mod K
        holds stage s. ``options`` are those of ``Explicit``, ``placement`` and ``microbatches``. ValueError
        for a row that begins with another device's number.
        """
        require("Explicit.parse", text, str, "a text")
        rows, held = row_texts(text)
        return cls(rows, **{"placement": held} | options)

    def order(self, device: int) -> Iterable[Action | OverlapFB]:
        return self.rows[device]

    def __repr__(self) -> str:
        return f"Explicit(devices={self.devices}, microbatches={self.microbatches})"


def row_texts(text: str) -> tuple[list[str], list[tuple[int, ...]] | None]:
    """The rows of a text without their heads, and the stages that the heads name, or None if none does.

    ValueError for a row that begins with another device's number, or if only some rows name their stages.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    rows = [row for line in lines if (row := _HEAD.fullmatch(line))]  # anything is a row
    for device, row in enumerate(rows):
        if row[1] and int(row[1]) != device:
            raise ValueError(f"row {device} is called device {row[1]}: rows are devices 0, 1, ...")
    told = [row[2] for row in rows]
    if any(told) and None in told:
        raise ValueError(f"row {told.index(None)} does not say which stages it holds; others do")
    held = [tuple(map(int, re.findall("[0-9]+", stages))) for stages in told] if any(told) else None
    return [row[3] for row in rows], held


def _require_room(stages: int, microbatches: int, actions: int) -> None:
    """ValueError if a table of stages x microbatches would be huge, because some label is far too large."""
    if stages * microbatches > 100 * actions + MOST_PAIRS:
        raise ValueError(
            f"{stages} stages and {microbatches} microbatches are far beyond {actions} actions: "
            "is a label wrong?"
        )
