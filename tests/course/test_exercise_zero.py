"""Bytes under ZeRO: what the check says to right answers and to the usual wrong ones."""

import numpy as np
import pytest
from replies import changed_text, each_reply

import gpipe_sim as gp
from gpipe_sim.course.exercises import zero

RIGHT = """
def held(weights, saved, R, zero):
    K = len(weights)
    found = []
    for k in range(K):
        weight = 2 / (R if zero >= 3 else 1)
        gradient = 4 / (R if zero >= 2 else 1)
        optimizer = 12 / (R if zero >= 1 else 1)
        found.append(weights[k] * (weight + gradient + optimizer) + (K - k) * saved[k])
    return found
"""
FLIGHT = "How many microbatches has this device in flight?"


def by_arrays(weights, saved, R, zero):
    whole, shared = {0: (18, 0), 1: (6, 12), 2: (2, 16), 3: (0, 18)}[zero]
    flight = np.arange(len(saved), 0, -1)
    return [*(np.array(weights) * (whole + shared / R) + flight * np.array(saved))]


def but(*swaps):
    return changed_text(RIGHT, *swaps)


test_replies = each_reply(
    zero,
    check={
        "correct": [
            (but(), "of what device 0 holds are activations in a plain copy"),
            (by_arrays, "31 times"),
        ],
        "almost": [(but(("K = len(weights)", "K = len(weights); saved.reverse()")), "saved is not what")],
        "keep working": [
            (but(("(K - k) *", "")), FLIGHT),
            (but(("(K - k)", "K")), FLIGHT),
            (but(("(K - k)", "(k + 1)")), FLIGHT),
            (but(("(K - k)", "(K - k - 1)")), FLIGHT),
            (but((" + (K - k) * saved[k]", "")), "all but the activations. What does a backward read?"),
            (but(("(K - k) * saved[k]", "(K - k) * saved[k] / R")), "Whose samples does another copy work"),
            (but(("zero >= 3", "zero >= 1"), ("zero >= 2", "zero >= 1")), "That is ZeRO 3. What more, or"),
            (but(("zero >= 3", "zero > 3"), ("zero >= 2", "zero > 2")), "dealt out in ZeRO 3?"),
            (but(("zero >= 1", "zero > 1")), "That is a plain copy. What more, or less, is dealt out in"),
            (
                but(("4 / (R if zero >= 2 else 1)", "0")),
                "That has nothing of the gradients. Where are these?",
            ),
            (but(("if zero >= 2 else 1", "if zero else 1")), "That is ZeRO 2. What more"),
            (but(("len(weights)", "len(weights); R = K")), "How many devices hold the same stage?"),
            (but(("len(weights)", "len(weights); R *= K")), "How many devices hold the same stage?"),
            (
                but(("4 /", "3 /")),
                "A plain copy has weights 144, gradients 288, optimizer 864, and 135 of each",
            ),
            (but(("return found", "return max(found)")), "How many MB does each of the"),
            (but(("return found", "return [round(each, -1) for each in found]")), "Which of these does it"),
        ],
    },
)


@pytest.mark.parametrize("number", range(4))
def test_it_is_what_the_library_holds_for_each_weight(number):
    copies = zero.Copies([1], [0], 8, number)
    assert copies.held(0) == {0: 18, 1: 7.5, 2: 4, 3: 2.25}[number]


def test_in_flight_is_the_simulators():
    copies = zero.task(0)
    K = len(copies.weights)
    assert [copies.flight(k) for k in range(K)] == list(gp.peak_in_flight(gp.OneFOneB(K, 2 * K)))
