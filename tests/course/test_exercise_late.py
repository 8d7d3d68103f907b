"""Who was late: what the check says to right answers and to the usual wrong ones."""

import pytest
from replies import changed_text, each_reply

from gpipe_sim.course.exercises import late

RIGHT = """
def waits(trace):
    found = []
    for rank, events in enumerate(trace):
        late = link = 0
        sends = [[e[2] for e in of if e[:2] == ("send", rank)] for of in trace]
        for name, other, start, end in events:
            if name == "recv":
                sent = sends[other].pop(0)
                late += max(0, sent - start)
                link += end - max(start, sent)
        found.append((late, link))
    return found
"""


def from_the_senders(trace):
    """Each message by its number, late and link as what is left of the wait."""
    late, link, seen = [0 for _ in trace], [0 for _ in trace], {}
    for source, events in enumerate(trace):
        for name, target, sent, _ in events:
            if name == "send":
                n = seen[source, target] = seen.get((source, target), -1) + 1
                *_, a, b = [e for e in trace[target] if e[:2] == ("recv", source)][n]
                late[target] += max(a, sent) - a
                link[target] += b - a - (max(a, sent) - a)
    return list(map(list, zip(late, link, strict=True)))


def but(*swaps):
    return changed_text(RIGHT, *swaps)


LATE, LINK = "max(0, sent - start)", "end - max(start, sent)"
BEFORE = "What does a message that was sent before the receive began add to yours?"
BOTH = "Together that is more than it waited. Which part do both have in them?"
test_replies = each_reply(
    late,
    check={
        "correct": [(but(), "11 traces."), (from_the_senders, "Which of these would a faster link make")],
        "almost": [(but(("return found", "trace.clear(); return found")), "not what it was")],
        "keep working": [
            (
                but(("(late, link)", "(link, late)")),
                "you give (2, 3) for rank 1. Which of the two comes first",
            ),
            (but((LATE, "end - start")), BOTH),
            (but((LINK, "end - start")), BOTH),
            (but((LATE, "end - start"), (LINK, "0")), "was the message under way already?"),
            (but((LATE, "0"), (LINK, "end - start")), "had nobody sent anything yet?"),
            (but((LATE, "sent - start")), BEFORE),
            (but((LATE, "sent - start"), (LINK, "end - sent")), BEFORE),
            (but((LINK, "end - sent")), "Was it waiting all the while a message was under way?"),
            (but(('e[:2] == ("send", rank)', 'e[0] == "send"')), "the send that belongs to it was at"),
            (but(("sends[other].pop(0)", "sends[other].pop()")), "the send that belongs to it was at"),
            (but(("sends[other].pop(0)", "sends[other][0]")), "Which part of that was for the sender?"),
            (
                but(("rank, events in enumerate(trace)", "rank, events in [*enumerate(trace)][1:]")),
                "each rank",
            ),
            (but(("(late, link)", "late + link")), "you give 0 for rank 0. Which two numbers are asked for?"),
            (but(("found.append((late, link))", "found += [late, link]")), "a pair for each rank"),
        ],
    },
)


@pytest.mark.parametrize("seed", range(6))
def test_a_rank_computes_or_waits_until_it_ends(seed):
    trace = late.task(seed)
    for k, events in enumerate(trace.ranks):
        computes = sum(end - start for name, _, start, end in events if name == "compute")
        assert computes + sum(trace.waits(k)) == events[-1][3]


@pytest.mark.parametrize("seed", range(6))
def test_every_trace_has_both_waits_and_a_message_that_was_there_before(seed):
    received = [one for k in range(3) for one in late.task(seed).received(k)]
    assert any(a < sent < b for _, sent, a, b in received) and any(sent < a for _, sent, a, _ in received)
    late_ones, links = zip(*map(late.task(seed).waits, range(3)), strict=True)
    assert any(late_ones) and any(links)
