"""Where to recompute under a limit of bytes: which layers' arrays a device forgets."""

from collections.abc import Callable, Collection, Iterator
from functools import cache
from itertools import combinations
from typing import NamedTuple

from gpipe_sim.course.called import called
from gpipe_sim.course.exercises.seeded import drawn_by, hidden, seeded
from gpipe_sim.course.reply import Reply, almost, correct, is_whole, keep_working, listed, quoted


class Stage(NamedTuple):
    """(bytes, time) of each layer for one microbatch, how many of these are in flight, and the room."""

    layers: tuple[tuple[int, int], ...]
    flight: int
    room: int

    def __str__(self) -> str:
        rows = [
            f"layer {i}: {size:>3} bytes, {time} to make them again"
            for i, (size, time) in enumerate(self.layers)
        ]
        return "\n".join([*rows, f"{self.flight} microbatches in flight, room for {self.room:,} bytes"])

    def kept(self, forgotten: Collection[int]) -> int:
        return sum(size for i, (size, _) in enumerate(self.layers) if i not in forgotten)

    def takes(self, forgotten: Collection[int]) -> int:
        return sum(self.layers[i][1] for i in forgotten)

    def held(self, forgotten: Collection[int]) -> int:
        """What is kept of all in flight, and of one of them what was made again."""
        return self.flight * self.kept(forgotten) + sum(self.layers[i][0] for i in forgotten)


def ways(stage: Stage) -> Iterator[tuple[int, ...]]:
    """The sets of layers with which it fits."""
    numbers = range(len(stage.layers))
    every = (chosen for count in range(len(numbers) + 1) for chosen in combinations(numbers, count))
    return (chosen for chosen in every if stage.held(chosen) <= stage.room)


@cache
def least(stage: Stage) -> int | None:
    """The least time for which it fits; None if it never does."""
    return min(map(stage.takes, ways(stage)), default=None)


def task(seed: object = 0) -> Stage:
    rng = drawn_by(seed, "forget")
    layers = tuple((rng.randint(1, 9) * 10, rng.randint(1, 9)) for _ in range(rng.randint(6, 8)))
    flight, total = rng.randint(2, 5), sum(size for size, _ in layers)
    share = rng.uniform(0.35, 0.75)  # of what may be saved by forgetting all
    return Stage(layers, flight, 10 * round((total + (1 - share) * (flight - 1) * total) / 10))


EDGES = (
    Stage(((60, 5), (50, 3), (50, 3)), 2, 250),  # one large layer, cheaper than two with better rates
    Stage(((10, 9), (20, 1)), 3, 90),  # all of it fits
    Stage(((40, 2), (30, 1)), 4, 70),  # only if all is forgotten
    Stage(((40, 2), (30, 1)), 4, 69),  # not even then
    Stage(((40, 2), (30, 1)), 1, 70),
)


@seeded("write forget in this cell, and run it again")
def check(answer: Callable, seed: object) -> Reply:
    """Check ``answer(layers, flight, room)``: the layers to forget, in the least time; None if none fit."""
    stages = [*map(task, hidden(seed)), *EDGES]
    for stage in stages:
        where = f"for layers {listed(stage.layers)}, {stage.flight} in flight and room for {stage.room},"
        got = called(answer, [*stage.layers], stage.flight, stage.room, where=where, whole=("layers",))
        if not (got is None and least(stage) is None):
            _what_is_wrong(got, stage, where)
    return correct(f"the least time for {len(stages)} stages. Which device of 1F1B forgets the most?")


def _what_is_wrong(got: object, stage: Stage, where: str) -> None:
    if got is None:
        everything = f"With all layers forgotten there would be {stage.held(range(len(stage.layers)))} bytes"
        raise keep_working(f"{where} you give None. {everything}. Is that too much?")
    numbers = range(len(stage.layers))
    if not isinstance(got, list | tuple | set) or not all(is_whole(i) and i in numbers for i in got):
        raise keep_working(
            f"{where} you give {quoted(got)}. Which of the layers 0 to {numbers[-1]} are these?"
        )
    if len({*got}) < len(got):
        raise keep_working(f"{where} you give {quoted(got)}. How can a layer be forgotten twice?")
    forget, held = f"{where} you forget {listed(sorted(got)) or 'nothing'}", stage.held(got)
    if held > stage.room:
        says = f"{stage.flight} x {stage.kept(got)} bytes are kept"
        if stage.flight * stage.kept(got) <= stage.room:
            raise almost(f"{forget}: {says}, and that fits. What else is there while one of them goes back?")
        raise keep_working(
            f"{forget}: {says}, and {held} are there when one goes back. What else can be made again?"
        )
    takes, fewest = stage.takes(got), least(stage) or 0  # that it fits is known by now
    if takes > fewest:
        says = f"{forget}: it fits, and takes {takes} for each microbatch; {fewest} is enough"
        if idle := [i for i in got if stage.held({*got} - {i}) <= stage.room]:
            raise keep_working(f"{says}. Would it still fit if layer {idle[0]} stayed?")
        reply = almost if 2 * takes <= 3 * (least(stage) or 0) else keep_working
        raise reply(f"{says}. Which of these would you exchange, and for what?")
