"""A rank's program in six calls: what the check says to right answers and to the usual wrong ones."""

import pytest
from replies import changed_text, each_reply

import gpipe_sim as gp
from gpipe_sim.course.exercises import calls

RIGHT = """
def calls(k, K, M):
    ahead = min(K - k - 1, M)
    steps = ahead * ["recv_forward", "F", "send_forward"]
    for turn in range(M - ahead):
        steps += [] if turn else ["recv_forward"]
        last = turn == M - ahead - 1
        steps += ["F", "send_forward_recv_backward", "B"]
        steps += ["send_backward" if last else "send_backward_recv_forward"]
    return steps + ahead * ["recv_backward", "B", "send_backward"]
"""


def as_a_generator(k, K, M):
    """Only what has somebody at the other end."""
    ahead = min(K - k - 1, M)
    for n in range(M + ahead):
        forward, backward = n < M, n >= ahead
        if forward and k > 0 and n <= ahead:
            yield "recv_forward"
        if forward:
            yield "F"
        if k < K - 1:
            send, receive = ["send_forward"] * forward, ["recv_backward"] * backward
            yield "_".join(send + receive)
        if backward:
            yield "B"
            if k > 0:
                yield "send_backward_recv_forward" if n < M - 1 else "send_backward"


def but(*swaps):
    return changed_text(RIGHT, *swaps)


APART = '"F", "send_forward", "recv_backward", "B"'
TOGETHER = '"F", "send_forward_recv_backward", "B"'
BACK = 'steps += ["send_backward" if last else "send_backward_recv_forward"]'
test_replies = each_reply(
    calls,
    check={
        "correct": [(but(), "with the fewest calls"), (as_a_generator, "it ends at 11 sizes")],
        "almost": [
            (
                but((BACK, 'steps += ["send_backward"] if last else ["recv_forward", "send_backward"]')),
                "rank 1 makes 17 calls, and 15 would do",
            ),
            (but((TOGETHER, APART)), "Which two calls follow each other with no action in between?"),
        ],
        "keep working": [
            (
                but(
                    (BACK, 'steps += ["send_backward"] if last else ["send_backward", "recv_forward"]'),
                    (TOGETHER, APART),
                ),
                "rank 3 waits in send_backward for rank 2. Which of them could do two things at once?",
            ),
            (but(("min(K - k - 1, M)", "min(K - k, M)")), "What are 1F1B's on this rank?"),
            (but(("min(K - k - 1, M)", "M")), "What are 1F1B's on this rank?"),
            (but(("min(K - k - 1, M)", "K - k - 1")), "What are 1F1B's on this rank?"),
            (but((' if turn else ["recv_forward"]', "")), "Has what it reads been received?"),
            (
                but(
                    (
                        '"send_backward" if last else "send_backward_recv_forward"',
                        '"send_backward_recv_forward"',
                    )
                ),
                "times. Who waits for the others?",
            ),
            (but((TOGETHER, '"send_forward_recv_backward", "F", "B"')), "What would it send?"),
            (
                but(('["recv_backward", "B", "send_backward"]', '["recv_backward", "B"]')),
                "Who waits for the others?",
            ),
            (
                but(('["recv_backward", "B", "send_backward"]', '["B", "send_backward_recv_backward"]')),
                "Which of the six calls is that",
            ),
            (but(('"F"', '"F0"')), "Which of the six calls is that"),
            (
                but(
                    ("return steps + ", "return ' '.join(steps + "),
                    ('"send_backward"]\n', '"send_backward"])\n'),
                ),
                "What stands in a list of texts such as 'F'?",
            ),
            (
                but(('["recv_backward", "B", "send_backward"]', '["B", "send_backward", "recv_backward"]')),
                "Has what it reads been received?",
            ),
        ],
    },
)


@pytest.mark.parametrize("seed", range(8))
def test_the_actions_are_the_librarys(seed):
    rank = calls.task(seed)
    for k in range(rank.K):
        row = gp.OneFOneB(rank.K, rank.M).actions[k]
        assert rank._replace(k=k).actions() == "".join(str(action.kind) for action in row)


def test_the_fewest_calls_are_those_that_do_something():
    for rank in (calls.Rank(k, K, M) for K in range(1, 6) for M in range(1, 8) for k in range(K)):
        assert sum(bool(rank.ends(call)) for call in but()(*rank)) == rank.fewest()
