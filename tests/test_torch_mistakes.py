"""What people get wrong with several devices: each is told what is wrong and what would be right."""

import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain, pairwise, product
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.distributed import fsdp  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_modules import Gives, linears, some_batch  # noqa: E402

import gpipe_sim as gp  # noqa: E402
from gpipe_sim import mse, with_updates  # noqa: E402
from gpipe_sim import torch_backend as tb  # noqa: E402
from gpipe_sim.torch_backend import LocalProcesses, Pipeline, Sleep, place, to_torch, train_step  # noqa: E402
from gpipe_sim.torch_backend.modules import require_own_gpus  # noqa: E402

SCHEDULE = gp.OneFOneB(2, 4)
HERE = ["cpu", "cpu"]
X, Y = some_batch()


def refused(modules=None, schedule=SCHEDULE, batch=(X, Y), loss=mse, devices=HERE) -> str:
    """What a step says to it. No parameter has a gradient after that."""
    modules = linears() if modules is None else modules
    with pytest.raises(Exception) as refusal:
        train_step(modules, schedule, batch, loss, devices=devices)
    if isinstance(modules, list):
        stages = (module for module in modules if isinstance(module, nn.Module))
        assert all(p.grad is None for module in stages for p in module.parameters())
    return f"{refusal.type.__name__}: {refusal.value}"


def assert_says(found: str, expected: str) -> None:
    """Word for word, but for what an ellipsis stands for."""
    assert re.fullmatch(re.escape(expected).replace("…", ".*"), found, re.S)


def mistakes_with_a_batch() -> Iterator[tuple[str, dict]]:
    uneven = {
        10: "use a batch of 8 or 12, or 2 or 5 microbatches",
        7: "use a batch of 4 or 8, or 1 or 7 microbatches",
        3: "use a batch of 4, or 1 or 3 microbatches",
        1: "use a batch of 4, or 1 microbatches",
        0: "use a batch of 4",
    }
    for samples, sizes in uneven.items():
        says = f"a batch of {samples} does not cut into 4 equal microbatches, which PyTorch's engine…"
        yield f"ValueError: {says}{sizes}", {"batch": some_batch(samples)}
    yield "ValueError: …of equal length (got lengths 8 and 4)", {"batch": (X, Y[:4])}
    yield "ValueError: a batch is (inputs, targets)…", {"batch": (X, Y, Y)}
    one = torch.tensor(1.0)
    others = {"int": 7, "dict": {"x": [], "y": []}, "ndarray": X, "1": (1, 2), "tensor(1.)": (X, one)}
    for found, batch in others.items():
        which = {"1": "inputs ", "tensor(1.)": "targets "}.get(found, "")
        yield f"TypeError: a batch is (inputs, targets)…{which}(got {found})", {"batch": batch}
    there, meta = " are on meta, but are needed on cpu: .to('cpu')", torch.tensor(X).to("meta")
    yield f"ValueError: the inputs{there}", {"batch": (meta, Y)}
    yield f"ValueError: the targets{there}", {"batch": (X, meta)}


def mistakes_with_devices() -> Iterator[tuple[str, dict]]:
    few = "too few devices to hold given partitions (devices: 2, partitions: 4); a device may be listed again"
    yield f"IndexError: {few}", {"modules": linears(4), "schedule": gp.OneFOneB(4, 4)}
    for name in ("gpu", "cpu0", "", "cuda:x"):
        says = f"{name!r} is not a torch device; this machine has {tb.devices()}"
        yield f"ValueError: {says}", {"devices": ["cpu", name]}
    if not torch.cuda.is_available():
        for name in ("cuda", "cuda:1"):
            says = f"ValueError: a pipeline runs on cpu or cuda devices that are here (got {name!r}): ['cpu']"
            yield says, {"devices": [name, "cpu"]}
    yield (
        "ValueError: a pipeline runs on cpu or cuda devices that are here (got 'meta'): ['cpu']",
        {"devices": ["cpu", "meta"]},
    )
    for one in ("cpu", torch.device("cpu"), 2, 2.0, {"cpu": 2}, {"cpu"}, iter(HERE), LocalProcesses):
        name = "cpu" if isinstance(one, str | torch.device) else tb.devices()[0]
        instead = f"[{name!r}] * 2, or is LocalProcesses(2) (got …)"
        yield f"TypeError: devices lists one for each of {SCHEDULE!r}'s devices: {instead}", {"devices": one}
    moved, partly = linears(1)[0].to("meta"), nn.Sequential(*linears())
    partly[1].bias = nn.Parameter(partly[1].bias.to("meta"))
    yield (
        "ValueError: stage 1 is on meta (weight), but it belongs on cpu: modules[1].to('cpu'), "
        "or place(modules, schedule, devices) for all stages",
        {"modules": [*linears(1), moved]},
    )
    norm = nn.BatchNorm1d(3)
    norm.running_var = norm.running_var.to("meta")
    for name, module in {"1.bias": partly, "running_var": norm}.items():
        says = f"stage 1 is on meta ({name}), but it belongs on cpu: modules[1].to('cpu'), …"
        yield f"ValueError: {says}", {"modules": [*linears(1), module]}


def mistakes_with_modules() -> Iterator[tuple[str, dict]]:
    sharded = type("FSDPLinear", (fsdp.FSDPModule, nn.Linear), {})  # as fully_shard makes of a Linear
    parallel = nn.DataParallel, nn.parallel.DistributedDataParallel, fsdp.FullyShardedDataParallel
    for wrapper in (*parallel, sharded):
        nn.Module.__init__(wrapped := object.__new__(wrapper))  # made without devices or processes
        name = "FSDPModule" if wrapper is sharded else wrapper.__name__
        yield (
            f"TypeError: stage 1 is wrapped in {name}, which spreads it over several devices; a stage is on "
            "one: pass the module inside, .module, or do not call fully_shard",
            {"modules": [*linears(1), nn.Sequential(wrapped)]},
        )
    for count in (1, 3):
        says = f"{SCHEDULE!r} has 2 stages, but there are {count} modules; "
        yield f"ValueError: {says}split(nn.Sequential(...), stages=2) would fit", {"modules": linears(count)}
    arrays, function = gp.split(gp.mlp([3, 3, 3]), stages=2), [*linears(1), torch.tanh]
    for stage, found, modules in ((0, "Partition", arrays), (1, type(torch.tanh).__name__, function)):
        says = f"stage {stage} must be a torch module (got {found}); to_torch(gp.split(layers, stages=...))"
        yield f"TypeError: {says} makes modules of NumPy layers", {"modules": modules}
    for found, one in (("Linear", nn.Linear(3, 3)), ("int", 2)):
        says = f"a pipeline takes a list of torch modules, one per stage (got {found}); "
        yield f"TypeError: {says}split(nn.Sequential(...), stages=...) makes one", {"modules": one}
    first, second = linears()
    second.bias = first.bias
    yield (
        "ValueError: stages 0 and 1 share a parameter (bias and bias), but are on devices 0 and 1, which…"
        "on one device, as ZB-V has the first and the last stage",
        {"modules": [first, second]},
    )
    yield "ValueError: …share a parameter (weight and 0.weight)…", {"modules": [first, nn.Sequential(first)]}
    gives = {
        "dict": lambda x: {"hidden": x},
        "tuple of Tensor, tuple": lambda x: (x, (x, x)),
        "NoneType": lambda x: None,
        "list of nothing": lambda x: [],
    }
    for at, (called, function) in product((0, 1), gives.items()):
        says = f"stage {at}, Gives gives {called}, but stages send a tensor or a tuple of tensors"
        yield f"TypeError: {says}", {"modules": [*linears(at), Gives(function), *linears(1 - at)]}


class Own(type(mse)):
    def __repr__(self):
        return "Own()"


def mistakes_with_a_loss() -> Iterator[tuple[str, dict]]:
    several = {
        "a tensor of shape (2, 3)": lambda y, t: (y - t) ** 2,
        "a tensor of shape (3,)": lambda y, t: ((y - t) ** 2).mean(0),
        "0.5": lambda y, t: 0.5,
        "None": lambda y, t: None,
    }
    for found, loss in several.items():
        says = f"a loss gives a tensor with one number, the mean over the microbatch (got {found})"
        yield f"ValueError: {says}", {"loss": loss}
    for loss in (
        lambda y, t: ((y.detach() - t) ** 2).mean(),
        lambda y, t: (y.argmax(1) == 0).double().mean(),
        lambda y, t: torch.tensor(((y - t) ** 2).mean().item()),
    ):
        yield "ValueError: the loss has no gradient: what it does to the outputs…", {"loss": loss}
    yield (
        "TypeError: on torch a step knows mse and cross_entropy (got Own()); "
        "give a function (outputs, targets) -> mean over the microbatch instead",
        {"loss": Own()},
    )
    yield "TypeError: a step needs a loss, such as cross_entropy or mse (got 'mse')", {"loss": "mse"}


def mistakes_with_a_schedule() -> Iterator[tuple[str, dict]]:
    for copies in (gp.families.Chimera(2, 4), gp.families.DualPipe(2, 4)):
        says = (
            f"{copies!r} holds stage …gives a stage one rank: it cannot run schedules that keep two copies…"
        )
        yield f"ScheduleError: {says}", {"schedule": copies}
    says = "0U3 of Explicit(devices=2, microbatches=4) updates weights within the step…"
    yield f"ScheduleError: {says}", {"schedule": with_updates(SCHEDULE)}
    for family in gp.families.WITHOUT_FLUSH:
        says = "updates weights within the step. PyTorch's engine runs one synchronous step…"
        yield f"ScheduleError: …of {family(2, 4)!r} {says}", {"schedule": family(2, 4)}
    stuck = gp.Explicit(["0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"])
    yield "DeadlockError: …device 0 is stuck at 0B0…", {"schedule": stuck}
    for one in (gp.OneFOneB, "1F1B", None):
        yield "TypeError: …needs a schedule, such as GPipe(4, 8)…", {"schedule": one}


MISTAKES = chain(
    mistakes_with_a_batch(),
    mistakes_with_devices(),
    mistakes_with_modules(),
    mistakes_with_a_loss(),
    mistakes_with_a_schedule(),
)


@pytest.mark.parametrize(("says", "wrong"), MISTAKES)
def test_a_mistake_is_told_what_is_wrong_and_what_would_be_right(says, wrong):
    assert_says(refused(**wrong), says)


def test_the_sizes_that_an_uneven_batch_is_told_do_work_and_surplus_devices_are_unused():
    for samples in (8, 12):
        train_step(linears(), SCHEDULE, some_batch(samples), mse, devices=["cpu"] * 5)
    for microbatches in (2, 5):
        train_step(linears(), gp.OneFOneB(2, microbatches), some_batch(10), mse, devices=HERE)


def test_place_refuses_the_same():
    with pytest.raises(ValueError, match="has 2 stages, but there are 3 modules"):
        place(linears(3), SCHEDULE)
    with pytest.raises(ValueError, match=r"that are here \(got 'meta'\)"):
        place(linears(), SCHEDULE, ["meta"] * 2)


def test_an_attribute_is_not_read_through_the_wrapper_and_one_is_told_where_it_is():
    modules = [nn.Sequential(*linears(1)), *linears(1)]
    pipeline = Pipeline(modules, SCHEDULE, mse, devices=HERE)
    with pytest.raises(AttributeError) as error:
        pipeline.out_features  # noqa: B018
    assert str(error.value) == (
        "a Pipeline has no attribute 'out_features', but the module of stage 1 has: "
        "pipeline.modules[1].out_features"
    )
    with pytest.raises(AttributeError, match="no attribute 'out_feature', and none of its modules has"):
        pipeline.out_feature  # noqa: B018
    assert not hasattr(pipeline, "out_features") and "cpu, cpu" in repr(pipeline)


def test_one_stage_may_use_a_parameter_twice():
    first, second, third = linears(3)
    second.weight = first.weight
    step = train_step([nn.Sequential(first, second), third], SCHEDULE, (X, Y), mse)
    assert set(step.gradients) == {(0, "weight"), (0, "bias"), (1, "bias"), (2, "weight"), (2, "bias")}


def test_one_layer_is_told_to_come_in_a_list_and_what_is_no_layer_what_is():
    for one in (gp.mlp([3, 3])[0], gp.core.Partition(gp.mlp([3, 3]))):
        with pytest.raises(TypeError, match=r"to_torch takes a list of layers or partitions: "):
            to_torch(one)
    with pytest.raises(TypeError, match=r"takes NumPy layers, and partitions of them \(got 'Linear'\)"):
        to_torch(["Linear"])
    with pytest.raises(TypeError, match=r"cuts an nn.Sequential, or a list of modules \(got Linear\)"):
        tb.split(nn.Linear(2, 2), 1)


@pytest.mark.parametrize("time", [-1, float("nan"), float("inf")])
def test_a_sleep_lasts_a_number_of_milliseconds(time):
    with pytest.raises(ValueError, match="Sleep needs 0 <= input_grad < inf"):
        Sleep(20, time, 20)


def test_a_step_is_told_that_its_timeline_is_wanted():
    step = train_step(linears(2), SCHEDULE, (X, Y), mse)
    wanted = r"needs a timeline, such as its \.timeline \(got <MeasuredStep with loss"
    for wants in (gp.fit_costs, lambda step: gp.overlay(gp.simulate(SCHEDULE), step)):
        with pytest.raises(TypeError, match=wanted):
            wants(step)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["cuda:0", "cuda:1", "cuda:0"], "NCCL wants a GPU for each process, and sends to no CPU"),
        (["cuda:0", "cpu"], "NCCL wants a GPU for each process, and sends to no CPU"),
    ],
)
def test_processes_that_could_not_reach_each_other_are_refused(names, says):
    with pytest.raises(ValueError, match=says) as refusal:
        require_own_gpus([torch.device(name) for name in names])
    assert str(names) in str(refusal.value)
    require_own_gpus([torch.device("cpu")] * 2)
    require_own_gpus([torch.device(name) for name in ("cuda:0", "cuda:1")])


def test_a_stage_that_changes_its_input_in_place_is_told_how_not_to():
    modules = [*linears(1), nn.Sequential(nn.ReLU(inplace=True), *linears(1))]
    with pytest.raises(RuntimeError, match="in-place operation") as failure:
        train_step(modules, SCHEDULE, (X, Y), mse)
    assert failure.value.__notes__ == [
        "in the forward of stage 1, Sequential: if it changes what comes in, use inplace=False "
        "in its first layer, or x = x + 1 for x += 1"
    ]


@pytest.mark.parametrize("at", [0, 3])
def test_a_loss_that_fails_is_not_taken_for_a_backward(at):
    """In the engine's trial beforehand, or at a microbatch: it is said in the same words."""
    calls = []

    def loss(outputs, targets):
        calls.append(at)
        return 1 / 0 if len(calls) > at else functional.mse_loss(outputs, targets)

    with pytest.raises(ZeroDivisionError) as error:
        train_step(linears(), SCHEDULE, (X, Y), loss, devices=HERE)
    assert error.value.__notes__ == ["in the loss, after the forward of stage 1"]


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_a_caller_who_turned_gradients_off_gets_them(off):
    modules = linears(2)
    with off():
        step = train_step(modules, SCHEDULE, (X, Y), mse)
    assert all(gradient.any() for gradient in step.gradients.values())


# A torch that is another, or not there


def ran(code: str) -> subprocess.CompletedProcess:
    command, root = [sys.executable, "-W", "error", "-c", f"import sys\n{code}"], Path(gp.__file__).parents[1]
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


WITHOUT = "sys.modules['torch'] = None\n"


@pytest.mark.parametrize(
    "code", ["import gpipe_sim as gp; gp.torch_backend", "from gpipe_sim.torch_backend import train_step"]
)
def test_without_torch_the_names_say_how_to_get_it(code):
    said = ran(WITHOUT + code).stderr
    assert "ImportError: gpipe_sim.torch_backend needs torch, which is not installed: pip install" in said
    assert "gpipe_sim[torch]" in said and "everything else works without it" in said


def test_without_torch_everything_else_works():
    found = ran(
        WITHOUT + "import gpipe_sim as gp\n"
        "from gpipe_sim import *\n"
        "assert 'torch_backend' not in gp.__all__ and 'export' in dir(gp)\n"
        "text = gp.export.to_torch_csv(OneFOneB(2, 3))\n"
        "assert gp.export.from_torch_csv(text).actions == OneFOneB(2, 3).actions\n"
        "assert [getattr(gp, name) for name in gp.__all__]\n"
        "print(simulate(OneFOneB(4, 8)).makespan)"
    )
    assert found.stdout == "33\n", found.stderr


def test_a_module_that_torch_itself_misses_is_not_called_torch():
    said = ran("sys.modules['torch.fx'] = None; import gpipe_sim as gp; gp.torch_backend").stderr
    assert "ModuleNotFoundError" in said and "pip install" not in said


# No speed-up: the mistake that is none


def test_in_one_process_devices_take_turns_and_nothing_is_gained():
    """Every instant has one action at most, however many devices are named."""
    step = train_step(to_torch(gp.split(gp.mlp([3] * 9), stages=4)), gp.OneFOneB(4, 8), some_batch(), mse)
    spans = sorted(step.timeline.spans, key=lambda span: span.start)
    assert all(a.end <= b.start for a, b in pairwise(spans))
    assert gp.why.speedup(step.timeline) < 1
