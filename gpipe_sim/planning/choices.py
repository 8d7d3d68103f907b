"""What one could change, as a value: a choice with what a step then takes; and a table of choices."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from gpipe_sim.core.costs import Costs
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.timeline import number
from gpipe_sim.drawing.words import html_table, table
from gpipe_sim.errors import Real
from gpipe_sim.memory.limit import in_bytes

IN_FLIGHT = "in flight: today's microbatches of a device's share of the layers, on the fullest device"


@dataclass(frozen=True, repr=False)
class Choice:
    """One change. ``simulate(schedule, costs)`` has the ``makespan``; ``gain`` is the share that it saves.

    ``balance`` are the layers of each stage, None where the cut stays or nobody said what layers there are.
    ``peak`` is what the fullest device holds: bytes, or microbatches in flight if no profile was given.
    ``assumes`` has a sentence for each thing that nobody measured. ``sure``: "exact", or "to 2.1%", by as
    much as the fit is off in the run itself, or "supposed" if it assumes something of the model.
    ``code``: whether it takes more than an argument, of torch.distributed.pipelining or of Megatron-LM.
    """

    name: str
    schedule: Schedule
    costs: Costs
    balance: tuple[int, ...] | None
    makespan: Real
    gain: float
    peak: Real
    assumes: tuple[str, ...]
    sure: str
    code: bool

    def __repr__(self) -> str:
        return f"<Choice {self.name}: makespan {number(self.makespan)}, {self.gain:.1%} less>"


@dataclass(frozen=True, repr=False, eq=False)
class WhatIf:
    """Choices, the shortest step first. ``now`` is the run as it is; ``notes`` say what is not among them.

    ``print`` and a notebook show a table; ``choices[0]`` is ``what_if(...)[0]``.
    """

    now: Choice
    choices: tuple[Choice, ...]
    notes: tuple[str, ...]
    in_bytes: bool

    def __iter__(self) -> Iterator[Choice]:
        return iter(self.choices)

    def __len__(self) -> int:
        return len(self.choices)

    def __getitem__(self, place: int) -> Choice:
        return self.choices[place]

    @property
    def _assumed(self) -> list[str]:
        return list(dict.fromkeys(said for choice in self.choices for said in choice.assumes))

    @property
    def _rows(self) -> list[tuple[str, ...]]:
        heads = "", "time", "gain", "peak" if self.in_bytes else "in flight", "code", "sure", "if"
        return [heads, *map(self._cells, (self.now, *self.choices))]

    def _cells(self, choice: Choice) -> tuple[str, ...]:
        held = in_bytes(choice.peak) if self.in_bytes else number(choice.peak)
        gain = "" if choice is self.now else f"{choice.gain:.1%}"
        assumed = " ".join(str(1 + self._assumed.index(said)) for said in choice.assumes)
        code = "yes" if choice.code else ""
        return choice.name, number(choice.makespan), gain, held, code, choice.sure, assumed

    @property
    def _below(self) -> list[str]:
        numbered = [f"{place}  if {said}" for place, said in enumerate(self._assumed, start=1)]
        return [*numbered, *([] if self.in_bytes else [IN_FLIGHT]), *self.notes]

    def __str__(self) -> str:
        return "\n".join([*map(str.rstrip, table(self._rows)), *self._below])

    def _repr_html_(self) -> str:
        return html_table(self._rows, self._below)

    def __repr__(self) -> str:
        best = f"the first is {self.choices[0]!r}" if self.choices else "nothing makes it shorter"
        return f"<WhatIf of {len(self)} choices for {self.now.schedule!r}: {best}>"


def say_cut(balance: tuple[int, ...]) -> str:
    """The layers of each stage in words: "4 4 5 3", or "3 4x6 2" where many are alike."""
    runs = [(size, len(list(same))) for size, same in groupby(balance)]
    if len(balance) <= 8:
        return " ".join(map(str, balance))
    return " ".join(f"{size}x{times}" if times > 1 else str(size) for size, times in runs)
