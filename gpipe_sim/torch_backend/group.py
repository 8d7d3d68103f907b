"""The process group that the engine wants: torchrun's, or one of this process alone, on this machine."""

import atexit
import os
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

group_lock = threading.RLock()  #: held while this process has a group of its own


def world() -> int:
    """How many processes this one belongs to; under torchrun it joins them first."""
    if dist.is_torchelastic_launched() and int(os.environ["WORLD_SIZE"]) > 1 and not dist.is_initialized():
        with pinned_to_loopback():
            dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        atexit.register(_leave)
    with group_lock:  # or another thread's group may go between the two
        return dist.get_world_size() if dist.is_initialized() else 1


def _leave() -> None:
    if dist.is_initialized():  # the script may have left already
        dist.destroy_process_group()


@contextmanager
def some_group() -> Iterator[None]:
    """The engine wants a process group, even for one process that sends nothing. One thread at a time."""
    with group_lock:
        if dist.is_initialized():
            yield
            return
        hook = sys.excepthook
        with pinned_to_loopback():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        sys.excepthook = hook  # or every step wraps it once more, to say on which of one ranks it failed
        try:
            yield
        finally:
            dist.destroy_process_group()


def loopback() -> dict[str, str]:
    """What keeps gloo and NCCL on the network interface that no other machine sees, for ``os.environ``.

    Where there is none by a name that is known, it is empty, and a warning says so.
    """
    names = [name for _, name in socket.if_nameindex()]
    own = next((name for name in names if name.startswith("lo")), None)
    if own is None:
        warnings.warn(
            f"this machine has no network interface called lo (it has {names}): gloo and NCCL listen on one "
            "of their own choice, which others may see; GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME set it",
            stacklevel=2,
        )
        return {}
    return {"GLOO_SOCKET_IFNAME": own, "NCCL_SOCKET_IFNAME": own}


@contextmanager
def pinned_to_loopback() -> Iterator[None]:
    """Process groups that are made meanwhile stay on this machine, unless the environment says otherwise."""
    added = {name: value for name, value in loopback().items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
