"""What a student's process may not do.

Three walls, each for what the others let through:

- The system's limits on time, memory, open files and the size of a file.
- Where the system allows it (Linux, with user namespaces): no network, no sight of other processes, and an
  empty folder of a megabyte in place of each folder that is to be hidden.
- Python's own audit hook, on every system: no files but the libraries' and its own folder's, no processes, no
  network, no machine code. It stops accidents and plain tricks. Who breaks Python itself gets past it.
"""

import ctypes
import os
import signal
import sys
import sysconfig
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

NEW_NETWORK, NEW_PROCESSES, NEW_USER, NEW_MOUNTS = 0x40000000, 0x20000000, 0x10000000, 0x00020000
PRIVATE, RECURSIVE = 1 << 18, 1 << 14
END_WITH_PARENT = 1  #: as prctl has it
READABLE = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
PACKAGE = str(Path(__file__).parents[1])
REFUSED: tuple[str, ...] = (
    "subprocess.",
    "socket.",
    "ctypes.",
    "signal.",
    "webbrowser.",
    "winreg.",
    "syslog.",
    "pty.",
)
REFUSED += ("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.startfile", "os.kill")
REFUSED += ("sys.addaudithook", "sys._getframe_", "gc.")
PATHS: tuple[str, ...] = (
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.utime",
)
PATHS += ("os.chmod", "os.chown", "os.listdir", "os.scandir", "os.chdir", "os.setxattr", "os.removexattr")


#: Modules that start programs, or open files and memory, without a word to the hook; then what makes such.
MODULES = {
    *("subprocess", "_posixsubprocess", "_winapi", "pty", "multiprocessing", "_multiprocessing"),
    *("ctypes", "_ctypes", "cffi", "_cffi_backend", "_testcapi", "msvcrt", "fcntl", "termios", "mmap"),
    *("_posixshmem", "sqlite3", "_sqlite3", "dbm", "_dbm", "_gdbm", "readline", "zmq"),
}
MAKERS = ("mkfifo", "mknod", "memfd_create", "eventfd", "pidfd_open", "setns", "unshare", "sendfile")


def limited(seconds: int, memory: int) -> None:
    """Processor seconds, and bytes of memory more than now."""
    if sys.platform == "win32":
        return
    import resource

    limits = {"RLIMIT_CPU": seconds, "RLIMIT_FSIZE": 1_000_000, "RLIMIT_CORE": 0, "RLIMIT_NOFILE": 256}
    if sys.platform == "linux":
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limits["RLIMIT_AS"] = now + memory
    for name, limit in limits.items():
        with suppress(ValueError, OSError):
            resource.setrlimit(getattr(resource, name), (limit, limit))


def apart(hidden: Sequence[str]) -> list[str]:
    """Leave the network and other processes behind, and hide folders; what of it the system refuses."""
    if sys.platform != "linux":
        return ["network", "processes", "folders"]
    libc, refused = ctypes.CDLL(None, use_errno=True), []
    root = os.getuid() == 0
    if not root and libc.unshare(NEW_USER):
        return ["network", "processes", "folders"]
    for flag, what in ((NEW_NETWORK, "network"), (NEW_PROCESSES, "processes")):
        if libc.unshare(flag):
            refused.append(what)
    if libc.unshare(NEW_MOUNTS) or libc.mount(b"none", b"/", None, PRIVATE | RECURSIVE, None):
        return [*refused, "folders"]
    for folder in hidden:
        if libc.mount(b"none", folder.encode(), b"tmpfs", 0, b"size=1m"):
            refused.append("folders")
    return refused


def forked() -> None:
    """Go on in a child, which is the first process that sees nobody else; wait for it and end as it does.

    It ends when its parent is ended.
    """
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGKILL)


def powerless() -> None:
    """Give up what root may do beyond its own files, such as to take a folder's cover off again."""
    if sys.platform == "linux":
        version, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        ctypes.CDLL(None).capset(version, nothing)


def watched(own: str) -> None:
    """From here on Python refuses what ``REFUSED`` names, and all files but the libraries' and ``own``."""
    for name in MAKERS:
        for module in {os, sys.modules[os.name]}:
            vars(module).pop(name, None)
    for name in [name for name in sys.modules if name.partition(".")[0] in MODULES]:
        vars(sys.modules.pop(name)).pop("_fork_exec", None)
    sys.addaudithook(_hook(os.path.realpath(own)))


def _hook(own: str) -> Callable[[str, tuple], None]:
    refused, paths, realpath = REFUSED, PATHS, os.path.realpath
    closed: tuple[str, ...] = (os.path.join(PACKAGE, "course"), os.path.join(PACKAGE, "textbook.py"))
    closed += tuple(os.path.join(PACKAGE, name) for name in ("classroom", "notebooks", "data/measured"))
    readable = (*map(realpath, READABLE), PACKAGE, os.devnull, "/usr/share/zoneinfo")
    cached = os.path.join(PACKAGE, "__pycache__", "textbook.")
    inside = (own, own + os.sep)
    written = ("w", "a", "x", "+")
    flags_of_writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

    def hook(event: str, arguments: tuple) -> None:
        if event.startswith(refused):
            raise PermissionError(f"a file that is handed in may not use {event}")
        if event == "import" and str(arguments[0]).partition(".")[0] in MODULES:
            raise ImportError(f"a file that is handed in may not import {arguments[0]}")
        if event != "open" and event not in paths:
            return
        path = arguments[0]
        if path is None or isinstance(path, int):
            return
        where = realpath(os.fsdecode(path))
        if where == own or where.startswith(inside[1]):
            return
        mode, flags = (arguments[1] or "", arguments[2] or 0) if event == "open" else ("w", 0)
        writes = any(letter in mode for letter in written) or flags & flags_of_writing
        if event in ("os.listdir", "os.scandir"):
            writes = False
        if writes and where != os.devnull:
            raise PermissionError(f"a file that is handed in may not write {where}")
        if where.startswith((*closed, cached)) or not where.startswith(readable):
            raise PermissionError(f"a file that is handed in may not read {where}")

    return hook
