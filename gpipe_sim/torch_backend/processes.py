"""Processes on this machine, one per device, that a notebook or a script can call.

A process is this Python with this path: it can import whatever the caller can, and what a notebook or script
defines is sent along. Nothing listens on a fixed port: they meet through a file.
"""

import math
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from gpipe_sim.errors import got, number, whole
from gpipe_sim.torch_backend.group import loopback
from gpipe_sim.torch_backend.modules import CPU, device_named, require_own_gpus
from gpipe_sim.torch_backend.shared import Reader, cloudpickle, explained
from gpipe_sim.torch_backend.worker import STARTING, Told

GRACE = 1.0  #: seconds in which peers of a process that failed may still say what happened to them
_START = "from gpipe_sim.torch_backend.worker import main; main()"
#: Told of every process; ends them all, and removes the folder, once the caller has ended, however it did.
_GUARD = 'while read pid; do pids="$pids $pid"; done; kill -9 $pids; rm -rf "$0"'
_LINES = 20  #: of what a process last wrote, in an error about it


class LocalProcesses:
    """``LocalProcesses(4)``: four CPU processes; ``LocalProcesses(["cuda:0", "cuda:1"])``: one for each GPU.

    Give it as ``devices=`` to ``train_step`` or ``Pipeline``, as often as you like. They end with the
    ``with`` block, with ``close()``, with this object, or with this Python, whichever comes first. An error
    in one ends them all, and is raised here. What one prints is printed here, after the call.

    A call that takes longer than ``timeout`` seconds is a TimeoutError, which names who has not answered and
    what it was doing, and ends them all; ``timeout=math.inf`` waits for ever.

    Before a step all numbers of the modules are copied to where the processes see them, and after it
    gradients and buffers come back. No timeline shows that; ``step.moved`` says how long it took. What a
    forward leaves in other attributes, such as a counter, stays in its process.
    """

    def __init__(self, devices: int | Sequence[str], *, timeout: float = 600):
        if isinstance(devices, Sequence) and not isinstance(devices, str):
            whole("LocalProcesses", "devices", len(devices))
            self.devices = [device_named(name) for name in devices]
        else:
            self.devices = [CPU] * whole("LocalProcesses", "devices", devices)
        require_own_gpus(self.devices)
        if not number("LocalProcesses", "timeout", timeout) > 0:
            raise ValueError(f"LocalProcesses needs timeout > 0, in seconds {got(timeout)}")
        self.timeout = float(timeout)
        self.dropped: list[int] = []  # pipelines that are gone here and still there
        self.folder = Path(tempfile.mkdtemp(prefix="gpipe_sim_"))
        self._in_turn = threading.Lock()
        self._processes: list[_Piped] = []
        self._printed = [0] * len(self.devices)  # bytes of each
        self._pool = ThreadPoolExecutor(len(self))  # a thread to talk to each
        self._guard = _Piped(["sh", "-c", _GUARD, str(self.folder)])
        self._owner = os.getpid()
        ending = self._owner, self._guard, self._processes, self._pool, self.folder
        self._end = weakref.finalize(self, _end, *ending)
        _ALL.add(self)
        try:
            self._start()
            self._replies([b""] * len(self), max(self.timeout, STARTING))
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self.devices)

    def __repr__(self) -> str:
        return f"LocalProcesses({len(self)})" if self._end.alive else "LocalProcesses(closed)"

    def __enter__(self) -> "LocalProcesses":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """End the processes; a second time does nothing."""
        self._end()

    def run(self, function: Callable, *args: Any) -> list:
        """``function(*args)`` on each process, within a process group of all: one result per rank.

        What it raises is raised here.
        """
        return self.run_each(function, [args] * len(self))

    def run_each(self, function: Callable, arguments: Sequence[tuple]) -> list:
        """The same, with arguments for each rank; for fewer ranks, on the first so many."""
        if os.getpid() != self._owner:
            raise RuntimeError(
                "a fork cannot use the processes of its parent; LocalProcesses(...) starts its own"
            )
        orders = [explained(cloudpickle.dumps, (function, args)) for args in arguments]
        with self._in_turn:
            if not self._end.alive:  # in its turn: another thread's failure ends them
                raise RuntimeError("these processes have ended; LocalProcesses(...) starts new ones")
            try:
                return self._replies(orders, self.timeout)
            except BaseException:
                self.close()
                raise

    def forgotten(self) -> tuple[int, ...]:
        """The pipelines that are gone since the last call."""
        return tuple(self.dropped.pop() for _ in range(len(self.dropped)))

    def _start(self) -> None:
        threads = max(1, (os.cpu_count() or 1) // len(self))
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(str(path or os.getcwd()) for path in sys.path),
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
            **loopback(),
        }
        for told in map(self._told, range(len(self))):
            with open(told.file("log"), "wb") as log:
                process = _Piped([sys.executable, "-P", "-c", _START, *map(str, told)], log, environment)
            _tell(self._guard, b"%d\n" % process.pid)
            self._processes.append(process)

    def _told(self, rank: int) -> Told:
        return Told(rank, len(self), str(self.devices[rank]), self.folder, self.timeout)

    def _replies(self, orders: Sequence[bytes], timeout: float) -> list:
        """One reply to each order. If one fails, the others have a moment to say what they know."""
        until = time.monotonic() + timeout
        replies = [self._pool.submit(_ask, *one) for one in zip(self._processes, orders, strict=False)]
        try:
            waiting = set(replies)
            while waiting:
                left = None if math.isinf(until) else max(0, until - time.monotonic())
                done, waiting = wait(waiting, timeout=left, return_when=FIRST_COMPLETED)
                if time.monotonic() >= until and any(map(_silent, replies)):
                    raise self._overdue(replies, timeout)
                if any(not reply.result().ok for reply in done):
                    wait(waiting, timeout=GRACE)
                    raise self._failure(replies)
        finally:
            self._show()
        return [reply.result().value for reply in replies]

    def _show(self) -> None:
        """Print here what the user's modules printed in the processes since the last time."""
        for rank, before in enumerate(self._printed):
            fresh = self._read(rank, "out", before)
            self._printed[rank] += len(fresh)
            for line in fresh.decode(errors="replace").splitlines():
                print(f"process {rank}: {line}")

    def _overdue(self, replies: list[Future], timeout: float) -> TimeoutError:
        """Who has not answered, and what each was doing. A moment later all have written where they are."""
        silent = [rank for rank, reply in enumerate(replies) if _silent(reply)]
        doing = {rank: self._text(rank, "doing").strip() for rank in silent}
        busy = {rank: action for rank, action in doing.items() if action}
        wait(replies, timeout=GRACE)
        says = [f"process {rank} is in {action}" for rank, action in busy.items()]
        if waiting := [str(rank) for rank in silent if rank not in busy]:
            says.append(f"of process {', '.join(waiting)} nothing is known but that it has not answered")
            if busy:
                says[-1] = f"process {', '.join(waiting)} waits for messages, or is between two actions"
        error = TimeoutError(f"no answer within {timeout:g} seconds: {'; '.join(says)}")
        for rank in busy or silent:
            error.add_note(f"process {rank}, the most recent call first:{self._where(rank)}")
        return error

    def _where(self, rank: int) -> str:
        """Where its main thread was, as it wrote when its time was over."""
        *_, last = self._text(rank, "log").split("Thread 0x")
        return "\n".join(["", *last.splitlines()[1 : 1 + _LINES]])

    def _failure(self, replies: list[Future]) -> BaseException:
        """What ended the run: a process that died, or else the error that came first."""
        failed = {
            rank: reply.result()
            for rank, reply in enumerate(replies)
            if reply.done() and not reply.result().ok
        }
        for rank, failure in failed.items():
            if failure is NOTHING:
                return RuntimeError(f"process {rank} of {len(self)} {self._death(rank)}")
        rank, first = min(failed.items(), key=lambda item: item[1].time)
        error, trace = first.value
        error.add_note(f"on process {rank} of {len(self)}:\n{trace}")
        return error

    def _death(self, rank: int) -> str:
        process = self._processes[rank]
        if not self._end.alive:
            return "was ended by close()"
        try:
            code = process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        how = f"ended with exit code {code}"
        if code < 0:
            how = f"was ended by signal {signal.Signals(-code).name}"
        last = [*self._text(rank, "log").splitlines(), *self._text(rank, "out").splitlines()][-_LINES:]
        return "\n".join([how + ("; it last wrote:" if last else ""), *last])

    def _text(self, rank: int, kind: str) -> str:
        return self._read(rank, kind).decode(errors="replace")

    def _read(self, rank: int, kind: str, start: int = 0) -> bytes:
        """What a process has written to a file of its own, from this byte on."""
        try:
            with open(self._told(rank).file(kind), "rb") as file:
                file.seek(start)
                return file.read()
        except OSError:  # it has not begun, or is closed
            return b""


_ALL: weakref.WeakSet[LocalProcesses] = weakref.WeakSet()


def _let_go() -> None:
    """In a fork: the guards wait for the end of the caller, not of the fork."""
    for processes in _ALL:
        processes._guard.stdin.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


class _Piped(subprocess.Popen):
    """A process that reads orders. It has its own session: an interrupt is for the caller, who ends it."""

    stdin: IO[bytes]
    stdout: IO[bytes]

    def __init__(self, command: list[str], log: Any = subprocess.DEVNULL, env: dict | None = None):
        pipe = subprocess.PIPE
        super().__init__(command, env=env, stdin=pipe, stdout=pipe, stderr=log, start_new_session=True)


def _tell(process: _Piped, order: bytes) -> None:
    process.stdin.write(order)
    process.stdin.flush()


class Reply(NamedTuple):
    """What a process answered: a value; or an error with its traceback, and when."""

    ok: bool
    value: Any
    time: float = 0


NOTHING = Reply(False, None)  #: of a process that died


def _silent(reply: Future) -> bool:
    """Whether nothing was heard of a process, or no more than its end: those who are late end themselves."""
    return not reply.done() or reply.result() is NOTHING


def _ask(process: _Piped, order: bytes) -> Reply:
    """Give it an order, unless it is to say that it has started, and read its reply."""
    with suppress(OSError, ValueError):  # it died, or was closed: its reply will say so
        _tell(process, order)
    try:
        return Reply(*Reader(process.stdout).load())
    except (EOFError, OSError, pickle.UnpicklingError):
        return NOTHING
    except ValueError:
        if not process.stdout.closed:
            raise
        return NOTHING


def _end(
    owner: int,
    guard: _Piped,
    processes: list[_Piped],
    pool: ThreadPoolExecutor,
    folder: Path,
) -> None:
    if os.getpid() != owner:  # a fork of the caller ends, and they are not its own
        return
    for process in (guard, *processes):
        process.kill()
    pool.shutdown()  # what its threads read has ended
    for process in (guard, *processes):
        process.wait()
        process.stdout.close()
        with suppress(OSError):  # of what it did not read any more
            process.stdin.close()
    shutil.rmtree(folder, ignore_errors=True)
