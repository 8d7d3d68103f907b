"""A memory profile: what the check says to right answers and to the usual wrong ones."""

import re

from replies import changed_text, each_reply

import gpipe_sim as gp
from gpipe_sim.course.exercises import staircase

RIGHT = """
def held(row, samples, boundary, saved):
    now, steps = 0, []
    for action in row.split():
        kind, m = action[1], int(action[2:])
        if kind == "F":
            now += samples[m] * boundary
        if kind == "R" or (kind == "F" and action.replace("F", "R") not in row.split()):
            now += samples[m] * saved
        if kind == "B":
            now -= samples[m] * (boundary + saved)
        steps.append(now)
    return steps
"""


def by_sets(row, samples, boundary, saved):
    """What is there of each microbatch, added up afresh each time."""
    words, there, steps = row.split(), {}, []
    for word in words:
        m = int(word[2:])
        there[m] = {"F": boundary, "R": boundary + saved, "B": 0}[word[1]]
        if word[1] == "F" and word.replace("F", "R") not in words:
            there[m] += saved
        steps.append(sum(samples[i] * each for i, each in there.items()))
    return tuple(steps)


def but(*swaps):
    return changed_text(RIGHT, *swaps)


test_replies = each_reply(
    staircase,
    check={
        "correct": [(but(), "every step of 9 staircases"), (by_sets, "every step")],
        "almost": [
            (
                but(("now, steps = 0, []", "now, steps = 0, [0]"), ("return steps", "return steps[:-1]")),
                "What is there after the first one?",
            ),
        ],
        "keep working": [
            (
                but(('"R" or (kind == "F" and action.replace("F", "R") not in row.split())', '"F"')),
                "can be made then?",
            ),
            (but((' and action.replace("F", "R") not in row.split()', "")), "can be made then?"),
            (but(('kind == "R" or ', "")), "What does it make, and what was there already?"),
            (but(('if kind == "F":', 'if kind in "FR":')), "What does it make, and what was there already?"),
            (but(("samples[m] * (boundary + saved)", "samples[m] * saved")), "What may go after it?"),
            (but(("samples[m] * (boundary + saved)", "samples[m] * boundary")), "What may go after it?"),
            (but(("samples[m] * (boundary + saved)", "now")), "What may go after it?"),
            (but(("samples[m]", "samples[0]")), "your list has 720 after 0F2, 360 more than before it"),
            (but(("samples[m]", "1")), "your list has 20 after 0F0"),
            (but(("now += samples[m] * boundary", "pass")), "your list has 0 after 0F0, 0 more"),
            (but(("steps.append(now)", "steps = max(steps or 0, now)")), "Which list of numbers is that?"),
            (
                but(("steps.append(now)", "steps.append(now)\n        steps.append(now)")),
                "After which of them is each?",
            ),
            (but(("[1], int(action[2:])", "[1], len(steps)")), "IndexError: list index out of range"),
        ],
    },
)


def test_a_row_without_recompute_is_the_meters():
    """In flight times what one microbatch leaves, as the library measures it."""
    schedule = gp.OneFOneB(3, 5)
    row = " ".join(map(str, schedule.actions[1]))
    own = staircase.Device(row, [1] * 5, 1, 2)
    assert max(by_sets(*own)) == 3 * gp.peak_in_flight(schedule)[1]


def test_each_row_has_a_microbatch_that_is_recomputed_and_one_that_is_not():
    for seed in range(40):
        device = staircase.task(seed)
        kinds = re.findall("[FRB]", device.row)
        assert 0 < kinds.count("R") < kinds.count("F") == kinds.count("B") == len(device.samples)
        assert len({*device.samples}) == 2
