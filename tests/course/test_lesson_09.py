"""What lesson 09's checks say to right and to wrong answers."""

from fractions import Fraction
from functools import cache

import numpy as np
import pytest

import gpipe_sim as gp
from gpipe_sim import simulate
from gpipe_sim.course import lesson_09


@pytest.fixture(scope="module", autouse=True)
def each_schedule_is_simulated_once():
    """The check compares the same few again for every mistake that it knows."""
    simulated = cache(simulate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gp, "simulate", simulated)
        patch.setattr(lesson_09, "simulate", simulated)
        yield


def held(layers, devices, stages_per_device, device):
    size = layers // (devices * stages_per_device)
    stages = range(device, devices * stages_per_device, devices)
    return [stage * size + i for stage in stages for i in range(size)]


def best(devices, microbatches, comm):
    def length(V):
        part = Fraction(1, V)
        schedule = gp.Interleaved1F1B(devices, microbatches, stages_per_device=V)
        return gp.simulate(schedule, gp.Costs(part, part, part, comm=comm)).makespan

    return min((1, 2, 4), key=length)


def with_smaller_messages(devices, microbatches, comm):
    def length(V):
        part = Fraction(1, V)
        schedule = gp.Interleaved1F1B(devices, microbatches, stages_per_device=V)
        return gp.simulate(schedule, gp.Costs(part, part, part, comm=comm / V)).makespan

    return min((1, 2, 4), key=length)


def with_one_f_one_b(devices, microbatches, comm):
    def length(V):
        if V == 1:
            return gp.simulate(gp.OneFOneB(devices, microbatches), gp.Costs(comm=comm)).makespan
        part = Fraction(1, V)
        schedule = gp.Interleaved1F1B(devices, microbatches, stages_per_device=V)
        return gp.simulate(schedule, gp.Costs(part, part, part, comm=comm)).makespan

    return min((1, 2, 4), key=length)


def test_nothing_yet():
    assert lesson_09.held_layers(None).verdict == "your turn"
    assert lesson_09.best_stages_per_device(None).verdict == "your turn"


def halved(c=0):
    part = Fraction(1, 2)
    return gp.simulate(gp.Interleaved1F1B(4, 8, stages_per_device=2), gp.Costs(part, part, part, comm=c))


@pytest.mark.parametrize(("wrong", "question"), lesson_09.LENGTHS.items())
def test_a_wrong_guess_at_the_length_is_told_what_it_is(wrong, question):
    revealed = gp.course.reveal(wrong, halved().makespan, "units", wrong=lesson_09.LENGTHS)
    assert halved().makespan == Fraction(57, 2)
    assert (revealed.reply.verdict, revealed.reply.text[-len(question) :]) == ("not what happened", question)


def test_the_wrong_guesses_at_the_length_follow_from_a_thought():
    whole = gp.simulate(gp.Interleaved1F1B(4, 8, stages_per_device=2)).makespan
    one_f_one_b = gp.simulate(gp.OneFOneB(4, 8))
    work = gp.useful_time(one_f_one_b) / 4
    assert set(lesson_09.LENGTHS) == {one_f_one_b.makespan, work, one_f_one_b.makespan / 2, whole}


@pytest.mark.parametrize(("wrong", "question"), lesson_09.MESSAGES.items())
def test_a_wrong_guess_at_the_messages_is_told_what_it_is(wrong, question):
    revealed = gp.course.reveal(wrong, len(halved().messages), "messages", wrong=lesson_09.MESSAGES)
    assert (revealed.reply.verdict, revealed.reply.text[-len(question) :]) == ("not what happened", question)


def test_the_wrong_guesses_at_the_messages_follow_from_a_thought():
    K, M, V = 4, 8, 2
    there = len(halved().messages) // 2
    assert set(lesson_09.MESSAGES) == {2 * (K - 1) * M, there, V * 2 * (K - 1) * M, 2 * K * V * M}


def test_megatrons_example():
    """Narayanan et al. 2021, section 2.2.2: counted from 1, layers 1, 2, 9, 10 and layers 3, 4, 11, 12."""
    assert lesson_09._held(16, 4, 2, 0) == held(16, 4, 2, 0) == [0, 1, 8, 9]
    assert lesson_09._held(16, 4, 2, 1) == held(16, 4, 2, 1) == [2, 3, 10, 11]


def test_the_right_layers():
    assert lesson_09.held_layers(held).verdict == "correct"
    assert lesson_09.held_layers(lambda *case: set(held(*case))).verdict == "correct"
    assert lesson_09.held_layers(lambda *case: iter(held(*case))).verdict == "correct"


@pytest.mark.parametrize(
    ("wrong", "verdict", "says"),
    [
        (lambda *case: [n + 1 for n in held(*case)], "almost", "first layer of the model"),
        (lambda L, K, V, k: range(k * (L // K), (k + 1) * (L // K)), "keep working", "one run of layers"),
        (lambda L, K, V, k: range(k, L, K), "almost", "single layers"),
        (lambda L, K, V, k: [k, k + K], "keep working", "[1, 4]: 2 in all. How many layers are there"),
        (lambda L, K, V, k: held(L, K, V, K - 1 - k + 1), "keep working", "Into how many stages"),
        (lambda L, K, V, k: (n + 1 for n in held(L, K, V, k)), "almost", "first layer of the model"),
        (lambda L, K, V, k: (1 // 0 for _ in range(K)), "keep working", "ZeroDivisionError"),
        (lambda L, K, V, k: 7, "keep working", "a list of layer numbers"),
        (lambda L, K, V, k: ["0", None], "keep working", "a list of layer numbers"),
        (lambda L, K, V, k: L[k], "keep working", "TypeError"),
    ],
)
def test_wrong_layers_are_told_why(wrong, verdict, says):
    reply = lesson_09.held_layers(wrong)
    assert reply.verdict == verdict
    assert says in reply.text


def test_the_best_choice():
    assert lesson_09.best_stages_per_device(best).verdict == "correct"
    assert lesson_09.best_stages_per_device(lambda *case: np.int64(best(*case))).verdict == "correct"


def test_every_choice_is_somewhere_the_best_and_never_by_a_tie():
    lengths = [[lesson_09._length(*case, V) for V in (1, 2, 4)] for case in lesson_09.HIDDEN_LINKS]
    assert {best(*case) for case in lesson_09.HIDDEN_LINKS} == {1, 2, 4}
    assert all(row.count(min(row)) == 1 for row in lengths)


@pytest.mark.parametrize(
    ("wrong", "verdict", "says"),
    [
        (lambda K, M, comm: 4, "almost", "always take the thinnest"),
        (lambda K, M, comm: best(K, M, 0 * comm), "almost", "always take the thinnest"),
        (lambda K, M, comm: 1, "almost", "How long is one of V stages"),
        (with_smaller_messages, "almost", "Does a message carry less"),
        (with_one_f_one_b, "almost", "Is 1F1B what"),
        (lambda K, M, comm: 2, "keep working", "another of the three is shorter"),
        (
            lambda K, M, c: (
                4 if c < Fraction(9, 64) else 2 if c < Fraction(13, 24) else 1
            ),  # 4 x 8 everywhere
            "keep working",
            "for K=2, M=2 and messages that take 1/10 you say V = 4",
        ),
        (lambda K, M, comm: 3, "keep working", "should be 1, 2 or 4"),
        (lambda K, M, comm: "2", "keep working", "should be 1, 2 or 4"),
        (lambda K, M, comm: K / comm, "keep working", "ZeroDivisionError"),
    ],
)
def test_a_wrong_choice_is_told_why(wrong, verdict, says):
    reply = lesson_09.best_stages_per_device(wrong)
    assert reply.verdict == verdict
    assert says in reply.text


def test_whoever_gives_each_stage_a_whole_devices_work_answers_1_everywhere():
    """So the check knows this mistake by its answers alone."""

    def length(devices, microbatches, comm, V):
        schedule = gp.Interleaved1F1B(devices, microbatches, stages_per_device=V)
        return gp.simulate(schedule, gp.Costs(comm=comm)).makespan

    answers = [min((1, 2, 4), key=lambda V: length(*case, V)) for case in lesson_09.HIDDEN_LINKS]
    assert answers == [1] * len(lesson_09.HIDDEN_LINKS)
    assert "How long is one of V stages" in lesson_09.best_stages_per_device(lambda *case: 1).text
