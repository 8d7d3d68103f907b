"""The process that knows what is right: it has a lesson's check try functions that are in another process."""

import ast
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from gpipe_sim.classroom import inside
from gpipe_sim.classroom.peer import Gone, Peer
from gpipe_sim.course import called as calling
from gpipe_sim.course.called import Elsewhere
from gpipe_sim.course.limit import TooLong
from gpipe_sim.course.reply import Reply, keep_working

PACKAGE = Path(__file__).parents[1]
SECONDS = 15.0  #: for a call, and for a student's lines: on a busy machine most of it is waiting
IN_ALL = 90.0  #: seconds of all calls of a piece
LONGER = 3.0  #: seconds until a process that does not end by itself is ended
MEMORY = 1_500_000_000  #: bytes more than Python and NumPy take
PROCESSOR_SECONDS = 120  #: of one process


@dataclass(frozen=True)
class Limits:
    seconds: float = SECONDS
    memory: int = MEMORY
    hidden: tuple[str, ...] = ()  #: folders that no student's process sees


@dataclass
class Room:
    """A student's process, and what is known of it."""

    peer: "Teacher"
    found: dict[str, list[bool]] = field(default_factory=dict)  #: by name: is there, is a function
    failed: dict[str, str] = field(default_factory=dict)  #: by name: why its line stopped
    refused: list[str] = field(default_factory=list)  #: walls that the system does not have

    def value(self, name: str) -> Any:
        """A function that asks the other process; of anything else the value."""
        there, function = self.found[name]
        if not there:
            return None
        return self.peer.function(name) if function else self.peer.call(name, (), {})


@contextmanager
def room(
    lines: Sequence[str], names: Sequence[str], without: Sequence[str], limits: Limits, task: dict
) -> Iterator[Room]:
    """Run a student's lines in a process of their own, which ends with the block. RuntimeError if it dies.

    ``without`` are the names that the lessons' own answers leave out, ``task`` is what an exercise asks.
    """
    here, there = processes().Pipe()
    with tempfile.TemporaryDirectory() as own:
        job = {
            "lines": list(lines),
            "names": list(names),
            "lessons": _lessons(tuple(without)),
            "task": task,
            "seconds": limits.seconds,
            "memory": limits.memory,
            "processor_seconds": PROCESSOR_SECONDS,
            "hidden": list(limits.hidden),
            "own": own,
        }
        process = processes().Process(target=inside.main, args=(there, job), daemon=True)
        process.start()
        there.close()
        try:
            peer = Teacher(here, limits.seconds + LONGER)
            try:
                said = peer.receive()
            except Gone as gone:
                raise RuntimeError(f"running its lines, {gone}") from None
            yield Room(peer, *(said[name] for name in ("found", "failed", "refused")))
        finally:
            here.close()
            process.kill()
            process.join()


@cache
def processes() -> Any:
    """New processes begin as copies of one that has imported the library and seen no student."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([inside.__name__])
    return context


@cache
def _lessons(without: tuple[str, ...]) -> str:
    """The source of the lessons' answers, without those of these names."""
    text = ""
    for path in (PACKAGE / "course" / "answers.py", PACKAGE / "textbook.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        stays = [each for each in body if not _defines(each, without)]
        text += ast.unparse(ast.Module(stays, [])) + "\n"
    return text


def _defines(statement: ast.stmt, names: Sequence[str]) -> bool:
    if isinstance(statement, ast.ImportFrom):
        return statement.module == "gpipe_sim.textbook"
    if isinstance(statement, ast.Assign):
        return any(isinstance(each, ast.Name) and each.id in names for each in statement.targets)
    return getattr(statement, "name", "") in names


class Answer:
    """What a check may take for the student's function. A check may put something in its globals."""

    def __init__(self, teacher: "Teacher", name: str):
        self.teacher, self.__name__ = teacher, name
        self.__globals__: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"the function {self.__name__}"

    def __call__(self, *arguments: Any) -> Any:
        return self.teacher.call(self.__name__, arguments, self.__globals__)


class Teacher(Peer):
    """The end that asks, and believes nothing."""

    def __init__(self, connection: Any, patience: float):
        super().__init__(connection, copies=True, patience=patience)
        self.end = time.monotonic() + IN_ALL
        self.reply: Reply | None = None
        self.ended = ""

    def function(self, name: str) -> Answer:
        return Answer(self, name)

    def call(self, name: str, arguments: tuple, instead: dict) -> Any:
        """What ``name`` gives, while the student's own names have what is in ``instead``."""
        if self.ended:
            raise Elsewhere(self.ended)
        self.begin()
        self.reply = None
        if time.monotonic() > self.end:
            raise Elsewhere(f"all its calls together take over {IN_ALL:g} seconds")
        try:
            asked = {"call": name, "arguments": self.write(arguments), "globals": self.write(instead)}
            return self.ask(asked | {"without": sorted(calling.REFUSED)})
        except (Reply, Elsewhere, TooLong, SystemExit):
            raise
        except Gone as gone:
            self.ended = str(gone)
            raise Elsewhere(self.ended) from None
        except Exception as error:
            self.ended = f"it gives what nobody can read ({type(error).__name__})"
            raise Elsewhere(self.ended) from None

    def error(self, kind: str, arguments: tuple) -> BaseException:
        if self.reply:
            return self.reply
        text = str(arguments[0]) if arguments else ""
        made: dict[str, Callable[[str], BaseException]] = {
            "TooLong": TooLong,
            "SystemExit": SystemExit,
            "Reply": keep_working,
            "Stopped": Elsewhere,
        }
        return made[kind](text) if kind in made else super().error(kind, arguments)

    def failed(self, error: BaseException) -> None:
        if not isinstance(error, Reply):
            return super().failed(error)
        self.reply = error
        self.send({"raises": ["Halt", ["t"]], "state": []})
