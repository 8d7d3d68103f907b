"""Lesson 06: what the check says to the right answer and to the usual wrong ones."""

from fractions import Fraction

import pytest

import gpipe_sim as gp
from gpipe_sim.course import lesson_06
from gpipe_sim.course.lesson_06 import MISTAKES, _stages, peak_bytes


def per_sample(layers, features, *, shared=True, sent=False, boundary=False):
    """Numbers that a stage keeps for each sample; the options are mistakes."""
    numbers, saved = features if boundary and not isinstance(layers[0], gp.Linear) else 0, False
    for layer in layers:
        if isinstance(layer, gp.Linear):
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
        features = layer.parameters["W"].shape[1] if isinstance(layer, gp.Linear) else features
        numbers += features
    return 8 * numbers * samples * microbatches


@pytest.mark.parametrize(
    ("answer", "verdict", "says"),
    [
        (answering(), "correct", "as many bytes as the meter found"),
        (answering(shared=False), "almost", "what each layer saves. Are these all different arrays?"),
        (answering(sent=True), "almost", "counted the output, which was sent away"),
        (answering(boundary=True), "almost", "Does a ReLU in front read it again?"),
        (every_array, "almost", "every array between the layers"),
        (answering(lambda samples, m: 8 * samples), "almost", "That is what one microbatch leaves behind"),
        (
            answering(lambda samples, m: 8 * samples * m * m),
            "almost",
            "How often do you multiply by M?",
        ),
        (answering(lambda samples, m: samples * m), "almost", "How many bytes has each?"),
        (
            lambda layers, features, samples, m: 8 * features * samples * m,
            "keep working",
            "48 numbers for each sample too few",
        ),
        (
            answering(shared=False, sent=True),
            "keep working",
            "numbers for each sample too many. Which arrays make that up?",
        ),
        (lambda layers, features, samples, m: 1, "keep working", "Which layer saves what"),
        (
            lambda layers, features, samples, m: None,
            "keep working",
            "you say None; it should be a number of bytes",
        ),
        (lambda *shapes: float("inf"), "keep working", "you say inf bytes"),
        (lambda *shapes: Fraction(1, 3), "keep working", "you say Fraction(1, 3) bytes"),
        (lambda *shapes: 10**400, "keep working", "Which layer saves what"),
        (lambda layers: 0, "keep working", "it stopped: TypeError"),
        (4096, "keep working", "pass in a function"),
        (None, "your turn", "write a function peak_bytes"),
    ],
)
def test_every_answer_gets_its_own_reply(answer, verdict, says):
    reply = peak_bytes(answer)
    assert reply.verdict == verdict, reply
    assert says in reply.text, reply


def test_the_first_stage_is_named_with_the_students_number():
    text = peak_bytes(answering(shared=False)).text
    assert text.startswith(
        "for Linear(64, 48), ReLU(), Linear(48, 20) with 6 samples in each of 4 microbatches"
    )
    assert "you say 30,720, and the meter finds 21,504" in text


def test_every_mistake_is_wrong_on_some_hidden_stage_and_differs_from_the_others():
    results = [tuple(mistaken(stage) for stage in _stages()) for mistaken in MISTAKES]
    assert len({*results, tuple(stage.measured for stage in _stages())}) == len(MISTAKES) + 1


def test_the_natural_wrong_predictions_are_what_they_are_said_to_be():
    data, partitions = gp.digits(), gp.split(gp.mlp([64, 64, 64, 64, 64, 64, 10]), stages=4)
    batch = data.x[:256], data.y[:256]
    memory = gp.train_step(partitions, gp.GPipe(4, 8), batch, gp.cross_entropy).memory[0]
    array, gradients = 8 * 32 * 64, memory.peak("gradients")
    assert list(lesson_06.LEFT) == [32 * 64 * 2, array, 3 * array, 4 * array]
    turn, waits, peak = (sum(memory.at(time).values()) for time in (8, 17, 19))
    bytes_ = [turn, waits, turn + gradients, waits + gradients]
    assert list(lesson_06.PEAKS) == [size / 1000 for size in bytes_]
    assert peak == memory.peak() == waits + gradients - 2 * array
    for right, wrong in {
        2 * array: lesson_06.LEFT,
        peak / 1000: lesson_06.PEAKS,
        2: lesson_06.GROWN,
    }.items():
        for guess, says in wrong.items():
            reply = gp.course.reveal(round(guess, 1), right, wrong=wrong).reply
            assert reply.verdict == "not what happened" and reply.text.endswith(says), reply
