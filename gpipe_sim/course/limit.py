"""A limit on time that ends an endless loop of a student's, on every system and in any thread."""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 20  #: generous: a slow answer may be right
AGAIN = 1  #: seconds until a loop that caught TooLong is stopped once more


class TooLong(BaseException):
    """The student's code is still running. No Exception, so that ``except Exception`` does not catch it."""


@contextmanager
def time_limit(seconds: float = SECONDS) -> Iterator[None]:
    """Raise TooLong in the thread that runs the body once the body has taken this long.

    Python raises it between two of its instructions, so a single long call into C ends before it.
    """
    thread, done = threading.get_ident(), threading.Event()

    def watch() -> None:
        wait = seconds
        while not done.wait(wait):
            _raise_in(thread, TooLong)
            wait = AGAIN

    watcher = threading.Thread(target=watch, daemon=True)
    try:
        watcher.start()
        yield
    finally:
        while watcher:  # TooLong may come on the way into _stop
            try:
                watcher = _stop(watcher, done)
            except TooLong:
                continue


def _stop(watcher: threading.Thread, done: threading.Event) -> None:
    """End the watcher, and take back what it may just have raised."""
    done.set()
    watcher.join()
    _raise_in(threading.get_ident(), None)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), ctypes.py_object(error) if error else None
    )
