"""Choose K and M under a limit of bytes: the shortest step of 1F1B that fits."""

from collections.abc import Callable
from typing import NamedTuple

from gpipe_sim.course.called import called
from gpipe_sim.course.exercises.seeded import drawn_by, hidden, seeded
from gpipe_sim.course.reply import Reply, almost, correct, is_whole, keep_working, quoted

Cut = tuple[int, int]  #: devices and microbatches


class Model(NamedTuple):
    """Equal layers and a batch, what starting an action takes, MB of a layer, devices and their room."""

    layers: int
    samples: int
    startup: int
    weights: int
    devices: int
    room: int

    def __str__(self) -> str:
        return (
            f"{self.layers} layers, {self.samples} samples, a start-up of {self.startup}\n"
            f"{self.weights} MB for a layer and its optimizer, 1 MB for each sample that it keeps\n"
            f"up to {self.devices} devices with {self.room} MB each"
        )

    def cuts(self) -> list[Cut]:
        """All K and M that make equal stages and equal pieces."""
        stages = [K for K in range(1, self.devices + 1) if self.layers % K == 0]
        return [(K, M) for K in stages for M in range(1, self.samples + 1) if self.samples % M == 0]

    def held(self, K: int, M: int) -> int:
        """What device 0 holds of its layers and pieces, of which 1F1B has min(K, M) in flight."""
        return self.layers // K * (self.weights + min(K, M) * (self.samples // M))

    def takes(self, K: int, M: int) -> int:
        return 3 * (M + K - 1) * (self.startup + self.layers // K * (self.samples // M))

    def fits(self) -> list[Cut]:
        """The shortest first, and of these one with the fewest devices."""
        found = [cut for cut in self.cuts() if self.held(*cut) <= self.room]
        return sorted(found, key=lambda cut: (self.takes(*cut), cut))


def task(seed: object = 0) -> Model:
    rng = drawn_by(seed, "choose")
    while True:
        layers, samples = rng.choice((12, 16, 24)), rng.choice((48, 64, 96))
        model = Model(layers, samples, rng.randint(3, 30), rng.randint(10, 60), rng.choice((6, 8, 12)), 10**9)
        few, free = sorted(model.held(*cut) for cut in model.cuts())[2], model.held(*model.fits()[0])
        tight = model._replace(room=rng.randint(few, max(few, free - 1)))
        if tight.fits()[0] != model.fits()[0]:  # the limit is in the way
            return tight


EDGES = (
    Model(8, 16, 4, 20, 8, 20),  # nothing fits
    Model(8, 16, 4, 20, 8, 28),
    Model(6, 12, 0, 5, 4, 1000),  # nothing is in the way
    Model(7, 5, 2, 30, 6, 1000),  # layers and samples that nothing divides
    Model(12, 12, 100, 1, 12, 40),
)


@seeded("write choose in this cell, and run it again")
def check(answer: Callable, seed: object) -> Reply:
    """Check ``answer(layers, samples, startup, weights, devices, room)``: (K, M), or None if nothing fits."""
    models = [*map(task, hidden(seed)), *EDGES]
    for model in models:
        named = ", ".join(f"{name} {value}" for name, value in zip(model._fields, model, strict=True))
        got = called(answer, *model, where=f"for {named},")
        if got is not None or model.fits():
            _what_is_wrong(got, model, f"for {named}, you give {quoted(got)}")
    return correct(f"the shortest that fits, for {len(models)} models. Which would more room make shorter?")


def _what_is_wrong(got: object, model: Model, said: str) -> None:
    fits = model.fits()
    if got is None:
        asks = "How many pieces does device 0 hold at once in 1F1B?"
        raise keep_working(f"{said}, and {len(fits)} choices fit. {asks}")
    if not isinstance(got, tuple | list) or len(got) != 2 or not all(map(is_whole, got)):
        raise keep_working(f"{said}. Which two whole numbers are K and M?")
    K, M = map(int, got)
    if (K, M) not in model.cuts():
        raise keep_working(f"{said}. On how many devices, and are all stages equal then, and all pieces?")
    takes, held = model.takes(K, M), model.held(K, M)
    if held > model.room:
        has = f"device 0 has {model.layers // K} layers and pieces of {model.samples // M}"
        raise keep_working(f"{said}: {has}, and holds {held} MB. How many pieces are in flight on it?")
    least, fewest = model.takes(*fits[0]), fits[0][0]
    if takes == least and fewest < K:
        raise almost(f"{said}. It fits, and none is shorter. Are {K} devices needed for that?")
    if takes > least:
        says = f"{said}. It fits and takes {takes}; {least} is possible"
        for i, name in enumerate("KM"):
            if takes == min(model.takes(*cut) for cut in fits if cut[i] == (K, M)[i]):
                reply = almost if 4 * takes <= 5 * least else keep_working
                raise reply(f"{says}. With this {name} nothing is better. Is it so with another {name}?")
        starts, waits = 3 * M * model.startup, takes * (K - 1) // (M + K - 1)
        spends = f"Each device spends {starts} on starting actions and {waits} on waiting"
        raise keep_working(f"{says}. {spends}. What do K and M do to each of the two?")
