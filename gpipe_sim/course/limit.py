"""A limit on time, and where the system tells it on memory, that ends a student's endless loop."""

import contextlib
import ctypes
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

if sys.platform != "win32":
    import resource

SECONDS = 20  #: generous: a slow answer may be right
AGAIN = 1  #: seconds until a loop that caught TooLong is stopped once more
LOOKS = 0.2  #: seconds between two looks at the memory: an endless loop that appends fills it in a few
BYTES = 2_000_000_000  #: how much more memory than before it may take
SOON = 0.005  #: and until it is tried again if the body was just being entered or left
ENTERS = (__file__, contextlib.__file__)  #: the code that does so, which TooLong would leave half done


class TooLong(BaseException):
    """The student's code is still running. No Exception, so that ``except Exception`` does not catch it."""


class TooLarge(TooLong):
    """It is still running, and has taken too much memory."""


@contextlib.contextmanager
def time_limit(seconds: float = SECONDS) -> Iterator[None]:
    """Raise TooLong in the thread that runs the body once the body has taken this long, or TooLarge before.

    Python raises it between two of its instructions, so a single long call into C ends before it.
    """
    thread, done = threading.get_ident(), threading.Event()
    start, before = time.monotonic(), _memory()

    def watch() -> None:
        wait = min(seconds, LOOKS)
        while not done.wait(wait):
            left = start + seconds - time.monotonic()
            large = _memory() - before > BYTES
            if left > 0 and not large:
                wait = min(left, LOOKS)
                continue
            in_body = _in_body(thread)
            if in_body:
                _raise_in(thread, TooLarge if large else TooLong)
            wait = AGAIN if in_body else SOON

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        _stop(watcher, done)


def _memory() -> int:
    """The bytes that this process has in memory, or the most that it has had; 0 where no system call says."""
    if sys.platform == "win32":
        return 0
    with contextlib.suppress(OSError):
        pages = Path("/proc/self/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


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
