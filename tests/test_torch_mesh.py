"""Pipelines beside each other, on two nodes of two processes each: torchrun's own, on this machine."""

import os
import pickle
import socket
import statistics
import subprocess
import sys
import textwrap
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from engine_cases import assert_a_timeline_of, batch_for, model, runnable  # noqa: E402
from measured import measured  # noqa: E402
from numeric import apart  # noqa: E402
from torch import nn  # noqa: E402
from torch_autograd import by_autograd  # noqa: E402

import gpipe_sim as gp  # noqa: E402
from gpipe_sim.torch_backend import to_torch  # noqa: E402
from gpipe_sim.torch_backend.timeline import clocks  # noqa: E402

SCHEDULES = {repr(schedule): schedule for schedule in runnable([(2, 4)])}
SCHEDULES |= {"recomputed": gp.remat(gp.ZBV(2, 4), "except_last")}
SKEWS = (3.7, -12, 250)  #: milliseconds by which the clock of the second node is ahead

#: The second node's clock is ahead. Nobody has a stage or a part of the batch that it does not need.
SCRIPT = textwrap.dedent("""\
    import os, pickle, sys, time
    from itertools import cycle
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from engine_cases import batch_for, model
    from test_torch_mesh import SCHEDULES, SKEWS
    from torch_modules import tied_ends, tokens
    import gpipe_sim as gp
    from gpipe_sim.torch_backend import Pipeline, to_torch

    clock, skew, node = time.perf_counter, 0, int(os.environ["GROUP_RANK"])
    time.perf_counter = lambda: clock() + node * skew / 1000
    dist.init_process_group("gloo")
    rank, found = dist.get_rank(), {}
    across = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))  # a pipeline is on both nodes

    def mine(inner, device, shift=0):
        modules = to_torch(gp.split(model(), stages=inner.stages))
        for module in modules:
            for parameter in module.parameters():
                parameter.data += shift
        held = inner.placement[device]
        return [module if stage in held else None for stage, module in enumerate(modules)], held

    def needed(batch, inner, held):
        return tuple(part if end in held else None for part, end in zip(batch, (0, inner.stages - 1)))

    def told(step):
        apart = [ours[0][1] - ran.spans[0][1] for ours, ran in zip(step._noted, step._results)]
        return step.loss, step.gradients, step.outputs, step.timeline, apart

    def share(batch, copy):
        return tuple(part[copy * len(part) // 2 : (copy + 1) * len(part) // 2] for part in batch)

    for (name, schedule), skew in zip(SCHEDULES.items(), cycle(SKEWS)):
        batch = batch_for(2 * schedule.microbatches)
        device, copy = across.get_coordinate()
        modules, held = mine(schedule, device)
        own = needed(share(batch, copy), schedule, held)
        meshed = Pipeline(modules, schedule, gp.cross_entropy, group=across, meter=True)
        meshed.step(own)
        found[name, "mesh"] = *told(step := meshed.step(own)), [m.actions for m in step.memory]
        copy, device = divmod(rank, 2)
        modules, held = mine(schedule, device)
        whole = Pipeline(modules, gp.replicate(schedule, 2), gp.cross_entropy)
        whole.step(own := needed(batch, schedule, held))
        found[name, "whole"] = *told(whole.step(own)), None
    skew = 0

    device, copy = across.get_coordinate()
    tied = tied_ends()
    held = gp.ZBV(2, 4).placement[device]
    tied = [module.to("meta") if stage not in held else module for stage, module in enumerate(tied)]
    trains = Pipeline(tied, gp.ZBV(2, 4), torch.nn.functional.cross_entropy, group=across, measure=False)
    step = trains.step(needed(share(tokens(), copy), gp.ZBV(2, 4), held))
    found["tied"] = step.loss, step.gradients

    def refused(act):
        try:
            act()
        except (ValueError, TypeError) as error:
            return str(error)

    one, batch = gp.OneFOneB(2, 4), batch_for(4)
    modules, held = mine(one, device)
    own = needed(batch, one, held)
    pipeline = lambda **options: Pipeline(modules, one, gp.cross_entropy, **{"group": across} | options)
    found["refused"] = {
        "no inputs": refused(lambda: pipeline().step((None, batch[1]))),
        "other weights": refused(
            lambda: Pipeline(mine(one, device, shift=copy)[0], one, gp.cross_entropy, group=across).step(own)
        ),
        "another batch": refused(lambda: pipeline().step((batch[0] + device, batch[1]))),
        "four": refused(lambda: pipeline(group=None)),
        "no names": refused(lambda: pipeline(group=init_device_mesh("cpu", (2, 2)))),
        "no stage": refused(lambda: Pipeline([None, None], one, gp.cross_entropy, group=across)),
        "three": refused(lambda: Pipeline(modules, gp.replicate(one, 3), gp.cross_entropy, group=across)),
        "no times": refused(lambda: step.timeline),
    }
    steady = pipeline()
    steady.step(own)
    if own[0] is not None:
        found["refused"]["longer"] = refused(lambda: steady.step((batch_for(8)[0], None)))
        found["refused"]["no more"] = refused(lambda: steady.step((None, None)))
    dist.barrier()
    with open(os.path.join(sys.argv[1], str(rank)), "wb") as file:
        pickle.dump(found, file)
    dist.destroy_process_group()
""")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict]:
    """What each of four processes found."""
    folder = tmp_path_factory.mktemp("mesh")
    script = folder / "script.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sys.path)), "OMP_NUM_THREADS": "1"}
    launch = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2"]
    launch += ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    agents = [
        subprocess.Popen(
            [*launch, "--node-rank", str(node), script, folder],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for node in range(2)
    ]
    said = [agent.communicate(timeout=300)[0] for agent in agents]
    assert not any(agent.returncode for agent in agents), "\n".join(said)
    return [pickle.loads((folder / str(rank)).read_bytes()) for rank in range(4)]


@pytest.mark.parametrize("way", ["mesh", "whole"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_copies_of_a_pipeline_on_two_nodes_learn_what_plain_autograd_says_of_the_whole_batch(
    ranks, name, way
):
    schedule = SCHEDULES[name]
    modules = to_torch(gp.split(model(), stages=schedule.stages))
    batch = tuple(map(torch.as_tensor, batch_for(2 * schedule.microbatches)))
    copies, loss, outputs = by_autograd(
        modules, batch, 2 * schedule.microbatches, nn.functional.cross_entropy
    )
    numbers, first = {}, 0
    for module, layers in zip(copies, gp.split(model(), stages=schedule.stages), strict=True):
        gradients = (parameter.grad.numpy() for parameter in module.parameters())
        keys = [key for key in layers.parameters]
        numbers |= dict(zip(keys, gradients, strict=True))
    seen = []
    for found in ranks:
        its_loss, gradients, its_outputs, timeline, *_ = found[name, way]
        assert its_loss == pytest.approx(loss, rel=1e-10)
        assert max(apart(gradient, numbers[key]) for key, gradient in gradients.items()) < 1e-10
        assert_a_timeline_of(timeline, gp.replicate(schedule, 2))
        seen += gradients
        if its_outputs is not None:
            half = outputs[: len(outputs) // 2], outputs[len(outputs) // 2 :]
            assert min(apart(its_outputs, each) for each in half) < 1e-10
    assert sorted(seen) == sorted([*numbers] * 2)


def test_clocks_that_are_apart_are_one_clock_to_within_a_message(ranks):
    """Ahead by 3.7, -12 and 250 ms: the middle of what messages allow is near to that."""
    found = {skew: [] for skew in SKEWS}
    for name, skew in zip(SCHEDULES, cycle(SKEWS), strict=False):
        for way in ("mesh", "whole"):
            *_, added, _ = ranks[0][name, way]
            nodes = (0, 0, 1, 1) if way == "whole" else (0, 1, 0, 1)
            found[skew] += [
                abs(1000 * (more - added[0]) + skew * node)
                for more, node in zip(added, nodes, strict=True)
                if node
            ]
    for skew, off in found.items():
        print(skew, statistics.median(off), max(off))
        assert statistics.median(off) < 1
