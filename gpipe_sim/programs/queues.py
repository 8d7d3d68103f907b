"""Programs without a model: what is wrong with them, and where each device then stands in its queue.

They run as ``run_programs`` runs them, on stages of one number each. So what stops them there stops them
here, and is told in the same words.
"""

import re
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.core.deadlock import Wait
from gpipe_sim.core.device import StepInputs, cut_batch
from gpipe_sim.core.layers import Context, Linear
from gpipe_sim.core.losses import mse
from gpipe_sim.core.problems import Problem, in_lines, problems
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.split import split
from gpipe_sim.errors import DeadlockError, ScheduleError
from gpipe_sim.programs.blocking import blocked_cycles
from gpipe_sim.programs.device_programs import DevicePrograms, read_programs
from gpipe_sim.programs.run_programs import Run, recomputed, unmatched
from gpipe_sim.programs.transfers import Recv, Send, Step, Transfer, Way, spelled

_ACTION = re.compile(r"\b\d+[FBIWRU]\d+\b")


class ProgramQueues:
    """What comes of programs, or of a schedule whose sends block; ``core.problems.Queues`` says what each is.

    TypeError or ValueError for what ``device_programs`` does not take.
    """

    def __init__(self, owner: str, source: object, sends: str):
        self.schedule = source if isinstance(source, Schedule) else None
        self.programs, self.blocking = _read(owner, source), sends == "blocking"

    @property
    def error(self) -> ScheduleError | None:
        if self.schedule is None:
            return self.stopped
        head = f"{self.schedule!r} cannot finish with blocking sends:"
        return DeadlockError(in_lines(head, self.problems, at_most=8)) if self.problems else None

    @cached_property
    def problems(self) -> list[Problem]:
        if self.schedule is not None:
            return [
                Problem("blocking", each.freed_by, each.sentence) for each in blocked_cycles(self.schedule)
            ]
        if self.stopped is None:
            return []
        rule = (
            "program" if type(self.stopped) is ScheduleError else "blocking" if self.blocking else "deadlock"
        )
        lines = [line.strip() for line in str(self.stopped).splitlines()]
        found = ((_ACTION.search(line), line) for line in lines)
        stops = [Problem(rule, Action.parse(action[0]), line) for action, line in found if action]
        return stops + [
            each for each in self._others() if each.sentence not in {one.sentence for one in stops}
        ]

    def _others(self) -> Iterator[Problem]:
        """What is wrong whatever stops them: messages with one end, and actions."""
        ends: dict[type, dict[Way, None]] = {Send: {}, Recv: {}}
        for device, row in enumerate(self.programs):
            for step in (step for step in row if isinstance(step, Transfer)):
                ends[type(step)][step.message(device)] = None
        yield from (Problem("program", *each) for each in unmatched(ends[Send], ends[Recv]))
        order = problems(self.programs.schedule)
        yield from (each for each in order if each.rule not in ("deadlock", "stuck"))

    @cached_property
    def stopped(self) -> ScheduleError | None:
        """What ``run_programs`` would raise, for a model whose stages keep their inputs."""
        try:
            self.run.finish()
            self.run.timeline()
        except ScheduleError as error:
            return error
        return None

    @cached_property
    def run(self) -> Run:
        rows, placement, count = self.programs.rows, self.programs.placement, self.programs.microbatches
        stages, batch = 1 + max(stage for held in placement for stage in held), np.zeros((count, 1))
        layers = [Linear(1, 1, rng=np.random.default_rng(0)) for _ in range(stages)]
        contexts = [Context(True, 0, 0, m) for m in range(count)]
        again, cut = recomputed(rows, stages, count), cut_batch(count, count)
        inputs = StepInputs(stages, (batch, batch), cut, mse, None, contexts, [], again)
        return Run(rows, split(layers, stages=stages), placement, inputs, self.blocking)

    # The queues, once they have stopped

    @property
    def rows(self) -> list[list[tuple[str, Kind]]]:
        """A message is spelled as in a text, and has the kind of what made it."""
        return [[(spelled(step), _made_by(step).kind) for step in row] for row in self.programs]

    @property
    def stuck(self) -> dict[int, int]:
        now = enumerate(self.run.now if self.stopped else [])
        return {device: self.run.done[device] for device, step in now if step is not None}

    @property
    def waits(self) -> list[Wait]:
        """Each waits for the other end of a message, or for the device that should have it."""
        every = ((device, self.run.wait(device)) for device in self.stuck)
        return [self._other_end(device, *wait) for device, wait in every if wait]

    def _other_end(self, device: int, at: Step, on: Transfer) -> Wait:
        end = Recv(on.what, device) if isinstance(on, Send) else Send(on.what, device)
        there = (place for place, step in enumerate(self.programs[on.other]) if _is_end(step, end))
        return Wait(device, _made_by(at), on.what, on.other, next(there, self.stuck[on.other]))

    def __str__(self) -> str:
        return str(self.programs)


def _made_by(step: Step) -> Action:
    return step.what if isinstance(step, Transfer) else step.parts[0]


def _is_end(step: Step, end: Transfer) -> bool:
    return type(step) is type(end) and (step.what, step.other) == (end.what, end.other)


def _read(owner: str, source: object) -> DevicePrograms:
    programs = read_programs(owner, source)
    sends = (step for row in programs for step in row if isinstance(step, Transfer))
    if isinstance(source, str) and len(programs) > 1 and not any(sends):
        hint = "if messages are to follow from the rows, it is Explicit.parse(text)"
        raise ValueError(f"{owner} needs a text of programs to have sends and receives: {hint}")
    return programs
