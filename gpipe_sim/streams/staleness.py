"""How old the weights are that each stage uses, said from the schedule alone."""

from dataclasses import dataclass

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.problems import check
from gpipe_sim.core.program import Program
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.streams.updates import updates_of
from gpipe_sim.streams.versions import Lives, lives, read_weights

Table = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, repr=False)
class Staleness:
    """The version of its weights that each stage uses; a version is named by how many updates made it.

    ``forward[s][m]`` and ``backward[s][m]`` are those of stage s for microbatch m, ``mini_batches`` the
    microbatches of each mini-batch, and ``held[s]`` how many versions stage s holds at most, the newest among
    them.
    """

    schedule: Schedule
    weights: str
    forward: Table
    backward: Table
    mini_batches: Table
    held: tuple[int, ...]

    @property
    def delay(self) -> Table:
        """How many updates too old the weights of ``forward`` are: mini-batch j comes after j others."""
        which = {m: j for j, members in enumerate(self.mini_batches) for m in members}
        return tuple(tuple(which[m] - version for m, version in enumerate(row)) for row in self.forward)

    def __str__(self) -> str:
        """A row for each stage, in it the version for each microbatch: forward/backward where they differ."""
        rows = [
            [f"{a}" if a == b else f"{a}/{b}" for a, b in zip(ahead, back, strict=True)]
            for ahead, back in zip(self.forward, self.backward, strict=True)
        ]
        wide = max(len(cell) for row in rows for cell in row)
        return "\n".join(
            f"stage {stage}: {' '.join(cell.rjust(wide) for cell in row)}" for stage, row in enumerate(rows)
        )

    def __repr__(self) -> str:
        late = max(map(max, self.delay))
        updates = "1 update" if late == 1 else f"{late} updates"
        return f"<staleness of {self.schedule!r}, weights={self.weights!r}: at most {updates} too old>"


def staleness(schedule: Schedule, weights: str | None = None) -> Staleness:
    """Which version of its weights each stage uses for each microbatch, and how many it holds.

    >>> print(gp.staleness(gp.PipeDream(devices=3, microbatches=4)))
    stage 0: 0 0 0 1
    stage 1: 0 0 1 2
    stage 2: 0 1 2 3

    ``weights`` is that of ``train_step``. A schedule without updates uses version 0 throughout. ScheduleError
    or DeadlockError for a schedule that cannot run, ValueError for weights that it cannot have.
    """
    require_schedule("staleness", schedule)
    check(schedule)
    program, weights = schedule.program, read_weights("staleness", schedule, weights)
    found, held = lives(program, weights), [1] * program.stages
    for (_, stage), most in found.held.items():
        held[stage] = max(held[stage], most)
    forward, backward = (_table(program, found, kinds) for kinds in ("F", "BI"))
    return Staleness(schedule, weights, forward, backward, updates_of(program).members, tuple(held))


def _table(program: Program, found: Lives, kinds: str) -> Table:
    """The versions that actions of these kinds use, by stage and microbatch."""
    table = [[0] * program.microbatches for _ in range(program.stages)]
    for (stage, kind, microbatch), version in found.reads.items():
        if kind in map(Kind, kinds):
            table[stage][microbatch] = version
    return tuple(map(tuple, table))
