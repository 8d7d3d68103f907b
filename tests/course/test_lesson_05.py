"""Lesson 05: what the checks say to right answers and to the usual wrong ones."""

from itertools import pairwise

import pytest

import gpipe_sim as gp
from gpipe_sim.course import lesson_05
from gpipe_sim.course.lesson_05 import KNOT, LONG, ROOM, short_and_small, unlock

PUT_OFF = """
0F0 0F1 0F2 0F3 0B3 0B1 0B2 0B0
1F0 1F1 1F2 1F3 1B0 1B1 1B2 1B3
2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3"""
WAITS_AT_ONCE = """
0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3
1F0 1F2 1F3 1F1 1B0 1B1 1B2 1B3
2F0 2F1 2B0 2B1 2F2 2B2 2F3 2B3"""
LATE = """
0F0 0F1 0F2 0F3 0B3 0B2 0B1 0B0
1F3 1F2 1F1 1F0 1B3 1B2 1B1 1B0
2F3 2F2 2F1 2F0 2B3 2B2 2B1 2B0"""


def warming_up(depths: tuple[int, ...], microbatches: int = 4) -> gp.Explicit:
    """Each device does so many forwards, then a forward and a backward in turn, then what is left."""
    rows = []
    for device, depth in enumerate(depths):
        row = [gp.F(device, m) for m in range(depth)]
        for m in range(microbatches - depth):
            row += [gp.F(device, depth + m), gp.B(device, m)]
        rows.append([*row, *(gp.B(device, m) for m in range(microbatches - depth, microbatches))])
    return gp.Explicit(rows)


def reply(check, answer) -> str:
    return repr(check(answer))


def test_what_is_asked_for_is_what_1f1b_does():
    schedule = gp.OneFOneB(3, 4)
    assert (gp.simulate(schedule).makespan, gp.peak_in_flight(schedule)) == (LONG, ROOM)
    assert reply(short_and_small, str(schedule)).startswith("correct: 18 long, peaks 3, 2, 1.")
    assert short_and_small(schedule).verdict == "correct"


def test_any_order_as_short_and_as_small_will_do():
    other = (1, 0, 3, 2)
    rows = gp.OneFOneB(3, 4).actions
    renamed = [[action._replace(microbatch=other[action.microbatch]) for action in row] for row in rows]
    assert short_and_small(gp.Explicit(renamed)).verdict == "correct"


def test_one_warm_up_too_many():
    said = reply(short_and_small, warming_up((3, 2, 1)))
    assert said == "almost: also 18, but peaks 4, 3, 2. What did the extra forward buy?"


def test_all_forwards_first():
    said = reply(short_and_small, gp.GPipe(3, 4))
    assert said == "almost: also 18, but peaks 4, 4, 4. What did the extra forwards buy?"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (gp.Naive(3, 4), "takes 36, with peaks 1, 1, 1. Device 2 waits from 5 to 11 for 1F1. What keeps 1F1"),
        (
            WAITS_AT_ONCE,
            "takes 21, with peaks 4, 4, 2. Device 2 waits from 3 to 6 for 1F1. What keeps 1F1 so",
        ),
        (warming_up((1, 1, 0)), "takes 24, with peaks 2, 2, 1. Device 2 waits from 8 to 11 for 1F2."),
        (
            PUT_OFF,
            "Device 2 is done at 14; the others go on until 24. What have they put off?",
        ),
        (
            LATE,
            "Device 2 starts at 5, and could at 2. What do the others do first?",
        ),
    ],
)
def test_too_long(answer, says):
    said = reply(short_and_small, answer)
    assert said.startswith("almost: it takes") and says in said


def test_an_order_that_cannot_run_is_explained():
    assert reply(unlock, KNOT) == (
        "keep working: 0B0 needs 1B0, queued behind 1F1, which needs 0F1, queued behind 0B0."
    )
    assert unlock(str(KNOT)) == unlock(KNOT)
    said = reply(short_and_small, warming_up((0, 1, 0)))
    assert said == "keep working: 0B0 needs 1B0, queued behind 1F1, which needs 0F1, queued behind 0B0."
    backward_first = "0B0 0F0 0F1 0B1\n1F1 1B1 1F0 1B0"
    assert reply(unlock, backward_first) == "keep working: 0B0 needs 0F0, queued behind 0B0."
    head_on = "0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0".replace("1F1 1B1 1F0 1B0", "1B0 1F1 1F0 1B1")
    assert reply(unlock, head_on) == "keep working: 1B0 needs 1F0, queued behind 1B0."


def test_one_swap_and_only_one_unlocks():
    freed = [swapped for swapped in swaps() if unlock(swapped).verdict == "correct"]
    assert [str(order) for order in freed] == ["device 0: 0F0 0F1 0B0 0B1\ndevice 1: 1F1 1B1 1F0 1B0"]
    assert "it runs and takes 12; the devices hold at most 2, 1." in reply(unlock, freed[0])
    assert all(unlock(swapped).verdict == "keep working" for swapped in swaps() if swapped not in freed)


def swaps() -> list[gp.Explicit]:
    found = []
    for device in range(2):
        for i in range(4):
            for j in range(i):
                rows = [list(row) for row in KNOT.actions]
                rows[device][i], rows[device][j] = rows[device][j], rows[device][i]
                found.append(gp.Explicit(rows))
    return found


def test_another_order_altogether_is_more_than_a_swap():
    said = reply(unlock, gp.OneFOneB(2, 2))
    assert said.startswith(
        "almost: it runs and takes 9, but 0F1, 0B0, 1F0, 1B0, 1F1, 1B1 stand elsewhere now."
    )


@pytest.mark.parametrize("check", [short_and_small, unlock])
def test_without_an_answer_it_says_what_to_do(check):
    assert reply(check, None).startswith("your turn: write ")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (5, "write the rows as one text, such as '0F0 0B0' (got int)"),
        ("", "one row for each of the 2 devices, please (got 0)"),
        ("0F0 0B0", "one row for each of the 2 devices, please (got 1)"),
        ("0F0 and so on\n1F0", "'and' is not an action"),
        ("0F0 0F1 0B0 0B1\n1F0 1F1 1B0", "1B1 is missing"),
        ("0F0 0F0 0F1 0B0 0B1\n1F0 1F1 1B0 1B1", "0F0 stands 2 times"),
        ("1F0 1F1 1B0 1B1\n0F0 0F1 0B0 0B1", "0F0 is on device 1, but stage 0 is on device 0 (and"),
        ("0F0 0F1 0I0 0W0 0B1\n1F0 1B0 1F1 1B1", "0I0 is neither a forward nor a backward; use those"),
        ("0F0 0F1 0B0 0B1\n(1F0;1B0)OVERLAP_F_B 1F1 1B1", "(1F0;1B0)OVERLAP_F_B is neither a forward nor"),
        ("99999999999F0 0F1\n1F0 0F99999999999", "99999999999F0 is out of range"),
    ],
)
def test_what_is_no_order_is_answered_too(answer, says):
    said = reply(unlock, answer)
    assert said.startswith("keep working: ") and says in said


def test_the_natural_wrong_predictions_are_what_they_are_said_to_be():
    order = gp.Explicit.parse("0F0 0F1 0F2 0B0 0B1 0B2\n1F0 1B0 1F1 1B1 1F2 1B2")
    other = gp.Explicit.parse("0F0 0F1 0F2 0B2 0B1 0B0\n1F2 1B2 1F1 1B1 1F0 1B0")
    four = [gp.Action.parse(text) for text in ("0F1", "1F1", "1B1", "0B1")]
    needs = {str(action): list(map(str, gp.needs(action, order))) for action in four}
    assert needs == {"0F1": [], "1F1": ["0F1"], "1B1": ["1F1"], "0B1": ["0F1", "1B1"]}
    before = {str(b): str(a) for row in order.actions for a, b in pairwise(row)}
    on_the_row = sum(len({*found, before[text]}) for text, found in needs.items())
    count = sum(map(len, needs.values()))
    assert list(lesson_05.NEEDS) == [count - 1, count + 1, on_the_row]
    ends = gp.simulate(order).ends
    assert (ends[gp.F(1, 0)], ends[gp.F(0, 2)], ends[gp.B(1, 0)]) == (2, 3, 4)
    assert list(lesson_05.LENGTHS) == [3 * 3, gp.simulate(order).makespan, 2 * 3 * 3]
    step, path = lengths((1, 2, 1))
    assert list(lesson_05.SOONER) == [0, path[0], 4 * 3 / 2, path[1] / 2, step / 2]
    able = [each for each in (gp.GPipe(2, 3), gp.OneFOneB(2, 3)) if not gp.problems(each, sends="blocking")]
    assert able == [gp.GPipe(2, 3)]
    for right, wrong in {
        count: lesson_05.NEEDS,
        "1B0": lesson_05.WAITS_FOR,
        gp.simulate(other).makespan: lesson_05.LENGTHS,
        lesson_05.follow(KNOT)[0]: lesson_05.LAST,
        "GPipe": lesson_05.BLOCKING,
        step - lengths((0.5, 2, 1))[0]: lesson_05.SOONER,
    }.items():
        for guess, says in wrong.items():
            reply = gp.course.reveal(guess, right, wrong=wrong).reply
            assert reply.verdict == "not what happened" and reply.text.endswith(says), reply


def lengths(times) -> tuple[float, list[float]]:
    """How long GPipe takes on three such stages, and how much of its critical path is on each device."""
    timeline = gp.simulate(gp.GPipe(3, 4), gp.Costs(forward=times, input_grad=times, weight_grad=times))
    path = gp.critical_path(timeline)
    on = [sum(span.end - span.start for span in path if span.device == k) for k in range(3)]
    return timeline.makespan, on


def test_rows_are_followed_as_far_as_they_go():
    last, message, picture = lesson_05.follow(KNOT)
    assert last == "0F0" and "device 1 is stuck at 1F1" in message and "deadlocked" in repr(picture)
    assert lesson_05.follow(gp.GPipe(2, 2))[0] == "0B0"
