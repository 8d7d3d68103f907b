"""Run each device's own program on real arrays, with the sends and receives that it has, and time it.

A message crosses once it is both sent and received. If messages are buffered, the time that it takes begins
when it is sent:

    device 0   [ 0F0 ]Send
                      `--- on its way ---.
    device 1   Recv......................[ 1F0 ]      buffered, or device 1 is there first

    device 0   [ 0F0 ]Send...................[ 0F1 ]  blocking: both go on together
                              .-- on its way -.
    device 1   [ 1B0        ]Recv............[ 1F0 ]
"""

from collections.abc import Collection, Iterator, Sequence

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.core.boundary import Boundary
from gpipe_sim.core.cost_model import CostModel, require_costs
from gpipe_sim.core.costs import UNIT
from gpipe_sim.core.device import Batch, StepInputs, as_batch, cut_batch
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.layers import Context
from gpipe_sim.core.losses import Loss
from gpipe_sim.core.partition import Partition, require_one_model, require_partitions
from gpipe_sim.core.placement import looped, read_placement, require_gapless, say_stages
from gpipe_sim.core.problems import SENDS, check_actions
from gpipe_sim.core.step import StepResult, collect, require_loss, share_out
from gpipe_sim.core.timeline import Message, Span, Timeline, column_of
from gpipe_sim.errors import (
    DeadlockError,
    Real,
    ScheduleError,
    duration,
    got,
    listed,
    one_of,
    require_flags,
    whole,
)
from gpipe_sim.programs.blocking import Turns, Wait, freed_by_a_receive, in_words, put, round_trip
from gpipe_sim.programs.device_programs import DevicePrograms, Program, read_program
from gpipe_sim.programs.program_device import ProgramDevice
from gpipe_sim.programs.transfers import Recv, Send, Step, Transfer, Way, key_of

SUCH_AS = "a program per device, such as device_programs(GPipe(2, 4)), or a list of lists and generators"


def run_programs(
    programs: "DevicePrograms | Sequence[Program]",
    partitions: Sequence[Partition],
    batch: Batch,
    loss: Loss,
    *,
    sends: str = "buffered",
    microbatches: int | None = None,
    placement: "Sequence[Sequence[int]] | None" = None,
    costs: CostModel | None = None,
    check_buffers: bool = True,
    seed: int = 0,
    step: int = 0,
) -> StepResult:
    """Run one training step in which every device follows a program of its own.

    A program is a list, or a generator, of actions, ``Send`` and ``Recv``; the first is that of device 0.
    With ``sends="blocking"`` a send ends only when the other device receives; "buffered", it ends at once.
    ``microbatches`` is one more than the largest label in the programs; with generators it has to be given.
    ``placement`` lists each device's stages; unless given, device s mod K holds stage s.
    ``check_buffers=False`` lets a receive write over a buffer that is still needed, as real devices do.

    The result has loss, gradients and outputs as from ``train_step``, and no memory. Its timeline is in the
    unit of ``costs``, unit costs unless given. The weights do not change.

    DeadlockError if devices wait for each other for ever; ScheduleError if the programs do not fit each
    other, or are no training step; TypeError or ValueError for what is no program, or does not fit the model.
    """
    if isinstance(programs, DevicePrograms):
        placement = programs.placement if placement is None else placement
        microbatches = programs.microbatches if microbatches is None else microbatches
        programs = programs.rows
    if not (given := listed("run_programs", SUCH_AS, programs)):
        raise TypeError(f"run_programs needs {SUCH_AS} {got(programs)}")
    rows = [read_program(k, program) for k, program in enumerate(given)]
    held = _read_placement(placement, partitions, len(rows))
    count = whole("run_programs", "microbatches", _count(rows) if microbatches is None else microbatches)
    one_of("run_programs", "sends", sends, SENDS)
    require_flags("run_programs", check_buffers=check_buffers)
    costs = UNIT if costs is None else costs
    require_costs("run_programs", costs, len(partitions), len(rows))
    batch = as_batch(batch)
    require_loss(loss)
    seed, step = (whole("run_programs", n, v, low=0) for n, v in (("seed", seed), ("step", step)))
    cut, contexts = cut_batch(len(batch[0]), count), [Context(True, seed, step, m) for m in range(count)]
    again = recomputed(rows, len(partitions), count)
    inputs = StepInputs(len(partitions), batch, cut, loss, None, contexts, [], again)
    run = Run(rows, partitions, held, inputs, sends == "blocking", costs, check_buffers)
    run.finish()
    return collect(run.devices, inputs, timeline=run.timeline())


def _read_placement(
    placement: Sequence[Sequence[int]] | None, partitions: Sequence[Partition], devices: int
) -> tuple[tuple[int, ...], ...]:
    """Each device's stages; TypeError or ValueError unless there is a partition for each stage."""
    require_partitions("run_programs", partitions, devices, runnable=True)
    require_one_model(partitions)
    held = looped(devices, len(partitions)) if placement is None else placement
    held = read_placement("run_programs", held, devices)
    require_gapless(held)
    if (stages := 1 + max(stage for own in held for stage in own)) != len(partitions):
        raise ValueError(
            f"the programs are for {stages} stages, but there are {len(partitions)} partitions; "
            f"split(layers, stages={stages}) would fit"
        )
    return held


def _count(rows: list[Program]) -> int:
    if not all(isinstance(row, list) for row in rows):
        raise TypeError("run_programs needs microbatches=, how many: it does not look ahead into generators")
    steps = (step for row in rows for step in row if not isinstance(step, Transfer))
    return 1 + max((part.microbatch for step in steps for part in step.parts), default=0)


def recomputed(rows: Sequence[Program], stages: int, count: int) -> list[list[bool]]:
    """By stage and microbatch, whether a forward is run again; only a list says that beforehand."""
    known = {step for row in rows if isinstance(row, Sequence) for step in row}
    return [[Action(stage, Kind.R, m) in known for m in range(count)] for stage in range(stages)]


def unmatched(sent: Collection[Way], received: Collection[Way]) -> Iterator[tuple[Action, str]]:
    """Messages of which there is one end only: what they hold, and a sentence."""
    for what, source, to in sent:
        if (what, source, to) not in received:
            yield what, f"device {source} sends {what} to device {to}, which never receives it"
    for what, source, to in received:
        if (what, source, to) not in sent:
            yield what, f"device {to} receives {what} from device {source}, which never sends it"


class Run(Turns):
    """Programs that run on real arrays; ``clock`` has the time of each device.

    What is sent is its arrays; what is kept of a message that has crossed is when it did.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        partitions: Sequence[Partition],
        placement: Sequence[Sequence[int]],
        inputs: StepInputs,
        blocking: bool,
        costs: CostModel = UNIT,
        check_buffers: bool = True,
    ):
        super().__init__(programs, blocking)
        copies, ran = share_out(partitions, placement, None), dict[Action, int]()
        self.devices = [ProgramDevice(k, ran, check_buffers, inputs, own) for k, own in enumerate(copies)]
        self.placement, self.inputs, self.costs = placement, inputs, costs
        self.clock: list[Real] = [0] * len(programs)
        self.came: dict[tuple[int, Way], Real] = {}  # by device and message: when it came to its end of it
        self.spans: list[list[Span]] = [[] for _ in programs]

    def finish(self) -> None:
        """Run every program to its end. DeadlockError or ScheduleError, as of ``run_programs``."""
        if waits := self.run():
            raise self.cannot_finish(waits)
        self.require_received()

    def begin(self, device: int, step: Step, sent: Boundary | None = None) -> None:
        if not isinstance(step, Transfer):
            self.devices[device].require_own(step)
            return
        self._require_other(device, step)
        if isinstance(step, Send):
            sent = self.devices[device].take_made(step)
        else:
            self._require_free(device, step)
        self.came[device, step.message(device)] = self.clock[device]
        super().begin(device, step, sent)

    def cross(self, message: Way, recv: Recv, sent: Boundary) -> Message:
        what, source, target = message
        begins = self.came[source, message]
        if self.blocking:
            begins = max(begins, self.came[target, message])
        self.devices[target].arrive(sent, recv)
        takes = self.costs.transfer(what, source, target)
        return Message(*message, begins, begins + self._time(f"transfer of {what}", takes))

    def end(self, device: int, step: Step) -> None:
        arrived = [self.crossed[each.message(device)].end for each in self.awaited(device, step)]
        start = self.clock[device] = max([self.clock[device], *arrived])
        if not isinstance(step, Transfer):
            takes = self._time(f"duration of {step}", self.costs.duration(step, device))
            self.clock[device] += takes
            self.devices[device].run(step)
            self.spans[device].append(Span(step, device, start, self.clock[device]))

    def _time(self, name: str, takes: Real) -> Real:
        return duration(type(self.costs).__name__, name, takes)

    def timeline(self) -> Timeline:
        """What the devices did and when. ScheduleError if it is not a whole training step."""
        rows = [[span.action for span in row] for row in self.spans]
        if not any(rows):
            raise ScheduleError("the programs have run no action, such as F(0, 0)")
        schedule = Explicit(rows, placement=self.placement, microbatches=len(self.inputs.pieces))
        check_actions(schedule)
        crossed = [self.crossed[way] for way in schedule.program.ways]
        spans = [span for row in self.spans for span in row]
        times = ([getattr(each, name) for each in of] for of in (spans, crossed) for name in ("start", "end"))
        start, end, sent, arrived = map(column_of, times)
        return Timeline(schedule, start, end, sent, arrived)

    # What is wrong with the programs

    def _require_other(self, device: int, step: Transfer) -> None:
        """ScheduleError unless the other device is another one, and the message is for one that needs it."""
        error, (_, _, to), (kind, stage, m) = self.devices[device].error, step.message(device), step.key
        if step.other == device:
            raise error(f"{step}, which is itself: what it makes is there")
        if step.other >= len(self.devices):
            raise error(f"{step}, but the devices are 0 to {len(self.devices) - 1}")
        held, last = self.devices[to].partitions, len(self.devices[to].inputs.pieces) - 1
        if stage not in held or m > last:
            holds = f"device {to} holds {say_stages(sorted(held))}, and microbatches are 0 to {last}"
            raise error(f"{step}, which is for {stage}{kind}{m}; {holds}")

    def _require_free(self, device: int, step: Recv) -> None:
        """ScheduleError if it was received before, or if its buffer is not free."""
        own = self.devices[device]
        if (device, step.key) in self.receives:
            raise own.error(f"{step} again; it must receive that once")
        if step.into is not None and own.check_buffers:
            own.require_free(step.into, step.what, self._not_here(device))

    def _not_here(self, device: int) -> Iterator[Recv]:
        """What a device has come to receive, and was not sent."""
        own = (recv for (to, _), recv in self.receives.items() if to == device)
        return (recv for recv in own if recv.message(device) not in self.crossed)

    def require_received(self) -> None:
        """ScheduleError if something was sent and not received, or the other way round."""
        posted = [recv.message(k) for k in range(len(self.devices)) for recv in self._not_here(k)]
        for _, says in unmatched(self.sent, posted):
            raise ScheduleError(says)

    def cannot_finish(self, waits: dict[int, Wait]) -> ScheduleError:
        """The error: ScheduleError if a device waits for one that has ended, else DeadlockError.

        Of many lines the first four tell enough.
        """
        with_ = " with blocking sends" * self.blocking
        lines = [f"the programs of {len(self.devices)} devices cannot finish{with_}:"]
        in_vain = {k: wait for k, wait in waits.items() if self.ended[wait.on.other]}
        astray = [] if self.blocking else list(self._astray(waits))
        if in_vain:
            lines += [f"device {k} waits in {wait}, whose program has ended" for k, wait in in_vain.items()]
            lines += astray + [f"device {k} waits in {wait}" for k, wait in waits.items() if k not in in_vain]
            return ScheduleError("\n  ".join(lines[:5]))
        found = round_trip(waits)
        swap = freed_by_a_receive(found)
        return DeadlockError(
            "\n  ".join([*lines, swap.sentence if swap else self._all_receive(found), *astray[:3]])
        )

    def _astray(self, waits: dict[int, Wait]) -> Iterator[str]:
        """Messages that a device waits for under another name, or from or on another device."""
        wanted = {wait.on.key for wait in waits.values()}
        for what, source, target in self.sent:
            if key_of(what) in wanted:
                yield f"device {source} has sent {what} to device {target}, which has not received it"

    def _all_receive(self, waits: dict[int, Wait]) -> str:
        """A cycle of receives; one that could send first should."""
        for device, wait in waits.items():
            what, other = wait.on.what, wait.on.other
            early, where = Send(what, device).brief, self.devices[other]
            if where.has_made(what):
                return f"{in_words(waits)}. {put(early, other, waits)}"
            if what not in where.ran and what.stage in where.partitions and where.lacks(what) is None:
                return f"{in_words(waits)}. {put(f'{what} and {early}', other, waits)}"
        return in_words(waits)
