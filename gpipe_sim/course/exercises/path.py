"""Where a second counts: how much of a measured step is each device's on the chain that leads to its end."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gpipe_sim.course.answers import NEEDS, needs
from gpipe_sim.course.called import result_of
from gpipe_sim.course.exercises.ran import ran
from gpipe_sim.course.exercises.seeded import drawn_by, hidden, seeded
from gpipe_sim.course.reply import Reply, correct, is_number, keep_working, listed, quoted
from gpipe_sim.course.rows import spelled
from gpipe_sim.families import GPipe, OneFOneB

Span = tuple[int, str, int, int, int]  #: stage, F or B, microbatch, when it began and when it ended


class Measured(NamedTuple):
    """What each device did, in order: one stage each, and messages take no time."""

    rows: list[list[Span]]

    def __str__(self) -> str:
        lines = []
        for k, row in enumerate(self.rows):
            each = (f"{spelled(span[:3])} {span[3]}-{span[4]}" for span in row)
            lines.append(f"device {k}: {'  '.join(each)}")
        return "\n".join(lines)

    def until(self) -> int:
        return max(row[-1][4] for row in self.rows)

    def before(self, span: Span) -> list[Span]:
        """What ended when the span began, and had to: on its device, or what it reads."""
        row = self.rows[span[0]]
        every = {each[:3]: each for of in self.rows for each in of}
        had_to = [every[need] for need in needs(span[:3], len(self.rows), NEEDS)]
        had_to += row[max(0, row.index(span) - 1) : row.index(span)]
        return [each for each in dict.fromkeys(had_to) if each[4] == span[3]]

    def chain(self) -> list[Span]:
        """From the last action back to the first."""
        found = [max((row[-1] for row in self.rows), key=lambda span: span[4])]
        while before := self.before(found[-1]):
            found.append(before[0])
        return found

    def shares(self) -> list[int]:
        return self.of(self.chain())

    def of(self, spans: list[Span]) -> list[int]:
        """How long these take on each device."""
        return [sum(b - a for s, _, _, a, b in spans if s == k) for k in range(len(self.rows))]

    def mistakes(self) -> Iterator[tuple[list[float], str]]:
        """(what a mistake gives, a question)."""
        every, chain = [span for row in self.rows for span in row], self.chain()
        until, shares = self.until(), self.shares()
        asks = "That is all that each does. Which of it could end later, with the step as long as before?"
        yield [*self.of(every)], asks
        yield [until - busy for busy in self.of(every)], "That is how long each waits. Who makes it wait?"
        yield [each / until for each in shares], "These are shares of the step. How long are they?"
        steps = [sum(span[0] == k for span in chain) for k in range(len(shares))]
        yield [*steps], "That is how many of the actions are each device's. How long are these?"
        yield [*self.of(chain[1:])], f"What of {spelled(chain[0][:3])}, the very last one?"
        yield [*self.of(chain[:-1])], f"What of {spelled(chain[-1][:3])}, the very first one?"
        for kind, other in (("F", "a B"), ("B", "an F")):
            only = [span for span in chain if span[1] == kind]
            yield [*self.of(only)], f"Those are the {kind} alone. Where is {other} waited for?"
        critical = max(range(len(shares)), key=lambda k: shares[k])
        yield [until * (k == critical) for k in range(len(shares))], "Did that device never wait?"


def _measured(seed: str, K: int, M: int) -> Measured:
    rng = drawn_by(seed, "path")
    while True:
        schedule = rng.choice((GPipe, OneFOneB))(K, M)
        rows = [[(*each.action, each.start, each.end) for each in row] for row in ran(schedule, rng)]
        measured = Measured(rows)
        if all(len(measured.before(span)) < 2 for span in measured.chain()):  # one chain, and no other
            return measured


def task(seed: object = 0) -> Measured:
    rng = drawn_by(seed, "size of a path")
    return _measured(str(seed), 3, rng.randint(3, 4))


def _hidden(seed: object) -> Iterator[Measured]:
    for each in hidden(seed)[1:]:
        rng = drawn_by(each, "sizes of paths")
        yield _measured(each, rng.randint(2, 6), rng.randint(1, 8))


EDGES = (
    Measured([[(0, "F", 0, 0, 2), (0, "B", 0, 7, 11)], [(1, "F", 0, 2, 3), (1, "B", 0, 3, 7)]]),
    Measured([[(0, "F", 0, 0, 2), (0, "F", 1, 2, 5), (0, "B", 0, 5, 6), (0, "B", 1, 6, 9)]]),
)


@seeded("write on_chain in this cell, and run it again")
def check(answer: Callable, seed: object) -> Reply:
    """Check ``answer(rows)``: how long each device works on the chain that leads to the step's end."""
    steps = [EDGES[0], task(seed), *_hidden(seed), *EDGES[1:]]
    for step in steps:
        K, small = len(step.rows), len(step.rows) * len(step.rows[0]) < 5
        where = f"for {step.rows}" if small else f"for a step of {K} devices, {step.until()} long,"
        got = result_of(answer, [*step.rows], where=where, whole=("rows",))
        _what_is_wrong(got, step, where)
    first = steps[1]
    k = max(range(3), key=lambda k: first.shares()[k])
    says = f"{len(steps)} steps. In the one above, device {k} has {first.shares()[k]} of {first.until()}"
    return correct(f"{says}. By how much would the step be shorter, if it did all 1% faster? And if 50%?")


def _what_is_wrong(got: object, step: Measured, where: str) -> None:
    K = len(step.rows)
    if not isinstance(got, list | tuple) or len(got) != K or not all(map(is_number, got)):
        raise keep_working(
            f"{where} you give {quoted(got)}. How long is each of the {K} devices on the chain?"
        )
    said, own = f"{where} you give {quoted(got)}", [*map(float, got)]
    if own == step.shares():
        return
    if asks := next((asks for wrong, asks in step.mistakes() if _near(wrong, own)), ""):
        raise keep_working(f"{said}. {asks}")
    if abs(sum(own) - step.until()) > 1e-9:
        says = f"{said}, together {sum(own):,.10g}; the step is {step.until()} long"
        raise keep_working(f"{says}. Is there a moment at which nobody on the chain does anything?")
    raise keep_working(f"{said}. {_back(step)}")


def _near(one: list[float], other: list[float]) -> bool:
    return all(abs(a - b) < 1e-9 for a, b in zip(one, other, strict=True))


def _back(step: Measured) -> str:
    """A question about a place of the chain, one where something else ended then if there is such a place."""
    every = [span for row in step.rows for span in row]
    places = [(span, [each for each in every if each[4] == span[3]]) for span in step.chain()[:-1]]
    span, ended = max(places, key=lambda place: len(place[1]), default=(step.chain()[0], []))
    at = f"Go back from the end to {spelled(span[:3])}, which begins at {span[3]}"
    others = listed(spelled(each[:3]) for each in ended) or "nothing"
    return f"{at}. What ended at that moment: {others}. For which did it wait?"
