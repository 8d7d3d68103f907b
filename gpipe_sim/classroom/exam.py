"""An exam out of the self-test's questions on paper, with numbers by seed, and answers for who marks it."""

from collections import Counter
from collections.abc import Collection, Sequence
from fractions import Fraction
from pathlib import Path
from random import Random
from textwrap import fill

from gpipe_sim.course.questions import QUESTIONS, Value, with_code
from gpipe_sim.course.questions.asked import Asked, Question

WIDTH = 96


def exam(folder: Path, seed: int, count: int, lessons: Collection[str] = ()) -> list[str]:
    """Write ``exam.md`` and ``answers.md`` into a folder that is not there yet; the lessons asked about.

    ``lessons`` says which of them may be asked about, such as ``["01", "07"]``; none stands for all.
    ValueError for a lesson without questions, and for more questions than there are.
    """
    on = [each for each in QUESTIONS.values() if each.draw.__module__ != with_code.__name__]
    met = sorted({each.lesson for each in on})
    if unknown := [each for each in lessons if each not in met]:
        raise ValueError(f"no question is about lesson {', '.join(unknown)}; there are {', '.join(met)}")
    some = [each for each in on if each.lesson in (lessons or met)]
    if not 0 < count <= len(some):
        raise ValueError(f"{count} questions cannot be asked: these lessons have {len(some)}")
    kept = _drawn(some, count, Random(f"exam {seed}"))
    drawn = [(each.lesson, each.asked(f"exam {seed}")) for each in some if each.key in kept]
    title = f"seed {seed}, {count} questions"
    asked = [f"{n}. {each.text}" for n, (_, each) in enumerate(drawn, 1)]
    told = [answer(n, lesson, each) for n, (lesson, each) in enumerate(drawn, 1)]
    folder.mkdir(parents=True)
    (folder / "exam.md").write_text(_text(f"# Exam: {title}", asked), encoding="utf-8")
    (folder / "answers.md").write_text(_text(f"# Answers: {title}", told), encoding="utf-8")
    return [lesson for lesson, _ in drawn]


def _drawn(some: Sequence[Question], count: int, rng: Random) -> set[str]:
    """Keys of questions, from as many lessons as can be."""
    met: Counter[str] = Counter()
    turns: list[tuple[int, int, str]] = []
    for each in rng.sample(some, len(some)):
        turns.append((met[each.lesson], len(turns), each.key))
        met[each.lesson] += 1
    return {key for *_, key in sorted(turns)[:count]}


def answer(n: int, lesson: str, asked: Asked) -> str:
    """What is right, and what a wrong answer shows."""
    lines = [f"{n}. **{said(asked.right)}** {asked.unit} (lesson {lesson})"]
    return "\n".join([*lines, *(f"   - {said(value)}: {says}" for value, says in asked.wrong)])


def said(value: Value) -> str:
    """A number as a decimal too, where it is a fraction."""
    if isinstance(value, Fraction):
        return str(value) if value.denominator == 1 else f"{value} = {float(value):.4g}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _text(title: str, parts: list[str]) -> str:
    wrapped = (
        "\n".join(fill(line, WIDTH, subsequent_indent="   ") for line in part.split("\n")) for part in parts
    )
    return "\n\n".join([title, *wrapped]) + "\n"
