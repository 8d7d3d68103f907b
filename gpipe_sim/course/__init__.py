"""The lessons' predictions and exercises, and the checks that reply to the student.

The checks of each lesson are in a module of their own, ``lesson_01`` and so on. A check takes the student's
answer, tries it on sizes that the notebook does not show, and replies: "correct", "almost" (right idea,
wrong result) or "keep working". The reply says what is wrong in the student's own numbers and asks the next
question; it never gives the answer. If there is no answer yet (None), it says what to do. A reply is raised
as soon as something is wrong, however deep in the check, and the check gives it back.
"""

from importlib import import_module
from importlib.util import find_spec

from gpipe_sim.course import mine
from gpipe_sim.course.build import grade
from gpipe_sim.course.guarded import guard
from gpipe_sim.course.printed import wide
from gpipe_sim.course.progress import bring_back, download
from gpipe_sim.course.puzzle import puzzle
from gpipe_sim.course.reply import Reply
from gpipe_sim.course.reveal import reveal

__all__ = ["Reply", "bring_back", "download", "grade", "mine", "puzzle", "reveal", "wide"]

guard()


def __getattr__(name: str):
    """Import a lesson's module when it is first used, so that ``course.lesson_04`` just works."""
    if name.startswith(("lesson_", "exercises")) and find_spec(f"gpipe_sim.course.{name}"):
        return import_module(f"gpipe_sim.course.{name}")
    raise AttributeError(f"module 'gpipe_sim.course' has no attribute {name!r}")
