"""Local processes: the same numbers as in NumPy, and no process, folder or silence after a failure."""

import contextlib
import copy
import gc
import io
import ipaddress
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import types
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch_modules  # noqa: E402
from engine_cases import (  # noqa: E402
    assert_equal,
    batch_for,
    in_numpy,
    model,
    over_every_runnable,
    over_explicit,
)
from numeric import furthest_apart  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.pipelining import schedules  # noqa: E402
from torch_modules import linears, some_batch  # noqa: E402

import gpipe_sim as gp  # noqa: E402
from gpipe_sim import cross_entropy, mse, remat  # noqa: E402
from gpipe_sim.torch_backend import (  # noqa: E402
    LocalProcesses,
    Pipeline,
    to_torch,
    train_step,
)
from gpipe_sim.torch_backend.group import loopback  # noqa: E402
from gpipe_sim.torch_backend.processes import _ask  # noqa: E402
from gpipe_sim.torch_backend.shared import cloudpickle  # noqa: E402

by_value = pytest.mark.skipif(cloudpickle is pickle, reason="cloudpickle is not installed")
LIVE = 20  #: seconds in which a failure must have come back, on however busy a machine


@pytest.fixture(scope="module")
def four():
    with LocalProcesses(4) as processes:
        started = Started(processes)
        yield processes
    started.assert_gone()


def check(schedule, processes, dtype=np.float64, within=1e-10) -> gp.StepResult:
    layers, batch = model(dtype=dtype), batch_for(schedule.microbatches, dtype=dtype)
    modules = to_torch(gp.split(layers, stages=schedule.stages))
    step = train_step(modules, schedule, batch, cross_entropy, devices=processes)
    assert_equal(step, in_numpy(layers, schedule, batch, cross_entropy), within)
    for key, gradient in step.gradients.items():
        assert (grads(modules)[key] == gradient).all(), "in the caller's modules, too"
    return step


def grads(modules: list[nn.Module]) -> dict:
    layers = [layer for module in modules for layer in module]
    return {(i, n): p.grad.numpy() for i, layer in enumerate(layers) for n, p in layer.named_parameters()}


# The same numbers


@over_every_runnable([(4, 8), (3, 2), (2, 3), (1, 3)])
def test_every_family_gives_what_numpy_gives(four, schedule):
    """On as many of the four processes as it has devices."""
    step = check(schedule, four)
    assert {span.device for span in step.timeline.spans} == set(range(schedule.devices))


@pytest.mark.parametrize("family", [gp.GPipe, gp.OneFOneB, gp.Interleaved1F1B, gp.ZBH1, gp.ZBV, gp.DualPipeV])
def test_recomputing_gives_the_same(four, family):
    check(remat(family(4, 8), "always"), four)


@over_explicit
def test_orders_written_out_give_the_same(four, schedule):
    check(schedule, four)


def test_float32_gives_the_same_within_float32(four):
    check(gp.OneFOneB(4, 8), four, np.float32, 1e-5)


def test_the_timeline_has_one_clock(four):
    """In a second step, when all are warm: nothing starts before what it needs has ended elsewhere."""
    pipeline = Pipeline(linears(4), gp.OneFOneB(4, 8), mse, devices=four)
    for _ in range(3):
        timeline = pipeline.step(some_batch(16)).timeline
        assert min(span.start for span in timeline.spans) == 0
        assert timeline.messages == (), "nobody measured when they came"
        for span in timeline.spans:
            assert all(timeline.ends[need] <= span.start for need in gp.needs(span.action, timeline.schedule))


def test_what_the_caller_changed_between_steps_counts(four):
    """Weights, what learns, and which part of a module is in training."""
    modules = [nn.Sequential(nn.BatchNorm1d(3).double(), linear, nn.Tanh()) for linear in linears(2)]
    here = pickle.loads(pickle.dumps(modules))
    pipeline, schedule = Pipeline(modules, gp.OneFOneB(2, 4), mse, devices=four), gp.OneFOneB(2, 4)
    for change in (
        lambda stages: None,
        lambda stages: stages[0][1].weight.data.mul_(2),
        lambda stages: stages[0][0].eval(),
        lambda stages: stages[1].eval(),
        lambda stages: stages[0].requires_grad_(False),
        lambda stages: stages[1][0].running_mean.add_(1),
        lambda stages: (stages[0].requires_grad_(True), stages[1].train()),
    ):
        change(modules), change(here)
        found, expected = pipeline.step(some_batch(32)), train_step(here, schedule, some_batch(32), mse)
        assert_equal(found, expected)
        for module, other in zip(modules, here, strict=True):
            for name, buffer in other.named_buffers():
                assert torch.allclose(module.get_buffer(name).double(), buffer.double(), rtol=1e-12), name


def test_grad_grows_by_the_gradient(four):
    modules = linears(3)
    pipeline = Pipeline(modules, gp.GPipe(3, 4), mse, devices=four)
    first, second = pipeline.step(some_batch()), pipeline.step(some_batch())
    assert furthest_apart(second.gradients, first.gradients) < 1e-14
    grown = modules[1].weight.grad.numpy()
    assert np.allclose(grown, 2 * first.gradients[1, "weight"], rtol=1e-12)


def test_a_first_stage_that_learns_nothing_costs_the_second_no_gradient(four):
    modules = [nn.Identity(), *linears(3)]
    found = train_step(modules, gp.ZBH1(4, 4), some_batch(), mse, devices=four)
    assert_equal(found, train_step(modules, gp.ZBH1(4, 4), some_batch(), mse))


def test_batches_may_change_in_size_and_be_part_of_something_large(four):
    modules, data = linears(3), torch.randn(100_000, 3, dtype=torch.float64)
    pipeline = Pipeline(modules, gp.OneFOneB(3, 4), mse, devices=four)
    for part in (data[:8], data[8:24], data[100:104]):
        found = pipeline.step((part, part))
        assert_equal(found, train_step(modules, gp.OneFOneB(3, 4), (part, part), mse), 1e-12)


def test_what_is_sent_is_the_batch_and_not_what_it_was_cut_from(four, monkeypatch):
    sent, pickled = [], cloudpickle.dumps
    monkeypatch.setattr(cloudpickle, "dumps", lambda order: sent.append(pickled(order)) or sent[-1])
    data = torch.zeros(100_000, 3, dtype=torch.float64)
    train_step(linears(2), gp.OneFOneB(2, 4), (data[:8], data[:8]), mse, devices=four)
    assert max(map(len, sent)) < 20_000


def test_a_loss_of_ones_own_goes_along_if_it_can_be_imported(four):
    ours = train_step(
        linears(2), gp.OneFOneB(2, 4), some_batch(), torch_modules.half_of_squares, devices=four
    )
    theirs = train_step(linears(2), gp.OneFOneB(2, 4), some_batch(), mse)
    assert ours.loss == pytest.approx(theirs.loss / 2)


# What is run elsewhere


def without_bias(linear: nn.Linear) -> None:
    linear.bias = None


@pytest.mark.parametrize(
    "change",
    [
        nn.Module.double,
        without_bias,
        lambda linear: linear.register_buffer("mean", torch.ones(2)),
        lambda linear: linear.register_forward_hook(torch_modules.doubled),
        lambda linear: linear.weight.__init__(torch.ones(3, 3, dtype=torch.float64)),
    ],
    ids=["number type", "no bias", "a buffer", "a hook", "a weight"],
)
def test_a_module_built_anew_is_built_anew_there(four, change):
    modules = [linear.float() for linear in linears(2)] if change is nn.Module.double else linears(2)
    here, schedule = copy.deepcopy(modules), gp.OneFOneB(2, 4)
    pipeline = Pipeline(modules, schedule, mse, devices=four)
    pipeline.step(some_batch())
    for stages in (modules, here):
        change(stages[1])
        stages[0].to(stages[1].weight.dtype), [module.zero_grad() for module in stages]
    assert_equal(pipeline.step(some_batch()), train_step(here, schedule, some_batch(), mse))


@by_value
def test_what_changes_in_a_module_between_steps_goes_along(four):
    """The probability of a dropout, a number that is no buffer, and a tensor that is none."""

    class Scaled(nn.Linear):
        factor, shift = 1, torch.zeros(3, dtype=torch.float64)

        def forward(self, x):
            return super().forward(x) * self.factor + self.shift

    modules = [nn.Sequential(nn.Dropout(0.0), linear) for linear in linears(1)]
    modules.append(Scaled(3, 3, dtype=torch.float64))
    here, schedule = copy.deepcopy(modules), gp.OneFOneB(2, 4)
    pipeline = Pipeline(modules, schedule, mse, devices=four)
    for change in (
        lambda stages: None,
        lambda stages: setattr(stages[0][0], "p", 1.0),
        lambda stages: setattr(stages[1], "factor", 3),
        lambda stages: setattr(stages[1], "shift", torch.ones(3, dtype=torch.float64)),
        lambda stages: stages[1].shift.mul_(2),
    ):
        change(modules), change(here)
        found, expected = pipeline.step(some_batch()), train_step(here, schedule, some_batch(), mse)
        assert found.loss == pytest.approx(expected.loss, rel=1e-12)
        for key, gradient in expected.gradients.items():
            assert np.allclose(found.gradients[key], gradient, rtol=1e-10, atol=1e-14)


def test_what_holds_for_all_of_torch_holds_there(four):
    """Autocast, its number type, and the number type that new tensors have."""

    def found(devices) -> gp.StepResult:
        modules = [torch_modules.Tells(), *(linear.float() for linear in linears(1))]
        batch = [part.astype(np.float32) for part in some_batch()]
        return train_step(modules, gp.OneFOneB(2, 4), batch, mse, devices=devices)

    plain = found(None)
    with torch.autocast("cpu", torch.bfloat16):
        here, there = found(None), found(four)
    assert_equal(there, here)
    assert here.loss != plain.loss
    torch.set_default_dtype(torch.float64)
    try:
        here, there = found(None), found(four)
    finally:
        torch.set_default_dtype(torch.float32)
    assert there.loss == here.loss != plain.loss
    assert found(four).loss == plain.loss, "and no longer than it holds here"


def test_a_hook_on_a_weight_is_refused_as_nobody_would_call_it(four):
    modules = linears(2)
    modules[1].weight.register_hook(lambda gradient: 2 * gradient)
    with pytest.raises(ValueError, match="weight of stage 1 has a hook, which no backward of"):
        Pipeline(modules, gp.OneFOneB(2, 4), mse, devices=four)
    assert four.run(torch_modules.rank) == [0, 1, 2, 3]


def test_a_function_runs_on_each_process(four):
    assert four.run(torch_modules.rank) == [0, 1, 2, 3]
    assert four.run_each(max, [(k, 2) for k in range(4)]) == [2, 2, 2, 3]
    assert len(four) == 4 and repr(four) == "LocalProcesses(4)"


def test_what_a_module_prints_is_shown_here_and_is_not_between_the_replies(four, capfd):
    modules = [torch_modules.Prints(), torch_modules.Prints()]
    for _ in range(2):  # each time as much: nothing is shown again
        found = train_step(modules, gp.OneFOneB(2, 4), some_batch(), mse, devices=four)
        lines = capfd.readouterr().out.splitlines()
        assert Counter(lines) == {f"process {rank}: a module may print \u2013 once": 5 for rank in range(2)}
    assert found.loss == pytest.approx(np.mean((some_batch()[0] - some_batch()[1]) ** 2))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts what Linux lists")
def test_pipelines_that_are_gone_leave_nothing_open(four):
    def some_steps() -> tuple[int, int]:
        for devices in (2, 3, 4) * 3:
            train_step(linears(devices), gp.OneFOneB(devices, 4), some_batch(), mse, devices=four)
        gc.collect()
        train_step(linears(2), gp.OneFOneB(2, 4), some_batch(), mse, devices=four)
        return max(four.run(torch_modules.files_and_engines))

    before = some_steps()
    assert some_steps() == before
    assert before[1] <= 2


def test_a_result_that_cannot_be_read_is_told_so_and_not_taken_for_a_death():
    with LocalProcesses(1) as processes, pytest.raises(ValueError, match="nobody can read this"):
        processes.run(torch_modules.Unreadable)


def test_what_cannot_be_sent_is_refused_and_nothing_has_happened(four):
    step = {"schedule": gp.OneFOneB(2, 4), "batch": some_batch(), "devices": four}
    modules = linears(2)
    modules[1].file = threading.Lock()
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)) as error:
        train_step(modules, loss=mse, **step)
    assert "this has to be sent to another process" in error.value.__notes__[0]
    assert train_step(linears(2), loss=mse, **step).loss > 0


@by_value
def test_what_only_the_caller_defines_goes_along(four):
    class Local(nn.Linear):
        def forward(self, x):
            return super().forward(x) + addend

    addend, modules = 2.0, [Local(3, 3, dtype=torch.float64), *linears(1)]
    step = {"schedule": gp.OneFOneB(2, 4), "batch": some_batch(), "loss": lambda a, b: ((a - b) ** 4).mean()}
    here = train_step(copy.deepcopy(modules), **step)
    assert_equal(train_step(modules, **step, devices=four), here)
    assert four.run(lambda: addend) == [2.0] * 4


#: A script without "if __name__", whose own stage, loss and error go to a process and back.
SCRIPT = """\
import sys
{first}
import numpy as np, torch
from torch import nn
import gpipe_sim as gp
from gpipe_sim.torch_backend import LocalProcesses, train_step

class Mine(nn.Linear):
    def forward(self, x):
        if x.isnan().any():
            raise Unwell("not a number")
        return super().forward(x)

class Unwell(Exception):
    pass

class Told(Exception):
    def told(self):
        return name

name = "then"
modules = [Mine(3, 3), nn.Linear(3, 3)]
with LocalProcesses(2) as processes:
    if {whole}:
        [given, _] = processes.run(lambda: Told())
        name = "now"
        print(type(given) is Told, given.told(), Told().told())
    for inputs in (np.ones((4, 3)), np.full((4, 3), np.nan)):
        try:
            step = train_step(modules, gp.GPipe(2, 2), (inputs, inputs), gp.mse, devices=processes)
            print("went", step.loss > 0)
        except Unwell as error:
            print("caught", error)
        except Exception as error:
            print(type(error).__name__, *error.__notes__)
            break
"""


def ran(script: str, folder: Path, *before: str) -> subprocess.CompletedProcess:
    (folder / "script.py").write_text(script)
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sys.path))}
    return subprocess.run(
        [*before, sys.executable, folder / "script.py"],
        capture_output=True,
        text=True,
        env=paths,
        timeout=120,
    )


@by_value
def test_a_script_may_define_its_stages_and_its_errors(tmp_path):
    found = ran(SCRIPT.format(first="", whole=True), tmp_path)
    assert found.stdout.splitlines() == ["True now now", "went True", "caught not a number"], found.stderr


def test_without_cloudpickle_it_is_told_to_install_it(tmp_path):
    found = ran(SCRIPT.format(first="sys.modules['cloudpickle'] = None", whole=False), tmp_path)
    says = "AttributeError processes cannot see what a notebook or a script defines, unless cloudpickle"
    assert found.stdout.startswith(says), found.stderr


def test_too_few_processes_are_an_index_error_and_the_others_live_on(four):
    with pytest.raises(
        IndexError,
        match=r"^too few devices to hold given partitions \(devices: 4, partitions: 5\): "
        r"LocalProcesses\(5\) starts enough$",
    ):
        train_step(linears(5), gp.OneFOneB(5, 4), some_batch(), mse, devices=four)
    assert four.run(torch_modules.rank) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("devices", "error", "says"),
    [
        (0, ValueError, "LocalProcesses needs devices >= 1 (got 0)"),
        ([], ValueError, "LocalProcesses needs devices >= 1 (got 0)"),
        (2.0, TypeError, "LocalProcesses needs devices to be a whole number (got 2.0)"),
        ("cpu", TypeError, "LocalProcesses needs devices to be a whole number (got 'cpu')"),
        (["cpu", "gpu"], ValueError, "'gpu' is not a torch device; this machine has ["),
        (["meta"], ValueError, "a pipeline runs on cpu or cuda devices (got 'meta')"),
        (["cuda:99"], ValueError, "there is no cuda:99 here; this machine has ["),
    ],
    ids=repr,
)
def test_processes_that_cannot_be_are_refused_before_any_is_started(devices, error, says):
    with pytest.raises(error) as refused:
        LocalProcesses(devices)
    assert says in str(refused.value)


def test_a_step_says_what_moving_numbers_took(four):
    """And it took no more than the rest of the call."""
    pipeline = Pipeline(linears(2), gp.OneFOneB(2, 4), mse, devices=four)
    began = time.perf_counter()
    step = pipeline.step(some_batch())
    around = (time.perf_counter() - began) * 1000 - step.timeline.makespan
    assert 0 < step.moved < around
    assert train_step(linears(2), gp.OneFOneB(2, 4), some_batch(), mse).moved == 0


def test_weights_in_any_layout_go_there(four):
    """A view of something larger, columns before rows, and none at all."""
    modules = linears(3)
    whole = torch.randn(5, 6, dtype=torch.float64)
    modules[0].weight = nn.Parameter(whole[1:4, ::2])
    modules[1].weight = nn.Parameter(modules[1].weight.detach().T.contiguous().T)
    modules[2] = nn.Identity()
    here = copy.deepcopy(modules)
    found = train_step(modules, gp.ZBH1(3, 4), some_batch(), mse, devices=four)
    assert_equal(found, train_step(here, gp.ZBH1(3, 4), some_batch(), mse))


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="reads what Linux lists")
def test_nothing_listens_where_another_machine_could_hear(four):
    train_step(linears(4), gp.OneFOneB(4, 4), some_batch(), mse, devices=four)
    listening = [address for addresses in four.run(torch_modules.listening) for address in addresses]
    assert listening and all(ipaddress.ip_address(address).is_loopback for address in listening)


def test_a_machine_without_loopback_is_told_so(monkeypatch):
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "eth0"), (2, "wlan0")])
    with pytest.warns(UserWarning, match=r"no network interface called lo \(it has \['eth0', 'wlan0'\]\)"):
        assert loopback() == {}


@pytest.mark.skipif(not hasattr(schedules, "_defer_recv_ops"), reason="this torch always receives early")
def test_receiving_late_gives_the_same(four):
    found = train_step(linears(4), gp.OneFOneB(4, 8), some_batch(), mse, devices=four, defer_pp_recv=True)
    assert_equal(found, train_step(linears(4), gp.OneFOneB(4, 8), some_batch(), mse))


# When something goes wrong


class Started:
    """Processes that a test may end, and what must be gone after that."""

    def __init__(self, processes: LocalProcesses):
        self.pids = [process.pid for process in (*processes._processes, processes._guard)]
        self.folder = processes.folder
        assert all(map(alive, self.pids)) and self.folder.is_dir()

    def assert_gone(self) -> None:
        assert not any(map(alive, self.pids))
        assert not self.folder.exists()


def alive(pid: int) -> bool:
    """Whether the process runs: not gone, and not merely waiting to be noticed by its parent."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    if sys.platform == "linux":
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def failing(stage: nn.Module, at: int = 1, count: int = 2) -> tuple[BaseException, LocalProcesses]:
    """What a step raises with that stage among ``count``, which must leave nothing behind."""
    processes = LocalProcesses(count)
    started = Started(processes)
    modules = [nn.Linear(3, 3).double() for _ in range(count)]
    modules[at] = stage
    began = time.monotonic()
    with pytest.raises(BaseException) as failure:
        train_step(modules, gp.OneFOneB(count, 4), some_batch(), mse, devices=processes)
    assert time.monotonic() - began < LIVE
    started.assert_gone()
    assert all(p.grad is None for module in modules for p in module.parameters())
    return failure.value, processes


def test_an_error_in_a_stage_is_raised_here_with_its_words_and_its_place():
    """After two forwards, in the middle of a step; and then the processes are gone, and say so."""
    error, processes = failing(torch_modules.Raises(KeyError("no such token"), at=2))
    assert type(error) is KeyError and error.args == ("no such token",)
    assert error.__notes__[0] == "in the forward of stage 1, Raises"
    assert error.__notes__[1].startswith("on process 1 of 2:\nTraceback")
    assert "in act" in error.__notes__[1], "where in the module"
    assert repr(processes) == "LocalProcesses(closed)"
    for _ in range(2):
        with pytest.raises(
            RuntimeError, match=r"these processes have ended; LocalProcesses\(\.\.\.\) starts new ones"
        ):
            processes.run(torch_modules.rank)
    processes.close()


def test_an_error_that_cannot_travel_comes_as_text():
    error, _ = failing(torch_modules.RaisesOwnError(), at=0, count=1)
    assert type(error) is RuntimeError
    assert str(error) == "OwnError: the disk is full, as it was yesterday"
    assert error.__notes__[0] == "in the forward of stage 0, RaisesOwnError"
    assert error.__notes__[1].startswith("on process 0 of 1:")


def test_a_killed_process_is_named_with_its_signal():
    """In the middle of three: both of its neighbours lose their connection, and are not to blame."""
    error, _ = failing(torch_modules.Killed(), at=1, count=3)
    assert type(error) is RuntimeError
    assert str(error).startswith("process 1 of 3 was ended by signal SIGKILL")


def test_a_process_that_exits_is_named_with_its_code_and_last_words():
    error, _ = failing(torch_modules.Exits(), at=0, count=1)
    assert type(error) is RuntimeError
    assert str(error).startswith("process 0 of 1 ended with exit code 3; it last wrote:\n")
    assert str(error).endswith("the last words")


def test_a_module_that_asks_at_the_keyboard_gets_no_answer_and_no_order():
    error, _ = failing(torch_modules.Asks(), at=0, count=1)
    assert type(error) is EOFError


def test_a_process_that_died_between_two_steps_is_named():
    with LocalProcesses(2) as processes:
        started = Started(processes)
        large = [nn.Linear(300, 300).double() for _ in range(2)]  # more than a pipe holds
        os.kill(started.pids[1], signal.SIGKILL)
        with pytest.raises(RuntimeError, match="process 1 of 2 was ended by signal SIGKILL"):
            train_step(large, gp.OneFOneB(2, 4), some_batch(8, 300), mse, devices=processes)
        started.assert_gone()


def test_an_interrupt_ends_them():
    processes = LocalProcesses(1)
    started = Started(processes)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # under nohup it may be ignored
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            train_step([torch_modules.Waits()], gp.OneFOneB(1, 4), some_batch(), mse, devices=processes)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    started.assert_gone()


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_stage_that_hangs_ends_within_the_timeout_and_is_named(at):
    """Its neighbours wait for its messages, and are not to blame."""
    processes = LocalProcesses(3, timeout=6)
    started, modules = Started(processes), [*linears(3)]
    modules[at] = torch_modules.Hangs()
    began = time.monotonic()
    with pytest.raises(TimeoutError) as error:
        train_step(modules, gp.OneFOneB(3, 4), some_batch(), mse, devices=processes)
    assert 5 < time.monotonic() - began < LIVE
    assert f"no answer within 6 seconds: process {at} is in {at}F1; process " in str(error.value)
    assert "in act" in error.value.__notes__[0] and "torch_modules.py" in error.value.__notes__[0]
    started.assert_gone()


def test_a_function_that_hangs_is_said_to_be_wherever_it_is():
    with LocalProcesses(2, timeout=4) as processes, pytest.raises(TimeoutError) as error:
        processes.run_each(time.sleep, [(0,), (60,)])
    assert str(error.value).startswith("no answer within 4 seconds: of process 1 nothing is known")


@pytest.mark.skipif(sys.platform == "win32", reason="has no such signal")
def test_where_interrupts_are_ignored_a_timeout_still_ends_them(tmp_path):
    found = ran(HANGING, tmp_path, "sh", "-c", 'trap "" INT; exec "$@"', "sh")
    assert found.stdout.splitlines()[-1] == "TimeoutError", found.stderr
    assert not alive(int(found.stdout.split()[0]))


HANGING = """\
import os, time
from gpipe_sim.torch_backend import LocalProcesses

processes = LocalProcesses(1, timeout=5)
print(processes._processes[0].pid, processes.folder, flush=True)
try:
    processes.run(time.sleep, 60)
except TimeoutError as error:
    print("TimeoutError")
"""


@by_value
@pytest.mark.parametrize("how", ["killed", "forked"])
def test_processes_that_hold_on_to_everything_end_by_themselves_if_the_caller_is_killed(tmp_path, how):
    """Even in a call that never lets another thread of theirs run, and if a fork of the caller lives on."""
    script = HANGING.replace("processes.run(time.sleep, 60)", {"killed": KILLED, "forked": FORKED}[how])
    found = ran(script, tmp_path)
    assert found.returncode == -signal.SIGKILL, found.stderr
    until = time.monotonic() + LIVE
    pid, folder = found.stdout.split()[:2]
    while (alive(int(pid)) or Path(folder).exists()) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(int(pid)) and not Path(folder).exists()


KILLED = """\
import ctypes, signal, threading
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
    processes.run(lambda: ctypes.PyDLL(None).sleep(60))"""

FORKED = """\
import signal
    if not os.fork():
        os.close(1), os.close(2), time.sleep(20), os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)"""


def test_a_fork_of_the_caller_that_ends_does_not_end_them():
    with LocalProcesses(1) as processes:
        started = Started(processes)
        if not (fork := os.fork()):
            try:
                processes._end()  # as at the end of a Python
            finally:
                os._exit(0)
        os.waitpid(fork, 0)
        assert processes.run(torch_modules.rank) == [0]
        assert started.folder.is_dir()
    started.assert_gone()


def test_a_fork_of_the_caller_is_told_to_start_its_own():
    """Its threads are not there, so it would wait for ever."""
    with LocalProcesses(1) as processes:
        reading, writing = os.pipe()
        if not (child := os.fork()):
            try:
                processes.run(torch_modules.rank)
            except RuntimeError as error:
                os.write(writing, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reading, 100).startswith(b"a fork cannot use the processes of its parent")
        assert processes.run(torch_modules.rank) == [0]


def test_a_folder_with_a_space_is_one_to_meet_in(tmp_path, monkeypatch):
    spaced = tmp_path / "my files"
    spaced.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spaced))
    with LocalProcesses(2) as processes:
        assert processes.folder.parent == spaced
        assert processes.run(torch_modules.rank) == [0, 1]


def test_closing_them_from_another_thread_ends_a_step_with_a_word_about_it():
    processes = LocalProcesses(1)
    threading.Timer(0.5, processes.close).start()
    with pytest.raises(RuntimeError, match=r"process 0 of 1 was ended by close\(\)"):
        train_step([torch_modules.Waits()], gp.OneFOneB(1, 4), some_batch(), mse, devices=processes)


def test_pipes_that_were_closed_meanwhile_are_those_of_a_process_that_is_gone():
    """As a step that runs while another thread closes the processes may find them."""
    pipe = io.BytesIO()
    pipe.close()
    reply = _ask(types.SimpleNamespace(stdin=pipe, stdout=pipe), b"an order")
    assert (reply.ok, reply.value) == (False, None)


def test_an_interrupt_while_they_start_leaves_none(monkeypatch):
    begun = []
    monkeypatch.setattr(LocalProcesses, "_replies", interrupted(begun))
    with pytest.raises(KeyboardInterrupt):
        LocalProcesses(2)
    begun[0].assert_gone()


def interrupted(begun: list):
    def replies(processes, orders, timeout):
        begun.append(Started(processes))
        raise KeyboardInterrupt

    return replies


def test_they_end_with_the_object_and_with_this_python(tmp_path):
    """In a script of its own, which is killed at last, in the middle of a step of theirs."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""\
            import gc, os, signal, threading, time
            from gpipe_sim.torch_backend import LocalProcesses

            if __name__ == "__main__":
                for goes in (True, False):
                    processes = LocalProcesses(1)
                    print(processes._processes[0].pid, processes.folder, sep="|", flush=True)
                    if goes:
                        del processes
                        gc.collect()
                threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
                processes.run(time.sleep, 60)
            """)
    )
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sys.path))}
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, env=paths, timeout=120)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    (collected, its_folder), (orphan, folder) = (line.split("|") for line in ran.stdout.splitlines())
    assert not alive(int(collected)) and not Path(its_folder).exists()
    until = time.monotonic() + LIVE
    while (alive(int(orphan)) or Path(folder).exists()) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(int(orphan)) and not Path(folder).exists()
