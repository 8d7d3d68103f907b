"""Complete a schedule: what the check says to right answers and to the usual wrong ones."""

import re

import pytest
from replies import each_reply

import gpipe_sim as gp
from gpipe_sim.course.exercises import complete
from gpipe_sim.memory import greedy

PUZZLE = complete.task(0)
RIGHT = """\
0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3
1F0 1F1 1F2 1B0 1F3 1B1 1B2 1B3
2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3
3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3"""
TUPLES = [[(int(s), kind, int(m)) for s, kind, m in row.split()] for row in RIGHT.splitlines()]


def but(*swaps: tuple[str, str]) -> str:
    """The right text, with these actions exchanged."""
    text = RIGHT
    for one, other in swaps:
        places = {one: other, other: one}
        text = re.sub(f"{one}|{other}", lambda found, to=places: to[found[0]], text)
    return text


test_replies = each_reply(
    complete,
    check={
        "correct": [
            (RIGHT, "30 long, and the devices hold at most 3, 3, 1, 1"),
            (RIGHT.lower().splitlines(), "30 long"),
            (TUPLES, "30 long"),
            (but(("0B1", "0B2")), "30 long"),  # as short, and not the planner's
        ],
        "almost": [
            (but(("0F0", "0F1")), "and takes 31; 30 is possible. Device 0 waits from 3 to 11 for 1B0"),
        ],
        "keep working": [
            (str(PUZZLE).rpartition("\n")[0], "'___' is no action: write stage, F or B"),
            (RIGHT.splitlines()[0], "one row for each of the 4 devices, please (got 1)"),
            (7, "write the rows as one text, such as '0F0 0B0' (got int)"),
            (RIGHT.replace("1F1", "1F0"), "Does each stage do every forward and every backward once"),
            (RIGHT.replace(" 2B3", ""), "Does each stage do every forward and every backward once"),
            (RIGHT.replace("2B0", "1B0"), "on its own device?"),
            (but(("1F1", "1F2")), "has 1F1 at place 1 of device 1, counted from 0, and you have 1F2"),
            (but(("1B0", "1F3")), "0B0 needs 1B0, queued behind"),
            (but(("3F0", "3F1")), "2B0 needs 3B0, queued behind 3F1, which needs 2F1, queued behind 2B0"),
            (but(("3F2", "3B2")), "3B2 needs 3F2, queued behind 3B2. What would have to come earlier"),
        ],
    },
)


@pytest.mark.parametrize("seed", range(30))
def test_every_seed_has_blanks_and_an_answer(seed):
    puzzle = complete.task(seed)
    blanks = sum(word == complete.BLANK for row in puzzle.rows for word in row)
    assert blanks == complete.BLANKS
    best = greedy(4, len(puzzle.rows[0]) // 2, memory_limit=puzzle.caps)
    assert complete.check(str(best), seed).verdict == "correct"
    assert puzzle.longest > gp.simulate(gp.OneFOneB(4, best.microbatches)).makespan


def test_who_holds_too_much_is_told_with_which_forward():
    puzzle = complete.task(9)
    best = str(greedy(4, 4, memory_limit=puzzle.caps))
    reply = complete.check(best.replace("2B0 2F1", "2F1 2B0"), 9)
    assert reply.verdict == "almost"
    assert "device 2 has room for 1 and holds 2 with 2F1. What would make room" in reply.text
