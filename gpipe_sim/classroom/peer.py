"""One of two processes that call each other's functions, and give each other nothing but plain data.

What is not plain stays where it is. The other side has a ``Remote`` in its place, which asks for its methods.
With every message goes what is now in the lists, dicts, sets and arrays that both sides know and that have
changed, so a function may change what it was given.
"""

import builtins
import json
import pickle
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

from gpipe_sim.classroom.plain import MOST, Shared, Shelf, strange

ENDED = "its process has ended, as by exit(), or because it took too much memory or time"
OURS = ("gpipe_sim.course", "gpipe_sim.textbook", "gpipe_sim.classroom")


class Gone(Exception):
    """The other process has ended, or does not answer."""


class Halt(BaseException):
    """Ends the student's function: nobody waits for what it gives any more."""


class Remote:
    """An object that is in the other process."""

    def __init__(self, ask: Callable[..., Any], number: int, written: str):
        self._ask, self._number, self._written = ask, number, written

    def __repr__(self) -> str:
        return self._written

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._ask(name)


class RemoteFunction(Remote):
    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._ask("", arguments, named)


class Peer:
    """One end of a connection. ``copies`` says whether objects of the library are sent as copies."""

    def __init__(self, connection: Connection, *, copies: bool, patience: float | None = None):
        self.connection, self.copies, self.patience = connection, copies, patience
        self.begin()

    # ------------------------------------------------------------------ messages
    def send(self, message: dict) -> None:
        text = json.dumps(message).encode()
        if len(text) > MOST:
            text = json.dumps({"raises": ["MemoryError", ["t", f"over {MOST:,} bytes"]]}).encode()
        try:
            self.connection.send_bytes(text)
        except (OSError, ValueError) as error:
            raise Gone(ENDED) from error

    def receive(self) -> dict:
        try:
            if self.patience is not None and not self.connection.poll(self.patience):
                raise Gone("nothing that it catches ends it")
            return json.loads(self.connection.recv_bytes(2 * MOST))
        except (OSError, EOFError, ValueError) as error:
            raise Gone(ENDED) from error

    def ask(self, message: dict) -> Any:
        """What the other side answers; meanwhile it may ask in turn. Raises what it raises."""
        self.send(message | {"state": self.state()})
        while "ask" in (found := self.receive()):
            self.answer(found)
        return self.answered(found)

    def answered(self, found: dict) -> Any:
        """The value of an answer, once what changed with it is put in place; or raises what it says."""
        kind, value = found["raises"] if "raises" in found else ("", found.get("value"))
        value = self.read(value)
        self.put(found.get("state", []))
        if kind:
            raise self.error(kind, value)
        return value

    def error(self, kind: str, arguments: tuple) -> BaseException:
        if kind == "Halt":
            return Halt()
        of: Any = getattr(builtins, kind, None)
        fits = isinstance(of, type) and issubclass(of, Exception)
        return of(*arguments) if fits else RuntimeError(*arguments)

    def answer(self, found: dict) -> None:
        """Do what the other side asks, and send what comes of it."""
        thing, (arguments, named) = self.own[found["ask"]], self.read(found["arguments"])
        self.put(found.get("state", []))
        try:
            value = self.attribute(thing, found["name"]) if found["name"] else thing(*arguments, **named)
            self.send({"value": self.write(value), "state": self.state()})
        except Gone:
            raise
        except BaseException as error:
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        """Send what went wrong. KeyboardInterrupt is our own."""
        if not isinstance(error, Exception):
            raise error
        self.send({"raises": [type(error).__name__, self.write(error.args)], "state": self.state()})

    @staticmethod
    def attribute(thing: Any, name: str) -> Any:
        if name.startswith("_") or not name.isidentifier() or not is_object(thing):
            raise AttributeError(name)
        return getattr(thing, name)

    # ------------------------------------------------------------------ values
    def begin(self) -> None:
        """Forget what both sides know: another call begins."""
        self.shelf = Shelf()
        self.own: list[Any] = []
        self.theirs: dict[int, Remote] = {}

    def state(self) -> list:
        known = range(len(self.shelf.objects))
        return [[n, news] for n in known if (news := self.shelf.news(n, self._other)) is not None]

    def put(self, state: list) -> None:
        known = list(self.shelf.objects)
        for number, found in state:
            if isinstance(each := known[number], Shared):
                self.shelf.fill(each, found, self._other_read)
                self.shelf.news(number, self._other)

    def write(self, value: Any) -> Any:
        return self.shelf.write(value, self._other)

    def read(self, found: Any) -> Any:
        return self.shelf.read(found, self._other_read)

    def _other(self, value: Any) -> list:
        module = type(value).__module__
        if (
            is_dataclass(value)
            and not isinstance(value, type)
            and not callable(value)
            and module.startswith(OURS)
        ):
            return [
                "D",
                type(value).__name__,
                [[each.name, self.write(getattr(value, each.name))] for each in fields(value)],
            ]
        if self.copies and module.startswith("gpipe_sim.") and not module.startswith(OURS):
            return ["p", b64encode(pickle.dumps(value)).decode()]
        if isinstance(value, Remote):
            return ["y", value._number]  # yours
        if not (callable(value) or is_object(value)):
            return strange(value)
        number = next((n for n, each in enumerate(self.own) if each is value), len(self.own))
        self.own[number:] = self.own[number:] or [value]
        return ["h", number, callable(value), strange(value)[2]]

    def _other_read(self, found: list) -> Any:
        match found:
            case ["D", str(kind), list(named)]:
                return type(kind, (SimpleNamespace,), {})(**{name: self.read(each) for name, each in named})
            case ["p", str(data)] if not self.copies:  # from the process that knows what is right
                return pickle.loads(b64decode(data))
            case ["y", int(number)]:
                return self.own[number]
            case ["h", int(number), bool(function), str(written)]:
                made = RemoteFunction if function else Remote
                return self.theirs.setdefault(number, made(self._asks(number, self.own), number, written))
        raise ValueError(f"nothing is written as {str(found)[:40]}")

    def _asks(self, number: int, of: list) -> Callable[..., Any]:
        def ask(name: str, arguments: tuple = (), named: dict | None = None) -> Any:
            if of is not self.own:
                raise AttributeError("that was given to a call that is over")
            return self.ask({"ask": number, "name": name, "arguments": self.write((arguments, named or {}))})

        return ask


def is_object(value: Any) -> bool:
    """Whether it has methods that may be called from elsewhere: links, and what a student makes."""
    return type(value).__module__.startswith((*OURS, "handed_in", "my_pipeline"))
