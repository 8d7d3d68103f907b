"""Processes on this machine, one per device, that a notebook or a script can call.

A process is this Python with this path, so it can import whatever the caller can, but not what a notebook or
the script itself defines. Nothing listens on a fixed port: they meet through a file.
"""

import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from gpipe_sim.errors import whole
from gpipe_sim.torch_backend.places import CPU, device_named, require_own_gpus

GRACE = 1.0  #: seconds in which peers of a process that failed may still say what happened to them
_START = "from gpipe_sim.torch_backend.worker import main; main()"


class LocalProcesses:
    """``LocalProcesses(4)``: four CPU processes; ``LocalProcesses(["cuda:0", "cuda:1"])``: one for each GPU.

    Give it as ``devices=`` to ``train_step``, ``Pipeline`` or ``data_parallel_step``, as often as you like.
    They end with the ``with`` block, with ``close()``, with this object, or with this Python, whichever comes
    first. An error in one ends them all, and is raised here.
    """

    def __init__(self, devices: int | Sequence[str]):
        if isinstance(devices, Sequence) and not isinstance(devices, str):
            whole("LocalProcesses", "devices", len(devices))
            self.devices = [device_named(name) for name in devices]
        else:
            self.devices = [CPU] * whole("LocalProcesses", "devices", devices)
        require_own_gpus(self.devices)
        self.dropped: list[int] = []  # pipelines that are gone here and still there
        self._folder = Path(tempfile.mkdtemp(prefix="gpipe_sim_"))
        self._in_turn = threading.Lock()
        self._processes: list[subprocess.Popen] = []
        self._end = weakref.finalize(self, _end, os.getpid(), self._processes, self._folder)
        try:
            self._start()
            self._replies()
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

        The function must be importable: of a ``.py`` file, not of a notebook. What it raises is raised here.
        """
        return self.run_each(function, [args] * len(self))

    def run_each(self, function: Callable, arguments: Sequence[tuple]) -> list:
        """The same, with arguments for each rank."""
        orders = [_pickled((function, args)) for args in arguments]
        with self._in_turn:
            if not self._end.alive:  # in its turn: another thread's failure ends them
                raise RuntimeError("these processes have ended; LocalProcesses(...) starts new ones")
            try:
                for process, order in zip(self._processes, orders, strict=True):
                    _send(process, order)
                return self._replies()
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
            "PYTHONUNBUFFERED": "1",  # a process that dies has written what it printed
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
            "GLOO_SOCKET_IFNAME": _loopback(),
        }
        for rank, device in enumerate(self.devices):
            told = [str(rank), str(len(self)), str(device), str(self._folder)]
            with open(self._log(rank), "wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _START, *told],
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,  # an interrupt is for the caller, who then ends them
                )
            self._processes.append(process)

    def _replies(self) -> list:
        """One reply from each. If one fails, the others have a moment to say what they know."""
        with ThreadPoolExecutor(len(self)) as readers:
            replies = [readers.submit(_reply, process) for process in self._processes]
            try:
                waiting = set(replies)
                while waiting:
                    done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    if any(not reply.result().ok for reply in done):
                        wait(waiting, timeout=GRACE)
                        raise self._failure(replies)
            except BaseException:
                for process in self._processes:  # or the readers would wait for ever
                    process.kill()
                raise
        return [reply.result().value for reply in replies]

    def _failure(self, replies: list[Future]) -> BaseException:
        """What ended the run: a process that died, or else the error that came first."""
        failed = {
            rank: reply.result()
            for rank, reply in enumerate(replies)
            if reply.done() and not reply.result().ok
        }
        for rank, failure in failed.items():
            if failure.value is None:
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
        how = (
            f"was ended by signal {signal.Signals(-code).name}"
            if code < 0
            else f"ended with exit code {code}"
        )
        last = self._log(rank).read_text(errors="replace").strip().splitlines()[-20:]
        return "\n".join([how + ("; it last wrote:" if last else ""), *last])

    def _log(self, rank: int) -> Path:
        return self._folder / f"{rank}.log"


class Reply:
    """What a process answered: a value; an error, its traceback and when; or None, if it died."""

    def __init__(self, ok: bool, value: Any, at: float = 0):
        self.ok, self.value, self.time = ok, value, at


def _reply(process: subprocess.Popen) -> Reply:
    try:
        return Reply(*pickle.load(process.stdout))
    except (EOFError, OSError, pickle.UnpicklingError):
        return Reply(False, None)
    except ValueError:
        if not process.stdout.closed:
            raise
        return Reply(False, None)


def _send(process: subprocess.Popen, order: bytes) -> None:
    try:
        process.stdin.write(order)
        process.stdin.flush()
    except (OSError, ValueError):
        pass  # it died, or was closed: its reply will say so


def _pickled(order: tuple) -> bytes:
    try:
        return pickle.dumps(order)
    except Exception as error:  # pickle raises what it likes: PicklingError, AttributeError, TypeError
        error.add_note(
            "this has to be sent to another process: use modules and functions of a .py file, no lambda"
        )
        raise


def _end(owner: int, processes: list[subprocess.Popen], folder: Path) -> None:
    if os.getpid() != owner:  # a fork of the caller ends, and they are not its own
        return
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()
        process.stdin.close()
        process.stdout.close()
    shutil.rmtree(folder, ignore_errors=True)


def _loopback() -> str:
    """The name of this machine's own network interface, so that nothing depends on how the host is named."""
    names = [name for _, name in socket.if_nameindex()] if hasattr(socket, "if_nameindex") else []
    return next((name for name in names if name.startswith("lo")), os.environ.get("GLOO_SOCKET_IFNAME", ""))
