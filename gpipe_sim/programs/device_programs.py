"""Each device's own program: its actions with the sends and receives between them.

A schedule leaves the messages out, because they follow from its rows: right before an action a device
receives what the action needs from others, and right after it sends what the action made. Whoever writes the
program of one device by hand may put them elsewhere:

    device 0: 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1
    device 1: 1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1

That is also what PyTorch prints of an order that it is about to run, so such a text can be pasted.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from inspect import GEN_CLOSED, getgeneratorstate, isgenerator
from itertools import islice, pairwise

import numpy as np

from gpipe_sim.core.actions import Action, Kind, OverlapFB
from gpipe_sim.core.explicit import Explicit, row_texts
from gpipe_sim.core.placement import looped, say_stages
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.errors import each_of, got, listed, short
from gpipe_sim.programs.transfers import Recv, Send, Step, Transfer, read_step, spelled

Program = Iterable[Step]
MOST_STEPS = 1_000_000  #: of a generator that is read to its end

#: What PyTorch prints besides: the book-keeping of sharded weights, and its waits at the end of the step.
_LEFT_OUT = re.compile(r"[0-9]+(WAIT_SEND_[FB][0-9]+|(WAIT_)?REDUCE_GRAD|UNSHARD|RESHARD)")
_TRANSFER = re.compile(r"([0-9]{1,18})(SEND|I?RECV)_([FB])([0-9]{1,18})(?:>(\w+))?")


@dataclass(frozen=True, repr=False)
class DevicePrograms:
    """One program per device, as ``device_programs`` makes them; ``str`` writes one row for each."""

    rows: tuple[tuple[Step, ...], ...]
    placement: tuple[tuple[int, ...], ...]
    microbatches: int

    def __iter__(self) -> Iterator[tuple[Step, ...]]:
        return iter(self.rows)

    def __getitem__(self, device: int) -> tuple[Step, ...]:
        return self.rows[device]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def schedule(self) -> Explicit:
        """The order of their actions, without the messages."""
        rows = [[step for step in row if not isinstance(step, Transfer)] for row in self.rows]
        return Explicit(rows, placement=self.placement, microbatches=self.microbatches)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(devices={len(self)}, microbatches={self.microbatches})"

    def __str__(self) -> str:
        stages = 1 + max(stage for held in self.placement for stage in held)
        usual = self.placement == looped(len(self), stages)
        heads = (
            f"device {k}{'' if usual else f', {say_stages(held)}'}" for k, held in enumerate(self.placement)
        )
        rows = (" ".join(map(spelled, row)) for row in self.rows)
        return "\n".join(f"{head}: {row}".rstrip() for head, row in zip(heads, rows, strict=True))


def device_programs(
    source: Schedule | str | Iterable[Program],
    *,
    placement: Sequence[Sequence[int]] | None = None,
    microbatches: int | None = None,
) -> DevicePrograms:
    """The programs of a schedule, those of a text with a row per device, or a list of them.

    >>> print(gp.device_programs(gp.GPipe(devices=2, microbatches=2)))
    device 0: 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B1 0B1 0RECV_B0 0B0
    device 1: 1RECV_F0 1F0 1RECV_F1 1F1 1B1 1SEND_B1 1B0 1SEND_B0

    Of a schedule: each device receives right before an action what the action needs from others, and right
    after an action sends what it made. A text has rows such as "device 0: 0F0 0SEND_F0 0RECV_B0 0B0", as
    ``str`` writes them, or as PyTorch prints them, with brackets, commas and UNSHARD; ``1IRECV_F0`` is a
    receive that is only posted, and ``1RECV_F0>a`` goes into the buffer ``a``. Devices and stages are read as
    ``Explicit.parse`` reads them. A list has a program for each device, of steps as ``run_programs`` takes
    them; generators among them are read to their ends, which uses them up. A text or a list may need a
    ``placement`` and ``microbatches``, as for ``Explicit``.

    TypeError for anything else; ValueError for a text that cannot be read, or a program without an end.
    """
    return read_programs("device_programs", source, placement, microbatches)


def read_programs(owner: str, source: object, placement=None, microbatches=None) -> DevicePrograms:
    """As ``device_programs``; the errors are those of the owner."""
    if isinstance(source, Schedule | DevicePrograms) and not placement is microbatches is None:
        raise TypeError(f"{owner} takes placement= and microbatches= only for a text, or a list of programs")
    if isinstance(source, Schedule):
        rows = tuple(map(tuple, rows_with_messages(source)))
        return DevicePrograms(rows, source.program.placement, source.microbatches)
    if isinstance(source, DevicePrograms):
        return source
    if isinstance(source, str):
        return _read_text(source, placement, microbatches)
    such_as = "a schedule, such as GPipe(4, 8), or programs: a text with a row per device, or a list of lists"
    rows = tuple(_to_its_end(*each) for each in enumerate(listed(owner, such_as, source)))
    order = [[step for step in row if not isinstance(step, Transfer)] for row in rows]
    if not any(order):
        raise ValueError(f"{owner} needs programs with at least one action, such as 0F0")
    read = Explicit(order, placement=placement, microbatches=microbatches)
    return DevicePrograms(rows, read.placement, read.microbatches)


def rows_with_messages(schedule: Schedule) -> Iterator[Iterator[Step]]:
    """Per device, its actions, what it receives right before them, and what it sends right after them.

    What an action made is sent once to each device that needs it, even if several actions there need it.
    """
    program = schedule.program
    columns = (column[program.crosses].tolist() for column in (program.needs, program.target, program.owner))
    needed_by: dict[tuple[int, int], int] = {}
    for part, target, entry in zip(*columns, strict=True):
        needed_by.setdefault((part, target), entry)
    receives, targets = defaultdict(list), defaultdict(list)
    for (part, target), entry in needed_by.items():
        receives[entry].append(Recv(program.action_of(part), int(program.device[part])))
        targets[part].append(target)

    def row(entries: range) -> Iterator[Step]:
        for entry in entries:
            yield from receives[entry]
            yield program.entry_of(entry)
            for part in range(program.parts[entry], program.parts[entry + 1]):
                yield from (Send(program.action_of(part), target) for target in sorted(targets[part]))

    return (row(range(a, b)) for a, b in pairwise(program.rows.tolist()))


def read_program(device: int, program: Program) -> Program:
    """A list's steps, looked at right away; a generator's are, when it yields them. An error says whose."""
    owner = f"the program of device {device}"
    if isinstance(program, str):
        raise TypeError(f"{owner} is a text; device_programs reads one, with a row per device {got(program)}")
    each_of(owner, "to be a list of steps, or a generator", program, Set | Mapping)
    if isgenerator(program) and getgeneratorstate(program) == GEN_CLOSED:
        raise ValueError(f"{owner} is a generator that has ended; make a new one for every run")
    if isinstance(program, Sequence | np.ndarray):
        return [read_step(owner, step) for step in program]
    return _steps(owner, program)


def _steps(owner: str, program: Program) -> Iterator[Step]:
    try:
        yield from (read_step(owner, step) for step in program)
    except Exception as error:
        error.add_note(f"in {owner}")
        raise


def _to_its_end(device: int, program: Program) -> tuple[Step, ...]:
    steps = tuple(islice(read_program(device, program), MOST_STEPS + 1))
    if len(steps) > MOST_STEPS:
        raise ValueError(f"the program of device {device} has more than {MOST_STEPS:,} steps: does it end?")
    return steps


def _read_text(
    text: str, placement: Sequence[Sequence[int]] | None, microbatches: int | None
) -> DevicePrograms:
    rows, held = row_texts(text)
    words = [re.split(r"[\s,\[\]]+", row) for row in rows]
    words = [[word for word in row if word and not _LEFT_OUT.fullmatch(word)] for row in words]
    plain = [[_action(word) for word in row if not _TRANSFER.fullmatch(word)] for row in words]
    order = Explicit(plain, placement=held if placement is None else placement, microbatches=microbatches)
    # By stage and microbatch: the first device that has an action of it.
    home: dict[tuple[int, int], int] = {}
    split: set[tuple[int, int]] = set()  # where the backward is split
    for device, row in enumerate(order.actions):
        for stage, kind, m in (part for action in row for part in action.parts):
            home.setdefault((stage, m), device)
            split |= {(stage, m)} if kind is Kind.I else set()
    read = tuple(tuple(_read(word, home, split) for word in row) for row in words)
    return DevicePrograms(read, order.placement, order.microbatches)


def _action(word: str) -> Action | OverlapFB:
    try:
        return Action.parse(word)
    except ValueError as error:
        raise ValueError(f"{error}; a message is written as 0SEND_F0 or 1RECV_F0") from None


def _read(word: str, home: dict[tuple[int, int], int], split: set[tuple[int, int]]) -> Step:
    """A step, from its spelling. A gradient is made by I where the backward is split, otherwise by B."""
    found = _TRANSFER.fullmatch(word)
    if not found:
        return Action.parse(word)
    stage, what, letter, m, into = int(found[1]), found[2], found[3], int(found[4]), found[5]
    other = stage + (1 if (what == "SEND") == (letter == "F") else -1)
    if other < 0:
        raise ValueError(f"{short(word)}: there is no stage before stage 0")
    if (other, m) not in home:
        raise ValueError(f"{short(word)}: no row has an action of stage {other} on microbatch {m}")
    maker = stage if what == "SEND" else other
    made = Action(maker, Kind.F if letter == "F" else Kind.I if (maker, m) in split else Kind.B, m)
    if what != "SEND":
        return Recv(made, home[other, m], wait=what == "RECV", into=into)
    if into:
        raise ValueError(f"{short(word)}: a send has no buffer; a receive may have, such as 1RECV_F0>a")
    return Send(made, home[other, m])
