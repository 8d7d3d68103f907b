"""Who runs a pipeline: the processes of a group or a mesh, torchrun's, or this process alone."""

import atexit
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from gpipe_sim.core.schedule import Schedule
from gpipe_sim.errors import got
from gpipe_sim.replicas.replicate import SideBySide

_CHOICE = (
    "gloo and NCCL listen on one of their own choice, which others may see; GLOO_SOCKET_IFNAME and "
    "NCCL_SOCKET_IFNAME set it"
)
MEETINGS = 5  #: of which the quickest says most about clocks
group_lock = threading.RLock()  #: held while this process has a group of its own


def world() -> int:
    """How many processes this one belongs to; under torchrun it joins them first."""
    if dist.is_torchelastic_launched() and int(os.environ["WORLD_SIZE"]) > 1 and not dist.is_initialized():
        with kept_near():
            dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        # Last: gloo's threads let go of tensors while Python is still there, or they abort the process.
        atexit.register(time.sleep, 0.05)
        atexit.register(lambda: dist.is_initialized() and dist.destroy_process_group())
    with group_lock:  # or another thread's group may go between the two
        return dist.get_world_size() if dist.is_initialized() else 1


class Place(NamedTuple):
    """The processes that run a pipeline with this one, and those that hold its stages in other copies."""

    pipeline: dist.ProcessGroup
    copies: dist.ProcessGroup | None = None

    @property
    def device(self) -> int:
        return dist.get_rank(self.pipeline)

    @property
    def copy(self) -> int:
        return dist.get_rank(self.copies) if self.copies else 0

    @property
    def pipelines(self) -> int:
        return dist.get_world_size(self.copies) if self.copies else 1

    def from_all(self, own: Any) -> list:
        """What every process has of this: pipeline by pipeline, in the order of its devices."""
        found = _from(self.pipeline, own)
        return [one for part in _from(self.copies, found) for one in part] if self.copies else found

    def meet(self, device: torch.device) -> list[list[tuple[float, float]]]:
        """From when to when this process met those of its pipeline, several times; and those of copies."""
        return [
            [_met(group, device) for _ in range(MEETINGS)] for group in (self.pipeline, self.copies) if group
        ]


def _met(group: dist.ProcessGroup, device: torch.device) -> tuple[float, float]:
    began, token = time.perf_counter(), torch.zeros(1, device=device)
    dist.all_reduce(token, group=group)
    token.item()  # a GPU has it later than Python
    return began, time.perf_counter()


def _from(group: dist.ProcessGroup, own: Any) -> list:
    found = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, own, group)
    return found


def one_of_alike(schedule: Schedule) -> tuple[Schedule, int]:
    """What ``replicate`` made copies of, and how many; any other schedule is one of one."""
    if isinstance(schedule, SideBySide) and schedule.alike:
        return schedule.inners[0], len(schedule.inners)
    return schedule, 1


def place_in(group: dist.ProcessGroup | DeviceMesh | None, schedule: Schedule) -> Place:
    """Where this process is in a group, a mesh, or among all; ValueError unless the schedule fits."""
    inner, copies = one_of_alike(schedule)
    if group is not None and not isinstance(group, dist.ProcessGroup | DeviceMesh):
        raise TypeError(f"group is a process group, or a DeviceMesh with a dimension pp {got(group)}")
    mesh = group
    if group in (None, dist.group.WORLD) and copies > 1:
        _require(dist.group.WORLD, schedule, schedule.devices)
        neighbours = getattr(schedule, "adjacent", "stages")
        mesh = _mesh_of_all(dist.group.WORLD, copies, inner.devices, neighbours)
    if isinstance(mesh, DeviceMesh):
        found = _place_in_mesh(mesh)
    elif copies > 1:
        raise ValueError(f"{schedule!r} runs on a DeviceMesh with dimensions dp and pp {got(group)}")
    else:
        found = Place(mesh or dist.group.WORLD)
    _require(found.pipeline, inner, inner.devices)
    if copies > 1 and found.pipelines != copies:
        raise ValueError(
            f"{schedule!r} runs on a mesh of {copies} pipelines, but there are {found.pipelines}"
        )
    return found


@cache
def _mesh_of_all(world: dist.ProcessGroup, copies: int, devices: int, neighbours: str) -> DeviceMesh:
    """The mesh of a ``replicate`` on all processes; making groups takes connections, so it is kept."""
    names = {"dp": copies, "pp": devices}
    if neighbours == "replicas":
        names = {"pp": devices, "dp": copies}
    with kept_near():
        return init_device_mesh("cpu", tuple(names.values()), mesh_dim_names=tuple(names))


def _place_in_mesh(mesh: DeviceMesh) -> Place:
    names = mesh.mesh_dim_names or ()
    if "pp" not in names or len(names) > 2:
        raise ValueError(
            "a pipeline runs along the dimension pp of a mesh, and along one other there are copies of it: "
            'init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp")), or a part mesh["dp", "pp"] of a '
            f"larger one (got the dimensions {', '.join(names) or 'without names'})"
        )
    if mesh.get_coordinate() is None:
        raise ValueError(f"process {dist.get_rank()} is not in the mesh: it makes no Pipeline with it")
    return Place(mesh.get_group("pp"), *(mesh.get_group(name) for name in names if name != "pp"))


def _require(group: dist.ProcessGroup, schedule: Schedule, wanted: int) -> None:
    if dist.get_rank(group) < 0:
        raise ValueError(f"process {dist.get_rank()} is not in the group: it makes no Pipeline with it")
    if (count := dist.get_world_size(group)) != wanted:
        copies = f", or replicate(schedule, {count // wanted})" if count % wanted == 0 else ""
        raise ValueError(
            f"{schedule!r} runs on {wanted} processes, one per device, but there are {count}: "
            f"torchrun --nproc-per-node {wanted} ...{copies}"
        )


@contextmanager
def some_group() -> Iterator[None]:
    """The engine wants a process group, even for one process that sends nothing. One thread at a time."""
    with group_lock:
        if dist.is_initialized():
            yield
            return
        hook = sys.excepthook
        with kept_near():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        sys.excepthook = hook  # or every step wraps it once more, to say on which of one ranks it failed
        try:
            yield
        finally:
            dist.destroy_process_group()


@contextmanager
def kept_near() -> Iterator[None]:
    """Process groups that are made meanwhile stay on this machine if all processes do: on its loopback.

    Which that is torchrun says, and the environment may say otherwise; else it is torch's own choice.
    """
    near = not dist.is_initialized()  # what a script has made itself may be anywhere
    if dist.is_torchelastic_launched():
        near = os.environ["LOCAL_WORLD_SIZE"] == os.environ["WORLD_SIZE"]
    names = [name for _, name in socket.if_nameindex() if near and name.startswith("lo")]
    wanted = [name for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME") if name not in os.environ]
    if wanted and not names and os.environ.get("RANK", "0") == "0":
        where = "the processes may be on several machines"
        if near:
            where = "this machine has no network interface called lo"
        warnings.warn(f"{where}: {_CHOICE}", stacklevel=3)
    added = {name: names[0] for name in wanted if names}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
