"""What every check of rows says to rows that are written otherwise, or that have other actions."""

import numpy as np
import pytest
from replies import assert_says

from gpipe_sim.course import answers, lesson_04, lesson_07, lesson_09, lesson_14, lesson_15, lesson_19

CHECKS = {
    lesson_04.gpipe_rows: answers.gpipe_rows,
    lesson_07.capped_rows: answers.capped_rows,
    lesson_09.interleaved_rows: answers.interleaved_rows,
    lesson_14.putting_off: answers.putting_off,
    lesson_15.stamped: answers.stamped,
    lesson_19.stream: answers.stream_rows,
}
TWICE = "Later lessons read it more than once"
A_ROW = "What would a list of actions be?"
A_TUPLE = "How is 0F0 written as a tuple of stage, kind, microbatch"


def each_action(change):
    return lambda rows: [[change(*action) for action in row] for row in rows]


def each_row(change):
    return lambda rows: [change(row) for row in rows]


WRITTEN = [
    (iter, TWICE),
    (tuple, f"it gives a tuple. {TWICE}"),
    (lambda rows: dict(enumerate(rows)), "What stands in a list with a row for each device?"),
    (lambda rows: rows[:-1], "How many devices want a row?"),
    (lambda rows: [action for row in rows for action in row], "How many devices want a row?"),
    (each_row(iter), f"is a list_iterator. {TWICE}"),
    (each_row(tuple), f"is a tuple. {TWICE}"),
    (each_row(lambda row: None), f"is None. {A_ROW}"),
    (each_row(lambda row: " ".join("{}{}{}".format(*action) for action in row)), A_ROW),
    (each_row(lambda row: [*row, None]), f"has None. {A_TUPLE}"),
    (each_action("{}{}{}".format), A_TUPLE),
    (each_action(lambda s, kind, m: [s, kind, m]), A_TUPLE),
    (each_action(lambda s, kind, m: (kind, s, m)), A_TUPLE),
    (each_action(lambda s, kind, m: (float(s), kind, m)), A_TUPLE),
    (each_action(lambda s, kind, m: (s, kind.lower(), m)), A_TUPLE),
    (each_action(lambda s, kind, m: (s, kind, m, 0)), A_TUPLE),
    (each_action(lambda s, kind, m: (s, kind, m + 1)), "is the last. Where does it come from?"),
    (each_action(lambda s, kind, m: (s + 99, kind, m)), "is work of stage 99. Which stage"),
    (each_row(lambda row: row + row[:1]), "is in it 2 times. How often is it done in a step?"),
    (each_row(lambda row: row[:-1]), "It lacks "),
    (each_row(lambda row: []), "is empty. It lacks "),
]


def judged(check, change):
    rows = CHECKS[check]
    found = [lambda *given: change(rows(*given)), answers.versions_seen]
    return check(*found[: 2 if check is lesson_19.stream else 1])


@pytest.mark.parametrize(("change", "words"), WRITTEN)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_rows_that_are_no_rows_or_of_other_actions_are_told_so(check, change, words):
    if "tuple. Later" in words and check in (lesson_14.putting_off, lesson_15.stamped):
        assert judged(check, change).verdict == "correct"  # no later lesson wants lists of these
        return
    assert_says(judged(check, change), "keep working", words)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_numpys_whole_numbers_are_whole_numbers(check):
    numpys = each_action(lambda s, kind, m: (np.int8(s), kind, np.int64(m)))
    assert judged(check, numpys).verdict == "correct"
