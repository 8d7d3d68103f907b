"""Lesson 07: what the checks say to right answers and to the usual wrong ones."""

from itertools import product

import numpy as np
import pytest

import gpipe_sim as gp
from gpipe_sim.course import lesson_07
from gpipe_sim.course.lesson_07 import fewest_buffers, overwritten, receive_buffers, run, warm_up, warming_up


def reply(check, answer) -> str:
    return repr(check(answer))


def test_the_warm_up_of_1f1b():
    said = reply(warm_up, lambda k, K, M: min(K - k - 1, M))
    assert said.startswith("correct: as short as GPipe wherever it was tried, and none holds less: ")
    assert "5 devices with 6 microbatches hold at most 5, 4, 3, 2, 1." in said


@pytest.mark.parametrize(("K", "M"), [*product(range(1, 4), range(1, 6)), (4, 2), (4, 3), (4, 4)])
def test_no_warm_up_is_as_short_and_holds_less_anywhere(K, M):
    """Every depth of every device is tried: 1F1B's is the least on each device, not only in sum."""
    least = gp.peak_in_flight(gp.OneFOneB(K, M))
    for depths in product(range(M + 1), repeat=K):
        schedule = warming_up(depths, M)
        if not gp.problems(schedule) and gp.simulate(schedule).makespan <= gp.formulas.gpipe_makespan(K, M):
            assert all(a >= b for a, b in zip(gp.peak_in_flight(schedule), least, strict=True))


def test_one_dial_from_naive_to_gpipe():
    assert warming_up([0] * 4, 8).actions == gp.Naive(4, 8).actions
    assert warming_up([8] * 4, 8).actions == gp.GPipe(4, 8, drain="in_order").actions
    assert warming_up([3, 2, 1, 0], 8).actions == gp.OneFOneB(4, 8).actions


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            lambda k, K, M: 0,
            "almost: K = 3, M = 7: warm-ups 0, 0, 0 take 63, GPipe 27. Device 2 waits from 5 to 11 for 1F1. "
            "What comes before 1F1 on its row?",
        ),
        (
            lambda k, K, M: M,
            "almost: K = 3, M = 7: warm-ups 7, 7, 7 are as short as GPipe, but device 0 holds 7 at once. "
            "What did the extra forwards buy?",
        ),
        (
            lambda k, K, M: min(K - k, M),
            "almost: K = 3, M = 7: warm-ups 3, 2, 1 are as short as GPipe, but device 0 holds 4 at once. "
            "What did the extra forward buy?",
        ),
        (
            lambda k, K, M: k,
            "keep working: K = 3, M = 7: warm-ups 0, 1, 2. 0B0 needs 1B0, queued behind 1F1, which needs "
            "0F1, queued behind 0B0. Who should have sent more?",
        ),
        (
            lambda k, K, M: K - k - 1,
            "almost: K = 6, M = 2: warm-ups 5, 4, 3, 2, 1, 0. Which 5 forwards does device 0 do?",
        ),
        (
            lambda k, K, M: K - k - 1.5,
            "keep working: for k = 0, K = 3, M = 7 you say 1.5; it should be a whole number of forwards",
        ),
        (
            lambda k, K, M: np.arange(K),
            "keep working: for k = 0, K = 3, M = 7 you say array([0, 1, 2]); it should be a whole number of "
            "forwards",
        ),
    ],
)
def test_other_warm_ups(answer, says):
    assert reply(warm_up, answer) == says


def test_the_buffers_of_1f1b():
    said = reply(receive_buffers, lambda m, k, K: m % (K - k + 1))
    assert said.startswith("correct: nothing is overwritten, and no device could do with fewer.")


def test_one_receive_buffer():
    said = reply(receive_buffers, lambda m, k, K: 0)
    assert said.startswith("keep working: device 1 of 2, 4 microbatches: the loss is right, the gradient is ")
    assert said.endswith("% wrong. 1B0 wants microbatch 0 in buffer 0. Which microbatch sits there now?")


def test_a_buffer_for_each_microbatch_in_flight_and_none_for_the_one_that_arrives():
    said = reply(receive_buffers, lambda m, k, K: m % (K - k))
    assert said.startswith("keep working: device 1 of 2, 4 microbatches: the loss is right, the gradient is ")


def test_two_buffers_are_enough_for_the_last_device_only():
    said = reply(receive_buffers, lambda m, k, K: m % 2)
    assert said.startswith("keep working: device 1 of 3, 8 microbatches: the loss is right, the gradient is ")


def test_a_buffer_for_every_microbatch_is_more_than_needed():
    said = reply(receive_buffers, lambda m, k, K: m)
    assert said == (
        "almost: nothing is overwritten, but device 1 of 2, 4 microbatches fill 4 buffers. "
        "How many still have to be read while one more arrives?"
    )
    assert receive_buffers(lambda m, k, K: m * 10**15).verdict == "almost"
    assert receive_buffers(lambda m, k, K: np.int64(m % (K - k + 1))).verdict == "correct"


def test_one_buffer_more_than_in_flight():
    """Found by following the row: what is in flight, and the one that arrives, if there is one."""
    for K, M in product(range(2, 6), range(1, 9)):
        for k in range(1, K):
            row = gp.OneFOneB(K, M).actions[k]
            assert fewest_buffers(row) == min(gp.formulas.one_f_one_b_in_flight(K, M, k) + 1, M), (K, M, k)
            assert overwritten(row, [m % (K - k + 1) for m in range(M)]) is None, (K, M, k)


def test_what_is_overwritten_is_what_changes_the_gradient():
    row = gp.OneFOneB(2, 4).actions[1]
    loss, gradient = run(row, [0, 1, 2, 3])
    assert loss > 0
    for chosen in product(range(3), repeat=4):
        again, other = run(row, list(chosen))
        assert again == loss
        assert np.array_equal(gradient, other) == (overwritten(row, list(chosen)) is None)


@pytest.mark.parametrize("check", [warm_up, receive_buffers])
def test_without_a_function_it_says_what_to_do(check):
    assert reply(check, None).startswith("your turn: write a function ")
    assert reply(check, 3) == "keep working: pass in a function, not 3"


@pytest.mark.parametrize("check", [warm_up, receive_buffers])
@pytest.mark.parametrize("wrong", [-1, "a", None, True, 0.5, [1]])
def test_what_is_no_count_is_answered(check, wrong):
    said = reply(check, lambda *_: wrong)
    assert said.startswith("keep working: for ") and f"you say {wrong!r}; " in said


@pytest.mark.parametrize("check", [warm_up, receive_buffers])
def test_a_function_that_stops_is_answered(check):
    assert "it stopped: ZeroDivisionError: " in reply(check, lambda *_: 1 // 0)
    assert "it stopped: TypeError: " in reply(check, lambda k: k)


def test_the_natural_wrong_predictions_are_what_they_are_said_to_be():
    dial = [gp.simulate(warming_up([depth] * 4, 8)).makespan for depth in range(9)]
    assert list(lesson_07.DIAL) == [dial[8], dial[0] / 2, (dial[0] + dial[8]) / 2, dial[3]]
    gpipe, one_f = gp.peak_in_flight(gp.GPipe(4, 8)), gp.peak_in_flight(gp.OneFOneB(4, 8))
    assert list(lesson_07.TOGETHER) == [one_f[0], sum(one_f) - 4, 4 * one_f[0], sum(gpipe)]
    few, many = gp.peak_in_flight(gp.OneFOneB(4, 4)), gp.peak_in_flight(gp.OneFOneB(4, 32))
    assert few == many and list(lesson_07.GROWTH) == [0, few[0], 32 / 4]
    measured = {60: lesson_07.DIAL, 10: lesson_07.TOGETHER, 1: lesson_07.GROWTH}
    assert (dial[4], sum(one_f), many[0] / few[0]) == tuple(measured)
    for right, wrong in measured.items():
        for guess, says in wrong.items():
            reply = gp.course.reveal(guess, right, wrong=wrong).reply
            assert reply.verdict == "not what happened" and reply.text.endswith(says), reply
