"""The same function under torchrun, where every process is one device."""

import os
import pickle
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from engine_cases import assert_equal, batch_for, in_numpy, model  # noqa: E402
from numeric import furthest_apart  # noqa: E402

import gpipe_sim as gp  # noqa: E402
from gpipe_sim import cross_entropy  # noqa: E402
from gpipe_sim.core.actions import Kind  # noqa: E402
from gpipe_sim.torch_backend import to_torch, train_step  # noqa: E402

SCHEDULES = {
    "1F1B": gp.OneFOneB(2, 4),
    "V": gp.remat(gp.ZBV(2, 4), "except_last"),
    "pairs": gp.DualPipeV(2, 4),
}

#: Each process writes what its steps gave, and what a schedule for three processes raises in two.
SCRIPT = textwrap.dedent("""\
    import os, pickle, sys
    from engine_cases import batch_for, model
    from test_torch_launch import SCHEDULES
    import gpipe_sim as gp
    from gpipe_sim.torch_backend import Pipeline, to_torch, train_step

    found = {}
    for name, schedule in SCHEDULES.items():
        modules = to_torch(gp.split(model(), stages=schedule.stages))
        pipeline = Pipeline(modules, schedule, gp.cross_entropy)
        step = pipeline.step(batch_for(schedule.microbatches))
        grads = [p.grad is not None for module in modules for p in module.parameters()]
        spans = [(str(span.action), *span[1:]) for span in step.timeline.spans]
        found[name] = step.loss, step.gradients, step.outputs, spans, repr(pipeline), grads
    try:
        Pipeline(to_torch(gp.split(model(), stages=3)), gp.OneFOneB(3, 4), gp.cross_entropy)
    except ValueError as error:
        found["refused"] = str(error)
    modules = to_torch(gp.split(model(), stages=2))
    x, targets = batch_for(4)
    try:
        train_step(modules, gp.OneFOneB(2, 4), (x + int(os.environ["RANK"]), targets), gp.cross_entropy)
    except ValueError as error:
        assert all(p.grad is None for module in modules for p in module.parameters())
        found["another batch"] = str(error)
    with open(os.path.join(sys.argv[1], os.environ["RANK"]), "wb") as file:
        pickle.dump(found, file)
""")


#: Stage 1 fails in the middle of a step, while stage 0 waits for its gradient.
FAILING = textwrap.dedent("""\
    from torch import nn
    from torch_modules import Raises
    import gpipe_sim as gp
    from gpipe_sim.torch_backend import train_step
    from engine_cases import batch_for

    broken = nn.Sequential(nn.Linear(6, 4).double(), Raises(KeyError("no such token"), at=3))
    train_step([nn.Linear(6, 6).double(), broken], gp.OneFOneB(2, 8), batch_for(8), gp.cross_entropy)
""")

#: A script that leaves the process group itself, and would be told so twice.
LEAVES = textwrap.dedent("""\
    import numpy as np, torch
    from torch import nn
    import gpipe_sim as gp
    from gpipe_sim.torch_backend import train_step

    modules = [nn.Linear(3, 3).double() for _ in range(2)]
    step = train_step(modules, gp.OneFOneB(2, 4), (np.ones((8, 3)), np.ones((8, 3))), gp.mse)
    assert torch.distributed.is_initialized() and step.loss > 0
    torch.distributed.destroy_process_group()
""")


def launched(script: str, folder: Path) -> subprocess.CompletedProcess:
    path = folder / "script.py"
    path.write_text(script)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, sys.path)),
        "OMP_NUM_THREADS": "1",  # or torchrun says that it set it
        "CUDA_VISIBLE_DEVICES": "",
    }
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.run(
        [*launch, path, folder], env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> tuple[list[dict], str]:
    """What each of two processes found, and all that was written to the screen."""
    folder = tmp_path_factory.mktemp("launch")
    ran = launched(SCRIPT, folder)
    assert ran.returncode == 0, ran.stderr
    return [pickle.loads((folder / str(rank)).read_bytes()) for rank in range(2)], ran.stdout + ran.stderr


@pytest.mark.parametrize("name", SCHEDULES)
def test_each_process_has_the_gradients_of_its_own_stages_and_they_are_numpys(ranks, name):
    schedule, layers = SCHEDULES[name], model()
    expected = in_numpy(layers, schedule, batch_for(schedule.microbatches), cross_entropy)
    whole = {}
    for rank, own in enumerate(found[name] for found in ranks[0]):
        stages = gp.split(layers, stages=schedule.stages)
        held = {key for stage in schedule.placement[rank] for key in stages[stage].parameters}
        assert set(own[1]) == held
        assert own[5] == [key in held for stage in stages for key in stage.parameters]
        whole |= own[1]
    assert furthest_apart(whole, expected.gradients) < 1e-10


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_process_has_the_loss_and_the_one_with_the_last_stage_the_outputs(ranks, name):
    schedule = SCHEDULES[name]
    expected = in_numpy(model(), schedule, batch_for(schedule.microbatches), cross_entropy)
    last = schedule.device_of(gp.F(schedule.stages - 1, 0))
    assert [found[name][0] for found in ranks[0]] == pytest.approx([expected.loss] * 2, rel=1e-12)
    assert ranks[0][1 - last][name][2] is None
    whole = {key: g for found in ranks[0] for key, g in found[name][1].items()}
    assert_equal(gp.StepResult(expected.loss, whole, ranks[0][last][name][2]), expected)


@pytest.mark.parametrize("name", SCHEDULES)
def test_all_processes_have_one_and_the_same_timeline(ranks, name):
    one, other = (found[name][3] for found in ranks[0])
    assert one == other
    schedule = SCHEDULES[name]
    parts = sorted(str(part) for row in schedule.actions for action in row for part in action.parts)
    assert sorted(action for action, *_ in one) == parts
    ends = {action: end for action, _, _, end in one}
    for text, device, start, _ in one:
        action = gp.Action.parse(text)
        assert device == schedule.device_of(action)
        for need in gp.needs(action, schedule):
            assert ends[str(need)] <= start or action.kind is Kind.R


def test_another_number_of_processes_is_refused_with_the_one_that_fits(ranks):
    for found in ranks[0]:
        assert found["refused"].startswith(
            "OneFOneB(devices=3, microbatches=4) runs on 3 processes, one per device"
        )
        assert found["refused"].endswith("but there are 2: torchrun --nproc-per-node 3 ...")


def test_another_batch_on_another_process_is_refused_on_all_and_nothing_has_happened(ranks):
    for found in ranks[0]:
        assert found["another batch"].startswith("process 1 was given another batch than process 0")


def test_what_another_launch_left_in_the_environment_starts_no_waiting(monkeypatch):
    left = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, value in left.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    schedule = gp.OneFOneB(2, 4)
    step = train_step(to_torch(gp.split(model(), stages=2)), schedule, batch_for(4), cross_entropy)
    assert_equal(step, in_numpy(model(), schedule, batch_for(4), cross_entropy))


def test_a_process_says_which_it_is(ranks):
    for rank, found in enumerate(ranks[0]):
        assert found["1F1B"][4].endswith(f"on cpu, process {rank} of 2")


def test_they_leave_without_a_word(ranks):
    """Neither a warning about a process group that nobody destroyed, nor any other."""
    assert ranks[1].strip() == ""


def test_a_process_that_fails_ends_the_run_with_its_own_error_within_seconds(tmp_path):
    began = time.monotonic()
    ran = launched(FAILING, tmp_path)
    assert ran.returncode != 0
    assert "KeyError: 'no such token'" in ran.stderr
    assert time.monotonic() - began < 60


def test_a_script_may_leave_the_group_itself(tmp_path):
    ran = launched(LEAVES, tmp_path)
    assert (ran.returncode, ran.stdout.strip(), ran.stderr.strip()) == (0, "", "")
