"""Timelines that look measured but come out the same every time; checks use them beside the recorded ones."""

from gpipe_sim.core.cost_model import CostModel
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.timeline import Span, Timeline
from gpipe_sim.errors import Real
from gpipe_sim.export.spans import from_spans
from gpipe_sim.machine.machine import Machine

PAUSE = 0.75  #: how long a device takes between two actions in a timeline that is made here
LENGTHS = (0.93, 1.05, 1.0, 0.96, 1.09, 0.91, 1.02)  #: of its cost, how long each action takes in turn


class _Worn(CostModel):
    """Costs that vary a little from action to action, and are much larger for a few slow actions."""

    def __init__(self, costs: Costs, slow: dict[str, Real]):
        self.costs, self.slow, self.asked = costs, slow, 0

    def duration(self, action, device: int) -> Real:
        self.asked += 1
        usual = self.costs.duration(action, device) * LENGTHS[self.asked % len(LENGTHS)]
        return self.slow.get(str(action), 1) * usual

    def transfer(self, action, source: int, target: int) -> Real:
        return self.costs.transfer(action, source, target)


def measured(schedule: Schedule, costs: Costs, slow: dict[str, Real] | None = None) -> Timeline:
    """A timeline that looks measured, the same every time. An action takes about its cost.

    ``slow`` maps the spelling of an action to the factor by which it takes longer. After each action a device
    pauses for ``PAUSE``, which costs nothing extra if it has to wait longer than that anyway.
    """
    machine = Machine(schedule.program, _Worn(costs, slow or {}))
    spans = []
    while (entry := machine.earliest()) is not None:
        device, start = machine.home[entry], machine.start(entry)
        machine.apply(entry)
        action = schedule.program.entry_of(entry)
        spans.append(Span(action, device, float(start), machine.free[device]))
        machine.free[device] += PAUSE
    return from_spans(schedule, spans)
