"""What is right in the self-test, found again another way: from the words of a question.

A formula for each question on paper, and a plain simulator for orders in time. The questions ask the library,
so a formula that is wrong, or a question that says another thing than it computes, shows.
"""

import re
from fractions import Fraction
from math import ceil

import pytest
from plain_simulator import simulated

import gpipe_sim as gp
from gpipe_sim.course.questions import QUESTIONS

ONE = gp.Costs(1, 1, 1)


def step(schedule, costs=ONE):
    return max(end for _, end in simulated(schedule, costs).values())


def fullest(count, _one, head, K):
    """Of all cuts of equal layers and a head: with n before the head, the others share the rest."""
    return min(max(n + head, ceil((count - n) / (K - 1))) for n in range(count + 1))


def pieces(S, K, start):
    takes = {M: (M + K - 1) * (start + S / M) for M in (2**n for n in range(12)) if S % M == 0}
    return min(takes, key=lambda M: takes[M])


def columns(K, M):
    """All forwards, and then the way back, which is as long."""
    return (M + K - 1) + (M + K - 1)


def heavy_last(L, K, each, M):
    last = L - (K - 1) * each
    return 3 * ((K - 1) * each + M * last)


def lost_layers(L, K):
    return L % ceil(L / K)


def fastest(K, M, comm):
    takes = {
        name: step(family(K, M), gp.Costs(1, 1, 1, comm=comm))
        for name, family in [
            ("GPipe", gp.GPipe),
            ("1F1B", gp.OneFOneB),
            ("Eager 1F1B", gp.families.Eager1F1B),
            ("ZB-H1", gp.ZBH1),
            ("ZB-H2", gp.families.ZBH2),
        ]
    }
    return min(takes, key=lambda name: takes[name])


def slow_stage(K, M, slow, k):
    takes = [slow if stage == k else 1 for stage in range(K)]
    return step(gp.OneFOneB(K, M), gp.Costs(takes, takes, takes)) - step(gp.OneFOneB(K, M))


def v_min(K, M):
    half = Fraction(1, 2)
    return step(gp.families.VMin(K, M), gp.Costs(half, half, half))


def shared(K, M):
    return step(gp.balance.colocate(gp.GPipe(K, M), ["a", "b"] * (K // 2)))


#: Where the numbers of a question stand in its words, and what follows from them.
AGAIN = {
    "enough_devices": (r"has (\d+) billion .* of (\d+) GB", lambda B, room: ceil(Fraction(16 * B, room))),
    "naive": (r"through (\d+) devices", lambda K: 1 - Fraction(1, K)),
    "fullest": (r"has (\d+) layers of (\d) GB and then one of (\d+) GB.* into (\d+) stages", fullest),
    "messages": (r"has (\d+) devices .* and (\d+) micro", lambda K, M: 2 * M * (K - 1)),
    "loss_scale": (r"with (\d+) outputs", lambda d: d),
    "uneven": (r"(\d+) samples are cut into (\d+)", lambda N, M: Fraction(-(-N // M), N // M)),
    "bubble": (r"has (\d+) equal .*, (\d+) micro", lambda K, M: Fraction(K - 1, M + K - 1)),
    "few_enough": (
        r"(\d+) equal .* least (\d+)%",
        lambda K, percent: next(M for M in range(1, 10**4) if percent * (M + K - 1) <= 100 * M),
    ),
    "twice_the_stages": (
        r"with (\d+) micro.* on (\d+) devices",
        lambda M, K: Fraction(2 * K - 1, M + 2 * K - 1) / Fraction(K - 1, M + K - 1),
    ),
    "columns": (r"with (\d+) devices and (\d+) micro", columns),
    "needs": (r"of (\d+) stages and (\d+) micro", lambda K, M: M * (2 * (K - 1) + K)),
    "saved": (r"all (\d+) wide.* of (\d+) samples", lambda h, b: 2 * b * h * 8),
    "in_flight": (r"on (\d+) devices with \d+ .* device (\d+),", lambda K, k: K - k),
    "rounds": (r"on (\d+) devices with (\d+) .* device (\d+) do", lambda K, M, k: M - (K - 1 - k)),
    "smaller": (r"(\d+) equal .*, (\d+) micro", lambda K, M: "memory" if M > K else "neither"),
    "working_set": (
        r"has (\d+) layers.*: (\d+) MB. GPipe has (\d+)",
        lambda count, size, M: (M - 1) * size + count * size,
    ),
    "recomputed": (r"takes ([\d/]+) times", lambda times: 1 / Fraction(1 + times)),
    "except_last": (r"has (\d+) stages .* and (\d+) micro", lambda K, M: K * (M - 1)),
    "backwards_begin": (
        r"has (\d+) devices and (\d+) .* device (\d+) does",
        lambda K, V, k: max(s for s in range(K * V) if s % K == k),
    ),
    "pieces": (r"^(\d+) samples .* (\d+) equal .*takes (\d+) \+ n", pieces),
    "heavy_last": (r"^(\d+) equal .* into (\d+) stages: (\d+) .* with (\d+) micro", heavy_last),
    "lost_layers": (r"cuts (\d+) equal layers for (\d+)", lost_layers),
    "both_at_once": (r"takes ([\d.]+) s in all and copying ([\d.]+) s", max),
    "buffers": (r"^Device (\d+) of (\d+),", lambda k, K: K - k),
    "by_rate": (
        r"A frees (\d+) MB for (\d+) .* B frees (\d+) MB for (\d+) .* C frees (\d+) MB for (\d+)",
        lambda *of: max(zip(of[::2], of[1::2], "ABC", strict=True), key=lambda row: row[0] / row[1])[2],
    ),
    "next_token": (r"of (\d+) tokens", lambda n: n - 1),
    "through_one": (r"^(\d+) copies", lambda n: (n - 1) / (2 * Fraction(n - 1, n))),
    "versions": (r"has (\d+) devices .* device (\d+),", lambda K, k: K - k),
    "late": (
        r"has (\d+) devices and (\d+) .* for (\d+)",
        lambda K, M, comm: step(gp.OneFOneB(K, M), gp.Costs(1, 1, 1, comm=comm)),
    ),
    "without_a_stop": (
        r"^(\d+) steps .* on (\d+) devices, with (\d+)",
        lambda times, K, M: times * 3 * M + K - 1,
    ),
    "v_min": (r"has (\d+) devices and (\d+)", v_min),
    "vertical": (r"has (\d+) devices .* forward of microbatch (\d+)", lambda K, m: m - K + 1),
    "shared": (r"the (\d+) partitions .* are (\d+) micro", shared),
    "slow_stage": (r"has (\d+) devices and (\d+) .* take (\d+) each on stage (\d+)", slow_stage),
    "shortest": (r"^(\d+) devices have (\d+) .* message (\d+)\.", fastest),
    "in_every_block": (
        r"has (\d+) blocks.* one of (\d+) devices",
        # Four all-reduces in a block send 2 (t - 1) / t of an activation each; a stage sends one each way.
        lambda blocks, t: blocks * 4 * 2 * Fraction(t - 1, t) / 2,
    ),
}

#: Answered from words, from a table of a model, or by a price: their own tests are elsewhere.
ELSEWHERE = {"mixed", "sources", "left_out", "layout"}


def number(text):
    return int(text) if text.isdigit() else Fraction(text)


@pytest.mark.parametrize("key", AGAIN)
def test_what_is_right_follows_from_the_words_of_the_question(key):
    where, answer = AGAIN[key]
    for seed in range(10):
        asked = QUESTIONS[key].asked(seed)
        found = re.search(where, asked.text)
        assert found, asked.text
        assert asked.right == answer(*map(number, found.groups())), (asked.text, asked.right)


def test_every_question_is_answered_again():
    assert {*AGAIN} | ELSEWHERE == {*QUESTIONS}


@pytest.mark.parametrize(("layer", "answer"), [("BatchNorm", "different"), ("LayerNorm", "equal")])
def test_which_layers_mix_the_samples(layer, answer):
    rights = {
        QUESTIONS["mixed"].asked(s).right
        for s in range(40)
        if f"a {layer}," in QUESTIONS["mixed"].asked(s).text
    }
    assert rights == {answer}
