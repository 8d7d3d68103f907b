"""A prediction is answered, and its result is folded away until there is a guess."""

import re
from fractions import Fraction

import numpy as np
import pytest

import gpipe_sim as gp
from gpipe_sim.course.printed import ROWS
from gpipe_sim.course.reveal import FRAME, PRESS, reveal

WRONG = {24: "That is without any waiting.", 0.5: "That is half."}


@pytest.mark.parametrize(
    ("guess", "measured", "verdict", "says"),
    [
        (33, 33, "right", "you said 33 units"),
        (np.int64(33), 33, "right", "you said 33 units"),
        (24, 33, "not what happened", "it is 33 units. That is without any waiting."),
        (30, 33, "not what happened", "it is 33 units. It is a little more than you thought."),
        (34, 33, "not what happened", "It is a little less than you thought."),
        (26, 33, "not what happened", "It is more than you thought."),
        (70, 33, "not what happened", "It is far less than you thought."),
        (-1, 33, "not what happened", "It is far more than you thought."),
        (0.501, Fraction(3, 11), "not what happened", "That is half."),
        (0.27, Fraction(3, 11), "near enough", "you said 0.27 units; it is 0.2727 units"),
        (Fraction(57, 2), 28.5, "right", "you said 28.5 units"),
        (10.832001759618581, 10.83200176, "right", "you said 10.83 units"),
        ("thirty", 33, "not a number", "a guess here is a number of units, such as 1 (you wrote 'thirty')"),
        ("", 33, "not a number", "a guess here is a number of units"),
        ("1e999999999", 33, "not a number", "a guess here is a number of units"),
        ("1e3", 1000, "right", "you said 1000 units"),
        ("1/0", 33, "not a number", "a guess here is a number of units"),
        ("33", 33, "right", "you said 33 units"),
        ("six", 6, "right", "you said 6 units"),
        ("57/2 units", 28.5, "right", "you said 28.5 units"),
        ("4,096 Units", 4096, "right", "you said 4096 units"),
        (" 24 ", 33, "not what happened", "it is 33 units. That is without any waiting."),
        ([33], 33, "not a number", "(you wrote [33])"),
        (True, 1, "not a number", "(you wrote True)"),
        (10**400, 33, "not a number", "a guess here is a number"),
        (np.arange(3), 33, "not a number", "a guess here is a number"),
        (float("inf"), 33, "not what happened", "you said inf units; it is 33 units"),
        (None, 33, "your turn", "write your guess in the cell above"),
        (11, 10, "not what happened", "It is a little less than you thought."),
        (12, 10, "not what happened", "It is less than you thought."),
        (5, 10, "not what happened", "It is far more than you thought."),
        (6, 10, "not what happened", "It is more than you thought."),
    ],
)
def test_a_guess_at_a_number_is_answered(guess, measured, verdict, says):
    reply = reveal(guess, measured, "units", wrong=WRONG).reply
    assert reply.verdict == verdict, reply
    assert says in reply.text, reply


@pytest.mark.parametrize(
    ("guess", "verdict", "says"),
    [
        (562, "near enough", "it is 561.2 kB"),
        (545, "not what happened", "The fourth."),
        (544, "not what happened", "The fourth."),
        (530, "not what happened", "The third."),
        (578, "not what happened", "One too many."),
    ],
)
def test_of_answers_that_lie_close_together_the_nearest_is_meant(guess, verdict, says):
    """545 is within 3% of 561.152, and it was once near enough, though it leaves out an array."""
    wrong = {528.384: "The third.", 544.768: "The fourth.", 577.536: "One too many."}
    reply = reveal(guess, 561.152, "kB", wrong=wrong).reply
    assert reply.verdict == verdict and says in reply.text, reply


@pytest.mark.parametrize(
    ("guess", "verdict", "says"),
    [
        ("equal", "right", "you said equal"),
        (" Equal ", "right", "you said Equal"),
        ("similar", "not what happened", "it is: equal. Rounding is all that differs."),
        (3, "not what happened", "you said 3; it is: equal."),
    ],
)
def test_a_guess_in_words_is_answered(guess, verdict, says):
    reply = reveal(guess, "equal", wrong={"similar": "Rounding is all that differs."}).reply
    assert (reply.verdict, says in reply.text) == (verdict, True), reply


def test_one_is_said_of_one_thing():
    """It was "1 buffers"."""
    assert reveal(1, 3, "buffers").reply.text.startswith("you said 1 buffer; it is 3 buffers.")
    assert reveal(1, 8, "microbatches").reply.text.startswith("you said 1 microbatch; it is 8 microbatches.")
    assert reveal(1, 3, "units sooner").reply.text.startswith("you said 1 unit sooner;")
    assert reveal(1, 2, "times the forward").reply.text.startswith("you said 1 times the forward;")


def test_a_guess_in_words_may_be_said_or_written_otherwise():
    assert reveal("the same", "same").reply.verdict == "right"
    assert reveal("4X4", "4 x 4").reply.verdict == "right"
    assert reveal("19%", 19.0, "percent").reply.verdict == "right"
    ways = {"false": "no No. False", "true": "yes TRUE", "equal": "same alike", "same": "equal"}
    ways |= {"data parallel": "data-parallel data_parallel", "six": "6 Six", "7": "seven", "larger": "bigger"}
    for measured, guesses in ways.items():
        assert {reveal(guess, measured).reply.verdict for guess in guesses.split()} == {"right"}
    assert {reveal(guess, "six").reply.verdict for guess in (6, "6", "six")} == {"right"}
    assert reveal(False, "false").reply.verdict == "right"
    said = reveal("same", "larger", wrong={"equal": "They are not alike."}).reply
    assert said.text.endswith("They are not alike.")
    for other in ("smaller", "not equal", "1"):
        assert reveal(other, "equal").reply.verdict == "not what happened"
    wrong = {"4 x 4": "Who waits?"}
    assert reveal("4x4", "1 x 16", wrong=wrong).reply.text == "you said 4x4; it is: 1 x 16. Who waits?"
    assert repr(reveal((0, "F", 0), "0F0").reply) == "right: you said 0F0"


@pytest.mark.parametrize(
    ("guess", "measured", "within", "verdict", "says"),
    [
        (3, 4, 0.25, "near enough", "you said 3 percent; it is 4 percent"),
        (5, 4, 0.25, "near enough", "you said 5 percent"),
        (1.5, 1.2, 0.25, "near enough", "it is 1.2 percent"),
        (4, 4, 0.25, "right", "you said 4 percent"),
        (-3, -4, 0.25, "near enough", "you said -3 percent"),
        (2.9, 4, 0.25, "not what happened", "more than you thought"),
        (6, 4, 0.25, "not what happened", "less than you thought"),
        (1, 0, 0.25, "not what happened", "less than you thought"),
        (3, 4, 0, "not what happened", "more than you thought"),
        (2.9, 2.91, 0.001, "near enough", "it is 2.91 percent"),
        (Fraction(32, 11), 2.91, 0, "right", "you said 2.909 percent"),
        (2.904, 2.91, 0, "near enough", "it is 2.91 percent"),
        (0.53, 0.5, 0.1, "near enough", "it is 0.5 percent"),
        (None, 4, 0.25, "your turn", "write your guess in the cell above"),
    ],
)
def test_a_guess_at_what_a_clock_says_may_be_off(guess, measured, within, verdict, says):
    reply = reveal(guess, measured, "percent", within=within).reply
    assert reply.verdict == verdict, reply
    assert says in reply.text, reply


def test_a_reply_stays_as_it_was_given():
    """FrozenInstanceError is an AttributeError: what happened stays what happened."""
    reply = reveal(24, 33).reply
    with pytest.raises(AttributeError):
        reply.verdict = "right"
    assert reply == reveal(24, 33).reply and hash(reply) == hash(reveal(24, 33).reply)


def test_a_guess_that_python_cannot_print_is_quoted_by_its_type():
    reply = reveal(10**5000, 33).reply
    assert (reply.verdict, reply.text) == (
        "not a number",
        "a guess here is a number, such as 1 (you wrote int)",
    )


def test_a_unit_that_begins_with_of_is_not_named_with_a_second_one():
    reply = reveal("three quarters", Fraction(3, 4), "of all device time").reply
    assert "a guess here is a number of all device time, such as 1" in reply.text


def test_before_the_guess_the_result_is_folded_and_the_text_says_nothing_of_it():
    shown = reveal(None, 33, "units", gp.draw(gp.simulate(gp.GPipe(4, 8))), lambda: print("a < b"))
    opened = re.escape(f"<details {FRAME}><summary {PRESS}>")
    folded = re.fullmatch(rf"{opened}(.*?)</summary>(.*)</details>", shown._repr_html_())
    assert folded[1] == "What happened"
    assert folded[2].startswith("<p>It is <b>33 units</b>.</p><img alt=")
    assert folded[2].endswith(f"<pre {ROWS}><code {ROWS}>a &lt; b</code></pre>")
    assert "33" not in repr(shown)


def test_what_is_no_guess_leaves_the_result_folded():
    shown = reveal("many", 33, "units", "a table")._repr_html_()
    assert shown.startswith("<p><b>not a number</b>: a guess here is a number of units")
    assert re.search(r"<details .*</summary><p>It is <b>33 units</b>.*</details>$", shown)


def test_after_the_guess_everything_is_in_view():
    shown = reveal(24, 33, "units", "a table", wrong=WRONG)._repr_html_()
    assert "<details" not in shown
    assert shown == (
        "<p><b>not what happened</b>: you said 24 units; it is 33 units. That is without any waiting.</p>"
        f"<p>It is <b>33 units</b>.</p><pre {ROWS}><code {ROWS}>a table</code></pre>"
    )


def test_what_is_no_unit_or_no_measurement_is_refused():
    with pytest.raises(TypeError, match="reveal needs unit to be a text, such as 'units'"):
        reveal(1, 2, 3)
    with pytest.raises(TypeError, match="reveal needs measured to be a number"):
        reveal(1, None)


def test_why_it_happened_stands_in_the_fold_in_paragraphs_and_the_fold_has_a_name():
    why = """Of `a < b` the *first*
    is **less**.

    And so on."""
    shown = reveal(None, 33, "units", why=why, name="How long a & b are")._repr_html_()
    assert ">How long a &amp; b are</summary>" in shown
    told = "<p>Of <code>a &lt; b</code> the <i>first</i>\nis <b>less</b>.</p><p>And so on.</p></details>"
    assert shown.replace("    ", "").endswith(told)
