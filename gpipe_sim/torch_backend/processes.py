"""Processes on this machine, one per device, that a notebook or a script can call.

A process is this Python with this path: it can import whatever the caller can, and what a notebook or script
defines is sent along. Nothing listens on a fixed port: they meet through a file.
"""

import io
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from gpipe_sim.errors import got, number, whole
from gpipe_sim.torch_backend.modules import CPU, device_named, require_own_gpus
from gpipe_sim.torch_backend.sending import Reader, cloudpickle, explained
from gpipe_sim.torch_backend.worker import Reply, meet

STARTING = 120  #: seconds in which processes start and meet, at most
GRACE = 1.0  #: seconds in which peers of a process that failed may still say what happened to them
NOTHING = Reply(False, None)  #: of a process that died
_START = "from gpipe_sim.torch_backend.worker import main; main()"
_IDLE = "has not answered, and is in no action: it waits for messages, or is on its way"
_LINES = 20  #: of what a process last wrote, in an error about it


class LocalProcesses(AbstractContextManager):
    """``LocalProcesses(4)``: four CPU processes; ``LocalProcesses(["cuda:0", "cuda:1"])``: one for each GPU.

    Give it as ``devices=`` to ``train_step`` or ``Pipeline``, as often as you like. They end with the
    ``with`` block, with ``close()``, with this object, or with this Python, whichever comes first. An error
    in one ends them all, and is raised here. What one prints is printed here, after the call.

    A call that takes longer than ``timeout`` seconds is a TimeoutError, which names who has not answered and
    what it was doing, and ends them all; ``timeout=math.inf`` waits for ever.

    Before a step all numbers of the modules are sent to the processes, and after it gradients and buffers
    come back. No timeline shows that; ``step.moved`` says how long it took, which for a large model is long:
    there, use torchrun. What a forward leaves in other attributes, such as a counter, stays in its process,
    until that runs another pipeline or one that has changed.
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
        self.built: object = None  # what the processes have of which pipeline
        self.folder = Path(tempfile.mkdtemp(prefix="gpipe_sim_"))
        self._in_turn = threading.Lock()
        self._processes: list[subprocess.Popen] = []
        self._ends: list[Connection] = []
        self._printed = [0] * len(self)  # bytes of each
        self._owner = os.getpid()
        self._end = weakref.finalize(self, _end, self._owner, self._processes, self.folder)
        try:
            self._start()
            told = [(rank, len(self), home, self.folder) for rank, home in enumerate(self.devices)]
            self._replies([cloudpickle.dumps((meet, one)) for one in told], max(self.timeout, STARTING))
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self.devices)

    def __repr__(self) -> str:
        return f"LocalProcesses({len(self)})" if self._end.alive else "LocalProcesses(closed)"

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
        orders = [explained(cloudpickle.dumps, (function, args)) for args in arguments]
        with self._in_turn:
            if os.getpid() != self._owner or not self._end.alive:  # another thread's failure ends them
                raise RuntimeError(
                    "these processes have ended, or are a parent's; LocalProcesses(...) starts new ones"
                )
            try:
                return self._replies(orders, self.timeout)
            except BaseException:
                self.close()
                raise

    def _start(self) -> None:
        path = os.pathsep.join(str(path or os.getcwd()) for path in sys.path)
        for rank in range(len(self)):
            mine, its = Pipe()
            self._ends.append(mine)
            told = map(str, (its.fileno(), self.folder, self._owner))
            with open(self.folder / f"{rank}.log", "wb") as log, its:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _START, *told],
                    env=os.environ | {"PYTHONPATH": path},
                    pass_fds=[its.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # an interrupt is for the caller, who ends it
                )
            self._processes.append(process)

    def _replies(self, orders: Sequence[bytes], timeout: float) -> list:
        """One reply to each order. If one fails, the others have a moment to say what they know."""
        latest = until = time.monotonic() + timeout
        waiting: dict[Any, int] = {self._ends[rank]: rank for rank in range(len(orders))}
        replies: dict[int, Reply] = {}
        try:
            for end, order in zip(self._ends, orders, strict=False):
                with suppress(OSError):  # it died: its reply will say so
                    end.send((timeout, order))
            while waiting and (left := until - time.monotonic()) > 0:
                for ready in wait(list(waiting), None if math.isinf(left) else left):
                    reply = _received(self._ends[rank := waiting.pop(ready)])
                    replies[rank] = reply
                    if not reply.ok:
                        until = min(until, time.monotonic() + GRACE)
            lost = [rank for rank in range(len(orders)) if replies.get(rank, NOTHING) is NOTHING]
            errors = {rank: reply for rank, reply in replies.items() if not reply.ok and rank not in lost}
            if lost and time.monotonic() >= latest and not errors:
                raise self._overdue(lost, timeout)
            if died := [rank for rank in lost if rank in replies]:
                raise RuntimeError(f"process {died[0]} of {len(self)} {self._death(died[0])}")
            if errors:
                rank, first = min(errors.items(), key=lambda item: item[1].time)
                error, trace = first.value
                error.add_note(f"on process {rank} of {len(self)}:\n{trace}")
                raise error
        finally:
            self._show()
        return [replies[rank].value for rank in sorted(replies)]

    def _show(self) -> None:
        """Print here what the user's modules printed in the processes since the last time."""
        for rank, before in enumerate(self._printed):
            lines = self._lines(rank, "out")
            self._printed[rank] = len(lines)
            for line in lines[before:]:
                print(f"process {rank}: {line}")

    def _overdue(self, silent: Sequence[int], timeout: float) -> TimeoutError:
        """Who has not answered, and what each was doing. A moment later all have written where they are."""
        doing = {rank: "".join(self._lines(rank, "doing")).strip() for rank in silent}
        says = [f"process {rank} {f'is in {doing[rank]}' if doing[rank] else _IDLE}" for rank in silent]
        error = TimeoutError(f"no answer within {timeout:g} seconds: {'; '.join(says)}")
        for rank in [rank for rank in silent if doing[rank]] or silent:
            with suppress(subprocess.TimeoutExpired):
                self._processes[rank].wait(GRACE)
            log = self._lines(rank, "log")
            main = max((i for i, line in enumerate(log) if "Thread 0x" in line), default=-1) + 1
            where = "\n".join(["", *log[main : main + _LINES]])
            error.add_note(f"process {rank}, the most recent call first:{where}")
        return error

    def _death(self, rank: int) -> str:
        if not self._end.alive:
            return "was ended by close()"
        code = self._processes[rank].wait(GRACE)
        how = f"ended with exit code {code}"
        if code < 0:
            how = f"was ended by signal {signal.Signals(-code).name}"
        last = [*self._lines(rank, "log"), *self._lines(rank, "out")][-_LINES:]
        return "\n".join([how + ("; it last wrote:" if last else ""), *last])

    def _lines(self, rank: int, kind: str) -> list[str]:
        """What a process has written: "log" below Python, "out" of what is printed, "doing"."""
        with suppress(OSError):  # it has not begun, or is closed
            return (self.folder / f"{rank}.{kind}").read_text(errors="replace").splitlines()
        return []


def _received(end: Connection) -> Reply:
    try:
        return Reader(io.BytesIO(end.recv_bytes())).load()
    except (EOFError, OSError):
        return NOTHING


def _end(owner: int, processes: list[subprocess.Popen], folder: Path) -> None:
    if os.getpid() != owner:  # a fork of the caller ends, and they are not its own
        return
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)
