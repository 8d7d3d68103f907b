"""Fill the gaps: what the check says to right answers and to the usual wrong ones."""

from itertools import permutations

import pytest
from replies import changed_text, each_reply

from gpipe_sim.course.exercises import gaps

RIGHT = """
def place(busy, w):
    starts, free = {}, 0
    for kind, m, _, ready in busy:
        if kind == "I":
            at = max(ready, free)
            for _, _, start, end in busy:
                if start < at + w and at < end:
                    at = end
            starts[m], free = at, at + w
    return [starts[m] for m in range(len(starts))]
"""


def unit_by_unit(busy, w):
    """Whoever is ready and fits, the latest that came back first."""
    starts, waiting, t = {}, [], 0
    while len(starts) < len(busy) // 2:
        waiting += [m for kind, m, _, end in busy if kind == "I" and end == t]
        if waiting and all(end <= t or start >= t + w for _, _, start, end in busy):
            starts[waiting.pop()] = t
            waiting += [m for kind, m, _, end in busy if kind == "I" and t < end < t + w]
            t += w
        else:
            t += 1
    return tuple(starts[m] for m in range(len(starts)))


def but(*swaps):
    return changed_text(RIGHT, *swaps)


def at_the_end(busy, w):
    return [busy[-1][3] + m * w for m in range(len(busy) // 2)]


FITS = "if start < at + w and at < end:"
test_replies = each_reply(
    gaps,
    check={
        "correct": [
            (but(), "the last W ends as soon as can be, on 12 devices"),
            (unit_by_unit, "no F or I moves"),
        ],
        "almost": [(lambda busy, w: busy.clear() or [0], "busy is not what it was before")],
        "keep working": [
            (
                at_the_end,
                "At 23 the device is free, I0 is done, and no F or I begins before 26. Your W0 begins at 33. "
                "What does it wait for?",
            ),
            (
                but(("max(ready, free)", "ready"), (FITS, "if False:")),
                "W0 runs from 13 to 16, and F3 from 13 to 14. What does the device do when it begins?",
            ),
            (but((FITS, "if start <= at < end:")), "How long is the gap that W0 begins in?"),
            (but(("max(ready, free)", "ready")), "When is the device free again?"),
            (but(("max(ready, free)", "free")), "W0 begins at 3, and I0 ends at 13. What does W0 read?"),
            (but((FITS, "if start <= at + w and at < end:")), "33. What does it wait for?"),
            (but(("at, at + w", "at, at + 2 * w")), "What does it wait for?"),
            (but(("for m in range(len(starts))]", "for m in starts]")), "What does W0 read?"),
            (
                but(("for kind, m, _, ready in busy", "for kind, m, _, ready in sorted(busy)")),
                "the last W ends at 18, and 14 is possible. At 5 the device is free, I1 is done",
            ),
            (but(('if kind == "I"', 'if kind == "F"')), "What does W0 read?"),
            (but(("return [starts[m] for m in range(len(starts))]", "return starts")), "in a list?"),
            (but(("range(len(starts))", "range(1, len(starts))")), "each of the 5 W begin"),
            (but((FITS, "if start < at + w - 1 and at < end:")), "How long is the gap that W0 begins in?"),
        ],
    },
)


@pytest.mark.parametrize("seed", range(6))
def test_no_other_order_is_done_sooner(seed):
    device = gaps.task(seed)
    for order in permutations(range(len(device.done()))):
        free = 0
        for m in order:
            at = max(free, device.done()[m])
            for _, _, start, end in device.busy:
                at = end if start < at + device.w and at < end else at
            free = at + device.w
        assert free >= max(device.places().values()) + device.w


def test_who_leaves_one_gap_is_nearly_done():
    device = gaps.EDGES[0]
    assert gaps._what_is_wrong([5], device, "") is None
    with pytest.raises(Exception, match=r"almost: : the last W ends at 8, and 7 is possible. At 5 .* all F"):
        gaps._what_is_wrong([6], device, "")
