"""Call a student's function, and say in a sentence what went wrong, with the line on which it did."""

import io
import linecache
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from copy import deepcopy
from itertools import islice
from pathlib import Path
from traceback import walk_tb
from typing import Any, TextIO

import numpy as np

from gpipe_sim.course.limit import SECONDS, TooLong, time_limit
from gpipe_sim.course.reply import NOTHING_BACK, Reply, almost, keep_working, quoted

COPIED = list | dict | np.ndarray
GIVEN = ("send", "receive")  #: methods of the Links that lesson 02 gives: their lines are not the student's
#: Where the student's own lines are not.
LIBRARIES = (str(Path(__file__).parents[1]), *(sysconfig.get_path(name) for name in ("stdlib", "purelib")))
KEPT = "my_pipeline.py"  #: what passed in other cells and lessons; its lines have other numbers there
MOST_PRINTED = 2_000  #: characters of what a student's function prints
MOST_STEPS = 100_000  #: how many values a student's generator may give
#: What to look for first, after an exception of a kind.
QUESTIONS = {
    IndexError: "How many are there, and which one did you ask for?",
    KeyError: "Which keys are there at that moment?",
    NameError: "Where is that name given a value?",
    ZeroDivisionError: "What is zero there?",
    RecursionError: "When does it stop calling itself?",
    TypeError: "What kinds of things meet there?",
    ValueError: "What does that line expect, and what does it get?",
    AttributeError: "What stands before the dot there?",
    Exception: "What are the values at that moment?",
}
#: What must not be called at the moment: (module, name).
REFUSED: set[tuple[str, str]] = set()
MISCALLED = "How many things is it given, and how many does it take?"  #: none of the student's own lines ran


def called(
    function: object,
    *arguments,
    where: str = "",
    copies: bool = True,
    plain: bool = True,
    without: Collection[Callable] = (),
    whole: Sequence[str] = (),
    endless: str = "Which loop never ends?",
) -> object:
    """What the student's function returns.

    Raises a Reply, which ends the check, if it is not a function, raises, exits or never ends.

    It gets copies of lists, dicts and arrays, to do with as it likes, unless ``copies`` is False. A
    generator's values come as a list, and a number of NumPy's as Python's own, unless ``plain`` is False.
    ``where`` says in the reply what it was called with, if the arguments are too long to print.
    While it runs, nothing may call the functions in ``without``. ``whole`` names the arguments from the first
    on, and each that has a name must be afterwards what it was; "" is for one that may change. ``endless`` is
    asked if it takes long.
    """
    if not callable(function):
        raise keep_working(f"pass in a function, not {quoted(function)}")
    where = where or f"called with ({', '.join(map(repr, arguments))})"
    if copies:
        arguments = tuple(deepcopy(one) if isinstance(one, COPIED) else one for one in arguments)
    before = [deepcopy(one) if name else None for name, one in zip(whole, arguments, strict=False)]
    try:
        with (
            time_limit(SECONDS),
            _exit_raises(),
            redirect_stdout(_Short(sys.stdout)),
            _not_using(without),
        ):
            said = function(*arguments)
            if plain and isinstance(said, Iterator):
                said = list(islice(said, MOST_STEPS + 1))
                if len(said) > MOST_STEPS:
                    raise keep_working(f"{where} it gives over {MOST_STEPS:,} values. When does it end?")
            repr(said)  # a reply may quote it
    except Reply:
        raise
    except TooLong as error:
        raise keep_working(f"{where} it {error}{_line(error)}. {endless}") from None
    except SystemExit:
        ends = "it calls exit(), which would end the notebook. What should it return?"
        raise keep_working(f"{where} {ends}") from None
    except Exception as error:
        raise keep_working(f"{where} it stopped: {stopped(error)}") from None
    for name, was, now in zip(whole, before, arguments, strict=False):
        if name and not alike(was, now):
            raise almost(f"{where} {name} is not what it was before. Who else may need it?")
    if plain and isinstance(said, np.number):
        return said.item()  # NumPy's small whole numbers overflow
    return said


def alike(one: Any, other: Any) -> bool:
    """Whether two values, with all that is in lists, tuples and dicts of them, are of a kind and equal."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and alike([*one.values()], [*other.values()])
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other


@contextmanager
def _not_using(functions: Collection[Callable]) -> Iterator[None]:
    """Meanwhile whoever calls one of these raises a Reply, under whatever name the student knows it."""
    codes = {function: getattr(function, "__code__") for function in functions}  # noqa: B009
    names = {(function.__module__, function.__qualname__) for function in functions}
    REFUSED.update(names)
    for function, code in codes.items():
        setattr(function, "__code__", _refused.__code__.replace(co_name=code.co_name))  # noqa: B010
    try:
        yield
    finally:
        REFUSED.difference_update(names)
        for function, code in codes.items():
            setattr(function, "__code__", code)  # noqa: B010


def _refused(*_: object, **__: object) -> None:
    """What stands in for a function; it sees that function's module, and nothing of this one."""
    import sys

    from gpipe_sim.course.reply import keep_working

    used = sys._getframe().f_code.co_name
    raise keep_working(f"it uses {used}. How do you do it without?")


def result_of(function: object, *arguments, where: str, **how: Any) -> object:
    """What ``called`` gives; raises a Reply to None too."""
    said = called(function, *arguments, where=where, **how)
    if said is None:
        raise keep_working(f"{where} {NOTHING_BACK}")
    return said


class Elsewhere(Exception):
    """What stopped a student's function that runs in another process, in the words of ``stopped``."""


def stopped(error: BaseException) -> str:
    """The error, the student's own line at which it came, and a question."""
    if isinstance(error, Elsewhere):
        return str(error)
    what = ": ".join(filter(None, [type(error).__name__, str(error)]))
    question = next((words for kind, words in QUESTIONS.items() if isinstance(error, kind)), "")
    line = _line(error)
    if not line and isinstance(error, TypeError):
        question = MISCALLED
    return f"{what}{line}. {question}" if question else what + line


def _line(error: BaseException) -> str:
    """The innermost of the student's own lines at which an error came, as the end of a sentence."""
    for frame, number in reversed(list(walk_tb(error.__traceback__))):
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if name in GIVEN or file.startswith(LIBRARIES):
            continue
        if line := linecache.getline(file, number).strip():
            return f", in your line{'' if file == KEPT else f' {number}'}: {line}"
    return ""


class _Short(io.TextIOBase):
    """Passes on the first of what is printed, and drops the rest: an endless loop may print."""

    def __init__(self, out: TextIO):
        self.out, self.left = out, MOST_PRINTED

    def write(self, text: str) -> int:
        self.out.write(text[: self.left])
        self.left = max(0, self.left - len(text))
        return len(text)


@contextmanager
def _exit_raises() -> Iterator[None]:
    """A notebook's own exit() ends it after the cell. Meanwhile it raises SystemExit, as Python's does."""
    names = vars(sys.modules["__main__"])
    own: dict[str, object] = {name: names[name] for name in ("exit", "quit") if name in names}
    names.update(dict.fromkeys(own, sys.exit))
    try:
        yield
    finally:
        names.update(own)
