"""Lesson 01: what the check says to right answers and to the usual wrong ones."""

import math

import numpy as np
import pytest
from replies import assert_each_is_told, each_reply, natural

from gpipe_sim import Naive, bubble_fraction, bubble_overhead, mlp, simulate, split
from gpipe_sim.course import lesson_01
from gpipe_sim.course.lesson_01 import training_bytes

LAYERS = mlp([64, 512, 512, 512, 512, 10])
STAGES = [training_bytes(partition) / 1e6 for partition in split(LAYERS, stages=4)]
STEP = simulate(Naive(4))


@pytest.mark.parametrize(
    ("measured", "wrong"),
    [
        (35, natural("01", "GPT-3 in training")),
        (round(max(STAGES), 2), natural("01", "What the fullest device holds")),
        (STEP.makespan, natural("01", "How long four devices take")),
        (7 / 8, natural("01", "How much of the time devices wait")),
        ("false", natural("01", "The best cuts")),
        ("true", natural("01", "Two stages on a device")),
    ],
)
def test_the_natural_wrong_guesses_are_wrong_and_are_told_what_they_are(measured, wrong):
    assert_each_is_told(wrong, measured)


def test_the_natural_wrong_guesses_are_what_their_sentences_say():
    kept = [2, 2 + 2, 4 * 2, 2 + 2 + 4 + 4, 4 * 8]  # bytes for a weight; 16 is right, and 34 rounds it down
    held = [math.ceil(174.6 * size / 80) for size in kept]
    assert list(natural("01", "GPT-3 in training")) == [*held[:4], 34, 34.92, held[4]]
    assert round(174.6 * 16 / 80, 2) == 34.92
    whole, one_large = sum(STAGES), STAGES[1]
    sizes = [max(STAGES) / 4, whole / 4, one_large, whole]
    assert list(natural("01", "What the fullest device holds")) == pytest.approx(sizes, abs=0.006)
    assert list(natural("01", "How long four devices take")) == [
        STEP.makespan // 4,
        4 * 1,
        4 * 1 + 2,
        4 * STEP.makespan,
    ]
    waits = [bubble_fraction(simulate(Naive(K))) for K in (4, 2)]
    assert list(natural("01", "How much of the time devices wait")) == [
        1 / 8,
        *waits,
        bubble_overhead(simulate(Naive(8))),
    ]


def _fullest(layers, stages):
    return max(map(training_bytes, split(layers, stages=stages)))


def fewest(layers, fits):
    return next(stages for stages in range(1, len(layers) + 1) if fits(_fullest(layers, stages)))


def exactly(layers, capacity):
    return fewest(layers, lambda largest: largest <= capacity)


def total_over_capacity(layers, capacity):
    return -(-sum(map(training_bytes, split(layers, stages=1))) // capacity)


def weights_alone(layers, capacity):
    return fewest(layers, lambda largest: largest / 4 <= capacity)


def with_room(layers, capacity):
    """One more than it takes, unless that just fits."""
    just = _fullest(layers, exactly(layers, capacity)) == capacity
    return min(exactly(layers, capacity) + (not just), len(layers))


def without_the_gradients(layers, capacity):
    return fewest(layers, lambda largest: largest * 3 / 4 <= capacity)


def strictly_less(layers, capacity):
    return next((s for s in range(1, len(layers) + 1) if _fullest(layers, s) < capacity), len(layers))


def never_full(layers, capacity):
    """It used to be told of the error that it runs into where not even single layers leave room to spare."""
    stages = 1
    while _fullest(layers, stages) >= capacity:
        stages += 1
    return stages


def without_biases(layers, capacity):
    """It used to pass: no model was tried whose biases decide."""
    sizes = {
        s: [sum(p["W"].nbytes for p in weights(part)) for part in split(layers, stages=s)]
        for s in range(1, len(layers) + 1)
    }
    return next((s for s, found in sizes.items() if 4 * max(found) <= capacity), len(layers))


def weights(partition):
    return [layer.parameters for layer in partition.layers if layer.parameters]


def stops_one_too_early(layers, capacity):
    """It knows no answer for a model of one layer: it used to pass."""
    return next((s for s in range(1, len(layers)) if _fullest(layers, s) <= capacity), None)


def on_average(layers, capacity):
    return next(s for s in range(1, len(layers) + 1) if _fullest(layers, 1) / s <= capacity)


def the_last_stage(layers, capacity):
    sizes = [training_bytes(split(layers, stages=s)[-1]) for s in range(1, len(layers) + 1)]
    return next(s for s, size in enumerate(sizes, 1) if size <= capacity)


def by_halves(layers, capacity):
    """It used to pass, as the next: no model was tried that needs more room in three stages than in two."""
    low, high = 1, len(layers)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _fullest(layers, middle) <= capacity else (middle + 1, high)
    return low


def from_above(layers, capacity):
    stages = len(layers)
    while stages > 1 and _fullest(layers, stages - 1) <= capacity:
        stages -= 1
    return stages


def eight_bytes(layers, capacity):
    """It used to pass: no model was tried whose weights are smaller."""
    sizes = {
        s: [32 * sum(a.size for p in weights(part) for a in p.values()) for part in split(layers, stages=s)]
        for s in range(1, len(layers) + 1)
    }
    return next((s for s, found in sizes.items() if max(found) <= capacity), len(layers))


def packed(layers, capacity):
    """Each device is filled before the next one gets a layer; biases are counted."""
    full = [0]
    for layer in layers:
        size = 4 * sum(array.nbytes for array in layer.parameters.values())
        full = [*full, size] if full[-1] + size > capacity else [*full[:-1], full[-1] + size]
    return len(full)


def popping(layers, capacity):
    """It empties the list that it was given."""
    right = exactly(layers, capacity)
    layers.clear()
    return right


CASES = {
    "correct": [
        (exactly, "every stage fits"),
        (popping, "every stage fits"),
        (lambda n, c: np.int64(exactly(n, c)), "every stage fits"),
    ],
    "almost": [
        (total_over_capacity, "do all stages have the same number of weights?"),
        (weights_alone, "Which stage does not fit, with all that training keeps?"),
        (with_room, "Would one device fewer do too?"),
        (without_biases, "put into it, and which arrays have those?"),
        (by_halves, "With 3, the largest stage has 317,312 bytes, and with 4 only 163,200. Does it always"),
        (from_above, "mlp([16, 16, 16, 300, 16, 16, 16]) and 180,608 bytes per device you say 4. With 3"),
        (eight_bytes, "dtype=np.float32) and 1,804,960 bytes per device you say"),
        (packed, "but then the largest stage has 3,513,600 bytes: which layers does gp.split put into it"),
        (strictly_less, "you say 2. With 1, the largest stage has 3,609,920 bytes. Does that fit?"),
        (never_full, "you say 2. With 1, the largest stage has 3,609,920 bytes. Does that fit?"),
    ],
    "keep working": [
        (lambda n, c: None, "you say None; it should be a whole number of devices. Which return"),
        (lambda n, c: True, "a whole number"),
        (lambda n, c: np.array(exactly(n, c)), "What is it, and what is inside it?"),
        (lambda n, c: 99, "How many stages can 5 layers make?"),
        (lambda n, c: float("nan"), "a whole number"),
    ],
    "wrong": [
        without_the_gradients,
        stops_one_too_early,
        on_average,
        the_last_stage,
        lambda layers, capacity: len(layers),
        lambda layers, capacity: sum(bool(layer.parameters) for layer in layers),
    ],
}
test_replies = each_reply(lesson_01, devices_needed=CASES)
