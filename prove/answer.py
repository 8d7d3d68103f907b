"""What a proof changes of a puzzle, and the puzzles as text. It needs no OR-Tools."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import gpipe_sim.viewer
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import number
from gpipe_sim.errors import Real
from gpipe_sim.viewer.bound import simple_bound
from gpipe_sim.viewer.puzzles import Bound, Puzzle

FILE = Path(gpipe_sim.viewer.__file__).parent / "puzzles.json"
SHOWN = "CP-SAT shows that no order takes less"


def answered(puzzle: Puzzle, rows: Sequence[str], shown: Real) -> Puzzle:
    """The puzzle with an order that was found, unless its own is as short; and with a bound.

    ``shown`` is a time that the solver says no order takes less than. The simple bound, which everybody can
    check, stands in its place where it is as good.
    """
    own = plain(simulate(puzzle.schedule(), puzzle.costs).makespan) if puzzle.rows else None
    par = plain(simulate(puzzle.schedule(rows), puzzle.costs).makespan)
    if own is not None and own <= par:
        rows, par = puzzle.rows, own
    simple, shown = simple_bound(puzzle), plain(shown)
    why = f"{SHOWN}." if shown == par else f"{SHOWN} than {number(shown)}."
    bound = Bound(shown, why) if shown > simple.value else Bound(plain(simple.value), simple.why)
    return replace(puzzle, rows=tuple(rows), par=par, bound=bound, gap=par - bound.value)


def plain(time: Real) -> Real:
    """A time as JSON writes it: 20 rather than 20.0."""
    exact = Fraction(time)
    return int(exact) if exact.denominator == 1 else float(exact)


def as_text(every: Iterable[Puzzle]) -> str:
    """The puzzles as JSON that can be read: a line for each field, and for each row."""
    return "[\n" + ",\n".join(map(_as_lines, every)) + "\n]\n"


def _as_lines(puzzle: Puzzle) -> str:
    record = puzzle.record()
    rows = ",\n".join(f"   {json.dumps(row)}" for row in record["rows"])
    lines = {name: json.dumps(value) for name, value in record.items()} | {"rows": f"[\n{rows}\n  ]"}
    return " {\n" + ",\n".join(f'  "{name}": {line}' for name, line in lines.items()) + "\n }"
