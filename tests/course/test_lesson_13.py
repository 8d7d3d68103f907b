"""Lesson 13: what the checks say to right answers and to the usual wrong ones."""

import re
from functools import partial
from itertools import product

import numpy as np
import pytest
from replies import assert_each_is_told, changed, each_reply, natural

import gpipe_sim as gp
from gpipe_sim.course import answers, lesson_13
from gpipe_sim.course.rows import rows_of

NO_COUNTS = (-1, "a", True, 0.5, [1])


def of_steps(change):
    return lambda k, K, M: change(list(answers.program(k, K, M)), k)


def by_the_recipe(k, K, M):
    """Receive right before, send right after."""
    return str(gp.device_programs(gp.OneFOneB(K, M))).splitlines()[k].partition(": ")[2].split()


def gpipe(k, K, M):
    return str(gp.device_programs(gp.GPipe(K, M))).splitlines()[k].partition(": ")[2].split()


def one_buffer(k, K, M):
    return [step + ">a" if "RECV_F" in step else step for step in answers.program(k, K, M)]


def all_posted_first(k, K, M):
    return sorted(
        (step.replace("RECV", "IRECV") for step in answers.program(k, K, M)), key=lambda s: "RECV" not in s
    )


def activations_posted_first(k, K, M):
    steps = [step.replace("RECV_F", "IRECV_F") for step in answers.program(k, K, M)]
    return sorted(steps, key=lambda step: "IRECV_F" not in step)


def one_more_ahead(k, K, M):
    """From its first backward on, each device takes two activations ahead."""
    steps = [step for step in answers.program(k, K, M) if "RECV_F" not in step]
    for m in range(M if k else 0):
        first = f"{k}F{max(m - 1, 0)}"
        steps.insert(steps.index(first), f"{k}IRECV_F{m}")
    return steps


def sends_first(k, K, M):
    """The gradient is sent after the next forward."""
    return re.sub(r"(\d+SEND_B\d+) (\d+F\d+)", r"\2 \1", " ".join(by_the_recipe(k, K, M))).split()


SEND_B = '            if k > 0:\n                yield f"{k}SEND_B{m}"\n'


def right_after_a_send(k, K, M):
    """The next activation is received once a forward has been sent: one more buffer, as in lesson 07."""
    ahead = min(K - k - 1, M)
    if k > 0:
        yield f"{k}RECV_F0"
    for n in range(ahead + M):
        if n < M:
            yield f"{k}F{n}"
            if k < K - 1:
                yield f"{k}SEND_F{n}"
            if k > 0 and n + 1 < M:
                yield f"{k}RECV_F{n + 1}"
        if n >= ahead:
            if k < K - 1:
                yield f"{k}RECV_B{n - ahead}"
            yield f"{k}B{n - ahead}"
            if k > 0:
                yield f"{k}SEND_B{n - ahead}"


def gradients_posted_first(k, K, M):
    """The recipe, with all gradients' receives begun before anything else: no line is in another place."""
    steps = [step for step in by_the_recipe(k, K, M) if "RECV_B" not in step]
    return [f"{k}IRECV_B{m}" for m in range(M) if k < K - 1] + steps


def two_ahead(k, K, M):
    """Right after a forward is sent, and once more after the first: two lie there."""
    steps = list(right_after_a_send(k, K, M))
    if k == 1 and K == 2:
        steps.remove("1RECV_F1")
        steps.insert(1, "1RECV_F1")
    return steps


def posted_before_a_gradient(k, K, M):
    return [step.replace("RECV_F", "IRECV_F") for step in answers.program(k, K, M)]


@pytest.mark.parametrize(("K", "M"), [(1, 1), (2, 1), (2, 7), (3, 3), (5, 4), (6, 12)])
def test_the_folded_program_is_1f1b_and_runs_with_sends_that_block(K, M):
    programs = gp.device_programs("\n".join(" ".join(answers.program(k, K, M)) for k in range(K)))
    assert rows_of(programs.schedule) == rows_of(gp.OneFOneB(K, M))
    layers, data = gp.mlp([64, *K * [10]]), gp.digits()
    batch = data.x[:24], data.y[:24]
    step = gp.run_programs(programs, gp.split(layers, stages=K), batch, gp.cross_entropy, sends="blocking")
    alone = gp.single_device_step(layers, batch, gp.cross_entropy, microbatches=M).gradients
    assert max(abs(step.gradients[key] - alone[key]).max() for key in alone) < 1e-12


def test_one_buffer_more_than_in_flight():
    """Found by following the row: what is in flight, and the one that arrives, if there is one."""
    for K, M in product(range(2, 6), range(1, 9)):
        for k in range(1, K):
            row = gp.OneFOneB(K, M).actions[k]
            assert lesson_13.fewest_buffers(row) == min(K - k + 1, M), (
                K,
                M,
                k,
            )
            assert lesson_13.overwritten(row, [m % (K - k + 1) for m in range(M)]) is None, (K, M, k)


def test_what_is_overwritten_is_what_changes_the_gradient():
    row = gp.OneFOneB(2, 4).actions[1]
    loss, gradient = lesson_13.run(row, [0, 1, 2, 3])
    assert loss > 0
    for chosen in product(range(3), repeat=4):
        again, other = lesson_13.run(row, list(chosen))
        assert again == loss
        assert np.array_equal(gradient, other) == (lesson_13.overwritten(row, list(chosen)) is None)


RECIPE = [row.partition(": ")[2].split() for row in str(gp.device_programs(gp.OneFOneB(2, 2))).splitlines()]


def test_wrong_predictions_are_steps_that_there_are_and_each_is_told_its_sentence():
    assert {*natural("13", "Where device 0 stops")} <= {
        *RECIPE[0],
        "SEND_F1",
        "1SEND_F1",
        "1SEND_B0",
        "none",
    } and {*natural("13", "Which line it is")} <= {
        *RECIPE[1],
        "RECV_F1",
        "0RECV_B0",
    }
    assert_each_is_told(natural("13", "Where device 0 stops"), "0SEND_F1")
    assert_each_is_told(natural("13", "Which line it is"), "1RECV_F1")
    assert_each_is_told(natural("13", "How many buffers it needs"), 4 - 1)
    assert_each_is_told(natural("13", "All receives begun first"), "true")
    assert_each_is_told(natural("13", "Blocking or buffered"), "false")


P = partial(changed, answers.program)
PROGRAMS = {
    "correct": [
        (
            answers.program,
            "M = 3, device 1 of 2 runs 1RECV_F0 1F0 1B0 1RECV_F1 1SEND_B0 1F1 1B1 1RECV_F2 1SEND_B1 1F2",
        ),
        (right_after_a_send, "device 1 of 2 runs 1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1RECV_F2 1B1"),
        (of_steps(lambda steps, k: steps), ""),
    ],
    "keep working": [
        (
            by_the_recipe,
            "M = 3: device 0 waits in Send 0F1 to device 1; device 1 waits in Send 1B0 to device 0. Which",
        ),
        (sends_first, "waits in"),
        (gpipe, "Before its first backward that is 3. How many forwards does 1F1B do"),
        (one_buffer, "'1RECV_F0>a'. Here each receive waits, into a place of its own. How is that written"),
        (gradients_posted_first, "the step '0IRECV_B0'. Here each receive waits, into a place of its own."),
        (posted_before_a_gradient, "Here each receive waits, into a place of its own."),
        (activations_posted_first, "'1IRECV_F0'. Here each receive waits"),
        (one_more_ahead, "Here each receive waits"),
        (all_posted_first, "Here each receive waits"),
        (P((SEND_B, "")), "(1, 2, 3) it never comes to 1SEND_B0. Who waits for that?"),
        (P(("if k < K - 1:", "if True:")), "(1, 2, 3) it has 1SEND_F0. Who needs that?"),
        (P(("if k > 0 and m <= 0:", "if m <= 0:")), "it has 0RECV_F0. Who sends that?"),
        (
            P(("if k > 0 and m <= 0:", "if k > 0:")),
            "(1, 2, 3) it has 1RECV_F1 2 times. How often does it cross?",
        ),
        (P(("if k > 0 and n + 1 < M:", "if k > 0:")), "it has 1RECV_F3. Who sends that?"),
        (P(("k > 0 and n + 1 < M", "False")), "it never comes to 1RECV_F1. What does 1F1 read?"),
        (P(("K - k - 1", "K - k")), "Before its first backward that is 3. How"),
        (P(("K - k - 1", "K - k - 2")), "its actions are"),
        (P(("min(K - k - 1, M)", "0")), "Before its first backward that is 1."),
        (P(('yield f"{k}B{m}"', 'yield f"{k}B{n}"')), "Where does it come from?"),
        (P(('yield f"{k}F{n}"', 'yield f"{k}F{m}"')), "it has the step '0F-1'. Which one comes first"),
        (of_steps(lambda steps, k: steps[::-1]), "its actions are"),
        (of_steps(lambda steps, k: steps[1:]), "It lacks 0F0"),
        (
            of_steps(lambda steps, k: [*steps[:1], steps[2], steps[1], *steps[3:]]),
            "(1, 2, 3) its actions are 1B0 1F0 1F1 1B1 1F2 1B2. Before its first",
        ),
        (of_steps(lambda steps, k: sorted(steps, key=lambda s: "RECV" in s)), "What does it read?"),
        (
            of_steps(lambda steps, k: sorted(steps, key=lambda s: "SEND" not in s)),
            "0SEND_F0 comes before 0F0. What would it send?",
        ),
        (of_steps(lambda steps, k: " ".join(steps)), "How does a generator yield one step after"),
        (of_steps(lambda steps, k: [s.lower() for s in steps]), "it has the step '0f0'. How is that"),
        (
            of_steps(lambda steps, k: [s.replace("SEND_", "SEND") for s in steps]),
            "the step '0SENDF0'. How is that written in the way of 1F0, 1RECV_F0, 1SEND_B0?",
        ),
        (of_steps(lambda steps, k: [gp.core.F(0, 0)]), "How is that written in the way of"),
        (
            of_steps(lambda steps, k: [s + ">a" if "SEND" in s else s for s in steps]),
            "it has the step '0SEND_F0>a'",
        ),
    ],
    "almost": [
        (two_ahead, "(1, 2, 3) it has 2 activations lying there that no forward has read. How many must"),
    ],
}


def counting():
    """The next buffer at each call, whichever microbatch is asked for."""
    calls = {}

    def buffer_of(m, k, K):
        calls[k, K] = calls.get((k, K), -1) + 1
        return calls[k, K] % (K - k + 1)

    return buffer_of


AT_2 = "device 1 of 2, 4 microbatches: the loss is right, the gradient is "
BUFFERS = {
    "correct": [
        (
            lambda m, k, K: m % (K - k + 1),
            "nothing is overwritten, and no device could do with fewer. Which device needs the most?",
        ),
        (lambda m, k, K: np.int64(m % (K - k + 1)), ""),
    ],
    "almost": [
        (
            lambda m, k, K: m,
            "nothing is overwritten, but on device 1 of 2, 4 microbatches fill 4 buffers. How "
            "many still have to be read while one more arrives?",
        ),
        (lambda m, k, K: m * 10**15, ""),
        (lambda m, k, K: 1 + m % (K - k + 1), "fill 2 buffers, and the largest number is 2. Which numbers"),
        (lambda m, k, K: 10 * (m % (K - k + 1)), "fill 2 buffers, and the largest number is 10. Which"),
    ],
    "keep working": [
        (counting(), AT_2),
        (lambda m, k, K: 0, AT_2),
        (lambda m, k, K: 0, "% wrong. 1B0 wants microbatch 0 in buffer 0. Which microbatch sits there now?"),
        (lambda m, k, K: m % (K - k), AT_2),
        (lambda m, k, K: m % 2, "device 1 of 3, 8 microbatches: the loss is right, the gradient is "),
        *((lambda *_, said=said: said, f"you say {said!r}. ") for said in NO_COUNTS),
    ],
    "wrong": [
        lambda m, k, K: m % 3,
        lambda m, k, K: m % K,
        lambda m, k, K: m % (K + 1),
        lambda m, k, K: m % (K - k + 2),
        lambda m, k, K: m % (k + 1),
        lambda m, k, K: m // (K - k + 1),
        lambda m, k, K: k,
        lambda m, k, K: (m + 1) % (K - k),
        lambda m, k, K: m % max(K - k, 2),
    ],
}
test_replies = each_reply(lesson_13, program=PROGRAMS, receive_buffers=BUFFERS)


def recipe(family, without=""):
    """Each device's program as the library writes it: what is read is received right before."""

    def of(k, K, M):
        steps = str(gp.device_programs(family(K, M))).splitlines()[k].split()[2:]
        return [step for step in steps if step != without]

    return of


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (recipe(gp.OneFOneB), "2 programs with blocking sends: deadlocked"),
        (recipe(gp.GPipe), "Your rows, here: 0F2"),
        (recipe(gp.OneFOneB, without="1RECV_F1"), "Your rows, here: 1F1"),
        (answers.program, "Your rows (6 devices, 7 microbatches"),
    ],
)
def test_a_reply_draws_the_students_program(program, says):
    """Who waits for whom, or the actions; those of devices that have no program yet are 1F1B's."""
    assert says in lesson_13.program(program).picture.says
