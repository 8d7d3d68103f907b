"""Predictions, read without running anything, beside what the lesson's own notebook found."""

import ast
import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib import import_module
from io import StringIO
from statistics import mean
from typing import Any, TypeGuard

from gpipe_sim.classroom.notebooks import SEED, Cell, own_cells
from gpipe_sim.course.reply import Reply, is_number
from gpipe_sim.course.reveal import Revealed, _number_in, reveal

GUESS = re.compile(r"^guess = ", re.MULTILINE)
IT_IS = re.compile(r"<p>It is <b>(.*?)</b>\.</p>", re.DOTALL)
NUMBER = re.compile(r"-?[\d,]*\.?\d+(e[+-]?\d+)?")


@dataclass(frozen=True)
class Prediction:
    """A question of a lesson, as its notebook has it."""

    name: str
    cell: str  #: the id of the cell with the guess
    measured: Any
    unit: str
    within: float
    wrong: Mapping[Any, str]
    read: Callable[[Any], Any]


@dataclass(frozen=True)
class Guess:
    name: str
    value: Any
    reply: Reply
    off: float | None  #: how far, as a share of what was measured; None for words, and where that is 0


def _off(value: Any, of: Prediction) -> float | None:
    value = _number_in(value, of.unit) if isinstance(value, str) else value
    if not is_number(value) or not is_number(of.measured) or not of.measured:
        return None
    return abs(float(value) - float(of.measured)) / abs(float(of.measured))


def guesses(cells: Sequence[Cell], lesson: str, seed: int = 0) -> Iterator[Guess]:
    """What a student guessed, of each prediction of a lesson for which there is a guess."""
    of = {cell.id: cell for cell in cells}
    for number, each in enumerate(predictions(lesson)):
        cell = of.get(each.cell) or _by_place(cells, number)
        if cell is None or (value := _guessed(cell.source)) is None:
            continue
        each = predictions(lesson, seed)[number]
        said = reveal(each.read(value), each.measured, each.unit, within=each.within, wrong=each.wrong)
        yield Guess(each.name, value, said.reply, _off(value, each))
    if lesson == "T":
        yield from _judged(cells, seed)


def _judged(cells: Sequence[Cell], seed: int) -> Iterator[Guess]:
    """The plans that a student chose in the truth lab; how far off is how much longer they take."""
    lab = import_module("gpipe_sim.course.lesson_T")
    for cell in cells:
        if cell.kind == "code" and "lesson_T.judged(" in cell.source:
            choices = _guessed(cell.source, "choices")
            reply, off = lab.judged(choices, seed), None
            if isinstance(reply, Revealed):
                reply = reply.reply
            if reply.verdict == "measured":
                tasks = zip(lab.twenty(seed), choices, strict=True)
                off = mean(lab.lost(task, [task[n - 1]] if n else task) for task, n in tasks)
            if reply.verdict != "your turn":
                yield Guess("plans by judgement", choices, reply, off)


def _by_place(cells: Sequence[Cell], number: int) -> Cell | None:
    """Old notebooks have no ids."""
    with_guess = [cell for cell in cells if cell.kind == "code" and GUESS.search(cell.source)]
    return with_guess[number] if number < len(with_guess) and not any(cell.id for cell in cells) else None


def _guessed(source: str, name: str = "guess") -> Any:
    """The value that a cell gives ``guess``, if it is written there."""
    try:
        for statement in reversed(ast.parse(source).body):
            match statement:
                case ast.Assign([ast.Name(own)], value) if own == name:
                    return _literal(value)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source.partition("=")[2].strip()[:200] or None
    return None


def _literal(value: ast.expr) -> Any:
    """A number, a text or a tuple of such, a quotient or Fraction of numbers; else its source."""
    match value:
        case ast.BinOp(left, ast.Div(), right):
            return Fraction(_literal(left)) / Fraction(_literal(right))
        case ast.BinOp(left, ast.Mult(), right):
            return _literal(left) * _literal(right)
        case ast.Call(ast.Name("Fraction"), arguments):
            return Fraction(*map(_literal, arguments))
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError):
        return ast.unparse(value)


@cache
def predictions(lesson: str, seed: int = 0) -> tuple[Prediction, ...]:
    """The questions of a lesson, with what its notebook's stored output says was measured.

    If its numbers are drawn, and the seed is not the notebook's own, its cells are run for that.
    """
    found, guess, names = [], "", dict[str, Any]()
    cells = [cell for cell in own_cells(lesson) if cell.kind == "code" and "colab" not in cell.tags]
    stored = {int(said[1]) for cell in cells if (said := SEED.search(cell.source))}
    for cell in cells:
        if stored - {seed}:
            with redirect_stdout(StringIO()):
                exec(SEED.sub(f"SEED = {seed}", cell.source), names)
        if GUESS.search(cell.source):
            guess = cell.id
        elif guess and "reveal(" in cell.source:
            found += [each for each in [_prediction(cell, guess, names)] if each]
            guess = ""
    return tuple(found)


def _prediction(cell: Cell, guess: str, names: dict[str, Any]) -> Prediction | None:
    call = next((each for each in ast.walk(ast.parse(cell.source)) if _reveals(each)), None)
    shown = "".join("".join(out.get("data", {}).get("text/html", "")) for out in cell.outputs)
    if call is None or not (said := IT_IS.search(shown)):
        return None
    given = {each.arg: each.value for each in call.keywords}
    unit = _literal(call.args[2]) if len(call.args) > 2 else ""
    of = {name: _evaluated(value) for name, value in given.items() if name in ("wrong", "within", "name")}
    measured = _evaluated(call.args[1], names) if names else _measured(html.unescape(said[1]), str(unit))
    about = str(of.get("name", cell.id)), guess, measured, str(unit), of.get("within", 0), of.get("wrong", {})
    return Prediction(*about, _reader(call.args[0]))


def _reveals(each: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(each, ast.Call) and ast.unparse(each.func).endswith("reveal")


def _evaluated(value: ast.expr, names: Mapping[str, Any] | None = None) -> Any:
    """A part of the package's own notebook, which of itself needs no name but Fraction."""
    return eval(
        compile(ast.Expression(value), "<a lesson>", "eval"), {"Fraction": Fraction} | dict(names or {})
    )


def _reader(guess: ast.expr) -> Callable[[Any], Any]:
    """How the lesson reads a guess: as it is, or by a function of its module."""
    match guess:
        case ast.Call(ast.Attribute(ast.Name(module), name)):
            return getattr(import_module(f"gpipe_sim.course.{module}"), name)
    return lambda value: value


def _measured(text: str, unit: str) -> Any:
    """A number, if it stands alone or before its unit; else the text."""
    if (found := NUMBER.match(text)) and (unit or found.end() == len(text)):
        value = float(found[0].replace(",", ""))
        return int(value) if value == int(value) else value
    return text
