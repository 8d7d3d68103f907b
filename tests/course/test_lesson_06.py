"""Lesson 06: what the check says to the right answer and to the usual wrong ones."""

from fractions import Fraction

import numpy as np
import pytest
from replies import assert_each_is_told, each_reply, natural

import gpipe_sim as gp
from gpipe_sim.core import B, F, Linear
from gpipe_sim.course import lesson_06
from gpipe_sim.course.lesson_06 import _stages, mistaken


def per_sample(layers, features, *, shared=True, sent=False, boundary=False):
    """Numbers that a stage keeps for each sample; the options are mistakes."""
    numbers, saved = features if boundary and not isinstance(layers[0], Linear) else 0, False
    for layer in layers:
        if isinstance(layer, Linear):
            numbers += 0 if saved and shared else features
            features = layer.parameters["W"].shape[1]
            saved = False
        else:
            numbers += features
            saved = True
    return numbers + features * (sent and not saved)


def answering(factor=lambda samples, microbatches: 8 * samples * microbatches, **mistakes):
    def answer(layers, features, samples, microbatches):
        return per_sample(layers, features, **mistakes) * factor(samples, microbatches)

    return answer


def every_array(layers, features, samples, microbatches):
    numbers = features
    for layer in layers:
        features = layer.parameters["W"].shape[1] if isinstance(layer, Linear) else features
        numbers += features
    return 8 * numbers * samples * microbatches


def by_id(layers, features, samples, microbatches):
    """Right, in another way: run the layers, and count each array that one of them saves once."""
    partition, x = gp.split(layers, stages=1)[0], np.ones((samples, features))
    return microbatches * sum(
        array.nbytes for array in gp.core.roots(partition.forward(x, gp.core.Context())[1])
    )


def by_pairs(layers, features, samples, microbatches):
    """Right, with NumPy's whole numbers: a Linear saves its input, unless a ReLU in front of it did."""
    total = np.int64(0)
    for before, layer in zip([None, *layers], layers, strict=False):
        if isinstance(layer, Linear):
            total += 0 if isinstance(before, gp.core.ReLU) else features
            features = layer.parameters["W"].shape[1]
        else:
            total += features
    return total * 8 * samples * microbatches


def ratio(width, samples=256):
    """A row of two widths for each sample, by two matrices and two rows of biases."""
    return round(2 * width * samples / (2 * width * (width + 1)), 3)


def test_every_mistake_is_wrong_on_some_hidden_stage_and_differs_from_the_others():
    results = list(zip(*(mistaken(stage).values() for stage in _stages()), strict=True))
    assert len({*results, tuple(stage.measured for stage in _stages())}) == len(results) + 1


def test_the_natural_wrong_predictions_are_what_they_are_said_to_be():
    data, partitions = gp.digits(), gp.split(gp.mlp([64, 64, 64, 64, 64, 64, 10]), stages=4)
    batch = data.x[:256], data.y[:256]
    step = gp.train_step(partitions, gp.GPipe(4, 8), batch, gp.cross_entropy, optimizer=gp.Adam())
    memory = step.memory[0]
    array, gradients, adam = 8 * 32 * 64, memory.peak("gradients"), memory.peak("optimizer state")
    assert adam == 2 * gradients == 2 * memory.peak("parameters")
    assert list(natural("06", "What one microbatch leaves")) == [32 * 64 * 2, array, 3 * array, 4 * array]
    account = [float(line.split()[-2]) for line in lesson_06.account(step).splitlines()]
    assert account == [478.2, 66.6, 16.4, 561.2], "561.2, and its parts"
    turn, waits, peak = (sum(memory.at(time).values()) for time in (8, 17, 19))
    inside = waits + gradients + array
    assert (peak, inside) == (memory.peak(), memory.peak_inside.bytes)
    assert (19, peak, B(0, 7)) == memory.peak_moment
    assert peak == waits + gradients - 2 * array
    arrived = memory.at(19)["messages"]
    sizes = [
        16 * array,
        peak - adam,
        peak - gradients,
        turn,
        waits,
        peak - arrived,
        turn + gradients,
        waits + gradients,
        inside,
    ]
    assert list(natural("06", "The most on device 0")) == [size / 1000 for size in sizes]
    sizes = [
        inside - adam,
        waits,
        waits + array,
        peak,
        turn + gradients,
        waits + gradients,
        inside + array,
        inside + 2 * array,
    ]
    assert list(natural("06", "The most inside 0B7")) == [size / 1000 for size in sizes]
    for right, wrong in {
        2 * array: natural("06", "What one microbatch leaves"),
        peak / 1000: natural("06", "The most on device 0"),
        inside / 1000: natural("06", "The most inside 0B7"),
        2: natural("06", "What grows"),
        ratio(256): natural("06", "Activations by weights"),
        26: natural("06", "How long it is kept"),
    }.items():
        assert_each_is_told(
            {round(guess, 1) if guess > 20 else guess: says for guess, says in wrong.items()}, right
        )
    assert_each_is_told(natural("06", "In turn or all at once"), "true")
    ends = step.timeline.ends
    sent, first = ends[F(2, 0)], ends[B(2, 7)]
    freed = ends[B(2, 0)]
    assert freed - sent == 26
    assert list(natural("06", "How long it is kept")) == [
        0,
        first - ends[F(2, 7)],
        first - 2 - sent,
        first - sent,
        freed - 2 - sent,
        freed,
        ends[B(0, 0)] - ends[F(0, 0)],
    ]
    one, weights = 1 / 8, 256 / 64
    wrong = [one, ratio(64) / weights**2, 0.5, 3 / 2, 2, ratio(64), ratio(64) * weights]
    assert list(natural("06", "Activations by weights")) == pytest.approx(wrong, rel=0.02)


@pytest.mark.parametrize("guess", [528, 544.8, 561])
def test_a_peak_guessed_inside_the_action_is_told_what_it_is(guess):
    """Once one was told that it is less than you thought, though the device does hold more than that."""
    reply = gp.course.reveal(guess, 512, "kB", within=0.01, wrong=natural("06", "The most on device 0")).reply
    assert "gone" in reply.text or "freed" in reply.text


def test_rounded_parts_add_up_to_a_right_peak():
    parts = 66.6 + 66.6 + 133.1 + 2 * 114.7 + 16.4  # 512.1, and the peak is 512.0, a whole number
    reply = gp.course.reveal(
        parts, 512.0, "kB", within=0.01, wrong=natural("06", "The most on device 0")
    ).reply
    assert reply.verdict == "near enough"


def each_width_once(layers, features, samples, m):
    """It used to pass: no two arrays of a stage that was tried were equally wide."""
    stage = next(each for each in lesson_06._stages() if each[:4] == (layers, features, samples, m))
    widths = lesson_06._saved(stage)
    return 8 * samples * m * sum(set(widths))


def in_turns(layers, features, samples, m):
    """It used to pass: in every stage that was tried, linear layers and ReLUs took turns."""
    numbers = features * isinstance(layers[0], Linear)
    for layer in layers:
        features = layer.parameters["W"].shape[1] if isinstance(layer, Linear) else features
        numbers += 0 if isinstance(layer, Linear) else features
    return 8 * numbers * samples * m


CASES = {
    "correct": [(by_id, ""), (by_pairs, ""), (answering(), "as many bytes as the meter found")],
    "almost": [
        (
            answering(shared=False),
            "for Linear(64, 48), ReLU(), Linear(48, 20) with 6 samples in each of 4 microbatches",
        ),
        (answering(shared=False), "you say 30,720, and the meter finds 21,504"),
        (answering(shared=False), "what each layer saves. Are these all different arrays?"),
        (answering(sent=True), "counted the output, which was sent away"),
        (answering(boundary=True), "Does a ReLU in front read it again?"),
        (every_array, "every array between the layers"),
        (answering(lambda samples, m: 8 * samples), "That is what one microbatch leaves behind"),
        (answering(lambda samples, m: 8 * samples * m * m), "How often do you multiply by M?"),
        (answering(lambda samples, m: samples * m), "How many bytes has each?"),
        (answering(lambda samples, m: 8 * samples * (m - 1)), "That is one microbatch less."),
        (
            answering(lambda samples, m: 8 * samples * m / 1000),
            "you say 21.5, and the meter finds 21,504. The meter counts bytes",
        ),
    ],
    "keep working": [
        (
            lambda layers, features, samples, m: 8 * features * samples * m,
            "48 numbers for each sample too few",
        ),
        (answering(shared=False, sent=True), "numbers for each sample too many. Which arrays make that up?"),
        (in_turns, "ReLU(), ReLU() with 3 samples in each of 5 microbatches you say"),
        (each_width_once, "numbers for each sample too few. Which arrays make that up?"),
        (lambda layers, features, samples, m: 1, "Which layer saves what"),
        (lambda layers, features, samples, m: None, "you say None; it should be a number of bytes"),
        (lambda *shapes: float("inf"), "you say inf bytes"),
        (lambda *shapes: Fraction(1, 3), "you say Fraction(1, 3) bytes"),
        (lambda *shapes: 10**400, "Which layer saves what"),
    ],
}
test_replies = each_reply(lesson_06, peak_bytes=CASES)
