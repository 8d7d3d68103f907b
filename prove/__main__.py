"""Prove the par of every puzzle, or of those that are named: ``python -m prove [NAME ...]``.

Each is solved twice: once for the shortest order, and once more, with another seed, for any that is shorter
than par, of which there must be none. ``--stamped`` also says how long the best order takes that repeats one
pattern for every microbatch. ``--any-turn`` does without the order of microbatches (``prove.model``), which
takes longer. Only ``--write`` writes: order, par and bound as they were found. Exits with 1 if a puzzle says
otherwise than the solver.
"""

import argparse
import sys
from typing import Any

from gpipe_sim.core.timeline import number
from gpipe_sim.viewer.bound import simple_bound
from gpipe_sim.viewer.puzzles import Puzzle, puzzles
from prove.answer import FILE, answered, as_text
from prove.model import Found, solve

COLUMNS = "{:<20} {:>5} {:>12} {:>10} {:>8} {:>5} {:>8}  {}"
LESS = {"INFEASIBLE": "none", "UNKNOWN": "unknown"}  #: of orders below par; all else says that there is one


def main() -> int:
    options, known = _options(), puzzles()
    if strange := [name for name in options.names if name not in known]:
        sys.exit(f"no puzzle is called {strange[0]}; there are {', '.join(known)}")
    heads = "puzzle", "par", "shortest", "below par", "simple", "gap", "seconds"
    print(COLUMNS.format(*heads, "stamped" if options.stamped else "").rstrip())
    found = {name: _proven(known[name], options) for name in options.names or known}
    if options.write:
        FILE.write_text(as_text((known | found).values()), encoding="utf-8")
    return any(found[name] != known[name] for name in found) and not options.write


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m prove", description="Prove the par of the puzzles.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which; all unless given")
    parser.add_argument("--seconds", type=float, default=300, help="for each search; 300 unless given")
    parser.add_argument("--stamped", action="store_true", help="also the best that repeats a pattern")
    parser.add_argument("--any-turn", action="store_true", help="microbatches in any order on every stage")
    parser.add_argument("--write", action="store_true", help="write what was found into puzzles.json")
    return parser.parse_args()


def _proven(puzzle: Puzzle, options: argparse.Namespace) -> Puzzle:
    """The puzzle with what the solver finds, which is said in a line."""
    how: dict[str, Any] = {"seconds": options.seconds, "in_turn": not options.any_turn}
    best = solve(puzzle, **how)
    found = puzzle if best.rows is None else answered(puzzle, best.rows, best.bound)
    less = solve(puzzle, found.par, below=True, seed=1, **how)
    if less.rows is not None:
        found = answered(puzzle, less.rows, best.bound)
    elif less.status == "INFEASIBLE":
        found = answered(found, found.rows, found.par)
    stamped = solve(puzzle, stamped=True, **how) if options.stamped else None
    simple = number(simple_bound(puzzle).value)
    seconds = sum(each.seconds for each in (best, less, stamped) if each)
    cells = number(found.par), _in_words(best), LESS.get(less.status, "there is"), simple, number(found.gap)
    end = _in_words(stamped) if stamped else ""
    print(COLUMNS.format(puzzle.name, *cells, f"{seconds:.1f}", end).rstrip(), flush=True)
    return found


def _in_words(found: Found) -> str:
    """The makespan that was found, marked unless it is the least."""
    if found.makespan is None:
        return found.status.lower()
    return ("" if found.status == "OPTIMAL" else "at most ") + number(found.makespan)


if __name__ == "__main__":
    sys.exit(main())
