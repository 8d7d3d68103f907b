"""What a local process does: meet the others, then call what it is told to call, until its input ends."""

import gc
import os
import pickle
import select
import sys
import threading
import time
import traceback
from pathlib import Path

import torch
import torch.distributed as dist


def main() -> None:
    rank, count, device, folder = int(sys.argv[1]), int(sys.argv[2]), torch.device(sys.argv[3]), sys.argv[4]
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what user code prints goes to the log, not between the replies
    orders = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # what user code reads is not what it is ordered
    threading.Thread(target=_leave_with_the_caller, args=[orders], daemon=True).start()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    gc.freeze()  # or every full collection looks through all of torch again, in the middle of a step
    _answer(replies, _meet, (rank, count, device, folder))
    while True:
        try:
            function, args = pickle.load(orders)
        except EOFError:
            return
        except Exception as error:
            error.add_note("processes cannot see what a notebook or script defines: put it in a .py file")
            _answer(replies, _fail, (error,))
            continue
        _answer(replies, function, args)


def _leave_with_the_caller(orders) -> None:
    """End this process once nobody can give it orders any more, whatever it is waiting for."""
    hangup = select.poll()
    hangup.register(orders, 0)
    hangup.poll()
    os._exit(0)


def _meet(rank: int, count: int, device: torch.device, folder: str) -> None:
    backend = "nccl" if device.type == "cuda" else "gloo"
    store = dist.FileStore(str(Path(folder) / "meet"), count)  # init_method="file://..." hangs on a space
    dist.init_process_group(backend, store=store, rank=rank, world_size=count)


def _fail(error: Exception) -> None:
    raise error


def _answer(replies, function, args: tuple) -> None:
    """Call, and reply with the result or with the error; an error that cannot travel goes as text."""
    try:
        reply = pickle.dumps((True, function(*args)))
    except Exception as error:
        trace = traceback.format_exc()
        reply = _pickled_failure(error, trace)
    replies.write(reply)
    replies.flush()


def _pickled_failure(error: Exception, trace: str) -> bytes:
    try:
        reply = pickle.dumps((False, (error, trace), time.monotonic()))
        pickle.loads(reply)
    except Exception:
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        return pickle.dumps((False, (plain, trace), time.monotonic()))
    return reply
