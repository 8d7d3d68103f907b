"""Steps that a machine could have measured, with causes that were put there on purpose."""

from random import Random

from gpipe_sim import simulate
from gpipe_sim.core import CostModel, Kind, Schedule, Span, Timeline
from gpipe_sim.export.spans import from_spans

LASTS = {Kind.F: 7, Kind.B: 14, Kind.I: 7, Kind.W: 7}


class Planted(CostModel):
    """Every action takes 7 ms, a full backward 14, a message 0.5 and a gap 0.3, all of it with 2% noise.

    ``stages`` and ``devices`` are by what factor some take longer, ``links`` the time of a message by pair,
    ``pauses`` how many ms single actions take longer; "before 1F2" lengthens the gap before that action.
    """

    def __init__(self, stages=(), devices=(), links=(), pauses=(), gap=0.3):
        self.stages, self.devices, self.links = dict(stages), dict(devices), dict(links)
        self.pauses, self.gap = dict(pauses), gap

    def work(self, action, device: int) -> float:
        slow = self.stages.get(action.stage, 1) * self.devices.get(device, 1)
        return LASTS[action.kind] * slow * self.noise(action) + self.pauses.get(str(action), 0)

    def duration(self, action, device: int) -> float:
        pause = self.pauses.get(f"before {action}", 0)
        return self.gap * self.noise("gap", action) + pause + self.work(action, device)

    def transfer(self, action, source: int, target: int) -> float:
        return self.links.get((source, target), 0.5) * self.noise("message", action, target)

    def noise(self, *of_what) -> float:
        return 1 + 0.02 * Random(" ".join(map(str, of_what))).uniform(-1, 1)


def measured_with(schedule: Schedule, share: float | None = 1, **planted) -> Timeline:
    """What a clock says of it; ``share`` of the messages are measured, None for a clock that knows none."""
    costs = Planted(**planted)
    timeline = simulate(schedule, costs)
    spans = [
        Span(span.action, span.device, span.end - costs.work(span.action, span.device), span.end)
        for span in timeline.spans
    ]
    known = [each for each in timeline.messages if Random(str(each.action)).random() < (share or 0)]
    return from_spans(schedule, spans, messages=None if share is None else known)
