"""Lesson 04: GPipe and its bubble."""

from fractions import Fraction
from math import isclose
from numbers import Real

from gpipe_sim.course.reply import Reply, almost, correct, is_number, keep_working, your_turn
from gpipe_sim.families import GPipe, Naive
from gpipe_sim.simulation.costs import Costs
from gpipe_sim.simulation.metrics import bubble_fraction, bubble_overhead, idle_time, utilization
from gpipe_sim.simulation.simulate import simulate
from gpipe_sim.simulation.timeline import Timeline

EXACT = Costs(Fraction(1), Fraction(1), Fraction(1))
NEAR = 0.02  #: how far off, relatively, a rounded answer may be
#: What natural wrong guesses at the length of GPipe, 4 devices and 8 microbatches, would be.
LENGTHS = {
    24: "That is four devices that never wait. What does device 3 do at time 0?",
    27: "That is when device 3 is done. Where does its last gradient still have to go?",
    30: "That takes 1 for a way back that takes 2: a backward is as long as two forwards.",
    96: "That is one device alone, or one microbatch after the other.",
}
#: What natural wrong guesses at the bubble mean if a backward takes five times as long as a forward.
SLOW_BACKWARDS = {
    "larger": "Longer backwards are longer waits, that is right. What else in a row do they make longer?",
    "smaller": "Longer backwards are more work, that is right. But how long do the others wait for them?",
}
#: What natural wrong guesses at the speed-up of 4 devices with 8 microbatches would be.
SPEED_UPS = {
    4: "That is four devices that never wait. How large a part of the chart is grey?",
    8: "That is the number of microbatches. How many devices can work at the same time?",
    Fraction(32, 9): "That takes the step to be over when device 3 is. Which device is done last?",
    Fraction(
        11, 8
    ): "That is how much longer the step is than without waiting. How long is one device alone?",
    Fraction(8, 11): "In that share of the time a device works. How many devices are there?",
}


def name_the_bubble(answer: Real | None) -> Reply:
    """Check the bubble fraction of GPipe with 4 devices and 8 microbatches."""
    if answer is None:
        return your_turn("divide the waiting in the chart by all of it, as a Fraction")
    if not is_number(answer):
        return keep_working(f"{answer!r} is not a number; write it as Fraction(1, 2)")
    timeline = _gpipe(4, 8)
    wanted, waiting = bubble_fraction(timeline), idle_time(timeline)
    if answer == wanted:
        return correct(
            f"{answer} of all device time: {waiting} of {_device_time(timeline)} units are waiting"
        )
    if isclose(answer, wanted, rel_tol=NEAR):
        return almost(f"{answer} is near it, but rounded. Which two whole numbers did you divide?")
    return _named(answer, timeline) or keep_working(
        f"a share of {answer} would leave {_short(answer * _device_time(timeline))} of "
        f"{_device_time(timeline)} units of waiting. How many of them are in the row of one device?"
    )


def _named(answer: Real, timeline: Timeline) -> Reply | None:
    """A reply to a well-known wrong number, which says what the number is; None for any other number."""
    devices, waiting = timeline.schedule.devices, idle_time(timeline)
    replies = {
        bubble_overhead(timeline): almost(
            "that is idle over useful time (overhead). Divide by all device time."
        ),
        utilization(timeline): almost("in that share of the time devices work. How large is the rest?"),
        waiting: almost(
            f"{waiting} is the waiting of all {devices} devices in units of time. Of how many units?"
        ),
        waiting / devices: almost(f"{waiting / devices} is how long one device idles. Out of how long?"),
        bubble_fraction(simulate(Naive(devices), EXACT)): keep_working(
            "so much idles in the naive order. What do further microbatches add to each row of the chart?"
        ),
        100 * bubble_fraction(timeline): almost("that is in percent. What is it as a share of 1?"),
    }
    return next((reply for number, reply in replies.items() if isclose(answer, number, rel_tol=NEAR)), None)


def _gpipe(devices: int, microbatches: int) -> Timeline:
    return simulate(GPipe(devices, microbatches), EXACT)


def _device_time(timeline: Timeline) -> Real:
    return timeline.schedule.devices * timeline.makespan


def _short(value: Real) -> str:
    return f"{float(value):.4g}"
