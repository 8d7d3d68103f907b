"""What lesson 09's checks say to right and to wrong answers."""

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from replies import assert_each_is_told, each_reply, natural

import gpipe_sim as gp
from gpipe_sim import simulate
from gpipe_sim.course import lesson_09


@pytest.fixture(scope="module", autouse=True)
def each_schedule_is_simulated_once():
    """The check compares the same few again for every mistake that it knows."""
    simulated = cache(simulate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gp, "simulate", simulated)
        patch.setattr(lesson_09, "simulate", simulated)
        yield


def held(layers, devices, stages_per_device, device):
    size = layers // (devices * stages_per_device)
    stages = range(device, devices * stages_per_device, devices)
    return [stage * size + i for stage in stages for i in range(size)]


def chosen(length):
    """The number of stages per device for which ``length(devices, microbatches, comm, V)`` is the least."""
    return lambda *case: min((1, 2, 4), key=lambda V: length(*case, V))


def interleaved(devices, microbatches, comm, V, part=None):
    part = part or Fraction(1, V)
    schedule = gp.Interleaved1F1B(devices, microbatches, stages_per_device=V)
    return gp.simulate(schedule, gp.Costs(part, part, part, comm=comm)).makespan


best = chosen(interleaved)
with_smaller_messages = chosen(lambda K, M, comm, V: interleaved(K, M, comm / V, V))
with_one_f_one_b = chosen(
    lambda K, M, comm, V: (
        gp.simulate(gp.OneFOneB(K, M), gp.Costs(comm=comm)).makespan if V == 1 else interleaved(K, M, comm, V)
    )
)


def grouped(K, M, V, size=None):
    """The turns of a device's forwards, as (which of its stages, microbatch), in groups of K."""
    size = size or K
    return [(v, m) for first in range(0, M, size) for v in range(V) for m in range(M)[first : first + size]]


def by_microbatch(K, M, V):
    return [(v, m) for m in range(M) for v in range(V)]


def descending(K, M, V):
    return [(v, m) for first in range(0, M, K) for v in range(V) for m in reversed(range(first, first + K))]


def warm_up(K, V, k):
    return 2 * (K - k - 1) + (V - 1) * K


def rows(K, M, V, there=grouped, back=grouped, warm=warm_up, held=lambda v, k, K, V: v * K + k, last=True):
    """Interleaved rows; each further argument is a piece that one can get wrong."""
    made = []
    for k in range(K):
        forwards = [(held(v, k, K, V), "F", m) for v, m in there(K, M, V)]
        backwards = [(held(V - 1 - v if last else v, k, K, V), "B", m) for v, m in back(K, M, V)]
        ahead = max(0, min(warm(K, V, k), M * V))
        pairs = zip(forwards[ahead:], backwards, strict=False)
        made.append(forwards[:ahead] + [a for pair in pairs for a in pair] + backwards[M * V - ahead :])
    return made


def wrongly(**pieces):
    return lambda K, M, V: rows(K, M, V, **pieces)


def counted_up(K, M, V):
    """A right answer that goes through all turns and asks each time what is due."""
    made = []
    for k in range(K):
        row, total = [], M * V
        for turn in range(total + warm_up(K, V, k)):
            if turn < total:
                group, within = divmod(turn, K * V)
                row.append((within // K * K + k, "F", np.int64(group * K + within % K)))
            if 0 <= (turn_back := turn - min(warm_up(K, V, k), total)) < total:
                group, within = divmod(turn_back, K * V)
                row.append(((V - 1 - within // K) * K + k, "B", group * K + within % K))
        made.append(row)
    return made


def halved(c=0):
    part = Fraction(1, 2)
    return gp.simulate(gp.Interleaved1F1B(4, 12, stages_per_device=2), gp.Costs(part, part, part, comm=c))


def test_each_wrong_guess_is_told_what_it_is():
    assert halved().makespan == Fraction(81, 2)
    assert_each_is_told(natural("09", "With two stages per device"), halved().makespan)
    assert_each_is_told(natural("09", "How many messages"), len(halved().messages))
    assert_each_is_told(natural("09", "How many are held"), gp.peak_in_flight(halved().schedule)[1])
    assert_each_is_told(natural("09", "With a shorter warm-up"), "true")
    assert_each_is_told(natural("09", "How thick the stages should be"), 2)


def test_the_wrong_guesses_at_the_length_follow_from_a_thought():
    whole = gp.simulate(gp.Interleaved1F1B(4, 12, stages_per_device=2)).makespan
    one_f_one_b = gp.simulate(gp.OneFOneB(4, 12))
    work = gp.core.useful_time(one_f_one_b) / 4
    down, back = 3 * 1, 3 * 2  # the waits at the start and at the end, through three thick stages
    one_end = {work + down / 2 + back, work + down + back / 2}
    assert set(natural("09", "With two stages per device")) == {
        one_f_one_b.makespan,
        work,
        one_f_one_b.makespan / 2,
        whole,
    } | one_end | {work + down / 2, work + back / 2, one_f_one_b.makespan + (down + back) / 2}


def test_with_half_a_forward_for_a_message_two_stages_are_the_thickness():
    """By hand a step is its two ends and the work; with V = 4 more than its ends get longer."""
    assert sorted(natural("09", "How thick the stages should be")) == [1, 4]
    by_hand = {V: 8 * 3 + Fraction(9, V) + 2 * (4 * V - 1) * Fraction(1, 2) for V in (1, 2, 4)}
    took = {V: lesson_09._length(4, 8, Fraction(1, 2), V) for V in by_hand}
    assert min(took, key=took.get) == min(by_hand, key=by_hand.get) == 2
    assert [took[V] - by_hand[V] for V in by_hand] == [0, 0, 3.75]


def test_the_wrong_guesses_at_the_messages_follow_from_a_thought():
    K, M, V = 4, 12, 2
    there = len(halved().messages) // 2
    assert set(natural("09", "How many messages")) == {
        2 * (K - 1) * M,
        there,
        V * 2 * (K - 1) * M,
        2 * V * 2 * (K - 1) * M,
        2 * K * V * M,
    }


def test_the_wrong_guesses_at_what_is_held_follow_from_a_thought():
    held = gp.peak_in_flight(halved().schedule)
    own = gp.peak_in_flight(gp.OneFOneB(4, 12))[1]
    guesses = set(natural("09", "How many are held"))
    assert guesses == {own, held[1] / 2, 2 * own, held[1] - 1, held[0], 5, 7, 10}
    places, rounds = 2, 4  #: device 1 is two places before the last; one round of K before the last stage
    assert (held[1], held[1] + 1) == (2 * places + rounds + 1, 10)
    assert (2 * places + 1, places + rounds + 1) == (5, 7)


def test_megatrons_example():
    """Narayanan et al. 2021, section 2.2.2: counted from 1, layers 1, 2, 9, 10 and layers 3, 4, 11, 12."""
    assert lesson_09._held(16, 4, 2, 0) == held(16, 4, 2, 0) == [0, 1, 8, 9]
    assert lesson_09._held(16, 4, 2, 1) == held(16, 4, 2, 1) == [2, 3, 10, 11]


def test_every_choice_is_somewhere_the_best_and_never_by_a_tie():
    lengths = [[lesson_09._length(*case, V) for V in (1, 2, 4)] for case in lesson_09.HIDDEN_LINKS]
    assert {best(*case) for case in lesson_09.HIDDEN_LINKS} == {1, 2, 4}
    assert all(row.count(min(row)) == 1 for row in lengths)


def test_turn_by_turn():
    """The two rows of the lesson, where F and B take one turn each."""
    turns = gp.simulate(gp.Interleaved1F1B(2, 2, stages_per_device=2), gp.Costs(1, 1, 0))
    begins = {str(span.action): span.start + 1 for span in turns.spans}
    said = (
        "0F0  0F1  2F0  2F1    .  2B0    .  2B1  0B0  0B1",
        "  .  1F0  1F1  3F0  3B0  3F1  3B1  1B0  1B1    .",
    )
    assert begins == {word: turn for row in said for turn, word in enumerate(row.split(), 1) if word != "."}


ROWS = {
    "correct": [(rows, ""), (counted_up, "")],
    "keep working": [
        (wrongly(last=False), "At which of its stages does a gradient arrive first?"),
        (wrongly(warm=lambda K, V, k: K - k - 1), "the step never ends: 2B0 needs 2F0, queued"),
        (wrongly(warm=lambda K, V, k: warm_up(K, V, k) - 1), "3B0 needs 3F0, queued behind 3B0"),
        (wrongly(warm=lambda K, V, k: 2 * (K - 1) + (V - 1) * K), "device 1 does 5 forwards before"),
        (wrongly(warm=lambda K, V, k: 2 * (K - k - 1) + V * K), "takes 13.5 and the devices hold 7, 5"),
        (wrongly(warm=lambda K, V, k: 2 * (K - k - 1) + K), "K = 4, M = 8, V = 3: device 0 does 11"),
        (wrongly(warm=lambda K, V, k: K * V * 9), "takes 13.5 and the devices hold 8, 8"),
        (wrongly(there=lambda K, M, V: grouped(K, M, V, M)), "which one is back, and at which stage?"),
        (wrongly(there=lambda K, M, V: grouped(K, M, V, 4)), "which one is back, and at which stage?"),
        (wrongly(there=by_microbatch), "before the first one has come round again?"),
        (wrongly(there=lambda K, M, V: grouped(K, M, V, V)), "K = 3, M = 9, V = 2: device 0 does 0F0"),
        (wrongly(there=descending), "does 0F1 0F0 2F1 2F0 ... Which microbatches are there"),
        (wrongly(back=by_microbatch), "In which order do the gradients of a group come"),
        (wrongly(back=descending), "Which microbatch's gradient is there first?"),
        (wrongly(held=lambda v, k, K, V: k * V + v), "1F0 is work of stage 1. Which stages are"),
        (
            lambda K, M, V: [list(row) for row in gp.OneFOneB(K, M).actions],
            "It lacks 2F0 2F1 2B0 2B1 ... When",
        ),
        (lambda K, M, V: rows(K, M + K, V), "0F4 is of microbatch 4, and 3 is the last."),
        (lambda K, M, V: exit(), "it calls exit(), which would end the notebook"),
    ],
    "almost": [
        (wrongly(warm=lambda K, V, k: K - k - 1 + (V - 1) * K), "a gradient travels back. For how many"),
        (wrongly(warm=lambda K, V, k: warm_up(K, V, k) + 1), "Which of them belongs to the first pair?"),
    ],
}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (wrongly(last=False), "Your rows, stuck at 0B0"),
        (wrongly(warm=lambda K, V, k: warm_up(K, V, k) + 1), "Your rows, here: 0F3"),
        (rows, "Chart: Your rows (2 devices with 2 stages each, 4 microbatches; F takes 1, B 2)"),
    ],
)
def test_the_reply_draws_the_rows_up_to_where_they_go_wrong(answer, says):
    assert lesson_09.interleaved_rows(answer).picture.says == says


LAYERS = {
    "correct": [(held, ""), (lambda *case: set(held(*case)), ""), (lambda *case: iter(held(*case)), "")],
    "almost": [
        (lambda *case: [n + 1 for n in held(*case)], "first layer of the model"),
        (lambda L, K, V, k: range(k, L, K), "single layers"),
        (lambda L, K, V, k: (n + 1 for n in held(L, K, V, k)), "first layer of the model"),
    ],
    "keep working": [
        (lambda L, K, V, k: range(k * (L // K), (k + 1) * (L // K)), "one run of layers"),
        (lambda L, K, V, k: [k, k + K], "[1, 4]: 2 in all. How many layers are there"),
        (lambda L, K, V, k: held(L, K, V, K - 1 - k + 1), "Into how many stages"),
        (lambda L, K, V, k: 7, "a list of layer numbers"),
        (lambda L, K, V, k: ["0", None], "a list of layer numbers"),
        (lambda L, K, V, k: [held(L, K, V, k)], "a list of layer numbers, and of nothing else"),
        (lambda L, K, V, k: [k + i * K for i in range(V)], "How many layers are there"),
        (lambda L, K, V, k: held(L, K, 1, k), "one run of layers"),
    ],
}
CHOICES = {
    "correct": [
        (best, ""),
        (lambda *case: np.int64(best(*case)), ""),
        (lambda *case: float(best(*case)), ""),
    ],
    "keep working": [
        (lambda K, M, comm: 4, "always take the thinnest"),
        (lambda K, M, comm: best(K, M, 0 * comm), "always take the thinnest"),
        (
            lambda K, M, c: 4 if c < Fraction(9, 64) else 2 if c < Fraction(13, 24) else 1,
            "for K=2, M=2 and messages that take 1/10 you say V = 4",
        ),
        (lambda K, M, comm: 3, "you say 3. Which of V = 1, 2 and 4 is that?"),
        (lambda K, M, comm: "2", "you say '2'. Which of V"),
        (lambda K, M, comm: Fraction(57, 2), "you say 28.5. Which of V"),
        (lambda K, M, c: 4 if c * K <= Fraction(9, 16) else 2 if c * K <= 2 else 1, "another"),
        (lambda K, M, c: best(K, 2 * K, c), "another of the three"),
        (lambda K, M, c: best(4, M, c), "another of the three"),
    ],
    "almost": [
        (lambda K, M, comm: 1, "How long is one of V stages"),
        (with_smaller_messages, "Does a message carry less"),
        (with_one_f_one_b, "Is 1F1B what"),
    ],
}
test_replies = each_reply(
    lesson_09, interleaved_rows=ROWS, held_layers=LAYERS, best_stages_per_device=CHOICES
)
