"""In a folder with a handout a notebook's own lines do not import the lessons' answers.

It stops an accident: an editor that completes an import, a search that leads there. It cannot stop who means
to look, because the package has the answers in it: ``mine.clock`` is one until the student's own has passed.
"""

import builtins
from pathlib import Path
from types import ModuleType
from typing import Any

MARK = "handout.json"
ANSWERS = ("gpipe_sim.textbook", "gpipe_sim.course.answers", "gpipe_sim.course.questions")


def guard() -> None:
    """Have this process refuse, if it was started in a handout's folder."""
    if Path(MARK).exists() and not hasattr(builtins.__import__, "guards"):
        builtins.__import__ = _guarded(builtins.__import__)


def _guarded(usual: Any) -> Any:
    def guarded(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> ModuleType:
        asked = {name, *(f"{name}.{each}" for each in fromlist or ())}
        if (globals or {}).get("__name__") == "__main__" and asked & {*ANSWERS}:
            raise ImportError(
                f"{', '.join(asked & {*ANSWERS})} has the answers, and this handout is without them. What a "
                "lesson needs of earlier ones is in gp.course.mine"
            )
        return usual(name, globals, locals, fromlist, level)

    guarded.guards = True  # type: ignore[attr-defined]
    return guarded
