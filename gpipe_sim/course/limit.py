"""A limit on time, and where the system tells it on memory, that ends a student's endless loop.

An alarm of the system's looks at the body again and again. Windows has none, nor has a thread other than the
first, in which no notebook runs its cells: there the notebook's own stop button is what is left.
"""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

if sys.platform != "win32":
    import resource

SECONDS = 20  #: generous: a slow answer may be right
LOOKS = 0.2  #: seconds between two looks: an endless loop that appends fills the memory in a few
AGAIN = 1  #: seconds until a loop that caught TooLong is stopped once more
BYTES = 2_000_000_000  #: how much more memory than before it may take


class TooLong(BaseException):
    """What the student's code does. No Exception, so that ``except Exception`` does not catch it."""


@contextlib.contextmanager
def time_limit(seconds: float = SECONDS) -> Iterator[None]:
    """Raise TooLong in the body once it has taken this long, or too much memory; again if it goes on.

    Python raises it between two of its instructions, so a single long call into C ends before it.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    end, before = time.monotonic() + seconds, _memory()

    def look(_: int, frame: FrameType | None) -> None:
        nonlocal end
        large = _memory() - before > BYTES
        if (large or time.monotonic() >= end) and _in_body(frame):
            end = time.monotonic() + AGAIN
            still = f"was still running after {seconds} seconds"
            raise TooLong("takes more and more memory" if large else still)

    handler = signal.signal(signal.SIGALRM, look)
    often = min(seconds, LOOKS)
    timer = signal.setitimer(signal.ITIMER_REAL, often, often)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def _in_body(frame: FrameType | None) -> bool:
    """Whether this is neither entering nor leaving the body, nor looking: that would be left half done."""
    if frame is None or frame.f_code.co_filename == contextlib.__file__:
        return False
    while frame and frame.f_code.co_filename != __file__:
        frame = frame.f_back
    return frame is None


def _memory() -> int:
    """The bytes that this process has in memory, or the most that it has had; 0 where no system call says."""
    if sys.platform == "win32":
        return 0
    with contextlib.suppress(OSError):
        pages = Path("/proc/self/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most
