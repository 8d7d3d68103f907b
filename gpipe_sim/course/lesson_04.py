"""Lesson 04: GPipe and its bubble."""

from collections.abc import Callable
from fractions import Fraction
from math import ceil, isclose

from gpipe_sim.core.bubbles import bubble_fraction, bubble_overhead, idle_time
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.course import answers
from gpipe_sim.course.build import build, exercise
from gpipe_sim.course.called import result_of
from gpipe_sim.course.own_rows import drawn
from gpipe_sim.course.reply import Reply, almost, correct, is_number, is_whole, keep_working
from gpipe_sim.course.rows import first_other, in_a_row, rows_from
from gpipe_sim.errors import Real
from gpipe_sim.families import GPipe, Naive
from gpipe_sim.why.metrics import utilization

EXACT = Costs(Fraction(1), Fraction(1), Fraction(1))
NEAR = 0.02  #: how far off, relatively, a rounded answer may be
#: (devices, microbatches) for which a student's rows are compared with GPipe's.
ROWS = ((2, 4), (3, 2), (1, 3), (4, 1), (1, 1), (4, 8), (5, 7), (9, 24))
#: (devices, the share that may wait); the last ones are too large to simulate.
SHARES = (
    (4, Fraction(1, 10)),
    (6, Fraction(3, 8)),
    (3, Fraction(9, 10)),
    (1, Fraction(1, 2)),
    (2, Fraction(1, 3)),  # in floats a little more than 2
    (65, Fraction(1, 100)),
    (4, Fraction(1, 1001)),
)


@build("gpipe_rows")
def gpipe_rows(answer: Callable) -> Reply:
    """Check ``answer(K, M)``: GPipe's rows."""
    for K, M in ROWS:
        wanted = answers.gpipe_rows(K, M)
        rows = rows_from(answer, K, M, wanted=wanted)
        for k, row in enumerate(rows):
            if row == wanted[k]:
                continue
            its = f"called with ({K}, {M}), the row of device {k} is {in_a_row(row, end='.')}"
            asks = "Which backward comes first, and which one after that?"
            reply = almost(f"{its} The forwards are right. {asks}")
            if row[:M] != wanted[k][:M]:
                early = "B" in {kind for _, kind, _ in row[:M]}
                asks = "Which of these come first in GPipe?" if early else "With which forward does it begin?"
                reply = keep_working(f"{its} {asks}")
            return drawn(reply, rows, (k, first_other(row, wanted[k])))
    right = correct(
        f"GPipe's rows at {len(ROWS)} sizes, from {ROWS[4]} to {ROWS[-1]}. Here are yours for {ROWS[0]}"
    )
    return drawn(right, answers.gpipe_rows(*ROWS[0]))


@exercise("write the wait of device 0 over the makespan, as a Fraction")
def name_the_bubble(answer: Real | None) -> Reply:
    """Check for what share of the step device 0 waits, in GPipe with 4 devices and 8 microbatches."""
    if not is_number(answer):
        return keep_working(
            f"{answer!r} is not a number. How is it written as a Fraction, like Fraction(1, 2)?"
        )
    timeline = exact_gpipe(4, 8)
    wanted, long = bubble_fraction(timeline), timeline.makespan  # in GPipe all devices wait equally long
    if answer == wanted:
        return correct(
            f"{answer}: device 0 waits {wanted * long} of {long} units. Do the others wait as long?"
        )
    if isclose(answer, wanted, rel_tol=NEAR):
        return almost(f"{_short(answer)} is near it, but rounded. Which two whole numbers did you divide?")
    share = answer if isinstance(answer, Fraction) else _short(answer)
    if named := _named(answer, timeline):
        return named
    if not 0 <= answer <= 1:
        return keep_working(f"{share} is no share. Which numbers can a share be?")
    return keep_working(
        f"with a share of {share}, device 0 would wait {_short(answer * long)} of {long} units. "
        "How far does microbatch 7 have to go while it waits?"
    )


@exercise("write fewest in this cell, and run it again")
def fewest(answer: Callable) -> Reply:
    """Check ``answer(K, share)``: the smallest M with which at most this share of GPipe's time is waiting."""
    for K, share in SHARES:
        where = f"called with ({K}, {share!r})"
        M = result_of(answer, K, share, where=where, endless="What does the formula say of every M at once?")
        if not is_whole(M):
            return keep_working(f"{where} it gives {M!r}. Which whole number of microbatches is that?")
        if M < 1:
            return keep_working(f"{where} it gives {M}. How many microbatches has a step at least?")
        waits, one_fewer = (Fraction(K - 1, K - 1 + many) if K > 1 else 0 for many in (M, M - 1))
        says = f"{where} it gives {M}, and then {waits} of all device time is waiting"
        if waits > share:
            return keep_working(f"{says}. Is that at most {share}?")
        if M > 1 and one_fewer <= share:
            if K > 2 and ceil((K - 1) / share) == M:  # for two, a share in floats may say the same
                return almost(f"{says}. You have divided by the work. What is a share of all time?")
            return almost(f"{says}. With {M - 1} it is {one_fewer}. Is that too much, exactly?")
    return correct(f"the fewest for {len(SHARES)} pipelines. How many does one more device cost at 1/10?")


def _named(answer: Real, timeline: Timeline) -> Reply | None:
    """A reply to a well-known wrong number, which says what the number is; None for any other number."""
    devices, waiting = timeline.schedule.devices, idle_time(timeline)
    replies = {
        bubble_overhead(timeline): almost(
            "that is the waiting over the work. How long are the two together?"
        ),
        utilization(timeline): almost("in that share of the time devices work. How large is the rest?"),
        waiting: keep_working(
            f"{waiting} is the waiting of all {devices} devices, in units of time. How long is device 0's?"
        ),
        waiting / devices: keep_working(f"{waiting / devices} is how long device 0 waits. Out of how long?"),
        bubble_fraction(simulate(Naive(devices), EXACT)): keep_working(
            "so much idles in the naive order. What do further microbatches add to each row of the chart?"
        ),
        100 * bubble_fraction(timeline): almost("that is in percent. What is it as a share of 1?"),
    }
    return next((reply for number, reply in replies.items() if isclose(answer, number, rel_tol=NEAR)), None)


def exact_gpipe(devices: int, microbatches: int) -> Timeline:
    """Its step in unit costs that are fractions, so that shares of it are fractions too."""
    return simulate(GPipe(devices, microbatches), EXACT)


def _short(value: Real) -> str:
    return f"{float(value):.4g}"
