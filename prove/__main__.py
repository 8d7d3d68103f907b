"""Prove the par of every puzzle, or of those that are named: ``python -m prove [NAME ...]``.

Each is solved twice: once for the shortest order, and once more, with another seed, for any that is shorter
than par, of which there must be none. With ``--stamped`` it also says how long the best order takes that
repeats one pattern for every microbatch. ``--any-turn`` does without the order of microbatches
(``prove.model``), which takes longer. Only ``--write`` writes: rows, par and bound as they were found.
Exits with 1 if a par is not what the solver says.
"""

import argparse
import json
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import gpipe_sim.viewer
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import number
from gpipe_sim.viewer.puzzles import Bound, Puzzle, puzzles
from prove.bound import simple_bound
from prove.model import Found, plain, solve

FILE = Path(gpipe_sim.viewer.__file__).parent / "puzzles.json"
SHOWN = "CP-SAT shows that no order takes less"
COLUMNS = "{:20} {:>5} {:>8} {:>8} {:>10} {:>10} {:>4} {:>8}  {}"


def main() -> int:
    options = _options()
    known = puzzles()
    if strange := [name for name in options.names if name not in known]:
        sys.exit(f"no puzzle is called {strange[0]}; there are {', '.join(known)}")
    names = options.names or list(known)
    heads = ("puzzle", "par", "shipped", "shortest", "below par", "simple", "gap", "seconds")
    print(COLUMNS.format(*heads, "stamped" if options.stamped else "").rstrip())
    right, answers = True, dict(known)
    for name in names:
        answers[name], fine = _prove(known[name], options)
        right &= fine
    if options.write:
        FILE.write_text(as_text(answers.values()), encoding="utf-8")
    return 0 if right or options.write else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m prove", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seconds", type=float, default=60, help="for each search; 60 unless given")
    parser.add_argument("--stamped", action="store_true", help="also of orders that repeat one pattern")
    parser.add_argument("--any-turn", action="store_true", help="microbatches in any order on every stage")
    parser.add_argument("--write", action="store_true", help="write what was found into puzzles.json")
    return parser.parse_args()


def _prove(puzzle: Puzzle, options: argparse.Namespace) -> tuple[Puzzle, bool]:
    """The puzzle with what was found, and whether that is what it says."""
    how: dict[str, Any] = {"seconds": options.seconds, "in_turn": not options.any_turn}
    best = solve(puzzle, **how)
    par = best.makespan if options.write and best.makespan is not None else puzzle.par
    less = solve(puzzle, par, below=True, seed=1, **how)
    shipped = simulate(puzzle.schedule(), puzzle.costs).makespan if puzzle.rows else None
    simple = simple_bound(puzzle)
    found = (
        puzzle if best.rows is None else puzzle.with_answer(best.rows, par, _bound(best, less, simple, par))
    )
    if puzzle.rows and par == puzzle.par == shipped:  # an order that is as good stays
        found = replace(found, rows=puzzle.rows)
    stamped = solve(puzzle, stamped=True, **how) if options.stamped else None
    seconds = sum(each.seconds for each in (best, less, stamped) if each)
    proven = {"INFEASIBLE": "none", "UNKNOWN": "unknown"}.get(less.status, "there is")
    cells = (
        puzzle.name,
        *(number(time) if time is not None else "" for time in (par, shipped)),
        number(best.makespan) + "" if best.status == "OPTIMAL" else f"<={best.makespan}",
        proven,
        number(simple.value),
        number(found.gap),
        f"{seconds:.1f}",
        f"{number(stamped.makespan)} {stamped.status.lower()}" if stamped and stamped.makespan else "",
    )
    print(COLUMNS.format(*cells).rstrip(), flush=True)
    return found, (found.par, found.bound, found.gap) == (
        puzzle.par,
        puzzle.bound,
        puzzle.gap,
    ) and shipped == par


def _bound(best: Found, less: Found, simple: Bound, par: Any) -> Bound:
    """The simple bound if it is as good as what the solver shows."""
    shown = par if less.status == "INFEASIBLE" else best.bound
    if simple.value >= shown:
        return Bound(plain(Fraction(simple.value)), simple.why)
    return Bound(shown, f"{SHOWN}." if shown == par else f"{SHOWN} than {number(shown)}.")


def as_text(every: Any) -> str:
    """The puzzles as JSON that can be read: a line for each field, and for each row."""
    return "[\n" + ",\n".join(map(_as_lines, every)) + "\n]\n"


def _as_lines(puzzle: Puzzle) -> str:
    record = puzzle.record()
    rows = ",\n".join(f"   {json.dumps(row)}" for row in record["rows"])
    lines = {name: json.dumps(value) for name, value in record.items()} | {"rows": f"[\n{rows}\n  ]"}
    return " {\n" + ",\n".join(f'  "{name}": {line}' for name, line in lines.items()) + "\n }"


if __name__ == "__main__":
    sys.exit(main())
