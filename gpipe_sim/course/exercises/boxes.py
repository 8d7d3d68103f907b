"""A closed form from a chart: when each box of GPipe begins."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gpipe_sim.core.costs import Costs
from gpipe_sim.core.simulate import simulate
from gpipe_sim.course.called import result_of
from gpipe_sim.course.exercises.seeded import drawn_by, hidden, seeded
from gpipe_sim.course.reply import Reply, correct, is_number, keep_working, quoted
from gpipe_sim.course.rows import Step, spelled
from gpipe_sim.drawing.document import Svg
from gpipe_sim.drawing.svg import draw
from gpipe_sim.errors import Real
from gpipe_sim.families import GPipe


class Size(NamedTuple):
    """Devices, microbatches, and how long a forward and a backward take."""

    K: int
    M: int
    F: int
    B: int

    def start(self, s: int, kind: str, m: int) -> int:
        if kind == "F":
            return (s + m) * self.F
        return (self.K + self.M - 1) * self.F + (self.K - 1 - s + self.M - 1 - m) * self.B

    def boxes(self) -> list[Step]:
        """All of them in the order in which they begin; of a large size a few."""
        ends = [[*range(min(n, 6)), *range(max(6, n - 3), n)] for n in (self.K, self.M)]
        every = [(s, kind, m) for s in ends[0] for kind in "FB" for m in ends[1]]
        return sorted(every, key=lambda box: (self.start(*box), box[1] == "B"))

    def before(self, s: int, kind: str, m: int) -> Iterator[tuple[Step, str]]:
        """What has to end first, and a question if it does not."""
        row = "What does its device do until then?"
        forward, last = kind == "F", m == self.M - 1
        if forward and m:
            yield (s, "F", m - 1), row
        if not forward:
            yield ((s, "F", m) if last else (s, "B", m + 1)), row
        if forward and s:
            yield (s - 1, "F", m), "What does it read?"
        if not forward and s < self.K - 1:
            yield (s + 1, "B", m), "What does it read?"


HUGE = Size(1000, 10**6, 3, 5)  #: too large to simulate


def size(seed: object = 0) -> Size:
    rng = drawn_by(seed, "boxes")
    F = rng.randint(1, 3)
    return Size(
        rng.randint(3, 5),
        rng.randint(3, 6),
        F,
        rng.choice([B for B in range(1, 7) if B not in (F, 2 * F, F / 2)]),
    )


def task(seed: object = 0) -> Svg:
    """The chart to read from."""
    K, M, F, B = size(seed)
    timeline = simulate(GPipe(K, M), Costs(F, B, 0))
    return draw(timeline, titles=[f"GPipe with K = {K}, M = {M}, F = {F}, B = {B}"])


@seeded("write start in this cell, and run it again")
def check(answer: Callable, seed: object) -> Reply:
    """Check ``answer(s, kind, m, K, M, F, B)``: when GPipe begins an action."""
    sizes = [*map(size, hidden(seed)), Size(1, 4, 1, 3), Size(4, 1, 2, 1), HUGE]
    for each in sizes:
        found: dict[Step, Real] = {}
        for box in each.boxes():
            where = f"called with ({', '.join(map(repr, (*box, *each)))})"
            asks = "What does the formula say of every box at once?"
            said = result_of(answer, *box, *each, where=where, endless=asks)
            if not is_number(said):
                return keep_working(f"{where} it gives {quoted(said)}. At which moment is that?")
            found[box] = said
            if said != each.start(*box):
                return keep_working(
                    f"with K, M, F, B = {', '.join(map(str, each))}: {_wrong(box, each, found)}"
                )
    return correct(f"every box, at {len(sizes)} sizes. What makes the last backward end when it does?")


def _wrong(box: Step, each: Size, found: dict[Step, Real]) -> str:
    """What is wrong with a box, by the student's own moments of those before it, which are right."""
    said, name, lasts = found[box], spelled(box), {"F": each.F, "B": each.B}
    begins = f"{name} begins at {said} by your formula"
    if said == each.start(*box) + lasts[box[1]]:
        return f"{begins}. Is that where its box begins, or where it ends?"
    needs = [(found[one] + lasts[one[1]], one, asks) for one, asks in each.before(*box) if one in found]
    for end, one, asks in needs:
        if said < end:
            return f"{begins}, and {spelled(one)} ends at {end} by it. {asks}"
    if not needs:
        return f"{begins}. What does it wait for until then?"
    last = max(needs)
    return f"{begins}; the last that it waits for, {spelled(last[1])}, ends at {last[0]}. Why later?"
