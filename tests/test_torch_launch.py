"""The same function under torchrun, where every process is one device."""

import pickle
import subprocess
import textwrap
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from engine_cases import assert_a_timeline_of, assert_equal, batch_for, in_numpy, model  # noqa: E402
from torch_modules import ran  # noqa: E402

import gpipe_sim as gp  # noqa: E402
from gpipe_sim import cross_entropy  # noqa: E402
from gpipe_sim.core.step import StepResult  # noqa: E402
from gpipe_sim.torch_backend import to_torch, train_step  # noqa: E402

SCHEDULES = {
    "1F1B": gp.OneFOneB(2, 4),
    "V": gp.remat(gp.ZBV(2, 4), "except_last"),
    "pairs": gp.families.DualPipeV(2, 4),
}

#: Each process writes what its steps gave, and what is refused. One leaves the process group itself.
SCRIPT = textwrap.dedent("""\
    import os, pickle, sys
    import torch
    from engine_cases import batch_for, model
    from test_torch_launch import SCHEDULES
    import gpipe_sim as gp
    from gpipe_sim.torch_backend import Pipeline, to_torch, train_step

    rank, found = int(os.environ["RANK"]), {}
    for name, schedule in SCHEDULES.items():
        modules = to_torch(gp.split(model(), stages=schedule.stages))
        pipeline = Pipeline(modules, schedule, gp.cross_entropy)
        step = pipeline.step(batch_for(schedule.microbatches))
        grads = [p.grad is not None for module in modules for p in module.parameters()]
        found[name] = step, grads, repr(pipeline)

    def refused(schedule, shift=0, **options):
        modules, (x, targets) = to_torch(gp.split(model(), stages=schedule.stages)), batch_for(4)
        try:
            train_step(modules, schedule, (x + shift, targets), gp.cross_entropy, **options)
        except ValueError as error:
            assert all(p.grad is None for module in modules for p in module.parameters())
            return str(error)

    found["refused"] = refused(gp.OneFOneB(3, 4))
    found["another batch"] = refused(gp.OneFOneB(2, 4), shift=rank)
    found["one counts"] = refused(gp.OneFOneB(2, 4), measure=rank != 1)
    with open(os.path.join(sys.argv[1], str(rank)), "wb") as file:
        pickle.dump(found, file)
    if rank:
        torch.distributed.destroy_process_group()
""")


#: Stage 1 fails in the middle of a step, while stage 0 waits for its gradient.
FAILING = textwrap.dedent("""\
    from torch import nn
    from torch_modules import Does, fail
    import gpipe_sim as gp
    from gpipe_sim.torch_backend import train_step
    from engine_cases import batch_for

    broken = nn.Sequential(nn.Linear(6, 4).double(), Does(fail, KeyError, "no such token", at=3))
    train_step([nn.Linear(6, 6).double(), broken], gp.OneFOneB(2, 8), batch_for(8), gp.cross_entropy)
""")


def launched(script: str, folder: Path) -> subprocess.CompletedProcess:
    return ran(script, folder, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> tuple[list[dict], str]:
    """What each of two processes found, and all that was written to the screen."""
    folder = tmp_path_factory.mktemp("launch")
    found = launched(SCRIPT, folder)
    assert found.returncode == 0, found.stderr
    return [pickle.loads((folder / str(rank)).read_bytes()) for rank in range(2)], found.stdout + found.stderr


@pytest.mark.parametrize("name", SCHEDULES)
def test_each_process_has_loss_and_timeline_and_what_its_own_stages_give_as_numpy_has_it(ranks, name):
    """Their gradients, and outputs if it holds the last one."""
    schedule, layers = SCHEDULES[name], model()
    expected = in_numpy(layers, schedule, batch_for(schedule.microbatches), cross_entropy)
    stages, gradients, outputs = gp.split(layers, stages=schedule.stages), {}, {}
    for rank, found in enumerate(ranks[0]):
        step, grads, said = found[name]
        held = {key for stage in schedule.placement[rank] for key in stages[stage].parameters}
        assert set(step.gradients) == held
        assert grads == [key in held for stage in stages for key in stage.parameters]
        assert step.loss == pytest.approx(expected.loss, rel=1e-12)
        assert said.endswith(f"on cpu, process {rank} of 2")
        gradients |= step.gradients
        outputs[rank] = step.outputs
        assert_a_timeline_of(step.timeline, schedule)
        assert step.timeline.spans == ranks[0][0][name][0].timeline.spans
    whole = outputs.pop(schedule.device_of(gp.core.F(schedule.stages - 1, 0)))
    assert list(outputs.values()) == [None]
    assert_equal(StepResult(expected.loss, gradients, whole), expected)


def test_what_does_not_fit_is_refused_on_all_and_nothing_has_happened(ranks):
    for found in ranks[0]:
        assert found["refused"] == (
            "OneFOneB(devices=3, microbatches=4) runs on 3 processes, one per device, but there are 2: "
            "torchrun --nproc-per-node 3 ..."
        )
        assert found["another batch"].startswith("process 1 was given another batch than process 0")
        says = (
            "process 1 has measure=False, and process 0 has measure=True: give every process the same measure"
        )
        assert found["one counts"] == says


def test_what_another_launch_left_in_the_environment_starts_no_waiting(monkeypatch):
    left = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, value in left.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    schedule = gp.OneFOneB(2, 4)
    step = train_step(to_torch(gp.split(model(), stages=2)), schedule, batch_for(4), cross_entropy)
    assert_equal(step, in_numpy(model(), schedule, batch_for(4), cross_entropy))


def test_they_leave_without_a_word(ranks):
    """Though one has left the process group itself, and of the other nobody destroyed it."""
    assert ranks[1].strip() == ""


def test_a_process_that_fails_ends_the_run_with_its_own_error_within_seconds(tmp_path):
    began = time.monotonic()
    found = launched(FAILING, tmp_path)
    assert found.returncode != 0
    assert "KeyError: 'no such token'" in found.stderr
    assert time.monotonic() - began < 60
