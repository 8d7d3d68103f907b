"""Lesson 08: rematerialisation."""

from collections.abc import Callable
from numbers import Real

from gpipe_sim.course.called import called
from gpipe_sim.course.reply import Reply, almost, correct, is_number, keep_working, your_turn
from gpipe_sim.families import GPipe
from gpipe_sim.schedule.remat import remat
from gpipe_sim.simulation.costs import Costs
from gpipe_sim.simulation.simulate import simulate
from gpipe_sim.theory.formulas import remat_activation_units

#: devices, microbatches, and how long a forward, a backward and a recompute take
HIDDEN_TIMES = ((3, 5, 2, 4, 1), (5, 4, 3, 7, 2), (2, 9, 1, 2, 1), (6, 1, 1, 2, 1), (1, 6, 2, 3, 2))
#: bytes for activations, of one boundary input, and of all that one microbatch leaves behind
HIDDEN_LIMITS = ((1000, 10, 100), (4096, 64, 1024), (999, 50, 50), (730, 20, 90), (50, 10, 100))
#: What other guesses at the gradients after a second forward would say.
GRADIENTS = {
    "rounding": "Rounding differs when the order of the operations does. Which of them changed its place?",
    "wrong": "What would the second forward have to read that the first did not?",
}
#: What natural wrong guesses at the length of GPipe, 4 devices and 8 microbatches, with R would be.
LENGTHS = {
    33: "That is the step without R. Does all the new work fit where devices wait?",
    40: "That leaves out the R of the last microbatch. Does the last device get that one for nothing?",
    44: "That is right if R waits for the gradient. Which array does R read, and when did it arrive?",
    65: "That puts all 32 R one after the other. Which of them run at the same time?",
}
#: What natural wrong guesses at the peak in kB on device 1 would be.
PEAKS = {
    60: "That is one microbatch with everything it saved. What is kept of the other seven meanwhile?",
    80: "That is the eight boundary inputs. What must be there when the first B reads?",
    140: "That counts one boundary input twice. Does R make all six arrays?",
    480: "That is GPipe without R. What does each forward now leave behind?",
}
#: What other guesses at what stays the same with a generator of its own would say.
DROPOUT = {
    "both": "The generator moves on at every draw. Which mask does R get?",
    "gradients": "Which of the two is computed from the first forward's mask alone?",
    "neither": "When is the loss computed: before the first R, or after it?",
}


def remat_time(answer: Callable | None) -> Reply:
    """Check ``answer(devices, microbatches, forward, backward, recompute)``: how long a GPipe step takes.

    All microbatches but the last are recomputed.
    """
    if answer is None:
        return your_turn(
            "write a function of (devices, microbatches, forward, backward, recompute), pass it in"
        )
    for case in HIDDEN_TIMES:
        got = called(answer, *case)
        if isinstance(got, Reply):
            return got
        if not is_number(got) or got != _time(*case):
            return _what_is_wrong_with_time(case, got)
    return correct("as long as the simulated step on every size tried. Is it different under 1F1B?")


def most_microbatches(answer: Callable | None) -> Reply:
    """Check ``answer(limit, boundary, saved)``: how many microbatches fit if GPipe recomputes all of them."""
    if answer is None:
        return your_turn("write a function of (limit, boundary, saved) and pass it in")
    for case in HIDDEN_LIMITS:
        got = called(answer, *case)
        if isinstance(got, Reply):
            return got
        if not is_number(got) or got != _most(*case):
            return _what_is_wrong_with_most(*case, got)
    return correct("it fits on every size tried, and one microbatch more would not")


def _time(devices: int, microbatches: int, forward: Real, backward: Real, recompute: Real) -> Real:
    costs = Costs(forward=forward, input_grad=backward, weight_grad=0, recompute=recompute)
    return simulate(remat(GPipe(devices, microbatches), "except_last"), costs).makespan


def _what_is_wrong_with_time(case: tuple, got: object) -> Reply:
    K, M, forward, backward, recompute = case
    where = f"K={K}, M={M}, forward {forward}, backward {backward}, recompute {recompute}: you say {got!r}"
    if not is_number(got):
        return keep_working(f"{where}; it should be a number")
    slots, plain = K - 1 + M, (K - 1 + M) * (forward + backward)
    if got in (plain + slots * recompute, plain + (slots - 1) * recompute):
        question = "Which array does R read, and when did it arrive?"
        return almost(f"{where}, right if R waits for the gradient. {question}")
    if got == plain + M * recompute:
        return almost(f"{where}, right if every microbatch is recomputed. How many R does a device run here?")
    if got == plain + (M - 1) * forward:
        return almost(f"{where}, right if R took as long as F. Does it here?")
    if got == plain:
        return keep_working(f"{where}, which is the step without any R. What does each R add?")
    return keep_working(f"{where}. How long is the step without R, and which R must somebody wait for?")


def _most(limit: int, boundary: int, saved: int) -> int:
    """The most microbatches that fit, found by adding one while it still fits."""
    held = 0
    while remat_activation_units(held + 1, boundary, saved - boundary) <= limit:
        held += 1
    return held


def _what_is_wrong_with_most(limit: int, boundary: int, saved: int, got: object) -> Reply:
    where = f"limit {limit:,}, boundary {boundary}, saved {saved}: you say {got!r}"
    if not is_number(got) or got % 1 != 0:
        return keep_working(f"{where}; it should be a whole number")
    if got < 0:
        return almost(f"{where}. If not even one microbatch fits, how many can be held?")
    peak = remat_activation_units(int(got), boundary, saved - boundary)
    if got == limit // saved:
        return almost(
            f"{where}, right if nothing is recomputed. With R the peak would be {peak:,}. What more fits?"
        )
    if peak > limit:
        return almost(f"{where}, but then the peak is {peak:,}. What is held besides the boundary inputs?")
    return almost(f"{where}, and the peak is {peak:,}: one more fits. Did you count an array twice?")
