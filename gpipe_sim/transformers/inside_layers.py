"""What exists while a layer runs that is made of layers: they say it, and a meter or a profile listens.

Between two layers of a stage everyone can look. Between two layers of a layer only that layer can:

    with alive(x, kept):        these are there until the end of the block; kept may grow
        ...
        look_inside(y)          now there are these, what passes on, and what the layers around it hold

Nobody listens unless asked to, and then it costs nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_listeners: list[Callable[[Any], None]] = []
_alive: list[Any] = []


@contextmanager
def listening(listener: Callable[[Any], None]) -> Iterator[None]:
    """Call ``listener`` with everything that is there, nested as it is, whenever a layer looks inside."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.pop()


@contextmanager
def alive(*values: Any) -> Iterator[None]:
    """These stay until the end of the block."""
    _alive.append(values)
    try:
        yield
    finally:
        _alive.pop()


def look_inside(*passes: Any) -> None:
    """Tell whoever listens what is there now: these, and all that is alive."""
    if _listeners:
        _listeners[-1]((*_alive, passes))
