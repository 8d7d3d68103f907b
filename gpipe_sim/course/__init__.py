"""Predictions and exercises: what the lessons ask, and how they answer.

Each lesson's checks stand in a module of their own, ``lesson_01`` and so on. A check takes the student's
answer, tries it on sizes that the notebook does not show, and replies: "correct", "almost" (right idea,
wrong result) or "keep working". A reply names what is wrong in the student's own numbers and asks the
next question; it never gives the answer. Without an answer (None) it says what to do.
"""

from importlib import import_module

from gpipe_sim.course.reply import Reply, predict

__all__ = ["Reply", "predict"]


def __getattr__(name: str):
    """``course.lesson_04`` without importing it first."""
    if name.startswith("lesson_"):
        return import_module(f"gpipe_sim.course.{name}")
    raise AttributeError(f"module 'gpipe_sim.course' has no attribute {name!r}")
