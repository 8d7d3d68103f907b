"""A puzzle as CP-SAT sees it: an interval for each action, and nothing of its own about what needs what.

Durations, needs and messages come from the library's ``Machine``, so the model has the rules of ``simulate``.
Times are whole numbers of the largest unit of which all durations are multiples; a best order that starts
everything as early as it can has no others.

Microbatches are all alike, so they may be told apart by when they pass. Take any times of an order that runs,
and for each stage and kind sort the starts: call the earliest microbatch 0, the next 1, and so on. If every
microbatch's next action starts late enough after the one before, then so does the j-th earliest after the
j-th earliest. Devices are as busy as they were, as many activations are held at any time, and the makespan is
the same. So ``in_turn`` asks every stage to take microbatches in the order 0, 1, 2, ..., and loses nothing.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise, product

from ortools.sat.python import cp_model

from gpipe_sim.core.simulate import simulate
from gpipe_sim.errors import Real
from gpipe_sim.machine.machine import Machine
from gpipe_sim.viewer.puzzles import Puzzle
from prove.answer import plain

WORKERS = 2  #: threads of the solver


@dataclass(frozen=True)
class Found:
    """What the solver says: ``status`` is OPTIMAL, FEASIBLE, INFEASIBLE or UNKNOWN."""

    status: str
    makespan: Real | None
    bound: Real
    rows: tuple[str, ...] | None
    seconds: float


class Model:
    """The puzzle as intervals; ``within`` is the longest makespan that is looked at, in units."""

    def __init__(self, puzzle: Puzzle, within: Real | None, below: bool, in_turn: bool):
        self.puzzle, self.work = puzzle, puzzle.work
        machine = Machine(self.work.program, puzzle.costs, ordered=False)
        messages = [message for needs in machine.needs for _, message in needs]
        self.unit = _unit({*machine.durations, *messages})
        self.takes = [self._whole(time) for time in machine.durations]
        most = sum(self.takes) + sum(map(self._whole, messages))
        if within is not None:
            units = Fraction(within) / self.unit
            most = math.ceil(units) - 1 if below else math.floor(units)
        self.most = max(most, 0)
        self.actions = [action for row in self.work.actions for action in row]
        self.place = {str(action): entry for entry, action in enumerate(self.actions)}

        self.cp = cp_model.CpModel()
        self.starts = [self._time() for _ in self.actions]
        self.makespan = self._time()
        self._needs(machine)
        self._devices()
        if puzzle.room is not None:
            self._rooms(puzzle.room)
        if in_turn:
            self._in_turn()
        self.cp.minimize(self.makespan)

    def _whole(self, time: Real) -> int:
        return int(Fraction(time) / self.unit)

    def _time(self) -> cp_model.IntVar:
        return self.cp.new_int_var(0, self.most, "")

    def end(self, entry: int) -> cp_model.LinearExpr:
        return self.starts[entry] + self.takes[entry]

    def _needs(self, machine: Machine) -> None:
        for entry, needs in enumerate(machine.needs):
            self.cp.add(self.end(entry) <= self.makespan)
            for need, message in needs:
                self.cp.add(self.starts[entry] >= self.end(need) + self._whole(message))

    def _devices(self) -> None:
        """A device runs one action at a time."""
        spans = [
            self.cp.new_fixed_size_interval_var(start, takes, "")
            for start, takes in zip(self.starts, self.takes, strict=True)
        ]
        for a, b in pairwise(self.work.program.rows.tolist()):
            self.cp.add_no_overlap(spans[a:b])

    def _rooms(self, room: Sequence[int]) -> None:
        """From the start of F until the end of B or W, one of its device's room is taken."""
        for stages, most in zip(self.puzzle.placement, room, strict=True):
            held = []
            for stage, m in product(stages, range(self.puzzle.microbatches)):
                taken, freed = self._held(stage, m)
                held.append(self.cp.new_interval_var(self.starts[taken], self._time(), self.end(freed), ""))
            self.cp.add_cumulative(held, [1] * len(held), most)

    def _held(self, stage: int, m: int) -> tuple[int, int]:
        """The entries that take and free the room of a stage and microbatch."""
        kinds = self.puzzle.kinds
        return self.place[f"{stage}{kinds[0]}{m}"], self.place[f"{stage}{kinds[-1]}{m}"]

    def _in_turn(self) -> None:
        """Every stage takes microbatches in the order 0, 1, 2, ...: so what makes room for each is known."""
        count = self.puzzle.microbatches
        for one, other in pairwise(range(len(self.actions))):
            if self.actions[one][:2] == self.actions[other][:2]:
                self.cp.add(self.starts[other] >= self.end(one))
        for stages, most in zip(self.puzzle.placement, self.puzzle.limits, strict=True):
            for stage, m in product(stages, range(count)):
                if m + most < count:
                    taken, freed = self._held(stage, m + int(most))[0], self._held(stage, m)[1]
                    self.cp.add(self.starts[taken] >= self.end(freed))

    def stamp(self) -> None:
        """Ask every device to treat all microbatches alike.

        Which of two actions comes first then depends only on how many microbatches lie between them. Every
        pattern that is repeated after some time gives such an order, whatever the pattern and the time.
        """
        count = self.puzzle.microbatches
        for stages in self.puzzle.placement:
            pairs = combinations([f"{stage}{kind}" for stage in stages for kind in self.puzzle.kinds], 2)
            for (one, other), apart in product(pairs, range(1 - count, count)):
                before = self.cp.new_bool_var("")
                for m in range(max(0, -apart), min(count, count - apart)):
                    a, b = self.place[f"{one}{m}"], self.place[f"{other}{m + apart}"]
                    self.cp.add(self.starts[b] >= self.end(a)).only_enforce_if(before)
                    self.cp.add(self.starts[a] >= self.end(b)).only_enforce_if(~before)

    def rows(self, value: Callable[[cp_model.IntVar], int]) -> tuple[str, ...]:
        """The rows of a solution, in the order in which it starts them."""
        found = []
        for a, b in pairwise(self.work.program.rows.tolist()):
            order = sorted(range(a, b), key=lambda entry: (value(self.starts[entry]), entry))
            found.append(" ".join(str(self.actions[entry]) for entry in order))
        return tuple(found)


def _unit(times: set[Real]) -> Fraction:
    """The largest number of which all times are multiples."""
    exact = [Fraction(time) for time in times]
    return Fraction(math.gcd(*(t.numerator for t in exact)), 1) / math.lcm(*(t.denominator for t in exact))


def solve(
    puzzle: Puzzle,
    within: Real | None = None,
    *,
    below: bool = False,
    in_turn: bool = True,
    stamped: bool = False,
    seconds: float = 60,
    seed: int = 0,
) -> Found:
    """The shortest order of a puzzle, of at most ``within``, or with ``below`` of less than that.

    ``stamped`` looks only at orders in which every device treats all microbatches alike.
    """
    model = Model(puzzle, within, below, in_turn)
    if stamped:
        model.stamp()
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = WORKERS
    solver.parameters.random_seed = seed
    status = solver.solve(model.cp)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    rows = model.rows(solver.value) if found else None
    return Found(
        status=solver.status_name(status),
        makespan=plain(simulate(puzzle.schedule(rows), puzzle.costs).makespan) if rows else None,
        bound=plain(math.ceil(solver.best_objective_bound - 1e-6) * model.unit),
        rows=rows,
        seconds=solver.wall_time,
    )
