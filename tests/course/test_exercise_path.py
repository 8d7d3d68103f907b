"""Where a second counts: what the check says to right answers and to the usual wrong ones."""

import numpy as np
import pytest
from replies import changed_text, each_reply

from gpipe_sim.course.answers import NEEDS, needs
from gpipe_sim.course.exercises import path

RIGHT = """
def on_chain(rows):
    found = [0 for _ in rows]
    spans = {span[:3]: span for row in rows for span in row}
    span = max(spans.values(), key=lambda span: span[4])
    while span:
        s, kind, m, start, end = span
        found[s] += end - start
        place = rows[s].index(span)
        waited_for = rows[s][place - 1 : place] if place else []
        waited_for += [spans.get((s - 1 if kind == "F" else s + 1, kind, m))]
        span = next((each for each in waited_for if each and each[4] == start), None)
    return found
"""


def longest_from_the_start(rows):
    """Forwards in time: for each action the chain that leads to it."""
    chains, spans = {}, {span[:3]: span for row in rows for span in row}
    for span in sorted(spans.values(), key=lambda span: (span[4], span[3])):
        s, kind, m, start, end = span
        own = tuple((end - start) * (k == s) for k in range(len(rows)))
        place = rows[s].index(span)
        before = {one[:3] for one in rows[s][max(0, place - 1) : place]}
        before |= {(s - 1, "F", m)} if kind == "F" else {(s + 1, "B", m)}
        best = next((chains[one] for one in before if one in spans and spans[one][4] == start), own)
        chains[span[:3]] = own if best is own else tuple(map(sum, zip(own, best, strict=True)))
    return chains[max(spans.values(), key=lambda span: span[4])[:3]]


def but(*swaps):
    return changed_text(RIGHT, *swaps)


def busy(rows):
    return [sum(end - start for *_, start, end in row) for row in rows]


def idle(rows):
    until = max(row[-1][4] for row in rows)
    return [until - each for each in busy(rows)]


def anything_that_ends(rows):
    """Whatever ended at that moment, the first device's first."""
    found, spans = [0 for _ in rows], [span for row in rows for span in row]
    span = max(spans, key=lambda span: span[4])
    while span:
        found[span[0]] += span[4] - span[3]
        span = next((each for each in spans if each[4] == span[3]), None)
    return found


NOBODY = "Is there a moment at which nobody on the chain does anything?"
test_replies = each_reply(
    path,
    check={
        "correct": [
            (but(), "steps. In the one above, device"),
            (longest_from_the_start, "if it did all 1% faster? And if 50%?"),
        ],
        "almost": [(but(("return found", "rows.reverse(); return found")), "rows is not what it was")],
        "keep working": [
            (busy, "Which of it could end later, with the step as long as before?"),
            (idle, "you give [5, 6]. That is how long each waits. Who makes it wait?"),
            (but(("return found", "return [each / sum(found) for each in found]")), "How long are they?"),
            (but(("+= end - start", "+= 1")), "How long are these?"),
            (but(("while span:", "while span[3]:")), "What of 0F0, the very first one?"),
            (but(("+= end - start", "+= (end - start) * (kind == 'B')")), "Where is an F waited for?"),
            (but(("+= end - start", "+= (end - start) * (kind == 'F')")), "Those are the F alone."),
            (but(("key=lambda span: span[4])", "key=lambda span: span[4] - span[3])")), NOBODY),
            (but((" if place else []", " if kind == 'F' and place else []")), "Where is an F waited for?"),
            (but(("        waited_for += [spans", "        [spans")), NOBODY),
            (
                but(
                    (
                        '[spans.get((s - 1 if kind == "F" else s + 1, kind, m))]',
                        "[spans.get((s - 1, kind, m))]",
                    )
                ),
                NOBODY,
            ),
            (anything_that_ends, "For which did it wait?"),
            (but(("return found", "return found[0]")), "How long is each of the 2 devices on the chain?"),
            (lambda rows: [sum(busy(rows)), *[0 for _ in rows[1:]]], "Did that device never wait?"),
        ],
    },
)


@pytest.mark.parametrize("seed", range(6))
def test_it_is_what_the_step_gains_if_a_device_is_a_little_faster(seed):
    step = path.task(seed)
    won = [step.until() - until(step.rows, faster=k) for k in range(3)]
    assert won == pytest.approx([share / 1000 for share in step.shares()])
    assert sum(step.shares()) == step.until()


def until(rows, faster):
    """How long the step is if this device takes a thousandth less for everything."""
    ends, free = {}, [0.0 for _ in rows]
    for s, kind, m, start, end in sorted((span for row in rows for span in row), key=lambda span: span[3]):
        read = [ends[need] for need in needs((s, kind, m), len(rows), NEEDS)]
        takes = (end - start) * (1 - (s == faster) / 1000)
        free[s] = ends[s, kind, m] = max([free[s], *read]) + takes
    return max(free)


def test_the_device_that_works_most_need_not_have_most_of_the_chain():
    steps = [path.task(seed) for seed in range(20)]
    assert any(np.argmax(busy(step.rows)) != np.argmax(step.shares()) for step in steps)
    assert all(sum(busy(step.rows)) > step.until() for step in steps)
