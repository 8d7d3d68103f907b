"""A slow hop: what the check says to right answers and to the usual wrong ones."""

from itertools import permutations

import numpy as np
from replies import each_reply

from gpipe_sim.course import called
from gpipe_sim.course.exercises import hop


def by(key):
    return lambda messages: sorted(range(len(messages)), key=lambda i: key(*messages[i]))


def one_by_one(messages):
    """Backwards: of those that are left, the one with the least to do goes last."""
    left, order = set(range(len(messages))), []
    while left:
        order.insert(0, min(left, key=lambda i: messages[i][1]))
        left.remove(order[0])
    return np.array(order)


def bubbled(messages):
    order = list(range(len(messages)))
    for i in range(len(order) - 1):  # one round is too few
        if messages[order[i]][1] < messages[order[i + 1]][1]:
            order[i], order[i + 1] = order[i + 1], order[i]
    return order


MORE = "Which of these two pipelines has more to do then?"
test_replies = each_reply(
    hop,
    check={
        "correct": [(by(lambda busy, after: -after), "done as soon as can be"), (one_by_one, "13 times")],
        "almost": [
            (lambda messages: messages.sort() or [0], "messages is not what it was before"),
        ],
        "keep working": [
            (bubbled, "Message 4 crosses before it. Which of these two pipelines has more to do then?"),
            (lambda messages: list(range(len(messages))), MORE),
            (by(lambda busy, after: after), MORE),
            (by(lambda busy, after: busy), MORE),
            (by(lambda busy, after: -busy), MORE),
            (by(lambda busy, after: -busy - after), MORE),
            (by(lambda busy, after: busy - after), MORE),
            (by(lambda busy, after: busy / (after + 1)), MORE),
            (lambda messages: sorted(messages, key=lambda one: -one[1]), "Which number has the message"),
            (lambda messages: [i + 1 for i in range(len(messages))], "which is missing, or there twice?"),
            (lambda messages: [max(range(len(messages)), key=lambda i: messages[i][1])], "which is missing"),
            (lambda messages: max(after for _, after in messages), "Which number has the message"),
        ],
    },
)


def test_no_order_of_a_few_is_done_sooner():
    for seed in range(6):
        one = hop.Hop(hop.task(seed).messages[:6])
        ends = (max(one.done(order))[0] for order in permutations(range(len(one.messages))))
        assert min(ends) == one.least()


def test_all_orders_of_many_take_too_long(monkeypatch):
    monkeypatch.setattr(called, "SECONDS", 0.3)

    def tried(messages):
        return min(permutations(range(len(messages))), key=lambda order: max(hop.Hop(messages).done(order)))

    monkeypatch.setattr(hop, "hidden", lambda seed: [])
    reply = hop.check(tried)
    assert (
        reply.text.endswith("If two neighbours change places, whose moment changes?")
        and "12 mess" in reply.text
    )
