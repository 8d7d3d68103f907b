"""Data parallelism: several copies of a pipeline, each with a share of the microbatches.

The copies exchange nothing during the step. A stage has a copy in each of them, and the gradients of these
are summed when its last backward has ended: see ``simulation.all_reduce`` for what that takes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gpipe_sim.errors import one_of, require_few, whole
from gpipe_sim.schedule.actions import Action, OverlapFB
from gpipe_sim.schedule.base import Schedule, require_schedule
from gpipe_sim.schedule.explicit import later
from gpipe_sim.schedule.rows import read_row

ADJACENT = ("stages", "replicas")


@dataclass(frozen=True, repr=False)
class Replicated(Schedule):
    """Copies of another schedule side by side. Made by ``replicate``."""

    inner: Schedule
    replicas: int
    adjacent: str

    @property
    def name(self) -> str:
        return f"{self.replicas} x {self.inner.name}"

    @property
    def stages_per_device(self) -> int:
        return self.inner.stages_per_device

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        inner = self.inner.placement
        return tuple(inner[self.place(device)[1]] for device in range(self.devices))

    def place(self, device: int) -> tuple[int, int]:
        """(replica, the device of ``inner`` that it copies)."""
        if self.adjacent == "stages":
            return divmod(device, self.inner.devices)
        return device % self.replicas, device // self.replicas

    def order(self, device: int) -> Iterator[Action | OverlapFB]:
        replica, copied = self.place(device)
        by = replica * self.inner.microbatches
        row = read_row(f"{self.inner!r}.order({copied})", self.inner.order(copied))
        return (later(action, by) for action in row)

    def __repr__(self) -> str:
        adjacent = "" if self.adjacent == ADJACENT[0] else f", adjacent={self.adjacent!r}"
        return f"replicate({self.inner!r}, {self.replicas}{adjacent})"


def replicate(schedule: Schedule, replicas: int, *, adjacent: str = "stages") -> Schedule:
    """So many copies of a pipeline, each with a share of the batch: data parallelism.

    It has ``replicas`` times the devices and the microbatches. Replica r runs the microbatches from r * M on,
    where M is the schedule's; each device of it holds a copy of its stages. ``train_step`` sums the gradients
    of the copies, so that they are those of one device.

    ``adjacent`` says how the devices are numbered, which matters on links that differ (``Nodes``): with
    "stages" replica r has the devices from r * K on, so that the stages of a pipeline are neighbours; with
    "replicas" the copies of a stage are, device k * replicas + r is device k of replica r. ValueError for
    less than 1 replica, TypeError for anything but a schedule and a whole number.
    """
    require_schedule("replicate", schedule)
    replicas = whole("replicate", "replicas", replicas)
    one_of("replicate", "adjacent", adjacent, ADJACENT)
    count = replicas * schedule.stages * schedule.microbatches
    require_few("replicate", count, "pairs of stage and microbatch")
    return Replicated(
        schedule.devices * replicas, schedule.microbatches * replicas, schedule, replicas, adjacent
    )
