"""Lesson 13: what the checks say to right answers and to the usual wrong ones."""

from collections.abc import Iterator
from fractions import Fraction

import pytest

import gpipe_sim as gp
from gpipe_sim.course.lesson_13 import (
    ALL_PUT_OFF,
    GIVEN,
    IN_HALVES,
    PERCENT,
    SETTINGS,
    TWICE_THE_WARM_UP,
    put_off,
    small_weight_times,
)

TURNS = ["2F0", "2I0", "2F1", "2I1", "2F2", "2I2", "2F3", "2I3"]
GOOD = "2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3"


def reply(check, answer) -> str:
    return repr(check(answer))


def placements(row: tuple[str, ...] = ()) -> Iterator[str]:
    """Every row in which forwards and input gradients take turns and the W follow their I in order."""
    turns, weights = sum("W" not in cell for cell in row), sum("W" in cell for cell in row)
    if len(row) == 12:
        yield " ".join(row)
    if turns < len(TURNS):
        yield from placements((*row, TURNS[turns]))
    if weights < 4 and f"2I{weights}" in row:
        yield from placements((*row, f"2W{weights}"))


def step_with(row: str) -> gp.Explicit:
    return gp.Explicit.parse("\n".join([*str(GIVEN).splitlines()[:2], row]))


def test_a_row_that_puts_w_off():
    assert reply(put_off, GOOD) == (
        "correct: 14 long, and device 2 holds at most 3. Which of your W fills which hole?"
    )
    assert put_off(f"device 2: {GOOD}\n").verdict == "correct"


def test_of_all_places_for_w_those_that_take_14_are_correct():
    """No row is shorter: device 2 starts at 2 and has 12 units to do."""
    rows = list(placements())
    lengths = {row: gp.simulate(step_with(row)).makespan for row in rows}
    assert (min(lengths.values()), gp.simulate(GIVEN).makespan) == (14, 14)
    assert [row for row in rows if put_off(row).verdict == "correct"] == [r for r in rows if lengths[r] == 14]
    assert sum(length == 14 for length in lengths.values()) == 3 < len(rows) == 55


def test_every_slower_row_is_told_who_waits():
    for row in placements():
        if (answer := put_off(row)).verdict != "correct":
            assert answer.text.startswith(f"it takes {gp.simulate(step_with(row)).makespan}. Device ")
            assert " waits from " in answer.text and answer.text.endswith("?")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (
            "2F0 2I0 2W0 2F1 2I1 2W1 2F2 2I2 2W2 2F3 2I3 2W3",
            "almost: it takes 16. Device 1 waits from 6 to 7 for 2I1, which stands behind 2W0 on your row. "
            "Who waits for 2W0?",
        ),
        (
            "2F0 2I0 2F1 2I1 2F2 2I2 2F3 2I3 2W0 2W1 2W2 2W3",
            "almost: it takes 15. Device 2 waits from 8 to 9. What could it do then?",
        ),
        (
            "2F1 2F0 2I0 2I1 2W0 2W1 2F2 2F3 2I2 2I3 2W2 2W3",
            "almost: it takes 18. Device 1 waits",
        ),
        ("2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3", "keep working: 2B0 is a backward in one piece; write its I and"),
        ("2F0 2F1 2F2 2F3 2I0 2I1 2I2 2I3 2W0 2W1 2W2 2W3", "keep working: 1I0 needs 2I0, queued behind 2F2"),
        ("2F0 2I0 2F1 2I1", "keep working: 2W0 is missing; 2I0 leaves it to do (and 5 more)"),
        ("2F0 nonsense", "keep working: 'nonsense' is not an action"),
        (f"{GOOD}\n{GOOD}", "keep working: one row please, that of device 2 (got 2)"),
        ("", "keep working: one row please, that of device 2 (got 0)"),
        (3, "keep working: write the row as text, such as '2F0 2I0 2W0' (got int)"),
        (None, "your turn: write the row of device 2 as text: four F, four I and four W"),
    ],
)
def test_other_rows(row, says):
    assert reply(put_off, row).startswith(says)


def zb_h2(K, M, F, I, W):
    bubble = (K - 1) * (F + I - 2 * W)
    return Fraction(bubble, bubble + M * (F + I + W))


def test_the_span_bubble_of_zb_h2():
    assert reply(small_weight_times, zb_h2) == (
        "correct: exact in 5 settings, down to W = 0. What can ZB-H2 fill its bubble with then?"
    )


def test_the_settings_are_where_the_formula_holds():
    for K, M, F, I, W in SETTINGS:
        assert M >= 2 * K - 1 and min(F, I) >= W
        assert gp.formulas.zbh2_bubble_time(K, F, I, W) == (K - 1) * (F + I - 2 * W)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda K, M, F, I, W: float(zb_h2(K, M, F, I, W)), "0.1765 is right but for rounding."),
        (lambda K, M, F, I, W: round(float(zb_h2(K, M, F, I, W)), 4), "0.1765 is right but for rounding."),
        (lambda K, M, F, I, W: 100 * zb_h2(K, M, F, I, W), "that is in percent. As a fraction of 1?"),
        (lambda K, M, F, I, W: (K - 1) * (F + I - 2 * W), "that is the bubble time. Over how long a span?"),
        (
            lambda K, M, F, I, W: Fraction((K - 1) * (F + I - 2 * W), M * (F + I + W)),
            "that is idle over useful time. Divide by the longest span.",
        ),
        (
            lambda K, M, F, I, W: 1 - Fraction(M * (F + I + W), M * (F + I + W) + (K - 1) * (F + I - W)),
            "that is ZB-H1's. How many W does a device of ZB-H2 put off?",
        ),
        (lambda K, M, F, I, W: Fraction(K - 1, K - 1 + M), "that is 1F1B's. What has moved into its holes?"),
    ],
)
def test_near_misses_are_named(answer, says):
    said = reply(small_weight_times, answer)
    assert said.startswith("almost: K = ") and f"W = 1: {says}" in said


def test_the_bubble_fraction_is_told_from_the_span_bubble_where_they_differ():
    """They are equal where W is short: then device 0 is the last to be done."""
    said = reply(
        small_weight_times,
        lambda *s: gp.bubble_fraction(gp.simulate(gp.ZBH2(*s[:2]), gp.Costs(*map(Fraction, s[2:])))),
    )
    assert said == (
        "almost: K = 6, M = 11, F = 4, I = 4, W = 4: that is the bubble fraction, corners and all. "
        "Which corners does a span leave out?"
    )


def test_the_makespan_is_told_from_the_longest_span():
    def over_the_makespan(K, M, F, I, W):
        timeline = gp.simulate(gp.ZBH2(K, M), gp.Costs(*map(Fraction, (F, I, W))))
        return Fraction((K - 1) * (F + I - 2 * W)) / timeline.makespan

    said = reply(small_weight_times, over_the_makespan)
    assert said.endswith("W = 7: that is idle over the makespan. Is any device there from 0 to the end?")


@pytest.mark.parametrize("wrong", ["a", None, True, 1j, [1]])
def test_what_is_no_number_is_answered(wrong):
    said = reply(small_weight_times, lambda *_: wrong)
    assert said.startswith("keep working: K = 3, M = 7, F = 5, I = 6, W = 1: you say ")
    assert said.endswith("the span bubble is a number, such as Fraction(1, 10)")


@pytest.mark.parametrize("wrong", [0, 0.5, float("nan"), float("inf")])
def test_other_numbers_are_set_beside_the_measurement(wrong):
    said = reply(small_weight_times, lambda *_: wrong)
    assert said.endswith(f"you say {wrong:.4f}, measured 0.1765. Idle over what?")


def test_a_function_that_stops_is_answered():
    assert "it stopped: ZeroDivisionError: " in reply(small_weight_times, lambda *_: 1 // 0)
    assert "it stopped: TypeError: " in reply(small_weight_times, lambda K: K)
    assert reply(small_weight_times, 3) == "keep working: pass in a function, not 3"
    assert reply(small_weight_times, None) == "your turn: write a function of (K, M, F, I, W) and pass it in"


def one_f_one_b_in_halves(delay: int = 0) -> gp.Explicit:
    """1F1B, 4 x 8, each B as I and W, every W put off by some microbatches."""
    rows = []
    for row in gp.OneFOneB(4, 8).actions:
        new, waiting = [], []
        for action in row:
            if action.kind == "F":
                new.append(action)
                continue
            new.append(gp.I(action.stage, action.microbatch))
            waiting.append(gp.W(action.stage, action.microbatch))
            if len(waiting) > delay:
                new.append(waiting.pop(0))
        rows.append(new + waiting)
    return gp.Explicit(rows)


RUN = gp.published.ZERO_BUBBLE[0]
MEASURED = {
    "in halves": (IN_HALVES, gp.simulate(one_f_one_b_in_halves()).makespan),
    "all put off": (ALL_PUT_OFF, gp.simulate(one_f_one_b_in_halves(delay=3)).makespan),
    "twice the warm-up": (TWICE_THE_WARM_UP, gp.simulate(gp.ZBH2(4, 8)).makespan),
    "percent": (PERCENT, 100 * gp.span_bubble(gp.simulate(gp.ZBH2(8, 24), RUN.costs(1)))),
}


@pytest.mark.parametrize(
    ("known", "measured", "wrong"),
    [(*case, wrong) for case in MEASURED.values() for wrong in case[0]],
)
def test_a_natural_wrong_guess_is_told_what_it_is(known, measured, wrong):
    said = gp.course.reveal(wrong, measured, within=0.07 * (known is PERCENT), wrong=known).reply
    assert said.verdict == "not what happened"
    assert said.text.endswith(known[wrong])


def test_wrong_percents_follow_from_the_formulas_of_the_other_orders():
    K, M, F, I, W = RUN.devices, RUN.microbatches, RUN.forward, RUN.input_grad, RUN.weight_grad
    bubbles = [(K - 1) * (F + I + by * W) for by in (1, -1, -2)]
    one_f_one_b, h1, h2 = (bubble / (bubble + M * (F + I + W)) for bubble in bubbles)
    assert [round(100 * one_f_one_b, 1), round(100 * h1, 1), round(h2, 3)] == [22.6, 14.8, 0.102]


def test_at_the_measured_times_v_min_takes_a_tenth_longer_than_1f1b():
    v_min = gp.simulate(gp.VMin(RUN.devices, RUN.microbatches), RUN.costs(2)).makespan
    one_f_one_b = gp.simulate(gp.OneFOneB(RUN.devices, RUN.microbatches), RUN.costs(1)).makespan
    assert v_min / one_f_one_b == pytest.approx(1.1, abs=0.005)
