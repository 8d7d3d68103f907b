"""Labels for schedules of PyTorch's that write none: stock classes under its profiler, on real processes."""

import json
import re
import time
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.distributed import pipelining  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

import gpipe_sim as gp  # noqa: E402
from gpipe_sim.torch_backend import LocalProcesses, Sleep, labelled  # noqa: E402
from gpipe_sim.torch_backend.group import some_group  # noqa: E402

DEVICES, MICROBATCHES = 3, 4
HOOKS = {"forward_one_chunk": "F", "backward_one_chunk": "B", "backward_weight_one_chunk": "W"}


def stage_of(index: int, stages: int) -> pipelining.PipelineStage:
    """A stage that computes and sleeps; the same weights every time."""
    torch.manual_seed(index)
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), Sleep(2, 2, 2))
    return pipelining.PipelineStage(module, index, stages, torch.device("cpu"))


def watch(stage) -> list[tuple[str, float, float]]:
    """What the stage's own methods do from now on, below whatever labels them: (label, start, end), in ms."""
    noted: list = []

    def watched(act, kind):
        def watching(microbatch, *args, **kwargs):
            part = kind if kwargs.get("full_backward", True) else "I"
            start = time.time_ns() / 1e6
            try:
                return act(microbatch, *args, **kwargs)
            finally:
                noted.append((f"PP:{stage.stage_index}{part}{microbatch}", start, time.time_ns() / 1e6))

        return watching

    for name, kind in HOOKS.items():
        setattr(stage, name, watched(getattr(stage, name), kind))
    return noted


def labels_in(path: Path) -> list[tuple[str, float, float]]:
    """The labels of a trace, and from when to when they stand there, in milliseconds."""
    trace = json.loads(path.read_text())
    labels = [each for each in trace["traceEvents"] if each.get("cat") == "user_annotation"]
    base = trace["baseTimeNanoseconds"] / 1e6
    times = ((each["name"], base + each["ts"] / 1e3, each["dur"] / 1e3) for each in labels)
    actions = [
        (name, start, start + took) for name, start, took in times if re.match(r"PP:\d+[FBIW]\d", name)
    ]
    return sorted(actions, key=lambda each: each[1])


def run(kind: str, times: int, folder: str) -> tuple:
    """A step of a stock class on this rank, labelled so many times: what stands in its trace, what happened,
    and the gradients."""
    rank, devices = dist.get_rank(), dist.get_world_size()
    several = kind == "ScheduleInterleaved1F1B"
    stages = [stage_of(rank + v * devices, devices * (1 + several)) for v in range(1 + several)]
    given = stages if several else stages[0]
    schedule = getattr(pipelining, kind)(given, MICROBATCHES, loss_fn=torch.nn.functional.mse_loss)
    x = torch.linspace(0, 1, 8 * MICROBATCHES).view(-1, 4)
    ends = [x] * (rank == 0), {"target": x.flip(0)} if rank == devices - 1 else {}
    schedule.step(*ends[0], **ends[1])
    for stage in stages:
        stage.submod.zero_grad()
    true = [watch(stage) for stage in stages]
    before = [dict(vars(stage)) for stage in stages]
    with profile(activities=[ProfilerActivity.CPU]) as prof, ExitStack() as stack:
        for _ in range(times):
            stack.enter_context(labelled(schedule))
        schedule.step(*ends[0], **ends[1])
    assert all(before[i][name] is vars(stage)[name] for i, stage in enumerate(stages) for name in HOOKS)
    path = Path(folder) / f"{kind}_{rank}.json"
    prof.export_chrome_trace(str(path))
    gradients = [p.grad.numpy().copy() for stage in stages for p in stage.submod.parameters()]
    return labels_in(path), sorted(chain.from_iterable(true), key=lambda each: each[1]), gradients


@pytest.fixture(scope="module")
def processes():
    with LocalProcesses(DEVICES, timeout=120) as started:
        yield started


@pytest.mark.parametrize("times", [1, 2], ids=["once", "nested"])
def test_every_action_has_one_label_with_its_times_and_nothing_else_changes(times, processes, tmp_path):
    """From 0.5 ms before the stage's method to 0.5 ms after it, in the order of our own family."""
    kind, order = "Schedule1F1B", gp.OneFOneB(DEVICES, MICROBATCHES)
    plain = processes.run(run, kind, 0, str(tmp_path))
    for rank, (labels, true, gradients) in enumerate(processes.run(run, kind, times, str(tmp_path))):
        assert plain[rank][0] == []
        names = [name for name, _, _ in labels]
        assert names == [name for name, _, _ in true] == [f"PP:{a}" for a in order.actions[rank]]
        off = [
            (first - start, end - last)
            for (_, start, end), (_, first, last) in zip(labels, true, strict=True)
        ]
        assert np.median(np.abs(off)) < 0.5 and min(map(min, off)) > -0.5
        assert all(np.array_equal(a, b) for a, b in zip(gradients, plain[rank][2], strict=True))


@pytest.mark.parametrize(("kind", "stages"), [("ScheduleInterleaved1F1B", 2), ("ScheduleGPipe", 0)])
def test_a_class_that_labels_its_actions_itself_stays_as_it_is(kind, stages, processes, tmp_path):
    """Two stages in each process, and no label twice; ``ScheduleGPipe`` calls them Forward 0 and so on."""
    plain, given = (processes.run(run, kind, times, str(tmp_path)) for times in (0, 1))
    for (labels, true, gradients), (more, _, same) in zip(plain, given, strict=True):
        names = [name for name, _, _ in labels]
        assert names == [name for name, _, _ in more] and len(set(names)) == len(names)
        assert sorted(names) == sorted(name for name, _, _ in true) * (stages > 0)
        assert len(names) == 2 * stages * MICROBATCHES and len(true) == 2 * (stages or 1) * MICROBATCHES
        assert all(np.array_equal(a, b) for a, b in zip(gradients, same, strict=True))


def alone():
    """A stage on its own that has run a step, its schedule, and a batch."""
    stage = stage_of(0, 1)
    schedule = pipelining.Schedule1F1B(stage, 2, loss_fn=torch.nn.functional.mse_loss)
    x = torch.linspace(0, 1, 16).view(4, 4).requires_grad_()
    schedule.step(x, target=x.detach())
    return stage, schedule, x


def named(prof: profile, folder: Path) -> list[str]:
    prof.export_chrome_trace(str(folder / "t.json"))
    return [name for name, _, _ in labels_in(folder / "t.json")]


def test_a_loop_of_ones_own_is_labelled_by_its_stages(tmp_path):
    """Also a split backward, and microbatches that are given by name."""
    with some_group():
        stage, _, x = alone()
        with profile(activities=[ProfilerActivity.CPU]) as prof, labelled([stage]):
            for m in range(2):
                stage.forward_one_chunk(fwd_chunk_id=m, args=(x,))
            stage.backward_one_chunk(1, loss=stage.fwd_cache[1][0][0].sum())
            stage.backward_one_chunk(0, stage.fwd_cache[0][0][0].sum(), full_backward=False)
            stage.backward_weight_one_chunk(0)
        assert not HOOKS.keys() & vars(stage).keys()
        assert named(prof, tmp_path) == ["PP:0F0", "PP:0F1", "PP:0B1", "PP:0I0", "PP:0W0"]


def test_the_stage_is_as_before_after_an_error_too(tmp_path):
    with some_group():
        stage, schedule, _ = alone()
        for given in (stage, schedule, [stage]):
            with pytest.raises(RuntimeError, match="failed to run forward"), labelled(given):
                stage.forward_one_chunk(0, ("no tensor",))
            assert not HOOKS.keys() & vars(stage).keys()


def test_an_evaluation_has_labels_for_its_forwards_only(tmp_path):
    with some_group():
        _, schedule, x = alone()
        with profile(activities=[ProfilerActivity.CPU]) as prof, labelled(schedule):
            schedule.eval(x, target=x.detach())
        assert named(prof, tmp_path) == ["PP:0F0", "PP:0F1"]


@pytest.mark.parametrize(
    "wrong", [None, 5, "1f1b", [object()], gp.GPipe(2, 2), torch.nn.Linear(1, 1)], ids=repr
)
def test_what_is_no_schedule_of_pytorchs_is_refused(wrong):
    with pytest.raises(TypeError, match="labelled needs a schedule of PyTorch's, or a list of its stages"):
        labelled(wrong).__enter__()
