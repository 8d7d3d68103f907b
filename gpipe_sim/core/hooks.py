"""Where later chapters plug into the core, which imports none of them.

Some functions of the core can do more once a later chapter is there: ``simulate`` knows nothing of links, and
``train_step`` nothing of updates on the way, but each has a hook, which stands beside the function and says
what type of thing belongs there. The package's ``__init__``, its table of contents, says in ``HOOKS`` which
chapter fills which hook. The chapter is loaded when the hook is first used; if it was torn out, the hook says
so in one sentence.
"""

import sys
from functools import cached_property
from importlib import import_module
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class Hook(Generic[T]):
    """One thing that a later chapter adds; ``use`` is what asks for it, as a message says it.

    Without its chapter there is what stands ``instead``, if anything.
    """

    def __init__(self, name: str, use: str, instead: T | None = None):
        self.name, self.use, self.instead = name, use, instead

    @cached_property
    def filled(self) -> T:
        """The thing itself. ModuleNotFoundError, in one sentence, if its chapter is not there."""
        module, _, name = sys.modules["gpipe_sim"].HOOKS[self.name].partition(":")
        try:
            return getattr(import_module(f"gpipe_sim.{module}"), name)
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("gpipe_sim"):
                raise
            if self.instead is not None:
                return self.instead
            raise ModuleNotFoundError(f"{self.use} needs {error.name}, which is not here") from None


class Shown(Protocol):
    """A chart, as a notebook shows it."""

    def _repr_html_(self) -> str: ...
