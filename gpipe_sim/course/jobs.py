"""The small jobs of lesson 16: their plans, by simulation, and what one may count by mistake."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gpipe_sim.core.bubbles import peak_in_flight
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.simulate import simulate
from gpipe_sim.families import OneFOneB


class Job(NamedTuple):
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


def divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def simulated(job: Job, k: int, r: int, m: int) -> Plan:
    layers, samples = job.layers // k, job.samples // (r * m)
    schedule = OneFOneB(k, m)
    work = layers * samples
    step = simulate(schedule, Costs(work, work, work, overhead=job.startup)).makespan
    turn = job.latency + layers * job.gradients / r / job.bandwidth
    flying = peak_in_flight(schedule)[0]
    held = layers * job.weights + flying * layers * samples * job.saved
    return Plan(step + 2 * (r - 1) * turn, held, k, r, m)


Formula = Callable[[Job, int, int, int], float]


def _layers(job: Job, k: int) -> float:
    return job.layers / k


def _samples(job: Job, r: int, m: int) -> float:
    return job.samples / (r * m)


def _pipeline(job: Job, k: int, r: int, m: int) -> float:
    return (m + k - 1) * (2 * job.startup + 3 * _samples(job, r, m) * _layers(job, k))


def _ring(job: Job, k: int, r: int) -> float:
    return 2 * (r - 1) * (job.latency + _layers(job, k) * job.gradients / r / job.bandwidth)


#: Times that one may give by mistake, and the question that each is asked.
TIMES: dict[str, Formula] = {
    "Where is the sum of the gradients?": _pipeline,
    "How many rounds does a ring have?": lambda j, k, r, m: _pipeline(j, k, r, m) + _ring(j, k, r) / 2,
    "That is a ring for each stage. How many of them come after the last backward?": (
        lambda j, k, r, m: _pipeline(j, k, r, m) + k * _ring(j, k, r)
    ),
    "How many bytes are a piece in a ring of R?": (
        lambda j, k, r, m: (
            _pipeline(j, k, r, m) + 2 * (r - 1) * (j.latency + _layers(j, k) * j.gradients / j.bandwidth)
        )
    ),
    "Whose gradients go around in that ring: those of a stage, or of the model?": (
        lambda j, k, r, m: (
            _pipeline(j, k, r, m) + 2 * (r - 1) * (j.latency + j.layers * j.gradients / r / j.bandwidth)
        )
    ),
    "How many layers has a stage, and how many of them have gradients?": (
        lambda j, k, r, m: _pipeline(j, k, r, m) + 2 * (r - 1) * (j.latency + j.gradients / r / j.bandwidth)
    ),
    "What does each round of the ring pay, however few bytes it moves?": (
        lambda j, k, r, m: _pipeline(j, k, r, m) + 2 * (r - 1) * _layers(j, k) * j.gradients / r / j.bandwidth
    ),
    "What does starting an action cost?": (
        lambda j, k, r, m: 3 * (m + k - 1) * _samples(j, r, m) * _layers(j, k) + _ring(j, k, r)
    ),
    "A forward and a backward: how many actions have to be started?": (
        lambda j, k, r, m: _pipeline(j, k, r, m) - (m + k - 1) * j.startup + _ring(j, k, r)
    ),
    "A forward and a backward: how many actions have to be started? B is one.": (
        lambda j, k, r, m: _pipeline(j, k, r, m) + (m + k - 1) * j.startup + _ring(j, k, r)
    ),
    "How long does a backward of one sample take?": (
        lambda j, k, r, m: 2 * (m + k - 1) * (j.startup + _samples(j, r, m) * _layers(j, k)) + _ring(j, k, r)
    ),
    "How long is 1F1B with M = 1, on K devices?": (
        lambda j, k, r, m: _pipeline(j, k, r, m) * m / (m + k - 1) + _ring(j, k, r)
    ),
    "How many slots does 1F1B take on K devices? Try K = 1.": (
        lambda j, k, r, m: _pipeline(j, k, r, m) * (m + k) / (m + k - 1) + _ring(j, k, r)
    ),
    "How many layers are in a stage?": (
        lambda j, k, r, m: (m + k - 1) * (2 * j.startup + 3 * _samples(j, r, m) * j.layers) + _ring(j, k, r)
    ),
    "How many samples are in a microbatch of one copy?": (
        lambda j, k, r, m: _pipeline(j, k, 1, m) + _ring(j, k, r)
    ),
}
#: Bytes that one may give by mistake, and the question that each is asked.
BYTES: dict[str, Formula] = {
    "That is GPipe. How many microbatches does the first device of 1F1B hold at once?": (
        lambda j, k, r, m: _layers(j, k) * (j.weights + m * _samples(j, r, m) * j.saved)
    ),
    "How many microbatches are in flight on the first device if M is smaller than K?": (
        lambda j, k, r, m: _layers(j, k) * (j.weights + k * _samples(j, r, m) * j.saved)
    ),
    "That is one microbatch. How many are in flight on the first device?": (
        lambda j, k, r, m: _layers(j, k) * (j.weights + _samples(j, r, m) * j.saved)
    ),
    "Where are the activations?": lambda j, k, r, m: _layers(j, k) * j.weights,
    "Where are the weights?": lambda j, k, r, m: _layers(j, k) * min(k, m) * _samples(j, r, m) * j.saved,
    "How many layers does each device keep?": (
        lambda j, k, r, m: j.layers * (j.weights + min(k, m) * _samples(j, r, m) * j.saved)
    ),
    "Whose activations are these: of a stage, or of all layers?": (
        lambda j, k, r, m: _layers(j, k) * j.weights + j.layers * min(k, m) * _samples(j, r, m) * j.saved
    ),
    "How many layers of a stage keep something?": (
        lambda j, k, r, m: _layers(j, k) * j.weights + min(k, m) * _samples(j, r, m) * j.saved
    ),
    "How many samples are in a microbatch of one copy?": (
        lambda j, k, r, m: _layers(j, k) * (j.weights + min(k, m) * _samples(j, 1, m) * j.saved)
    ),
    "How many samples are in a microbatch?": (
        lambda j, k, r, m: _layers(j, k) * (j.weights + min(k, m) * j.saved)
    ),
    "The weights are counted with their gradients already. What else did you add?": (
        lambda j, k, r, m: _layers(j, k) * (j.weights + j.gradients + min(k, m) * _samples(j, r, m) * j.saved)
    ),
}
