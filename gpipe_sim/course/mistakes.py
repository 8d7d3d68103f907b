"""A student's usual mistakes: an answer of ``answers`` with some of its words replaced."""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from gpipe_sim.course import answers

Swap = tuple[str, str]  #: words of an answer's source, and what stands there by mistake


@cache
def mistaken(answer: Callable, *swaps: Swap) -> Callable[..., Any]:
    """The answer with these words replaced, in it and in the answers that it calls."""
    source, names = "", dict(vars(answers))
    for name in (*answer.__code__.co_names, answer.__name__):
        if getattr(names.get(name), "__module__", "") == answers.__name__:
            source += inspect.getsource(names[name])
    for old, new in swaps:
        if old not in source:
            raise ValueError(f"{answer.__name__} has no {old!r}")
        source = source.replace(old, new)
    exec(source, names)
    return names[answer.__name__]


def recognized(answer: Callable, table: Mapping[str, tuple[Swap, ...]], same: Callable[..., bool]) -> str:
    """The question for the first mistake with which all is the ``same`` as the student's; or empty."""
    return next((asks for asks, swaps in table.items() if same(mistaken(answer, *swaps))), "")
