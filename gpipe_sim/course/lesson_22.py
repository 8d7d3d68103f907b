"""The self-test: twenty questions by seed, a reply to each answer, and the lessons to read again."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import isclose
from textwrap import fill
from typing import Any

from gpipe_sim.course.build import exercise
from gpipe_sim.course.questions import QUESTIONS, Question, twenty
from gpipe_sim.course.questions.asked import Asked, Value
from gpipe_sim.course.reply import Reply, apart, correct, is_number, keep_working, quoted, your_turn
from gpipe_sim.course.reveal import Revealed, _number_in, _plain
from gpipe_sim.drawing.document import Svg, text
from gpipe_sim.drawing.palette import FAINT, INK, LANE, PAPER

EACH = 5  #: questions to a cell
NEAR = 0.01  #: how far off, relatively, an answer that is not whole may be
SHORT = 40  #: characters of an answer in a reply
TASK = "write your answers in this cell, and run it again"


class Replies(Reply):
    """A line for each question."""

    def _repr_html_(self) -> str:
        return "".join(Reply(*line.split(": ", 1))._repr_html_() for line in str(self).split("\n"))


# --- what is asked


def asked(seed: Hashable, first: int) -> str:
    """Five questions as text, from this one on."""
    some = list(enumerate(twenty(seed), start=1))[first - 1 : first - 1 + EACH]
    return "\n\n".join(
        fill(f"{n:>2}  {each.asked(seed).text}", 96, subsequent_indent="    ") for n, each in some
    )


WIDE, HIGH, TOP = 42, 40, 52  #: pixels


def boxes(seed: Hashable, right: Mapping[int, bool] | None = None) -> Svg:
    """A box for each question, with its number and its lesson; filled if it is answered right."""
    found, right = twenty(seed), right or {}
    says = f"{sum(right.values())} of {len(found)} are right" if right else "Twenty questions, by lesson"

    def parts(_: bool) -> Iterator[str]:
        yield text(12, 22, says, "start", 14, bold=True)
        for n, each in enumerate(found, start=1):
            x, answered = 12 + WIDE * (n - 1), right.get(n)
            fill = INK if answered else LANE if answered is None else PAPER
            about = f'stroke="{FAINT}" fill="{fill}"'
            yield f'<rect x="{x}" y="{TOP}" width="{WIDE - 6}" height="{HIGH - 8}" {about}/>'
            middle = x + (WIDE - 6) / 2
            mark = "✗" if answered is False else str(n)
            yield text(middle, TOP + 21, mark, "middle", colour=PAPER if answered else INK)
            yield text(middle, TOP + HIGH + 10, each.lesson, "middle", colour=FAINT)

    lessons = "; their lessons are " + ", ".join(each.lesson for each in found)
    return Svg(parts, (12 + WIDE * len(found), TOP + HIGH + 22), says + lessons)


# --- what is replied


@exercise(TASK)
def first(answers: Mapping[int, object], *, seed: Hashable = 0) -> Reply:
    """Check the answers to questions 1 to 5 of this seed, by their numbers."""
    return _checked(answers, seed, 1)


@exercise(TASK)
def second(answers: Mapping[int, object], *, seed: Hashable = 0) -> Reply:
    """Questions 6 to 10."""
    return _checked(answers, seed, 6)


@exercise(TASK)
def third(answers: Mapping[int, object], *, seed: Hashable = 0) -> Reply:
    """Questions 11 to 15."""
    return _checked(answers, seed, 11)


@exercise(TASK)
def last(answers: Mapping[int, object], *, seed: Hashable = 0) -> Reply:
    """Questions 16 to 20."""
    return _checked(answers, seed, 16)


def _checked(answers: object, seed: Hashable, start: int) -> Reply:
    numbers = range(start, start + EACH)
    if not isinstance(answers, dict) or set(answers) != {*numbers}:
        has = quoted(answers) if not isinstance(answers, dict) else f"has {quoted([*answers])}"
        raise keep_working(
            f"a dict should have an answer for each of {start} to {numbers[-1]}, and this {has}"
        )
    if all(said is None for said in answers.values()):
        raise your_turn(TASK)
    every = twenty(seed)
    lines = {n: told(every[n - 1], answers[n], seed) for n in numbers}
    right = sum(not line for line in lines.values())
    if right == EACH:
        return correct(f"all {EACH}")
    verdict = "almost" if right > EACH / 2 else "keep working"
    said = [f"question {n}: {line}" for n, line in lines.items() if line]
    return Replies(verdict, "\n".join([f"{right} of {EACH} are right", *said]))


def told(question: Question, said: object, seed: Hashable) -> str:
    """What an answer is told; nothing if it is right."""
    if said is None:
        return "not answered yet"
    of = question.asked(seed)
    if is_right(said, of.right):
        return ""
    you, again = f"you said {_short(said)}", f"Read lesson {question.lesson} again"
    if meant := next((says for value, says in of.wrong if is_right(said, value)), ""):
        return f"{you}. {meant} {again}"
    return f"{you}. {_kind(said, of)}{again}"


def _kind(said: object, of: Asked) -> str:
    """What kind of answer is asked for, if this is another."""
    if isinstance(of.right, str):
        words = [_plain(str(value)) for value in (of.right, *(value for value, _ in of.wrong))]
        known = isinstance(said, str) and _plain(said) in words
        return "" if known else "Answer with a word of the question. "
    return "" if is_number(_read(said)) else "Answer with a number. "


def is_right(said: object, value: Value) -> bool:
    """Whether an answer says this; a number that is not whole may be rounded."""
    if isinstance(value, str):
        return isinstance(said, str) and _plain(said) == _plain(value)
    if not is_number(number := _read(said)):
        return False
    off = apart(number, value)
    return off <= NEAR * apart(value, 0) if value % 1 else isclose(number, value, rel_tol=1e-9)


def _read(said: object) -> Any:
    """A number that is written in another way: "3/4", "six", "25%"."""
    if not isinstance(said, str):
        return said
    number = _number_in(said.rstrip().removesuffix("%"), "")
    return Fraction(number) / 100 if said.rstrip().endswith("%") and is_number(number) else number


def _short(said: object) -> str:
    shown = f"{said:.4g}" if isinstance(said, float) else quoted(said)
    return shown if len(shown) <= SHORT else f"{shown[:SHORT]} ..."


def score(seed: Hashable, *cells: object) -> Revealed:
    """How many of the twenty are right, and which lessons to read again."""
    said = {n: one for cell in cells if isinstance(cell, dict) for n, one in cell.items() if one is not None}
    every = dict(enumerate(twenty(seed), start=1))
    right = {n: not told(each, said[n], seed) for n, each in every.items() if n in said}
    if not right:
        return Revealed(your_turn("answer some of the questions above"), boxes(seed)._repr_html_(), "So far")
    wrong = [every[n].lesson for n in right if not right[n]]
    again = ", ".join(each for each in _order() if each in wrong)
    says = [f"{sum(right.values())} of {len(right)} answers are right"]
    says += [f"read again: {again}"] if again else []
    says += [f"not answered: {len(every) - len(right)}"] if len(right) < len(every) else []
    return Revealed(Reply("score", "; ".join(says)), boxes(seed, right)._repr_html_())


def _order() -> Sequence[str]:
    return sorted({each.lesson for each in QUESTIONS.values()})
