"""A reply draws the student's own rows, as far as they go."""

import pytest

from gpipe_sim.course.own_rows import MOST, drawn
from gpipe_sim.course.reply import almost
from gpipe_sim.course.rows import parsed

KNOT = "0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0"
BACKWARDS_IN_ORDER = "0F0 0F1 0B0 0B1\n1F0 1F1 1B0 1B1"


def picture(rows, at=None):
    reply = drawn(almost("Which comes first, <0B0> or 0B1?"), parsed(rows), at)
    assert (reply.verdict, str(reply)) == ("almost", "almost: Which comes first, <0B0> or 0B1?")
    assert reply._repr_html_().startswith("<p><b>almost</b>: Which comes first, &lt;0B0&gt; or 0B1?</p><img ")
    return reply.picture.says, reply.picture.more


def test_legal_rows_are_drawn_whole():
    says, rows = picture(BACKWARDS_IN_ORDER)
    assert says == "Chart: Your rows (2 devices, 2 microbatches; F takes 1, B 2)"
    assert rows == "device 0: 0F0 0F1 0B0 0B1\ndevice 1: 1F0 1F1 1B0 1B1"


def test_rows_are_drawn_until_the_action_that_is_wrong_begins():
    says, rows = picture(BACKWARDS_IN_ORDER, (1, 2))
    assert says == "Your rows, here: 1B0"
    assert rows == "device 0: 0F0 0F1\ndevice 1: 1F0 1F1 1B0"


@pytest.mark.parametrize("at", [None, (0, 2)], ids=["stuck", "wrong further on, where it never comes"])
def test_rows_that_get_stuck_are_drawn_until_then(at):
    says, rows = picture(KNOT, at)
    assert says == "Your rows, stuck at 0B0 and 1F1"
    assert rows == "device 0: 0F0 0B0\ndevice 1: 1F1"


@pytest.mark.parametrize(
    ("rows", "at", "says"),
    [
        ("0F0 0F0 0B0\n1F0 1B0", (0, 1), "here: 0F0"),
        ("0F0 4F0 0B0\n1F0 1B0", (0, 1), "stuck at 4F0"),
        ("0F0 0B0\n\n1F0", None, "stuck at 0B0"),
        ("0F0 0F1 2F0 2F1 2B0 2B1\n1F0 1F1 3F0 3B0 1B0", (1, 2), "here: 3F0"),
        ("0F0 0I0 0W0\n1F0 1W0 1I0", None, "stuck at 0I0 and 1W0"),
        ("0F0 0R0 0B0 0U0", (0, 1), "here: 0R0"),
    ],
)
def test_rows_need_not_be_legal(rows, at, says):
    assert picture(rows, at)[0] == f"Your rows, {says}"


@pytest.mark.parametrize("rows", ["\n", f"{10**12}F0", f"0F{10**12}", "0F0 " * MOST])
def test_what_no_chart_can_show_has_no_picture(rows):
    reply = almost("Which?")
    assert drawn(reply, parsed(rows)) is reply
