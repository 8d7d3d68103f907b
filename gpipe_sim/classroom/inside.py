"""The process of one student and one piece: it runs their lines, and answers calls with plain data.

Of the lessons' own answers it has those that the student's lines may need, and never the one that is asked
for: the file in which that stands is hidden, and so is whatever checks it.
"""

import ast
import linecache
import os
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from inspect import unwrap
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

import numpy.testing  # noqa: F401  it imports what a student's lines may not

from gpipe_sim.classroom import locked
from gpipe_sim.classroom.peer import OURS, Halt, Peer
from gpipe_sim.course.called import KEPT, _line, _not_using, stopped
from gpipe_sim.course.limit import TooLong, time_limit
from gpipe_sim.course.reply import Reply

Names = dict[str, Any]
STAY = ("gpipe_sim.course.reply", "gpipe_sim.course.called", "gpipe_sim.course.limit")


class Nothing:
    """Stands for checks, predictions and pictures, none of which matter here."""

    def __getattr__(self, name: str) -> "Nothing":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: object, **__: object) -> "Nothing":
        return self

    def __iter__(self) -> Iterator:
        return iter(())

    def __repr__(self) -> str:
        return "nothing"


def main(connection: Connection, job: dict) -> None:
    """Run a student's lines, and then what is asked for; ends with the connection, and threads with it."""
    try:
        work(connection, job)
    finally:
        os._exit(0)


def work(connection: Connection, job: dict) -> None:
    quiet()
    locked.limited(job["processor_seconds"], job["memory"])
    refused = locked.apart(job["hidden"]) if job["hidden"] else []
    if job["hidden"] and "processes" not in refused and sys.platform == "linux":
        locked.forked()
    locked.powerless()
    folder = job["hidden"][0] if job["hidden"] and "folders" not in refused else job["own"]
    os.chdir(folder)
    names = lessons(job["lessons"], job["task"])
    locked.watched(folder)
    peer = Student(connection, names, job["seconds"])
    failed = run(job["lines"], names, job["seconds"])
    found = {name: [name in names, callable(names.get(name))] for name in job["names"]}
    peer.send({"found": found, "failed": failed, "refused": refused})
    peer.serve()


def quiet() -> None:
    """What a student prints goes nowhere; there is nothing to type."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


class Task(types.SimpleNamespace):
    """What an exercise asks, which prints as in its notebook."""

    def __init__(self, task: dict):
        super().__init__(**task.get("fields", {}))
        self._text = task.get("text", "")

    def __str__(self) -> str:
        return self._text


def lessons(source: str, task: dict) -> Names:
    """The names that a student's lines may use: the library, answers of other pieces, an exercise's task."""
    gp = import_module("gpipe_sim")
    course = types.ModuleType("gpipe_sim.course", "Not here: a file that is handed in is graded elsewhere.")
    mine = types.ModuleType("gpipe_sim.course.mine")
    names: Names = {"__name__": "handed_in", "gp": gp}
    for statement in ast.parse(source).body:
        with suppress(NameError):  # it needs what is asked for
            exec(compile(ast.Module([statement], []), "<the lessons>", "exec"), names)
    vars(mine).update({name: value for name, value in names.items() if not name.startswith("__")})
    nothing, exercises = Nothing(), Nothing()
    vars(exercises)["task"] = lambda *_: Task(task)
    vars(course).update(mine=mine, exercises=exercises, __getattr__=lambda name: nothing)
    for name in [
        name for name in sys.modules if name.startswith(("gpipe_sim.course", "gpipe_sim.classroom"))
    ]:
        if name not in STAY:
            del sys.modules[name]
    sys.modules |= {"gpipe_sim.course": course, "gpipe_sim.course.mine": mine, "gpipe_sim.textbook": mine}
    vars(gp)["course"] = course
    main = types.ModuleType("__main__")
    vars(main).update(names)
    sys.modules["__main__"] = main
    return vars(main) | {"__name__": "handed_in", "mine": mine}


def run(lines: list[str], names: Names, seconds: float) -> dict[str, str]:
    """Run statements; what is wrong with those that stop, by the names that they would define."""
    text = "\n\n".join(lines)
    linecache.cache[KEPT] = len(text), None, text.splitlines(keepends=True), KEPT
    failed: dict[str, str] = {}
    body = ast.parse(text).body
    try:
        with time_limit(seconds):
            for statement in body:
                try:
                    exec(compile(ast.Module([statement], []), KEPT, "exec"), names)
                except (TooLong, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    failed[bound(statement)] = said(error)
    except TooLong as error:
        failed[""] = f"it {error}"
    return failed


def bound(statement: ast.stmt) -> str:
    """The name that a statement defines."""
    stored = (
        each.id
        for each in ast.walk(statement)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    )
    return getattr(statement, "name", "") or next(stored, "")


def said(error: BaseException) -> str:
    try:
        return stopped(error)
    except Exception:
        return type(error).__name__


class Student(Peer):
    """The student's end: other processes get data from it."""

    def __init__(self, connection: Connection, names: Names, seconds: float):
        super().__init__(connection, copies=False)
        self.names, self.seconds = names, seconds
        self.given: list[dict] = []

    def serve(self) -> None:
        while True:
            asked = self.receive()
            if "ask" in asked:
                self.answer(asked)
                continue
            self.forget()
            function = self.names.get(asked["call"])
            arguments, instead = self.read(asked["arguments"]), self.read(asked["globals"])
            self.given = [each for each in self.shelf.objects if isinstance(each, dict)]
            self.put(asked["state"])
            seen = getattr(function, "__globals__", self.names)
            with patch.dict(seen, instead):
                kind, value = self.tried(function, arguments, refused(asked["without"], seen))
            answer = {"value": value} if not kind else {"raises": [kind, self.write((value,))]}
            self.send(answer | {"state": self.state()})

    def forget(self) -> None:
        """Another call begins. Who remembers a stage that was given to the last one finds nothing in it."""
        for each in self.given:
            each.clear()
        self.begin()

    def tried(self, function: Any, arguments: tuple, without: list[Callable]) -> tuple[str, Any]:
        """("", what it gives as it is written), or what it raises, and how a reply says that."""
        if not callable(function):
            return "", self.write(function)
        try:
            with time_limit(self.seconds), _not_using(without):
                return "", self.write(function(*arguments))
        except Halt:
            return "Halt", ""
        except Reply as reply:
            return "Reply", reply.text
        except TooLong as error:
            return "TooLong", f"{error}{_line(error)}"
        except SystemExit:
            return "SystemExit", ""
        except BaseException as error:
            return "Stopped", said(error)


def refused(without: list[list[str]], seen: Names) -> list[Callable]:
    """The functions that may not be called, under whatever name the student knows them."""
    found: list[Callable] = []
    for module, name in without:
        thing = seen.get(name)
        if module.startswith("gpipe_sim.") and not module.startswith(OURS):
            thing = import_module(module)
            for part in name.split("."):
                thing = getattr(thing, part, None)
        if isinstance(thing := unwrap(thing) if callable(thing) else None, types.FunctionType):
            found.append(thing)
    return found
