"""Read the rows that a student's function gives: a list for each device, of tuples such as (0, "F", 0)."""

from collections.abc import Iterator
from numbers import Integral

from gpipe_sim.course.called import called
from gpipe_sim.course.reply import Reply, keep_working

A_LIST = "Later lessons read it more than once, as a list. How do you make one?"
MOST = 16  #: actions of a row that a reply quotes
Step = tuple[int, str, int]  #: an action of a student's: stage, kind, microbatch


def spelled(action: Step) -> str:
    """(2, "F", 0) as ``2F0``."""
    return "".join(map(str, action))


def row_in_words(row: list[Step]) -> str:
    """A row's actions one after the other; of a long row only the first ones."""
    more = " ..." if len(row) > MOST else ""
    return " ".join(map(spelled, row[:MOST])) + more if row else "empty"


def given(function: object, *arguments: object, where: str, copies: bool = True) -> tuple[object] | Reply:
    """What a student's function returns, alone in a tuple, where ``called`` would read out a generator."""
    if not callable(function):
        return called(function)
    return called(lambda *each: (function(*each),), *arguments, where=where, copies=copies)


def rows_from(function: object, devices: int, *arguments: object, kinds: str = "FB") -> list | Reply:
    """The rows that ``function(devices, *arguments)`` gives, in plain Python; a Reply if they are no rows."""
    where = f"called with ({', '.join(map(repr, (devices, *arguments)))})"
    got = given(function, devices, *arguments, where=where)
    return got if isinstance(got, Reply) else read_rows(got[0], devices, where, kinds)


def read_rows(got: object, devices: int, where: str, kinds: str = "FB") -> list | Reply:
    """What a student's function gave, as rows of (int, str, int); a Reply if it is anything else."""
    if got is None:
        return keep_working(f"{where} it gives nothing back. What should come after return?")
    if isinstance(got, Iterator | tuple):
        return keep_working(f"{where} it gives a {type(got).__name__}. {A_LIST}")
    if not isinstance(got, list):
        return keep_working(f"{where} it gives {got!r}. What stands in a list with a row for each device?")
    if len(got) != devices:
        return keep_working(f"{where} it gives a list of {len(got)}. How many devices want a row?")
    for k, row in enumerate(got):
        if not isinstance(row, list):
            return keep_working(
                f"{where}, the row of device {k} is {row!r}. What would a list of actions be?"
            )
        if others := [each for each in row if not is_action(each, kinds)]:
            return keep_working(
                f"{where}, the row of device {k} has {others[0]!r}. "
                'How is 0F0 written as a tuple of stage, kind, microbatch: (0, "F", 0)?'
            )
    return [[(int(s), str(kind), int(m)) for s, kind, m in row] for row in got]


def is_action(each: object, kinds: str = "FB") -> bool:
    """Whether it is a tuple of a whole number, one of the letters, and a whole number."""
    if not isinstance(each, tuple) or len(each) != 3:
        return False
    s, kind, m = each
    whole = all(isinstance(one, Integral) and not isinstance(one, bool) for one in (s, m))
    return whole and isinstance(kind, str) and kind in tuple(kinds)
