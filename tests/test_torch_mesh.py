"""Pipelines beside each other, on two nodes of two processes each: torchrun's own, on this machine."""

import os
import pickle
import socket
import statistics
import subprocess
import sys
import textwrap
from itertools import cycle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from engine_cases import assert_a_timeline_of, batch_for, model, runnable  # noqa: E402
from measured import measured  # noqa: E402
from numeric import apart  # noqa: E402
from torch import nn  # noqa: E402
from torch_autograd import by_autograd  # noqa: E402
from torch_modules import tied_ends, tokens  # noqa: E402

import gpipe_sim as gp  # noqa: E402
from gpipe_sim.core import needs  # noqa: E402
from gpipe_sim.errors import ScheduleError  # noqa: E402
from gpipe_sim.torch_backend import to_torch, train_step  # noqa: E402
from gpipe_sim.traces.process_clocks import clocks  # noqa: E402

SCHEDULES = {repr(schedule): schedule for schedule in runnable([(2, 4)])}
SCHEDULES |= {"recomputed": gp.remat(gp.ZBV(2, 4), "except_last")}
SKEWS = (3.7, -12, 250)  #: milliseconds by which the clock of the second node is ahead


class Sometimes(nn.Linear):
    """Has a weight that only samples of positive numbers use, and one that none uses.

    Another has its columns before its rows, and one has another type of number.
    """

    def __init__(self):
        super().__init__(3, 3, dtype=torch.float64)
        self.weight = nn.Parameter(self.weight.detach().T.contiguous().T)
        self.single = nn.Parameter(torch.ones(3))
        self.seldom, self.never = (nn.Parameter(torch.ones(3, dtype=torch.float64)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.single * super().forward(x) * (self.seldom if x.sum() > 0 else 1)


def two_stages() -> list[nn.Module]:
    """The second has no parameter to tell what numbers the model has."""
    torch.manual_seed(0)
    return [Sometimes(), nn.Tanh()]


def halves() -> tuple[np.ndarray, np.ndarray]:
    """The first half of the samples is positive, the second negative."""
    x, targets = np.random.default_rng(0).random((2, 16, 3))
    return np.concatenate([x[:8], -x[8:]]), targets


#: The second node's clock is ahead. Nobody has a stage or a part of the batch that it does not need.
SCRIPT = textwrap.dedent("""\
    import os, pickle, sys, time
    from itertools import cycle
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from engine_cases import batch_for, model
    from test_torch_mesh import SCHEDULES, SKEWS, halves, two_stages
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
        meshed = Pipeline(modules, schedule, gp.cross_entropy, group=across)
        meshed.step(own)
        found[name, "mesh"] = told(step := meshed.step(own))
        copy, device = divmod(rank, 2)
        modules, held = mine(schedule, device)
        whole = Pipeline(modules, gp.replicate(schedule, 2), gp.cross_entropy)
        whole.step(own := needed(batch, schedule, held))
        found[name, "whole"] = told(whole.step(own))
    skew = 0

    device, copy = across.get_coordinate()
    tied = tied_ends()
    held = gp.ZBV(2, 4).placement[device]
    tied = [module.to("meta") if stage not in held else module for stage, module in enumerate(tied)]
    trains = Pipeline(tied, gp.ZBV(2, 4), torch.nn.functional.cross_entropy, group=across, measure=False)
    step = trains.step(needed(share(tokens(), copy), gp.ZBV(2, 4), held))
    learned = [(stage, tied[stage]) for stage in held]
    found["tied"] = step.loss, {(k, n): p.grad.numpy() for k, m in learned for n, p in m.named_parameters()}

    some = [module if stage == device else None for stage, module in enumerate(two_stages())]
    seldom = Pipeline(some, gp.OneFOneB(2, 4), gp.mse, group=across)
    step_of_some = seldom.step(needed(share(halves(), copy), gp.OneFOneB(2, 4), [device]))
    found["some"] = step_of_some.loss, step_of_some.gradients

    def refused(act):
        try:
            act()
        except (ValueError, TypeError) as error:
            return str(error)

    one, other, batch = gp.OneFOneB(2, 4), gp.GPipe(2, 4), batch_for(4)
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
        "no group": refused(lambda: pipeline(group="pp")),
        "another order": refused(
            lambda: Pipeline(modules, other if rank else one, gp.cross_entropy, group=across).step(own)
        ),
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
    assert "may be on several machines: gloo and NCCL listen on one of their own choice" in said[0]
    assert not said[1]
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
    numbers = {}
    for module, layers in zip(copies, gp.split(model(), stages=schedule.stages), strict=True):
        gradients = (parameter.grad.numpy() for parameter in module.parameters())
        numbers |= dict(zip(layers.parameters, gradients, strict=True))
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


def test_clocks_of_two_nodes_that_are_apart_become_one_to_half_a_millisecond(ranks):
    """That of the second node is ahead by 3.7, -12 and 250 ms."""
    off = {skew: [] for skew in SKEWS}
    for name, skew in zip(SCHEDULES, cycle(SKEWS), strict=False):
        for way, second in (("mesh", (1, 3)), ("whole", (2, 3))):
            added = ranks[0][name, way][4]
            off[skew] += [abs(1000 * (added[process] - added[0]) + skew) for process in second]
    assert {skew: statistics.median(each) < 0.5 for skew, each in off.items()} == dict.fromkeys(SKEWS, True)


@pytest.mark.parametrize("schedule", runnable([(4, 8)]), ids=repr)
def test_messages_alone_say_how_far_clocks_are_apart_to_a_millisecond(schedule):
    """Here they take up to 1 ms each; and whatever they took, nothing comes before what it needs."""
    timeline, ahead = measured(schedule), np.array([0, *SKEWS])
    noted = [
        [(part, span.start + more, span.end + more) for span in timeline.on(k) for part in span.action.parts]
        for k, more in enumerate(ahead)
    ]
    added = clocks(schedule, noted, np.where(np.eye(4), 0, -np.inf))
    assert np.abs(added + ahead).max() < 1
    times = {
        a: (start + more, end + more)
        for spans, more in zip(noted, added, strict=True)
        for a, start, end in spans
    }
    assert all(times[need][1] <= times[a][0] + 1e-9 for a in times for need in needs(a, schedule))


def test_weights_that_two_stages_share_are_summed_once_and_nothing_but_trained(ranks):
    """A first step with measure=False; stages elsewhere are on meta."""
    batch = tuple(map(torch.as_tensor, tokens()))
    copies, loss, _ = by_autograd(tied_ends(), batch, 8, nn.functional.cross_entropy)
    for rank, found in enumerate(ranks):
        its_loss, gradients = found["tied"]
        assert its_loss == (None if rank > 1 else pytest.approx(loss, rel=1e-10))  # of those with the head
        held = (1, 2) if rank > 1 else (0, 3)
        expected = {(k, name): p.grad for k in held for name, p in copies[k].named_parameters()}
        assert gradients.keys() == expected.keys()
        assert max(apart(gradients[key], expected[key].numpy()) for key in expected) < 1e-10


def test_a_weight_that_one_copy_does_not_use_has_the_gradient_of_those_that_do(ranks):
    """And one that none uses has none; numbers are the model's where a stage has none of its own."""
    batch = tuple(map(torch.as_tensor, halves()))
    (sometimes, _), loss, _ = by_autograd(two_stages(), batch, 8, nn.functional.mse_loss)
    used = {name: p.grad.numpy() for name, p in sometimes.named_parameters() if p.grad is not None}
    assert sorted(used) == ["bias", "seldom", "single", "weight"]
    for rank, found in enumerate(ranks):
        its_loss, gradients = found["some"]
        assert its_loss == pytest.approx(loss, rel=1e-12)
        assert sorted(gradients) == ([] if rank > 1 else [(0, name) for name in sorted(used)])
        for (_, name), gradient in gradients.items():
            assert apart(gradient, used[name]) < (1e-6 if name == "single" else 1e-10), name


@pytest.mark.parametrize(
    "case, says",
    {
        "no inputs": "process 0 holds stage 0, which needs inputs (got None)",
        "other weights": "processes 0 and 1 hold copies of the same stages, but with other weights",
        "another batch": "process 2 was given another batch than process 0",
        "four": "but there are 4: torchrun --nproc-per-node 2 ..., or replicate(schedule, 2)",
        "no names": "(got the dimensions without names)",
        "no stage": "must be a torch module (got NoneType)",
        "three": "runs on a mesh of 3 pipelines, but there are 2",
        "no group": "group is a process group, or a DeviceMesh with a dimension pp (got 'pp')",
        "another order": "process 2 has schedule=GPipe(devices=2, microbatches=4), and process 0 has",
        "no times": "this step has no times: Pipeline(..., measure=False) takes none",
    }.items(),
)
def test_what_cannot_run_together_is_refused_by_every_process(ranks, case, says):
    assert all(says in found["refused"][case] for found in ranks)


def test_where_some_are_given_none_the_others_keep_to_one_size(ranks):
    for found in ranks[:2]:  # with the first stage
        for got in ("longer", "no more"):
            says = "every batch is like the first: (((8, 6), torch.float64), None) in each pipeline here (got"
            assert says in found["refused"][got]


def test_copies_need_processes():
    schedule = gp.replicate(gp.OneFOneB(2, 4), 2)
    with pytest.raises(ScheduleError, match="torchrun --nproc-per-node 4"):
        train_step(to_torch(gp.split(model(), stages=2)), schedule, batch_for(8), gp.cross_entropy)
