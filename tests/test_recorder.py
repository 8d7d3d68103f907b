"""A recorder around loops that label nothing: loops with the signatures of Megatron's, on a made-up clock.

``test_torch_megatron.py`` has Megatron itself.
"""

import csv
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import gpipe_sim as gp
from gpipe_sim.core import Action, Kind
from gpipe_sim.traces import Recorder

TOOK = {Kind.F: 0.010, Kind.B: 0.020}  #: seconds
SLOW, TIMES = 2, 1.5  #: this stage takes so many times as long


class Clock:
    """Stands where a test puts it, and a little later each time it is read."""

    def __init__(self):
        self.now, self.wall = 100.0, 1_764_000_000.0

    def perf_counter(self) -> float:
        return self.now

    def time(self) -> float:
        return self.wall + self.now - 100


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock.perf_counter)
    monkeypatch.setattr(time, "time", clock.time)
    return clock


class Output:
    """What stands for a tensor."""


class Loop:
    """The two functions of Megatron's ``schedules`` as they are called there, and a step of any order.

    ``old``: as before core 0.5, where a forward is told neither its microbatch nor its model chunk. ``many``:
    outputs are lists of tensors, as in the plain schedule.
    """

    def __init__(self, clock: Clock, rank: int = 0, devices: int = 4, old: bool = False, many: bool = True):
        self.clock, self.rank, self.devices, self.old, self.many = clock, rank, devices, old, many
        self.models = [object() for _ in range(4)]

    def forward_step(
        self,
        forward_step_func,
        data_iterator,
        model,
        num_microbatches,
        input_tensor,
        forward_data_store,
        config,
        cp_group_size=1,
        collect_non_loss_data=False,
        current_microbatch=None,
        vp_stage=None,
    ):
        self.work(Kind.F, self.models.index(model))
        output = [Output()] if self.many else Output()
        return output if self.old else (output, 0)

    def backward_step(self, input_tensor, output_tensor, output_tensor_grad, model_type, config):
        first = output_tensor[0] if self.many else output_tensor
        assert isinstance(first, Output)
        if self.many:
            output_tensor[0] = None  # as Megatron does with what it has scaled
        self.work(Kind.B, self.chunk_of[id(first)])
        return "gradient"

    def work(self, kind: Kind, chunk: int) -> None:
        stage = chunk * self.devices + self.rank
        self.clock.now += TOOK[kind] * (TIMES if stage == SLOW else 1)

    def step(self, row, microbatches: int, forward_only: bool = False) -> None:
        """The actions of one device, called as Megatron calls them; 1 ms passes between two."""
        outputs, self.chunk_of = {}, {}
        for stage, kind, m in row:
            chunk = stage // self.devices
            self.clock.now += 0.001
            if kind is Kind.F:
                told = {} if self.old else {"current_microbatch": m, "vp_stage": chunk}
                made = self.forward_step(None, None, self.models[chunk], microbatches, None, [], None, **told)
                outputs[chunk, m] = made if self.old else made[0]
                first = outputs[chunk, m][0] if self.many else outputs[chunk, m]
                self.chunk_of[id(first)] = chunk
            elif not forward_only:
                assert self.backward_step(None, outputs.pop((chunk, m)), None, None, None) == "gradient"


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def actions_of(rows: list[dict[str, str]], step: int) -> list[Action]:
    own = [row for row in rows if int(row["step"]) == step]
    return [Action(int(row["stage"]), Kind(row["kind"]), int(row["microbatch"])) for row in own]


def recorded(schedule, clock: Clock, folder: Path, steps: int = 2, **loop_options) -> Iterator[list]:
    """What each rank wrote of so many steps."""
    for rank in range(schedule.devices):
        loop, recorder = Loop(clock, rank, schedule.devices, **loop_options), Recorder(rank, schedule.devices)
        with recorder.wrapped(loop):
            for _ in range(steps):
                loop.step(schedule.actions[rank], schedule.microbatches)
        recorder.save(folder / f"{rank}.csv")
        yield rows_of(folder / f"{rank}.csv")


ORDERS = [
    gp.OneFOneB(4, 8),
    gp.OneFOneB(4, 2),
    gp.OneFOneB(1, 3),
    gp.Interleaved1F1B(4, 8, 2),
    gp.Interleaved1F1B(2, 4, 4),
]


@pytest.mark.parametrize("many", [True, False], ids=["lists", "tensors"])
@pytest.mark.parametrize("old", [True, False], ids=["old", "new"])
@pytest.mark.parametrize("schedule", ORDERS, ids=repr)
def test_stages_and_microbatches_are_found_as_megatron_calls(schedule, old, many, clock, tmp_path):
    """Told by the loop, or in older releases counted; chunk v of the model on rank k is stage v K + k."""
    for rank, rows in enumerate(recorded(schedule, clock, tmp_path, old=old, many=many)):
        assert [actions_of(rows, step) for step in (0, 1)] == [list(schedule.actions[rank])] * 2
        assert {row["rank"] for row in rows} == {str(rank)}


def test_a_table_as_it_is_written(clock, tmp_path):
    """In milliseconds since 1970: the clock says 100 s where the day says 1764000000 s."""
    loop, recorder = Loop(clock, 1, 2), Recorder(1, 2)
    with recorder.wrapped(loop):
        loop.step([Action(1, Kind.F, 0), Action(1, Kind.B, 0)], 1)
    recorder.save(str(tmp_path / "a.csv"))
    assert (tmp_path / "a.csv").read_text() == (
        "rank,stage,kind,microbatch,start,end,step\n"
        "1,1,F,0,1764000000001.0000,1764000000011.0000,0\n"
        "1,1,B,0,1764000000012.0000,1764000000032.0000,0\n"
    )


def test_a_slow_stage_is_found(clock, tmp_path):
    """Planted: 15 and 30 ms instead of 10 and 20."""
    for rank, rows in enumerate(recorded(gp.OneFOneB(4, 8), clock, tmp_path)):
        for row in rows:
            took = float(row["end"]) - float(row["start"])
            slower = TIMES if rank == SLOW else 1
            assert took == pytest.approx(TOOK[Kind(row["kind"])] * 1000 * slower, abs=1e-3)


@pytest.mark.parametrize("evaluated", [2, 4, 6])
def test_evaluations_between_the_steps_are_left_out(evaluated, clock, tmp_path):
    """They have forwards only, of fewer microbatches, as many, or more."""
    row, forwards = gp.OneFOneB(1, 4).actions[0], [Action(0, Kind.F, m) for m in range(evaluated)]
    for old in (True, False):
        loop, recorder = Loop(clock, 0, 1, old=old), Recorder(0, 1)
        with recorder.wrapped(loop):
            for _ in range(2):
                loop.step(forwards, evaluated, forward_only=True)
                loop.step(row, 4)
                loop.step(forwards, evaluated, forward_only=True)
        recorder.save(tmp_path / "a.csv")
        rows = rows_of(tmp_path / "a.csv")
        assert [actions_of(rows, step) for step in range(3)] == [list(row), list(row), []]


def test_a_loop_of_ones_own_notes_its_actions_itself(clock, tmp_path):
    recorder = Recorder(0, 1)
    for _ in range(2):
        for kind, took in (("F", 1), ("I", 2), ("W", 3)):
            with recorder.action(kind, 0, 5):
                clock.now += took
    recorder.save(tmp_path / "a.csv")
    lines = [line.split(",", 2)[2] for line in (tmp_path / "a.csv").read_text().splitlines()]
    assert [line[:4] for line in lines] == ["kind", "F,5,", "I,5,", "W,5,", "F,5,", "I,5,", "W,5,"]
    assert lines[5] == "I,5,1764000007000.0000,1764000009000.0000,1"
    with pytest.raises(ValueError, match="there are the kinds F, B, I, W, R, U"):
        recorder.action("X", 0, 0)


def test_the_loop_is_as_before_whatever_happens(clock):
    """A function of the module, and one that an object has from its class."""
    module = ModuleType("schedules")
    module.forward_step, module.backward_step = forward, backward = (
        lambda model: None,
        lambda output_tensor: None,
    )
    loop = Loop(clock)
    for thing in (module, loop):
        had = dict(vars(thing))
        with suppress(ZeroDivisionError), Recorder(0, 4).wrapped(thing):
            assert vars(thing) != had
            raise ZeroDivisionError
        assert vars(thing) == had
    assert (module.forward_step, module.backward_step) == (forward, backward)


def test_an_error_of_the_loop_is_its_own_and_recording_goes_on(clock, tmp_path):
    loop, recorder = Loop(clock, 0, 1), Recorder(0, 1)
    with recorder.wrapped(loop):
        loop.step(gp.GPipe(1, 2).actions[0], 2)
        with pytest.raises(ValueError, match="is not in list"):
            loop.forward_step(None, None, "no model", 2, None, [], None, current_microbatch=0, vp_stage=0)
        loop.step(gp.GPipe(1, 2).actions[0], 2)
    recorder.save(tmp_path / "a.csv")
    rows = rows_of(tmp_path / "a.csv")
    assert [actions_of(rows, step) for step in (0, 1)] == [list(gp.GPipe(1, 2).actions[0])] * 2


def test_two_recorders_may_be_around_one_loop(clock, tmp_path):
    loop, outer, inner = Loop(clock, 0, 1), Recorder(0, 1), Recorder(0, 1)
    with outer.wrapped(loop):
        loop.step(gp.GPipe(1, 2).actions[0], 2)
        with inner.wrapped(loop):
            loop.step(gp.GPipe(1, 2).actions[0], 2)
    for recorder, steps in ((outer, 2), (inner, 1)):
        recorder.save(tmp_path / "a.csv")
        assert len(rows_of(tmp_path / "a.csv")) == 4 * steps


def test_a_recorder_may_record_twice(clock, tmp_path):
    loop, recorder = Loop(clock, 0, 1), Recorder(0, 1)
    for _ in range(2):
        with recorder.wrapped(loop):
            loop.step(gp.GPipe(1, 2).actions[0], 2)
        clock.now += 50
        loop.step(gp.GPipe(1, 2).actions[0], 2)
    recorder.save(tmp_path / "a.csv")
    rows = rows_of(tmp_path / "a.csv")
    assert [len(actions_of(rows, step)) for step in range(3)] == [4, 4, 0]
    assert float(rows[4]["start"]) - float(rows[3]["end"]) > 50_000


# Who it is


def test_megatron_says_the_rank_and_then_torch_does(clock, monkeypatch, tmp_path):
    loop = Loop(clock, 2, 4)
    loop.parallel_state = SimpleNamespace(
        model_parallel_is_initialized=lambda: True,
        get_pipeline_model_parallel_rank=lambda: 2,
        get_pipeline_model_parallel_world_size=lambda: 4,
    )
    dist = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 5, get_world_size=lambda: 8
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=dist))
    assert (Recorder().rank, Recorder().devices, Recorder(1).rank, Recorder(1).devices) == (5, 8, 1, 8)
    recorder = Recorder()
    with recorder.wrapped(loop):
        loop.step(gp.OneFOneB(4, 8).actions[2], 8)
    assert (recorder.rank, recorder.devices) == (2, 4)
    recorder.save(tmp_path / "a.csv")
    assert actions_of(rows_of(tmp_path / "a.csv"), 0) == list(gp.OneFOneB(4, 8).actions[2])
    loop.parallel_state.model_parallel_is_initialized = lambda: False
    with Recorder().wrapped(loop) as recorder:
        assert (recorder.rank, recorder.devices) == (5, 8)


def test_whoever_says_no_rank_is_asked_for_it(clock, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for ask in (
        lambda: Recorder().rank,
        lambda: Recorder(0).devices,
        Recorder().wrapped(Loop(clock)).__enter__,
    ):
        with pytest.raises(ValueError, match=re.escape("to be told its place: Recorder(rank=0, devices=4)")):
            ask()
    for wrong in ({"rank": -1}, {"rank": 4, "devices": 4}, {"devices": 0}):
        with pytest.raises(ValueError, match=r"Recorder needs (rank|devices)"):
            Recorder(**wrong)


# What is refused


def test_a_loop_without_such_functions_is_refused(clock):
    with pytest.raises(TypeError, match=r"Recorder.wrapped needs a loop with a function forward_step"):
        Recorder(0, 1).wrapped(object()).__enter__()
    loop = Loop(clock)
    with pytest.raises(TypeError, match="needs a loop with a function back "):
        Recorder(0, 1).wrapped(loop, backward="back").__enter__()
    recorder = Recorder(0, 1)
    with (
        recorder.wrapped(loop),
        pytest.raises(ValueError, match="give the second loop a Recorder of its own"),
    ):
        recorder.wrapped(Loop(clock)).__enter__()


def test_a_backward_of_something_else_is_refused(clock):
    loop = Loop(clock, 0, 1)
    says = (
        "a backward is for an output_tensor that no forward has returned; note them yourself: with recorder"
    )
    with Recorder(0, 1).wrapped(loop), pytest.raises(ValueError, match=says):
        loop.backward_step(None, [Output()], None, None, None)


def test_a_forward_that_nobody_can_number_is_refused():
    loop = SimpleNamespace(forward_step=lambda model: Output(), backward_step=lambda output_tensor: None)
    says = "its forward is told neither current_microbatch nor num_microbatches; note them yourself"
    with Recorder(0, 1).wrapped(loop), pytest.raises(ValueError, match=says):
        loop.forward_step("a model")


def test_what_is_no_step_is_not_written(clock, tmp_path):
    recorder = Recorder(0, 1)
    with pytest.raises(
        ValueError, match=r"no step with a backward \(0 actions noted\): wrap the loop around"
    ):
        recorder.save(tmp_path / "a.csv")
    with recorder.action("F", 0, 0):
        pass
    with pytest.raises(ValueError, match=r"no step with a backward \(1 actions noted\)"):
        recorder.save(tmp_path / "a.csv")
    with recorder.action("B", 0, 0):
        pass
    with pytest.raises(FileNotFoundError, match=r"Recorder.save cannot write .*there is no folder"):
        recorder.save(tmp_path / "no" / "a.csv")
    with pytest.raises(ValueError, match=r"Recorder.save needs a path that ends in .csv"):
        recorder.save(tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_it_imports_no_torch():
    code = (
        "import sys, gpipe_sim as gp; gp.traces.Recorder(0).action('F', 0, 0); print('torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


# On a GPU that is not there


class Gpu:
    """What ``torch.cuda`` is asked for: its clock stands where a test puts it, and is read in 32 bits."""

    def __init__(self, used: bool = True):
        self.used, self.synchronized, self.milliseconds = used, 0, 5.0

    def is_initialized(self) -> bool:
        return self.used

    def synchronize(self, device) -> None:
        assert device is None
        self.synchronized += 1

    def current_stream(self, device) -> "Gpu":
        return self

    def Event(self, enable_timing: bool) -> "Event":
        assert enable_timing and self.used
        return Event(self)


class Event:
    def __init__(self, gpu: Gpu):
        self.gpu = gpu

    def record(self, stream: Gpu) -> None:
        self.at = stream.milliseconds

    def elapsed_time(self, later: "Event") -> float:
        from numpy import float32

        assert self.gpu.synchronized == 2, "a GPU is asked for times before it is done"
        return float(float32(later.at - self.at))


def test_on_a_gpu_times_are_its_own_after_an_hour_too(clock, monkeypatch, tmp_path):
    """Python is done at once. An hour in milliseconds has steps of 0.25 in 32 bits; what is noted has not."""
    gpu = Gpu()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=gpu))
    recorder = Recorder(0, 1)
    for _ in range(1000):
        with recorder.action("F", 0, 0):
            gpu.milliseconds += 3600.1
    with recorder.action("B", 0, 0):
        gpu.milliseconds += 20
    assert gpu.synchronized == 1, "it waits at the beginning only"
    recorder.save(tmp_path / "a.csv")
    first, last = rows_of(tmp_path / "a.csv")
    assert float(last["start"]) - float(first["start"]) == pytest.approx(3600.1, abs=1e-3)
    assert float(last["end"]) - float(last["start"]) == pytest.approx(20, abs=1e-3)
    assert float(last["end"]) == pytest.approx(1764e9 + 3_600_120, abs=0.2)


def test_where_no_gpu_is_used_the_clock_says_when(clock, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=Gpu(used=False)))
    loop, recorder = Loop(clock, 0, 1), Recorder(0, 1)
    with recorder.wrapped(loop):
        loop.step(gp.GPipe(1, 1).actions[0], 1)
    recorder.save(tmp_path / "a.csv")
    row, _ = rows_of(tmp_path / "a.csv")
    assert float(row["end"]) - float(row["start"]) == pytest.approx(10, abs=1e-3)
