"""Timelines as a clock would note them, the same every time: what checks try beside the recorded ones."""

from collections.abc import Callable
from numbers import Real

from gpipe_sim.schedule.actions import Action
from gpipe_sim.schedule.base import Schedule, needs
from gpipe_sim.simulation.costs import Costs
from gpipe_sim.simulation.simulate import simulate
from gpipe_sim.simulation.timeline import Span, Timeline

PAUSE = 0.75  #: how long a device takes between two actions in a timeline that is made here
LENGTHS = (0.93, 1.05, 1.0, 0.96, 1.09, 0.91, 1.02)  #: of its cost, how long each action takes in turn


def measured(
    schedule: Schedule,
    costs: Costs,
    slow: dict[str, Real] | None = None,
    pauses: Callable[[int, int], Real] = lambda device, done: PAUSE,
) -> Timeline:
    """A timeline such as a clock could note: actions take about their cost, and those of ``slow`` far more.

    It is the same every time. A device pauses between two actions, unless it waits for longer anyway: for
    ``pauses(device, done)`` after ``done`` actions.
    """
    slow = {} if slow is None else slow
    ends: dict[Action, float] = {}
    free = [0.0] * schedule.devices
    done = [0] * schedule.devices
    spans = []
    for number, span in enumerate(simulate(schedule, costs).spans):
        arrived = (
            ends[need] + (costs.transfer(need, home, span.device) if home != span.device else 0)
            for need in needs(span.action, schedule)
            for home in [schedule.device_of(need)]
        )
        start = max([free[span.device], *arrived])
        usual = costs.duration(span.action, span.device) * LENGTHS[number % len(LENGTHS)]
        ends[span.action] = end = start + slow.get(str(span.action), 1) * usual
        done[span.device] += 1
        free[span.device] = end + pauses(span.device, done[span.device])
        spans.append(Span(span.action, span.device, start, end))
    spans.sort(key=lambda span: span.end)
    return Timeline(schedule, Costs(), tuple(spans))


def uneven(device: int, done: int) -> float:
    """A pause that is another one each time, and longer on later devices: so it matters which ones count."""
    return 0.4 * (1 + device) * (0.3 + done * 0.618 % 1)
