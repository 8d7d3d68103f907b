"""Exercises beyond those of the lessons, with numbers by seed; their notebooks have a folder of their own.

Each has a module here: ``task(seed)`` says what is asked with these numbers, and ``check(answer, seed)``
replies as the checks of lessons do. A function is tried on sizes of other seeds too. Students' functions get
plain data and give plain data back: numbers, texts, lists, dicts, arrays.
"""

from importlib import import_module
from importlib.util import find_spec


def __getattr__(name: str):
    """Import an exercise when it is first used, so that ``exercises.gate`` just works."""
    if not name.startswith("_") and find_spec(f"{__name__}.{name}"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
