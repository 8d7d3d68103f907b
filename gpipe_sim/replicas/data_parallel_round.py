"""Data parallelism through the first device, as ``torch.nn.DataParallel`` does it, on its own timeline.

    device 0   scatter to 1, 2 | replicate to 1, 2 | gather from 1, 2 | scatter to 1, 2 | reduce from 1, 2
    device 1          -                  -        [F]     -                   -        [B]     -

Everything goes through device 0, one transfer at a time: more devices compute less each, and send it more.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real

from gpipe_sim.core.actions import Action, B, F
from gpipe_sim.core.cost_model import CostModel
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import Timeline, column_of
from gpipe_sim.errors import duration, require_few, whole
from gpipe_sim.links.collective import Collective, within_floats
from gpipe_sim.links.links import Links, link_between

SCATTER, REPLICATE, GATHER, REDUCE = "scatter", "replicate", "gather", "reduce"
MOST_DEVICES = 1_000


@dataclass(frozen=True)
class _Copies(Schedule):
    """The whole model on each device, which runs one microbatch: its share of the batch."""

    name = "nn.DataParallel"

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        return ((0,),) * self.devices

    def order(self, device: int) -> Iterator[Action]:
        yield F(0, device)
        yield B(0, device)


def data_parallel_round(
    devices: int,
    costs: CostModel | None = None,
    *,
    weights: Real,
    inputs: Real = 0,
    outputs: Real = 0,
    links: Links,
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
    schedule = _Copies(devices, devices)
    sizes = {"weights": weights, "inputs": inputs, "outputs": outputs}
    weights, inputs, outputs = (duration("data_parallel_round", *each) for each in sizes.items())
    plain = simulate(schedule, costs)
    return within_floats(schedule, lambda: _through_device_0(plain, _Port(links), weights, inputs, outputs))


def _through_device_0(plain: Timeline, port: "_Port", weights: Real, inputs: Real, outputs: Real) -> Timeline:
    """The round; how long each device computes is read off a timeline in which nothing is moved."""
    takes = ([span.end - span.start for span in row] for row in plain.rows)
    forward, backward = zip(*takes, strict=True)
    devices, others = len(forward), range(1, len(forward))
    there = {device: port.moves(SCATTER, 0, device, 0, inputs) for device in others}
    there = {device: port.moves(REPLICATE, 0, device, there[device], weights) for device in others}
    starts = [there.get(device, 0) for device in range(devices)]
    ends = [start + takes for start, takes in zip(starts, forward, strict=True)]
    for device in sorted(others, key=ends.__getitem__):
        port.moves(GATHER, device, 0, ends[device], outputs)
    loss = max(port.free, ends[0])
    back = {device: port.moves(SCATTER, 0, device, loss, outputs) for device in others}
    again = [back.get(device, loss) for device in range(devices)]
    done = [start + takes for start, takes in zip(again, backward, strict=True)]
    for device in sorted(others, key=done.__getitem__):
        port.moves(REDUCE, device, 0, done[device], weights)
    begin = column_of([time for both in zip(starts, again, strict=True) for time in both])
    end = column_of([time for both in zip(ends, done, strict=True) for time in both])
    return Timeline(plain.schedule, begin, end, collectives=tuple(port.moved))


class _Port:
    """Device 0's way to the others, which takes one transfer at a time."""

    def __init__(self, links: Links):
        self.links, self.free, self.moved = links, 0, []

    def moves(self, what: str, source: int, target: int, ready: Real, size: Real) -> Real:
        """When the transfer has arrived; the next one may start then."""
        link = link_between(self.links, source, target, "data_parallel_round")
        start = max(ready, self.free)
        self.free = start + link.busy(size) + link.latency
        self.moved.append(Collective(what, None, (source, target), start, self.free, size))
        return self.free
