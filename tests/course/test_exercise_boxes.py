"""When each box of GPipe begins: what the check says to right answers and to the usual wrong ones."""

from fractions import Fraction

from replies import changed_text, each_reply

import gpipe_sim as gp
from gpipe_sim.course.exercises import boxes

RIGHT = """
def start(s, kind, m, K, M, F, B):
    if kind == "F":
        return (s + m) * F
    return (K + M - 1) * F + (K - 1 - s + M - 1 - m) * B
"""


def from_the_end(s, kind, m, K, M, F, B):
    whole = (K + M - 1) * (F + B)
    return (s + m) * Fraction(F) if kind == "F" else whole - (s + m + 1) * B


def but(*swaps):
    return changed_text(RIGHT, *swaps)


test_replies = each_reply(
    boxes,
    check={
        "correct": [(but(), "every box, at 10 sizes"), (from_the_end, "every box")],
        "keep working": [
            (but(("(s + m) * F", "(s + m + 1) * F")), "Is that where its box begins, or where it ends?"),
            (but(("(s + m) * F", "m * F")), "and 0F0 ends at 2 by it. What does it read?"),
            (but(("(s + m) * F", "s * F")), "and 0F0 ends at 2 by it. What does its device do until then?"),
            (but(("(s + m) * F", "(s + m) * B")), "0F0, ends at 2. Why later?"),
            (but(("(s + m) * F", "(s * M + m) * F")), "Why later?"),
            (but(("(K + M - 1)", "(K + M)")), "Why later?"),
            (but(("(K + M - 1)", "M")), "What does its device do until then?"),
            (
                but(("M - 1 - m", "m")),
                "3B2 begins at 18 by your formula; the last that it waits for, 3F2, ends at 12. Why later?",
            ),
            (but(("K - 1 - s", "s")), "3B2 begins at 21"),
            (but(("(K - 1 - s + M - 1 - m) * B", "(K - s + M - m) * B")), "Why later?"),
            (but(("m) * B", "m) * 2 * F")), "2B2 begins at 16"),
            (but(("m) * B", "m) * F")), "and 3B2 ends at 15 by it. What does it read?"),
            (lambda *given: "3", "it gives '3'. At which moment is that?"),
            (but(("return (s + m) * F", "return 0 if s == m == 0 else None")), "after return?"),
        ],
    },
)


def test_the_formula_is_the_simulators():
    for each in [*map(boxes.size, range(20)), boxes.Size(1, 4, 1, 3), boxes.Size(4, 1, 2, 1)]:
        K, M, F, B = each
        timeline = gp.simulate(gp.GPipe(K, M), gp.Costs(F, B, 0))
        wanted = {tuple(span.action): span.start for span in timeline.spans}
        assert wanted == {box: each.start(*box) for box in wanted}
        assert {*each.boxes()} == {*wanted}


def test_in_every_chart_forward_and_backward_are_told_apart():
    assert all(size.B not in (size.F, 2 * size.F, size.F / 2) for size in map(boxes.size, range(100)))
