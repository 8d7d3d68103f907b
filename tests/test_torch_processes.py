"""Local processes: the same numbers as in NumPy, and no process, folder or silence after a failure."""

import contextlib
import copy
import gc
import ipaddress
import multiprocessing
import os
import pickle
import re
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch_modules  # noqa: E402
from engine_cases import EXPLICIT, assert_equal, batch_for, in_numpy, model, runnable  # noqa: E402
from numeric import apart  # noqa: E402
from torch import nn  # noqa: E402
from torch_autograd import assert_like_autograd  # noqa: E402
from torch_modules import Does, Gives, OwnError, Shifted, fail, four, linears, ran, some_batch  # noqa: E402

import gpipe_sim as gp  # noqa: E402
from gpipe_sim import cross_entropy, mse, remat  # noqa: E402
from gpipe_sim.torch_backend import (  # noqa: E402
    LocalProcesses,
    Pipeline,
    to_torch,
    train_step,
)
from gpipe_sim.torch_backend.group import kept_near  # noqa: E402
from gpipe_sim.torch_backend.processes import NOTHING, _received  # noqa: E402
from gpipe_sim.torch_backend.sending import cloudpickle  # noqa: E402

by_value = pytest.mark.skipif(cloudpickle is pickle, reason="cloudpickle is not installed")
LIVE = 20  #: seconds in which a failure must have come back, on however busy a machine


def grads(modules: list[nn.Module]) -> dict:
    layers = [layer for module in modules for layer in module]
    return {(i, n): p.grad.numpy() for i, layer in enumerate(layers) for n, p in layer.named_parameters()}


# The same numbers


FAMILIES = [gp.GPipe, gp.OneFOneB, gp.Interleaved1F1B, gp.ZBH1, gp.ZBV, gp.families.DualPipeV]
SCHEDULES = [*runnable([(4, 8), (3, 2), (1, 3)]), *(remat(family(4, 8), "always") for family in FAMILIES)]


@pytest.mark.parametrize(
    ("schedule", "dtype"),
    [
        *((schedule, np.float64) for schedule in (*SCHEDULES, *EXPLICIT.values())),
        (gp.OneFOneB(4, 8), np.float32),
    ],
    ids=lambda one: repr(one) if isinstance(one, gp.core.Schedule) else one.__name__,
)
def test_every_schedule_gives_what_numpy_gives(schedule, dtype):
    """On as many of the four processes as it has devices, and in the caller's modules, too."""
    layers, batch = model(dtype=dtype), batch_for(schedule.microbatches, dtype=dtype)
    modules = to_torch(gp.split(layers, stages=schedule.stages))
    step = train_step(modules, schedule, batch, cross_entropy, devices=four())
    within = 1e-10 if dtype is np.float64 else 1e-5
    assert_equal(step, in_numpy(layers, schedule, batch, cross_entropy), within)
    assert all((grads(modules)[key] == gradient).all() for key, gradient in step.gradients.items())
    assert {span.device for span in step.timeline.spans} == set(range(schedule.devices))


def test_the_timeline_has_one_clock_and_a_step_says_what_moving_numbers_took():
    """In later steps, when all are warm: nothing starts before what it needs has ended elsewhere.

    And moving took no more than the rest of the call.
    """
    pipeline = Pipeline(linears(4), gp.OneFOneB(4, 8), mse, devices=four())
    for _ in range(3):
        began = time.perf_counter()
        step = pipeline.step(some_batch(16))
        timeline = step.timeline
        assert 0 < step.moved < (time.perf_counter() - began) * 1000 - timeline.makespan
        assert min(span.start for span in timeline.spans) == 0
        assert timeline.messages == (), "nobody measured when they came"
        for span in timeline.spans:
            assert all(
                timeline.ends[need] <= span.start for need in gp.core.needs(span.action, timeline.schedule)
            )
    assert train_step(linears(2), gp.OneFOneB(2, 4), some_batch(), mse).moved == 0


def test_weights_in_any_layout_go_there_and_stages_that_learn_nothing_cost_no_gradient():
    """A view of something larger, columns before rows, and none at all, at both ends."""
    modules = [nn.Identity(), *linears(2), nn.Identity()]
    whole = torch.randn(5, 6, dtype=torch.float64)
    modules[1].weight = nn.Parameter(whole[1:4, ::2])
    modules[2].weight = nn.Parameter(modules[2].weight.detach().T.contiguous().T)
    assert_like_autograd(modules, gp.ZBH1(4, 4), some_batch(), devices=four())


def test_batches_may_change_in_size_and_are_sent_without_what_they_were_cut_from(monkeypatch):
    """With a loss of one's own, which can be imported there."""
    sent, pickled = [], cloudpickle.dumps
    monkeypatch.setattr(cloudpickle, "dumps", lambda order: sent.append(pickled(order)) or sent[-1])
    modules, data = linears(3), torch.randn(100_000, 3, dtype=torch.float64)
    pipeline = Pipeline(modules, gp.OneFOneB(3, 4), torch_modules.half_of_squares, devices=four())
    for part in (data[:8], data[8:24], data[100:104]):
        found, expected = (
            pipeline.step((part, part)),
            train_step(modules, gp.OneFOneB(3, 4), (part, part), mse),
        )
        assert found.loss == pytest.approx(expected.loss / 2, rel=1e-12)
        assert apart(found.outputs, expected.outputs) < 1e-12
        assert all(
            apart(2 * found.gradients[key], expected.gradients[key]) < 1e-12 for key in found.gradients
        )
    assert max(map(len, sent)) < 20_000


# What is run elsewhere


def changes() -> dict[str, Callable]:
    """What a caller may do to two stages between two steps: to numbers, modes, layers, attributes."""

    def replace(linear: nn.Linear) -> None:
        linear.weight = nn.Parameter(torch.ones(3, 3, dtype=torch.float64))

    return {
        "nothing": lambda first, second: None,
        "weights": lambda first, second: first[1].weight.data.mul_(2),
        "one layer's mode": lambda first, second: first[0].eval(),
        "a stage's mode": lambda first, second: second.eval(),
        "what learns": lambda first, second: first.requires_grad_(False),
        "a buffer's numbers": lambda first, second: second[0].running_mean.add_(1),
        "all back": lambda first, second: (first.requires_grad_(True), second.train()),
        "a number": lambda first, second: setattr(second[1], "factor", 3),
        "a tensor": lambda first, second: setattr(second[1], "shift", torch.ones(3, dtype=torch.float64)),
        "its numbers": lambda first, second: second[1].shift.mul_(2),
        "a buffer": lambda first, second: second[1].register_buffer("mean", torch.ones(2)),
        "a hook": lambda first, second: second[1].register_forward_hook(torch_modules.doubled),
        "a weight": lambda first, second: replace(second[1]),
        "no bias": lambda first, second: setattr(first[1], "bias", None),
        "a dropout": lambda first, second: setattr(first[2], "p", 1.0),
        "number type": lambda first, second: [stage.float() for stage in (first, second)],
    }


def test_what_the_caller_changed_between_steps_counts():
    """Each change on top of those before, in the modules and in copies that stay here."""
    modules = [
        nn.Sequential(nn.BatchNorm1d(3).double(), linear, nn.Dropout(0.0), nn.Tanh())
        for linear in (*linears(1), Shifted(3, 3, dtype=torch.float64))
    ]
    here, schedule = copy.deepcopy(modules), gp.OneFOneB(2, 4)
    pipeline = Pipeline(modules, schedule, mse, devices=four())
    for name, change in changes().items():
        for stages in (modules, here):
            change(*stages)
            [stage.zero_grad() for stage in stages]
        within = 1e-5 if name == "number type" else 1e-10
        found, expected = pipeline.step(some_batch(32)), train_step(here, schedule, some_batch(32), mse)
        assert found.loss == pytest.approx(expected.loss, rel=within), name
        assert found.gradients.keys() == expected.gradients.keys(), name
        for key, gradient in expected.gradients.items():
            assert np.allclose(found.gradients[key], gradient, rtol=within, atol=within * 1e-4), (name, key)
        for module, other in zip(modules, here, strict=True):
            for buffer, wanted in zip(module.buffers(), other.buffers(), strict=True):
                assert torch.allclose(buffer.double(), wanted.double(), rtol=within / 100), name


def test_stages_that_hand_each_other_more_than_in_the_step_before_are_made_anew():
    first, second = modules = linears(2)
    pipeline = Pipeline(modules, gp.OneFOneB(2, 4), mse, devices=four())
    pipeline.step(some_batch())
    first.weight, first.bias = (nn.Parameter(torch.ones(shape, dtype=torch.float64)) for shape in ((5, 3), 5))
    second.weight = nn.Parameter(torch.ones(3, 5, dtype=torch.float64))
    found = pipeline.step(some_batch())
    assert_equal(found, train_step(modules, gp.OneFOneB(2, 4), some_batch(), mse), 1e-10)


def squares(outputs, targets):
    return ((outputs.float() - targets) ** 2).mean()


def test_what_holds_for_all_of_torch_holds_there_step_by_step():
    """Autocast, and the number type of new numbers: what is received has another type then."""
    modules = [Gives(torch_modules.told).float(), *(linear.float() for linear in linears(1))]
    here, there = (
        Pipeline(modules, gp.OneFOneB(2, 4), squares, devices=each) for each in (["cpu"] * 2, four())
    )
    batch, losses = tuple(part.astype(np.float32) for part in some_batch()), []
    for dtype, cast in (("float32", 0), ("float32", 1), ("float32", 0), ("float64", 0), ("float32", 1)):
        torch.set_default_dtype(getattr(torch, dtype))
        try:
            with torch.autocast("cpu", torch.bfloat16, enabled=bool(cast)):
                expected, found = here.step(batch), there.step(batch)
        finally:
            torch.set_default_dtype(torch.float32)
        assert_equal(found, expected, 1e-5)
        losses.append(found.loss)
    plain, autocast, again, larger, _ = losses
    assert plain == again and len({plain, autocast, larger}) == 3


UNSENT = {
    "weight of stage 1 has a hook, which no backward of": (
        ValueError,
        lambda first, second: second.weight.register_hook(lambda gradient: 2 * gradient),
    ),
    "this has to be sent to another process": (
        (pickle.PicklingError, AttributeError, TypeError),
        lambda first, _: setattr(first, "file", threading.Lock()),
    ),
}


@pytest.mark.parametrize("says", UNSENT)
def test_what_cannot_be_sent_is_refused_and_nothing_has_happened(says):
    modules, (error, change) = linears(2), UNSENT[says]
    change(*modules)
    with pytest.raises(error) as refused:
        train_step(modules, gp.OneFOneB(2, 4), some_batch(), mse, devices=four())
    assert says in "\n".join([str(refused.value), *getattr(refused.value, "__notes__", ())])
    assert four().run(torch.distributed.get_rank) == [0, 1, 2, 3]


def test_a_function_runs_on_each_process_and_gets_no_order_where_it_reads():
    assert four().run_each(max, [(k, 2) for k in range(4)]) == [2, 2, 2, 3]
    assert four().run(os.read, 0, 1) == [b""] * 4
    assert len(four()) == 4 and repr(four()) == "LocalProcesses(4)"


def test_what_a_module_prints_is_shown_here_and_is_not_between_the_replies(capfd):
    modules = [Does(torch_modules.print_in_python_and_below) for _ in range(2)]
    for _ in range(2):  # each time as much: nothing is shown again
        found = train_step(modules, gp.OneFOneB(2, 4), some_batch(), mse, devices=four())
        lines = capfd.readouterr().out.splitlines()
        assert Counter(lines) == {f"process {rank}: a module may print \u2013 once": 5 for rank in range(2)}
    assert found.loss == pytest.approx(np.mean((some_batch()[0] - some_batch()[1]) ** 2))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts what Linux lists")
def test_pipelines_that_are_gone_leave_nothing_open():
    def some_steps() -> tuple[int, int]:
        for devices in (2, 3, 4) * 2:
            train_step(linears(devices), gp.OneFOneB(devices, 4), some_batch(), mse, devices=four())
        gc.collect()
        train_step(linears(2), gp.OneFOneB(2, 4), some_batch(), mse, devices=four())
        return max(four().run(torch_modules.files_and_engines))

    before = some_steps()
    assert some_steps() == before
    assert before[1] <= 2


#: A script without "if __name__", whose own stage, loss and error go to a process and back.
SCRIPT = """\
import sys
{first}
import numpy as np
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
with LocalProcesses(1) as processes:
    if {whole}:
        [given] = processes.run(lambda: Told())
        name = "now"
        print(type(given) is Told, given.told(), Told().told())
    for inputs in (np.ones((4, 3)), np.full((4, 3), np.nan)):
        try:
            step = train_step([Mine(3, 3)], gp.GPipe(1, 2), (inputs, inputs), gp.mse, devices=processes)
            print("went", step.loss > 0)
        except Unwell as error:
            print("caught", error)
        except Exception as error:
            print(type(error).__name__, *error.__notes__)
            break
"""


@by_value
def test_a_script_may_define_its_stages_and_its_errors(tmp_path):
    found = ran(SCRIPT.format(first="", whole=True), tmp_path)
    assert found.stdout.splitlines() == ["True now now", "went True", "caught not a number"], found.stderr


def test_without_cloudpickle_it_is_told_to_install_it(tmp_path):
    found = ran(SCRIPT.format(first="sys.modules['cloudpickle'] = None", whole=False), tmp_path)
    says = "AttributeError processes cannot see what a notebook or a script defines, unless cloudpickle"
    assert found.stdout.startswith(says), found.stderr


def test_too_few_processes_are_an_index_error():
    with pytest.raises(
        IndexError,
        match=r"^too few devices to hold given partitions \(devices: 4, partitions: 5\): "
        r"LocalProcesses\(5\) starts enough$",
    ):
        train_step(linears(5), gp.OneFOneB(5, 4), some_batch(), mse, devices=four())


@pytest.mark.parametrize(
    ("devices", "error", "says"),
    [
        (0, ValueError, "LocalProcesses needs devices >= 1 (got 0)"),
        ([], ValueError, "LocalProcesses needs devices >= 1 (got 0)"),
        (2.0, TypeError, "LocalProcesses needs devices to be a whole number (got 2.0)"),
        ("cpu", TypeError, "LocalProcesses needs devices to be a whole number (got 'cpu')"),
        (["cpu", "gpu"], ValueError, "'gpu' is not a torch device; this machine has ["),
        (["meta"], ValueError, "a pipeline runs on cpu or cuda devices that are here (got 'meta'): ["),
        (["cuda:99"], ValueError, "a pipeline runs on cpu or cuda devices that are here (got 'cuda:99'): ["),
    ],
    ids=repr,
)
def test_processes_that_cannot_be_are_refused_before_any_is_started(devices, error, says):
    with pytest.raises(error) as refused:
        LocalProcesses(devices)
    assert says in str(refused.value)


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="reads what Linux lists")
def test_nothing_listens_where_another_machine_could_hear():
    train_step(linears(4), gp.OneFOneB(4, 4), some_batch(), mse, devices=four())
    listening = [address for addresses in four().run(torch_modules.listening) for address in addresses]
    assert listening and all(ipaddress.ip_address(address).is_loopback for address in listening)


def test_a_machine_without_loopback_is_told_so(monkeypatch):
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "eth0"), (2, "wlan0")])
    before = dict(os.environ)
    with pytest.warns(UserWarning, match="no network interface called lo"), kept_near():
        assert dict(os.environ) == before


# When something goes wrong


class Started:
    """Processes that a test may end, and what must be gone after that."""

    def __init__(self, processes: LocalProcesses):
        self.pids = [process.pid for process in processes._processes]
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


@pytest.fixture
def start() -> Iterator[Callable[..., LocalProcesses]]:
    """Starts processes, of which nothing must be left in the end."""
    begun = []

    def start(count: int, **options) -> LocalProcesses:
        processes = LocalProcesses(count, **options)
        begun.append(Started(processes))
        return processes

    yield start
    for started in begun:
        started.assert_gone()


def failing(processes: LocalProcesses, stage: nn.Module, at: int, kind: type[BaseException]) -> BaseException:
    """What a step raises with that stage among its others; no parameter has a gradient after that."""
    modules = [nn.Linear(3, 3).double() for _ in range(len(processes))]
    modules[at] = stage
    began = time.monotonic()
    with pytest.raises(kind) as failure:
        train_step(modules, gp.OneFOneB(len(modules), 4), some_batch(), mse, devices=processes)
    assert time.monotonic() - began < LIVE
    assert type(failure.value) is kind
    assert all(p.grad is None for module in modules for p in module.parameters())
    return failure.value


def test_an_error_in_a_stage_is_raised_here_with_its_words_and_its_place(start, tmp_path, monkeypatch):
    """After two forwards, in the middle of a step; and then the processes are gone, and say so.

    They meet in a folder with a space.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "my files"))
    (tmp_path / "my files").mkdir()
    processes = start(2)
    assert processes.folder.parent.name == "my files"
    error = failing(processes, Does(fail, KeyError, "no such token", at=2), 1, KeyError)
    assert error.args == ("no such token",)
    assert error.__notes__[0] == "in the forward of stage 1, Does"
    assert error.__notes__[1].startswith("on process 1 of 2:\nTraceback")
    assert "in fail" in error.__notes__[1], "where in the module"
    assert repr(processes) == "LocalProcesses(closed)"
    for _ in range(2):
        with pytest.raises(
            RuntimeError, match=r"these processes have ended, .* LocalProcesses\(\.\.\.\) starts new ones"
        ):
            processes.run(torch.distributed.get_rank)
    processes.close()


def test_an_error_that_cannot_travel_comes_as_text(start):
    stage = Does(fail, OwnError, "the disk is full", "as it was yesterday")
    error = failing(start(1), stage, 0, RuntimeError)
    assert str(error) == "OwnError: the disk is full, as it was yesterday"
    assert error.__notes__[0] == "in the forward of stage 0, Does"
    assert error.__notes__[1].startswith("on process 0 of 1:")


def test_a_process_that_exits_is_named_with_its_code_and_last_words(start):
    error = failing(start(1), Does(torch_modules.exit_with_3), 0, RuntimeError)
    assert str(error) == "process 0 of 1 ended with exit code 3; it last wrote:\nthe last words"


def test_a_stage_that_hangs_ends_within_the_timeout_and_is_named(start):
    """Its neighbour waits for its messages, and is not to blame."""
    error = failing(start(2, timeout=6), Does(time.sleep, 60, at=2), 1, TimeoutError)
    assert re.search("no answer within 6 seconds: .*process 1 is in 1F1", str(error))
    assert "in forward" in error.__notes__[0] and "torch_modules.py" in error.__notes__[0]


@pytest.mark.skipif(sys.platform == "win32", reason="has no such signal")
def test_a_function_that_hangs_is_said_to_be_wherever_it_is_and_ended_though_interrupts_are_ignored(start):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as they are in all that is started now
    try:
        with pytest.raises(TimeoutError) as error:
            start(2, timeout=4).run_each(time.sleep, [(0,), (60,)])
    finally:
        signal.signal(signal.SIGINT, before)
    assert str(error.value).startswith(
        "no answer within 4 seconds: process 1 has not answered, and is in no action"
    )


def test_an_interrupt_ends_them(start):
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # under nohup it may be ignored
    processes = start(1)
    timer.start()
    try:
        failing(processes, Does(time.sleep, 60), 0, KeyboardInterrupt)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)


def test_closing_them_from_another_thread_ends_a_step_with_a_word_about_it(start):
    processes = start(1)
    (timer := threading.Timer(0.5, processes.close)).start()
    error = failing(processes, Does(time.sleep, 60), 0, RuntimeError)
    timer.join()
    assert str(error).startswith("process 0 of 1 was ended by close()")


def test_an_interrupt_while_they_start_leaves_none(monkeypatch):
    begun = []

    def replies(processes: LocalProcesses, orders: list, timeout: float) -> None:
        begun.append(Started(processes))
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalProcesses, "_replies", replies)
    with pytest.raises(KeyboardInterrupt):
        LocalProcesses(1)
    begun[0].assert_gone()


def test_a_reply_that_cannot_be_read_is_told_so_and_one_from_a_closed_pipe_is_of_a_process_that_is_gone():
    """A step that runs while another thread closes the processes may find one."""

    class Unreadable:
        def __reduce__(self):
            return int, ("no number",)

    mine, its = multiprocessing.Pipe()
    its.send(Unreadable())
    with pytest.raises(ValueError, match="no number"):
        _received(mine)
    its.close()
    assert _received(mine) is NOTHING


def test_a_fork_of_the_caller_is_told_to_start_its_own_and_its_end_does_not_end_them(start):
    """Its threads are not there, so it would wait for ever. In the end they end with the block."""
    with start(1) as processes:
        reading, writing = os.pipe()
        if not (child := os.fork()):
            try:
                processes.run(torch.distributed.get_rank)
            except RuntimeError as error:
                os.write(writing, str(error).encode())
                processes._end()  # as at the end of a Python
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reading, 100).startswith(b"these processes have ended, or are a parent's")
        assert processes.run(torch.distributed.get_rank) == [0]
        assert processes.folder.is_dir()


def test_they_end_with_the_object_and_with_this_python(tmp_path):
    """In a script of its own, which is killed at last.

    Though a fork of it lives on, in the middle of a call.
    """
    found = ran(KILLED, tmp_path)
    assert found.returncode == -signal.SIGKILL, found.stderr
    (collected, its_folder), (orphan, folder) = (line.split("|") for line in found.stdout.splitlines())
    assert not alive(int(collected)) and not Path(its_folder).exists()
    until = time.monotonic() + LIVE
    while (alive(int(orphan)) or Path(folder).exists()) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(int(orphan)) and not Path(folder).exists()


KILLED = """\
import gc, os, signal, threading, time
from gpipe_sim.torch_backend import LocalProcesses

for goes in (True, False):
    processes = LocalProcesses(1)
    print(processes._processes[0].pid, processes.folder, sep="|", flush=True)
    if goes:
        del processes
        gc.collect()
if not os.fork():
    os.close(1), os.close(2), time.sleep(20), os._exit(0)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
processes.run(time.sleep, 60)
"""


def test_a_process_that_died_between_two_steps_is_named(start):
    processes, large = start(1), linears(1, 300)  # more than a pipe holds
    os.kill(processes._processes[0].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="process 0 of 1 was ended by signal SIGKILL"):
        train_step(large, gp.GPipe(1, 4), some_batch(8, 300), mse, devices=processes)


def test_a_killed_process_is_named_with_its_signal():
    """In the middle of four: both of its neighbours lose their connection, and are not to blame.

    It ends the processes of all other tests, and so comes last.
    """
    started = Started(four())
    error = failing(four(), Does(torch_modules.be_killed), 1, RuntimeError)
    assert str(error).startswith("process 1 of 4 was ended by signal SIGKILL")
    started.assert_gone()
    four.cache_clear()
