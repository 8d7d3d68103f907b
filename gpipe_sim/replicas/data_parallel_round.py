"""Data parallelism through the first device, as ``torch.nn.DataParallel`` does it, on its own timeline.

    device 0   scatter to 1, 2 | replicate to 1, 2 | gather from 1, 2 | scatter to 1, 2 | reduce from 1, 2
    device 1          -                  -        [F]     -                   -        [B]     -

Everything goes through device 0, one transfer at a time: more devices compute less each, and send it more.
"""

from collections.abc import Sequence

from gpipe_sim.core.cost_model import CostModel
from gpipe_sim.core.gpipe import GPipe
from gpipe_sim.core.simulate import simulate, within_floats
from gpipe_sim.core.timeline import Timeline, column_of
from gpipe_sim.errors import Real, duration, require_few, whole
from gpipe_sim.links.collective import Collective
from gpipe_sim.links.links import Links, link_between
from gpipe_sim.replicas.replicate import replicate

SCATTER, REPLICATE, GATHER, REDUCE = "scatter", "replicate", "gather", "reduce"
MOST_DEVICES = 1_000


def data_parallel_round(
    devices: int,
    costs: CostModel | None = None,
    *,
    weights: "Real",
    inputs: "Real" = 0,
    outputs: "Real" = 0,
    links: "Links",
) -> Timeline:
    """One step of nn.DataParallel: scatter, replicate, compute, gather, and the gradients back.

    Device 0 sends each other device its share of the inputs, then a copy of the weights. Their outputs come
    back to it, where the loss is; it sends each the gradient of its outputs, and at the end their gradients
    of the weights are added up there. ``weights`` are the bytes of the model; ``inputs`` and ``outputs``
    those of one device's share, and ``costs`` are what that share takes. ``links`` are those of ``simulate``.

    Assumed: device 0 takes part in one transfer at a time, lower devices first where several are ready; a
    device computes as soon as it has what it needs; loss, sums and the update take no time. It is the best
    case: PyTorch's threads wait for each other in between.

    ``timeline.collectives`` has each transfer, with the bytes of it. ValueError or TypeError for what are no
    sizes, costs or links, and for more than 1,000 devices. PyTorch's documentation of
    ``torch.nn.DataParallel``, and Li et al. 2020, "PyTorch Distributed", arXiv:2006.15704.
    """
    devices = whole("data_parallel_round", "devices", devices)
    require_few("data_parallel_round", devices, "devices", most=MOST_DEVICES)
    schedule = replicate(GPipe(1, 1), devices)
    sizes = {"weights": weights, "inputs": inputs, "outputs": outputs}
    weights, inputs, outputs = (duration("data_parallel_round", *each) for each in sizes.items())
    alone = simulate(schedule, costs)
    return within_floats(schedule, lambda: _through_device_0(alone, _Port(links), weights, inputs, outputs))


def _through_device_0(alone: Timeline, port: "_Port", weights: Real, inputs: Real, outputs: Real) -> Timeline:
    """The round; how long each device computes is read off a timeline in which nothing is moved."""
    forward, backward = zip(*([span.end - span.start for span in row] for row in alone.rows), strict=True)
    port.hand_out(SCATTER, inputs, 0, len(forward))
    there = port.hand_out(REPLICATE, weights, 0, len(forward))
    made = [start + takes for start, takes in zip(there, forward, strict=True)]
    port.collect(GATHER, outputs, made)
    loss = max(port.free, made[0])
    back = port.hand_out(SCATTER, outputs, loss, len(forward))
    done = [start + takes for start, takes in zip(back, backward, strict=True)]
    port.collect(REDUCE, weights, done)
    start, end = (
        column_of([time for both in zip(*each, strict=True) for time in both])
        for each in ((there, back), (made, done))
    )
    # a Protocol cannot say that the attributes of ``Together`` are only read
    return Timeline(alone.schedule, start, end, collectives=tuple(port.moved))  # type: ignore[arg-type]


class _Port:
    """Device 0's way to the others, which takes one transfer at a time."""

    def __init__(self, links: Links):
        self.links = links
        self.free: Real = 0
        self.moved: list[Collective] = []

    def hand_out(self, what: str, size: Real, ready: Real, devices: int) -> list[Real]:
        """When each device has its own; device 0 had it at once."""
        return [ready, *(self._move(what, 0, device, ready, size) for device in range(1, devices))]

    def collect(self, what: str, size: Real, ready: Sequence[Real]) -> None:
        """What each device has made goes to device 0, that of the first ready first."""
        for device in sorted(range(1, len(ready)), key=ready.__getitem__):
            self._move(what, device, 0, ready[device], size)

    def _move(self, what: str, source: int, target: int, ready: Real, size: Real) -> Real:
        """When the transfer has arrived; the next one may start then."""
        link = link_between(self.links, source, target, "data_parallel_round")
        start = max(ready, self.free)
        self.free = start + link.busy(size) + link.latency
        self.moved.append(Collective(what, None, (source, target), start, self.free, size))
        return self.free
