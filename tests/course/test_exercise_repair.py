"""Repair a broken order: what the check says to right answers and to the usual wrong ones."""

import pytest
from replies import each_reply

import gpipe_sim as gp
from gpipe_sim.course.exercises import repair
from gpipe_sim.course.own_rows import Drawn
from gpipe_sim.course.rows import as_schedule, parsed, who_is_stuck

GIVEN = str(repair.task(0)).rpartition("\n")[0]


def moved(*pairs: tuple[str, str]) -> str:
    """The given text, with the first action of each pair right behind the second one."""
    text = GIVEN
    for action, behind in pairs:
        text = text.replace(f" {action}", "").replace(behind, f"{behind} {action}")
    return text


RIGHT = moved(("0F3", "0W0"))
FIRST = "0I2 needs 1I2, queued behind 1F3, which needs 0F3, queued behind 0I2."
TURN = "Which 'queued behind' of these should be the other way round?"
test_replies = each_reply(
    repair,
    check={
        "correct": [
            (RIGHT, "with 0F3 moved they run, 14 long"),
            (RIGHT.lower().replace("device", "").replace("\n", "\n\n"), "14 long"),
            (parsed(RIGHT), "14 long"),
        ],
        "almost": [
            (moved(("0F3", "0I1")), "with 0F3 moved it runs, and takes 15; 14 is possible. Device"),
            (moved(("0F3", "0W1")), "with 0F3 moved it runs, and takes 16; 14 is possible. Device"),
            (moved(("1F3", "1W1")), "takes 18; 14 is possible. Device 2 waits from 9 to 13 for 1F3"),
            (moved(("1I2", "1I1")), "takes 18; 14 is possible"),
        ],
        "keep working": [
            (GIVEN, f"nothing is moved yet. {FIRST} Which of these waits is only a matter of order?"),
            (moved(("0W2", "0F3")), f"with 0W2 or 0F3 moved, {FIRST} {TURN}"),
            (moved(("1W1", "1I3")), f"with 1W1 or 1I3 moved, {FIRST} {TURN}"),
            (moved(("0W3", "0F3")), "Which 'queued behind'"),
            (moved(("2F3", "2F2")), TURN),
            (moved(("0F3", "0W0"), ("1F3", "1F2")), "rows of the devices 0, 1, and one action has to move"),
            (moved(("0F3", "0W0"), ("0W1", "0W2")), "on device 0 you moved more than one action"),
            (moved(("1I0", "1I1")), TURN),
            (GIVEN.splitlines()[0], "one row for each of the 3 devices, please (got 1)"),
            (RIGHT.replace(" 0F3", ""), "It lacks 0F3. When should the device do that?"),
            (RIGHT.replace("0F3 ", "0F3 0F3 "), "0F3 is in it 2 times. How often is it done in a step?"),
            (RIGHT.replace("1F3", "0F3"), "0F3 is work of stage 0. Which stage is on this device?"),
            (7, "write the rows as one text, such as '0F0 0I0' (got int)"),
        ],
    },
)


@pytest.mark.parametrize("seed", [0, 3])
def test_it_hangs_and_only_what_was_moved_makes_it_as_short_as_before(seed):
    rows, longest, moved = repair.task(seed)
    assert who_is_stuck(as_schedule(rows))
    short = set()
    for k, row in enumerate(rows):
        for action, changed in repair.moves(row):
            schedule = as_schedule([*rows[:k], changed, *rows[k + 1 :]])
            if not who_is_stuck(schedule) and gp.simulate(schedule).makespan <= longest:
                short.add(action)
    assert short == {moved}


def test_wrong_rows_are_drawn():
    assert isinstance(repair.check(GIVEN), Drawn)
    assert isinstance(repair.check(moved(("1F3", "1W1"))), Drawn)
