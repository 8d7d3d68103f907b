"""Timelines as a clock would note them, the same every time: what checks try beside the recorded ones."""

from collections.abc import Callable
from numbers import Real

from gpipe_sim.schedule.base import Schedule
from gpipe_sim.simulation.costs import CostModel, Costs
from gpipe_sim.simulation.machine import Machine
from gpipe_sim.simulation.timeline import Span, Timeline

PAUSE = 0.75  #: how long a device takes between two actions in a timeline that is made here
LENGTHS = (0.93, 1.05, 1.0, 0.96, 1.09, 0.91, 1.02)  #: of its cost, how long each action takes in turn


class _Worn(CostModel):
    """Costs that come out a little different each time, and some actions far slower."""

    def __init__(self, costs: Costs, slow: dict[str, Real]):
        self.costs, self.slow, self.asked = costs, slow, 0

    def duration(self, action, device: int) -> Real:
        self.asked += 1
        usual = self.costs.duration(action, device) * LENGTHS[self.asked % len(LENGTHS)]
        return self.slow.get(str(action), 1) * usual

    def transfer(self, action, source: int, target: int) -> Real:
        return self.costs.transfer(action, source, target)


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
    machine = Machine.of(schedule.program, _Worn(costs, slow or {}))
    done, spans = [0] * schedule.devices, []
    while (entry := machine.earliest()) is not None:
        machine.apply(entry)
        device = machine.home[entry]
        action = schedule.program.entry_of(entry)
        spans.append(Span(action, device, float(machine.starts[entry]), machine.ends[entry]))
        done[device] += 1
        machine.free[device] += pauses(device, done[device])
    return Timeline.from_spans(schedule, spans)


def uneven(device: int, done: int) -> float:
    """A pause that is another one each time, and longer on later devices: so it matters which ones count."""
    return 0.4 * (1 + device) * (0.3 + done * 0.618 % 1)
