"""Questions to be answered on paper, of lessons 01 to 06, in their order."""

from fractions import Fraction
from functools import cache
from itertools import pairwise
from math import ceil
from random import Random
from typing import Any

import numpy as np

from gpipe_sim.balance.by_cost import balance_by_cost
from gpipe_sim.core.bubbles import bubble_fraction
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.gpipe import GPipe
from gpipe_sim.core.layers import Context, mlp
from gpipe_sim.core.losses import cross_entropy, mse
from gpipe_sim.core.meta_array import MetaArray
from gpipe_sim.core.naive import Naive
from gpipe_sim.core.schedule import needs as needed
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.split import split
from gpipe_sim.course.questions.asked import EXACT, Asked, question
from gpipe_sim.memory.prediction import predict_memory
from gpipe_sim.memory.shape_inference import profile
from gpipe_sim.papers.formulas import (
    gpipe_bubble,
    gpipe_messages,
    microbatches_for_bubble,
    zero_memory,
)
from gpipe_sim.transformers.attention import Attention
from gpipe_sim.transformers.transformer import BatchNorm, LayerNorm


@question("01")
def enough_devices(rng: Random) -> Asked:
    billions, room = rng.choice((7, 13, 30, 65, 70, 130, 175, 405)), rng.choice((24, 40, 80))

    def devices(bytes_each: int) -> int:
        return ceil(Fraction(billions * bytes_each, room))

    every = int(zero_memory(1, 1, 0))
    return Asked(
        f"A model has {billions} billion weights. Training keeps what lesson 01 counts of each: numbers of "
        f"2 and of 4 bytes, with Adam. How many devices of {room} GB does it take to hold all that, with "
        "nothing else on them?",
        devices(every),
        (
            (devices(2), "That holds the weights alone. What else does training keep?"),
            (devices(4), "That holds weights and gradients. What does the optimizer keep?"),
            (devices(8), "That gives each of four numbers 2 bytes. Which take more?"),
            (billions * every // room, "That is rounded down. Where does the rest go?"),
        ),
        "devices",
    )


@question("01")
def naive(rng: Random) -> Asked:
    K = rng.randint(3, 12)
    return Asked(
        f"One microbatch goes through {K} devices with one stage each, there and back. Nothing else is "
        "going on. (time in which devices wait) / (all device time) = ?",
        bubble_fraction(simulate(Naive(K, 1), EXACT)),
        (
            (Fraction(1, K), "That is the share in which devices work. What is the rest?"),
            (K - 1, "That is waiting over work. How long are the two together?"),
            (Fraction(1, 2), "That is two devices that take turns. How many wait here while one works?"),
        ),
    )


@cache
def _fullest(count: int, head: int, K: int) -> int:
    """The GB of the fullest stage, in the best cut."""
    sizes = [1] * count + [head]
    ends = [0, *np.cumsum(balance_by_cost(sizes, K)).tolist()]
    return max(sum(sizes[i:j]) for i, j in pairwise(ends))


@question("01")
def fullest(rng: Random) -> Asked:
    K, count, head = rng.randint(3, 5), rng.randint(8, 16), rng.randint(4, 9)
    there, sizes = K + rng.randint(1, 3), [1] * count + [head]
    return Asked(
        f"A model has {count} layers of 1 GB and then one of {head} GB. It is cut into {K} stages, as well "
        f"as can be, and there are {there} devices. How many GB has the fullest device?",
        _fullest(count, head, K),
        (
            (Fraction(sum(sizes), there), "That fills all devices. How many of them get a stage?"),
            (Fraction(sum(sizes), K), "That is an equal part for each stage. Can a layer be cut in two?"),
            (sum(sizes), "That is a copy of all. Which layers does one device have to hold?"),
            (head, "That is the large layer. Does its stage have no other?"),
        ),
        "GB",
    )


@question("02")
def messages(rng: Random) -> Asked:
    K, M = rng.randint(3, 8), rng.randint(3, 16)
    return Asked(
        f"GPipe has {K} devices with one stage each and {M} microbatches. How many messages cross between "
        "devices in a step?",
        gpipe_messages(K, M),
        (
            (0, "That is a pipeline without communication. Where does the second stage get its input?"),
            ((K - 1) * M, "That is the way there alone. What comes back?"),
            (2 * K * M, "That has every stage send twice. To whom does the last one send its output?"),
            (2 * (K - 1), "That is one microbatch. Do the others not cross?"),
        ),
        "messages",
    )


@question("03")
def loss_scale(rng: Random) -> Asked:
    n, d = rng.randint(8, 64), rng.randint(3, 10)
    error = np.ones((n, d))
    _, saved = mse.forward(error, 0 * error)
    return Asked(
        f"A program prints the mean of the squared errors of {n} samples with {d} outputs each, over all of "
        f"these numbers. Its backward begins with 2 x error / {n}. (the gradient that it gets) / (the "
        "gradient of the loss that it prints) = ?",
        round(float((2 * error / n / mse.backward(saved, 1.0))[0, 0])),
        (
            (1, "Then both would be means over the same numbers. Over how many does each divide?"),
            (n, "Both divide by the samples. By what does only one of them divide?"),
            (n * d, "That would be a sum in place of a mean. Does its backward divide by nothing?"),
            (Fraction(1, d), "That is the other way round. Which of the two is larger?"),
        ),
        "times",
    )


@question("03")
def uneven(rng: Random) -> Asked:
    N, M = rng.randint(9, 40), rng.randint(3, 8)
    sizes = [len(piece) for piece in np.array_split(np.arange(N), M)]
    large, small = max(sizes), min(sizes)
    return Asked(
        f"{N} samples are cut into {M} microbatches as evenly as can be. The mean gradient of each is "
        "taken, and then the mean of these means. (weight of a sample in a small microbatch) / (weight of "
        "a sample in a large one) = ?",
        Fraction(large, small),
        (
            (1, "Each microbatch has the same weight. How many samples share it?"),
            (Fraction(small, large), "That is the other way round. Where do more samples share a weight?"),
        ),
        "times",
    )


@cache
def _mixes(layer: str) -> bool:
    """Whether what a layer makes of a batch differs from what it makes of its halves."""
    rng, where = np.random.default_rng(0), layer == "wrong axis"
    layers: dict[str, Any] = {
        "BatchNorm": BatchNorm(8),
        "LayerNorm": LayerNorm(8),
    }
    found = layers.get(layer) or Attention(8, 2, rng=rng)
    x = rng.normal(size=(4, 6, 8))

    def of(x: np.ndarray) -> np.ndarray:
        y: Any = found.forward(x.swapaxes(0, 1) if where else x, Context())[0]
        return y.swapaxes(0, 1) if where else y

    return not np.allclose(of(x), np.concatenate([of(x[:2]), of(x[2:])]))


LAYERS = {
    "BatchNorm": "a BatchNorm, with mean and deviation over the samples that it sees",
    "LayerNorm": "a LayerNorm, with mean and deviation over the features of each place",
    "attention": "an attention, in which each place of a text reads the other places of that text",
    "wrong axis": "an attention whose axes are in the wrong order, so that each sample reads the others",
}


@question("03")
def mixed(rng: Random) -> Asked:
    layer = rng.choice(list(LAYERS))
    equal = ("equal", "What does this layer read of other samples? Who are these in a microbatch?")
    different = (
        "different",
        "What of other samples does this layer read? What changes for it in a smaller batch?",
    )
    answer, other = (different, equal) if _mixes(layer) else (equal, different)
    return Asked(
        f"A network has {LAYERS[layer]}. Its batch is cut into equal microbatches, and the mean of their "
        'gradients is taken. Is that the gradient of the whole batch, but for rounding? "equal" or '
        '"different"',
        answer[0],
        (other,),
    )


@question("04")
def bubble(rng: Random) -> Asked:
    K, M = rng.randint(3, 16), rng.randint(4, 32)
    return Asked(
        f"GPipe has {K} equal stages on {K} devices, {M} microbatches, and messages that take no time. "
        "Which part of all device time is waiting?",
        gpipe_bubble(K, M),
        (
            (Fraction(K - 1, M), "That is waiting over work, the overhead. What is all device time?"),
            (Fraction(K - 1, K), "That is one action at a time. Who could work while another device does?"),
            (Fraction(K - 1, M + K), "Count the columns of forwards again: when does the last device begin?"),
            (Fraction(M, M + K - 1), "That is the part in which devices work. What is the rest?"),
            (Fraction(K, M), "That is devices over microbatches. For how many of them does a device wait?"),
        ),
    )


@question("04")
def few_enough(rng: Random) -> Asked:
    K, percent = rng.choice((2, 3, 4, 5, 6, 8, 16)), rng.choice((4, 6, 7, 8, 9, 10, 12, 15))
    share = Fraction(percent, 100)
    return Asked(
        f"{K} equal devices run GPipe, and messages take no time. They are to be at least {100 - percent}% "
        "efficient: at least that part of all device time is work. How many microbatches does it take?",
        microbatches_for_bubble(K, share),
        (
            (
                int((K - 1) * (1 - share) / share),
                "That is rounded down. Put it into the formula: is it enough?",
            ),
            (ceil((K - 1) / share), "That is a bound on waiting over work. And waiting over all time?"),
            (4 * K, "That is a rule of thumb. What does it know of the percentage?"),
        ),
        "microbatches",
    )


@question("04")
def twice_the_stages(rng: Random) -> Asked:
    K, M = rng.randint(2, 8), rng.randint(4, 24)
    small, large = (gpipe_bubble(k, M) for k in (K, 2 * K))
    return Asked(
        f"GPipe with {M} microbatches on {K} devices, or on {2 * K}, always with equal stages. (bubble "
        f"fraction on {2 * K}) / (bubble fraction on {K}) = ?",
        large / small,
        (
            (small / large, "Then more stages would wait less. How long does the last stage wait to begin?"),
            (1, "The bubble fraction has M in it, and what else?"),
            (2, "That doubles it with the devices. Write both as fractions: what is in the denominator?"),
            (Fraction(2 * K - 1, K - 1), "That is how the waiting grows. And all device time?"),
        ),
        "times",
    )


@question("05")
def columns(rng: Random) -> Asked:
    K, M = rng.randint(3, 8), rng.randint(4, 10)
    halves = Costs(Fraction(1), Fraction(1, 2), Fraction(1, 2))
    return Asked(
        f"You draw GPipe with {K} devices and {M} microbatches into columns. A forward takes one column, a "
        "backward takes one, and every action stands right of what it needs. "
        "How many columns does it take at least?",
        simulate(GPipe(K, M), halves).makespan,
        (
            (
                2 * M + K - 1,
                "There the first device begins its backwards at once. What does its first one read?",
            ),
            (2 * K * M, "That is one action in each column. Which of them could stand in the same one?"),
            (2 * M, "That is a device that never waits. In which column does the last device begin?"),
            (2 * (M + K) - 1, "There the last device pauses at the turn. What would it wait for?"),
        ),
        "columns",
    )


@question("05")
def needs(rng: Random) -> Asked:
    K, M = rng.randint(3, 6), rng.randint(2, 8)
    schedule = GPipe(K, M)
    return Asked(
        "A need is an action that must have ended, and have sent what it made, before another can start. "
        f"How many needs have all forwards and backwards of {K} stages and {M} microbatches together?",
        sum(len(needed(each, schedule)) for row in schedule.actions for each in row),
        (
            (2 * (K - 1) * M, "Those are the messages. What does a backward need from its own device?"),
            (3 * K * M, "That is one for a forward and two for a backward. What is so at the two ends?"),
            (2 * K * M, "That is one for each action. How many things does a backward read?"),
        ),
        "needs",
    )


@cache
def _left(h: int, b: int) -> int:
    """The bytes that a microbatch of b samples leaves on a stage of width h."""
    stages = split(mlp([h, h, h, 10]), balance=[3, 2])
    batch = MetaArray((b, h), float), MetaArray((b,), int)
    found = profile(stages, batch, cross_entropy)
    return predict_memory(GPipe(2, 1), found)[0].activation_peak


@question("06")
def saved(rng: Random) -> Asked:
    h, b = rng.choice((32, 64, 128, 256)), rng.choice((8, 16, 32, 64))
    held = _left(h, b)
    return Asked(
        f"A stage is a linear layer, a ReLU and a linear layer, all {h} wide. Numbers have 8 bytes. How "
        f"many bytes does a microbatch of {b} samples leave on the device, until its backward comes?",
        held,
        (
            (held // 8, "That is how many numbers they are. How many bytes has each?"),
            (held // 2, "That is one array. Which layer reads something else in its backward?"),
            (held * 3 // 2, "That is an array for each layer. Which two layers read the same one?"),
            (held * 2, "That is every array in sight. Which does no backward read?"),
        ),
        "bytes",
    )
