"""The small jobs of lesson 18: their plans, by simulation, and what one may count by mistake."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gpipe_sim.core.bubbles import peak_in_flight
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.simulate import simulate
from gpipe_sim.families import OneFOneB
from gpipe_sim.planning.space import divisors


@dataclass(frozen=True)
class Job:
    """What is given. Of one sample a layer's forward takes 1, and its backward 2."""

    devices: int
    layers: int  #: all alike
    samples: int  #: in a batch
    startup: float  #: of each action
    latency: float  #: of a link
    bandwidth: float  #: bytes in a unit of time
    gradients: int  #: bytes of a layer
    weights: int  #: bytes of a layer, with its gradients and what the optimizer keeps
    saved: int  #: bytes that a layer keeps of a sample
    room: float  #: bytes of a device


class Plan(NamedTuple):
    """A plan: how long its step takes, what its first device holds, and its sizes."""

    time: float
    held: float
    K: int
    R: int
    M: int


def number_of_plans(job: Job) -> int:
    """All sizes, whether they fit or not."""
    return sum(1 for _ in sizes(job))


def sizes(job: Job) -> Iterator[tuple[int, int, int]]:
    """(K, R, M) of every plan, whether it fits or not."""
    for k in divisors(job.devices):
        r = job.devices // k
        if job.layers % k == 0 and job.samples % r == 0:
            yield from ((k, r, m) for m in divisors(job.samples // r))


def simulated(job: Job, k: int, r: int, m: int) -> Plan:
    layers, samples = job.layers // k, job.samples // (r * m)
    schedule = OneFOneB(k, m)
    work = layers * samples
    step = simulate(schedule, Costs(work, work, work, overhead=job.startup)).makespan
    turn = job.latency + layers * job.gradients / r / job.bandwidth
    flying = peak_in_flight(schedule)[0]
    held = layers * job.weights + flying * layers * samples * job.saved
    return Plan(step + 2 * (r - 1) * turn, held, k, r, m)


def mistaken_times(job: Job, k: int, r: int, m: int) -> dict[str, float]:
    """Times that one may give by mistake, by the question that each is asked."""
    layers, samples, slots = job.layers / k, job.samples / (r * m), m + k - 1
    rounds, sent = 2 * (r - 1), job.gradients / r / job.bandwidth
    pipeline, ring = slots * (2 * job.startup + 3 * samples * layers), rounds * (job.latency + layers * sent)
    return {
        "Where is the sum of the gradients?": pipeline,
        "How many rounds does a ring have?": pipeline + ring / 2,
        "That is a ring for each stage. How many of them come after the last backward?": pipeline + k * ring,
        "How many bytes are a piece in a ring of R?": pipeline + rounds * (job.latency + layers * r * sent),
        "Whose gradients go around in that ring: those of a stage, or of the model?": (
            pipeline + rounds * (job.latency + job.layers * sent)
        ),
        "How many layers has a stage, and how many of them have gradients?": (
            pipeline + rounds * (job.latency + sent)
        ),
        "What does each round of the ring pay, however few bytes it moves?": pipeline
        + rounds * layers * sent,
        "What does starting an action cost?": 3 * slots * samples * layers + ring,
        "A forward and a backward: how many actions have to be started?": pipeline
        - slots * job.startup
        + ring,
        "A forward and a backward: how many actions have to be started? B is one.": (
            pipeline + slots * job.startup + ring
        ),
        "How long does a backward of one sample take?": 2 * slots * (job.startup + samples * layers) + ring,
        "How long is 1F1B with M = 1, on K devices?": pipeline * m / slots + ring,
        "How many slots does 1F1B take on K devices? Try K = 1.": pipeline * (m + k) / slots + ring,
        "How many layers are in a stage?": slots * (2 * job.startup + 3 * samples * job.layers) + ring,
        "How many samples are in a microbatch of one copy?": (
            slots * (2 * job.startup + 3 * r * samples * layers) + ring
        ),
    }


def mistaken_bytes(job: Job, k: int, r: int, m: int) -> dict[str, float]:
    """Bytes that one may give by mistake, by the question that each is asked."""
    layers, sample, weights = job.layers / k, job.samples / (r * m) * job.saved, job.layers / k * job.weights
    flying = min(k, m)
    held = layers * flying * sample
    return {
        "That is GPipe. How many microbatches does the first device of 1F1B hold at once?": (
            weights + layers * m * sample
        ),
        "How many microbatches are in flight on the first device if M is smaller than K?": (
            weights + layers * k * sample
        ),
        "That is one microbatch. How many are in flight on the first device?": weights + layers * sample,
        "Where are the activations?": weights,
        "Where are the weights?": held,
        "How many layers does each device keep?": k * (weights + held),
        "Whose activations are these: of a stage, or of all layers?": weights + k * held,
        "How many layers of a stage keep something?": weights + flying * sample,
        "How many samples are in a microbatch of one copy?": weights + r * held,
        "How many samples are in a microbatch?": weights + layers * flying * job.saved,
        "The weights are counted with their gradients already. What else did you add?": (
            weights + layers * job.gradients + held
        ),
    }


#: What one may overlook in a bound, by the question that each is asked.
OVERLOOKED: dict[str, dict[str, float]] = {
    "What does starting an action cost?": {"starts": 0},
    "A forward and a backward of each microbatch: how many actions does a device start?": {"starts": 1},
    "Who waits in the beginning, and for what?": {"place": 0},
    "That is the wait of the last device. How long does a device wait on average?": {"place": 1},
    "Is a link in the way of the first microbatch, too?": {"hop": 0},
    "Where is the sum of the gradients?": {"ring": 0},
    "How many rounds does a ring have?": {"ring": 1},
    "Whose gradients are in a ring at the least, whatever the cut: those of a layer, or of a stage?": {
        "whole": 1
    },
}


def least(
    job: Job, starts: float = 2, place: float = 1 / 2, hop: float = 1, ring: float = 2, whole: float = 0
) -> float:
    """A time that no plan takes less than; the arguments are pieces that one can get wrong."""
    return min(
        3 * job.samples * job.layers / job.devices
        + starts * m * job.startup
        + place * (k - 1) * (job.samples / (r * m) + job.startup + hop * job.latency)
        + ring * (r - 1) * (job.latency + (job.layers // k) ** whole * job.gradients / r / job.bandwidth)
        for k, r, m in sizes(job)
    )
