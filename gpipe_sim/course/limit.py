"""A limit on time that ends an endless loop of a student's, on every system and in any thread."""

import contextlib
import ctypes
import sys
import threading
from collections.abc import Iterator

SECONDS = 20  #: generous: a slow answer may be right
AGAIN = 1  #: seconds until a loop that caught TooLong is stopped once more
SOON = 0.005  #: and until it is tried again if the body was just being entered or left
ENTERS = (__file__, contextlib.__file__)  #: the code that does so, which TooLong would leave half done


class TooLong(BaseException):
    """The student's code is still running. No Exception, so that ``except Exception`` does not catch it."""


@contextlib.contextmanager
def time_limit(seconds: float = SECONDS) -> Iterator[None]:
    """Raise TooLong in the thread that runs the body once the body has taken this long.

    Python raises it between two of its instructions, so a single long call into C ends before it.
    """
    thread, done = threading.get_ident(), threading.Event()

    def watch() -> None:
        wait = seconds
        while not done.wait(wait):
            in_body = _in_body(thread)
            if in_body:
                _raise_in(thread, TooLong)
            wait = AGAIN if in_body else SOON

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        _stop(watcher, done)


def _in_body(thread: int) -> bool:
    """Whether the thread is neither entering nor leaving the body: the watcher might go on for ever."""
    frame = sys._current_frames().get(thread)
    if frame is None or frame.f_code.co_filename in ENTERS:
        return False
    while frame and frame.f_code.co_filename != __file__:
        frame = frame.f_back
    return frame is None


def _stop(watcher: threading.Thread, done: threading.Event) -> None:
    """End the watcher, and take back what it may just have raised."""
    while True:
        try:
            done.set()
            watcher.join()
            _raise_in(threading.get_ident(), None)
            return
        except TooLong:  # it came while the body was ending
            continue


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), ctypes.py_object(error) if error else None
    )
