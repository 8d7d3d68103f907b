"""Cut a model with a heavy head, for devices that hold fewer and fewer microbatches from first to last."""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from gpipe_sim.course.called import called
from gpipe_sim.course.exercises.seeded import drawn_by, hidden, seeded
from gpipe_sim.course.lesson_11 import every_cut
from gpipe_sim.course.reply import Reply, almost, correct, is_whole, keep_working, listed, quoted

Layer = tuple[int, int, int]  #: its time, the bytes of its weights, the bytes that it saves of a microbatch


class Model(NamedTuple):
    """Layers, devices, and the room of each."""

    layers: list[Layer]
    K: int
    room: int

    def __str__(self) -> str:
        last = len(self.layers) - 1
        rows = {"0, the embedding": 0, f"1 to {last - 1}, blocks, each": 1, f"{last}, the head": last}
        lines = [f"{'layer':<20} time  weights  saved"]
        for name, i in rows.items():
            lines.append("{:<20} {:>4} {:>8} {:>6}".format(name, *self.layers[i]))
        return "\n".join([*lines, f"{self.K} devices with room for {self.room} each"])

    def cuts(self) -> list[list[int]]:
        return [*every_cut(len(self.layers), self.K)]

    def stages(self, sizes: Sequence[int]) -> list[list[Layer]]:
        return [self.layers[a:b] for a, b in pairwise(accumulate(sizes, initial=0))]

    def takes(self, sizes: Sequence[int]) -> list[int]:
        return [sum(time for time, _, _ in stage) for stage in self.stages(sizes)]

    def held(self, sizes: Sequence[int]) -> list[int]:
        """Weights, and what is saved of the K-k microbatches that device k of 1F1B has in flight."""
        found = []
        for k, stage in enumerate(self.stages(sizes)):
            found.append(sum(weights + (self.K - k) * saved for _, weights, saved in stage))
        return found

    def fitting(self) -> list[list[int]]:
        """The cuts that fit, the one with the fastest slowest stage first."""
        found = [cut for cut in self.cuts() if max(self.held(cut)) <= self.room]
        return sorted(found, key=lambda cut: max(self.takes(cut)))

    def slowest(self) -> int:
        """What the slowest stage takes at least."""
        return max(self.takes(self.fitting()[0]))


def task(seed: object = 0) -> Model:
    rng = drawn_by(seed, "head")
    while True:
        K, block = rng.randint(3, 4), (rng.randint(3, 6), rng.randint(4, 9), rng.randint(2, 6))
        outer, heavy = rng.randint(10, 30), rng.randint(2, 4) * block[0] + rng.randint(0, 2)
        layers = [(0, outer, 1), *[block] * rng.randint(2 * K, 2 * K + 3), (heavy, outer, rng.randint(3, 9))]
        free = Model(layers, K, 10**9)
        few, most = sorted(max(free.held(cut)) for cut in free.cuts())[2], max(free.held(free.fitting()[0]))
        model = free._replace(room=rng.randint(few, max(few, most - 1)))
        if model.slowest() > free.slowest():  # the limit is in the way
            return model


EDGES = (
    Model([(1, 5, 1), (1, 5, 1), (9, 5, 1)], 2, 17),
    Model([(1, 5, 1), (1, 5, 1), (9, 5, 1)], 2, 11),  # too small for any cut
    Model([(3, 1, 1)] * 4, 4, 5),
    Model([(2, 1, 1)] * 5, 1, 100),
    Model([(1, 1, 9), (8, 1, 1), (1, 1, 1), (1, 1, 1)], 2, 22),
)


@seeded("write cut in this cell, and run it again")
def check(answer: Callable, seed: object) -> Reply:
    """Check ``answer(layers, K, room)``: how many layers each stage gets; None if no cut fits."""
    models = [*map(task, hidden(seed)), *EDGES]
    for model in models:
        ends = f"{listed(model.layers[:2])} ... {model.layers[-1]}, {len(model.layers)} in all"
        where = f"for layers {ends}, K = {model.K} and room for {model.room},"
        got = called(answer, list(model.layers), model.K, model.room, where=where, whole=("layers",))
        if got is not None or model.fitting():
            _what_is_wrong(got, model, f"{where} you give {quoted(got)}")
    return correct(
        f"the best cut that fits, for {len(models)} models. Which device is full, and which is slow?"
    )


def _what_is_wrong(got: object, model: Model, said: str) -> None:
    if got is None:
        fit = len(model.fitting())
        raise keep_working(
            f"{said}, and {fit} cuts fit. How many microbatches has the last device in flight?"
        )
    if not isinstance(got, tuple | list) or not all(map(is_whole, got)) or [*got] not in model.cuts():
        raise keep_working(
            f"{said}. How many layers has each of the K stages, at least one, and all together?"
        )
    takes, held = model.takes(got), model.held(got)
    if max(held) > model.room:
        k = held.index(max(held))
        weights, saved = (sum(layer[i] for layer in model.stages(got)[k]) for i in (1, 2))
        says = f"{said}. Device {k}: weights of {weights}, {saved} saved of each microbatch, {held[k]} in all"
        raise keep_working(f"{says}. How many microbatches are in flight on it?")
    if max(takes) > (best := model.slowest()):
        says = f"{said}. It fits, and stages take {listed(takes)}; a cut fits in which none takes over {best}"
        reply = almost if 4 * max(takes) <= 5 * best else keep_working
        raise reply(f"{says}. Which layer would you move, and who has room for it?")
