"""What people get wrong with several devices: each is told what is wrong and what would be right."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch_modules  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_modules import linears, some_batch  # noqa: E402

import gpipe_sim as gp  # noqa: E402
from gpipe_sim import mse, with_updates  # noqa: E402
from gpipe_sim.torch_backend import (  # noqa: E402
    LocalProcesses,
    Pipeline,
    Sleep,
    devices,
    place,
    to_torch,
    train_step,
)
from gpipe_sim.torch_backend.modules import require_own_gpus  # noqa: E402

SCHEDULE = gp.OneFOneB(2, 4)
HERE = ["cpu", "cpu"]
NO_CUDA = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")


def refused(
    error: type[Exception], modules=None, schedule=SCHEDULE, batch=None, loss=mse, devices=HERE
) -> str:
    """What a step says to it. No parameter has a gradient after that."""
    modules = linears() if modules is None else modules
    with pytest.raises(error) as refusal:
        train_step(modules, schedule, some_batch() if batch is None else batch, loss, devices=devices)
    assert type(refusal.value) is error
    if isinstance(modules, list):
        stages = (module for module in modules if isinstance(module, nn.Module))
        assert all(p.grad is None for module in stages for p in module.parameters())
    return str(refusal.value)


# Batches


@pytest.mark.parametrize(
    ("samples", "sizes"),
    [
        (10, "use a batch of 8 or 12, or 2 or 5 microbatches"),
        (7, "use a batch of 4 or 8, or 1 or 7 microbatches"),
        (3, "use a batch of 4, or 1 or 3 microbatches"),
        (1, "use a batch of 4, or 1 microbatches"),
        (0, "use a batch of 4"),
    ],
)
def test_an_uneven_batch_is_told_the_sizes_that_work(samples, sizes):
    said = refused(ValueError, batch=some_batch(samples))
    assert said.startswith(
        f"a batch of {samples} does not cut into 4 equal microbatches, which PyTorch's engine"
    )
    assert said.endswith(sizes)


def test_the_sizes_that_it_is_told_do_work():
    for samples in (8, 12):
        train_step(linears(), SCHEDULE, some_batch(samples), mse, devices=HERE)
    for microbatches in (2, 5):
        train_step(linears(), gp.OneFOneB(2, microbatches), some_batch(10), mse, devices=HERE)


def test_inputs_and_targets_of_unequal_length_are_refused():
    x, y = some_batch()
    assert refused(ValueError, batch=(x, y[:4])).endswith("of equal length (got lengths 8 and 4)")
    assert refused(ValueError, batch=(x, y, y)).startswith("a batch is (inputs, targets)")


def test_a_tensor_that_is_elsewhere_is_told_how_to_come():
    x, y = map(torch.tensor, some_batch())
    assert (
        refused(ValueError, batch=(x.to("meta"), y))
        == "the inputs are on meta, but are needed on cpu: .to('cpu')"
    )
    assert (
        refused(ValueError, batch=(x, y.to("meta")))
        == "the targets are on meta, but are needed on cpu: .to('cpu')"
    )


# Devices


def test_too_few_devices_are_torchgpipes_index_error():
    said = refused(IndexError, linears(4), gp.OneFOneB(4, 4))
    assert said == (
        "too few devices to hold given partitions (devices: 2, partitions: 4); a device may be listed again"
    )


def test_surplus_devices_are_unused():
    found = train_step(linears(), SCHEDULE, some_batch(), mse, devices=["cpu"] * 5)
    assert found.loss == train_step(linears(), SCHEDULE, some_batch(), mse).loss


@pytest.mark.parametrize("name", ["gpu", "cpu0", "", "cuda:x"])
def test_a_name_that_torch_does_not_know_is_refused_with_those_that_there_are(name):
    assert refused(ValueError, devices=["cpu", name]) == (
        f"{name!r} is not a torch device; this machine has {devices()}"
    )


@NO_CUDA
@pytest.mark.parametrize(("name", "called"), [("cuda", "cuda:0"), ("cuda:1", "cuda:1")])
def test_a_gpu_that_is_not_there_is_refused_with_what_there_is(name, called):
    said = refused(ValueError, devices=[name, "cpu"])
    assert said == f"there is no {called} here; this machine has ['cpu']"
    with pytest.raises(ValueError, match=said.replace("[", r"\[")):
        place(linears(), SCHEDULE, [name, "cpu"])


def test_a_device_of_another_kind_is_refused():
    assert (
        refused(ValueError, devices=["cpu", "meta"]) == "a pipeline runs on cpu or cuda devices (got 'meta')"
    )


@pytest.mark.parametrize("one", ["cpu", torch.device("cpu")], ids=repr)
def test_one_name_instead_of_a_list_is_told_the_list(one):
    said = refused(TypeError, devices=one)
    assert f"devices lists one for each of {SCHEDULE!r}'s devices: ['cpu'] * 2" in said


def test_a_number_instead_of_a_list_is_told_the_list():
    assert refused(TypeError, devices=2).endswith(
        f"devices: [{devices()[0]!r}] * 2, or is LocalProcesses(2) (got 2)"
    )


def test_a_model_that_was_not_moved_is_told_where_and_how():
    modules = [linears()[0], linears()[1].to("meta")]
    assert refused(ValueError, modules) == (
        "stage 1 is on meta (weight), but it belongs on cpu: modules[1].to('cpu'), "
        "or place(modules, schedule, devices) for all stages"
    )


def test_a_model_on_several_devices_is_told_which_parameter_is_elsewhere():
    modules = [linears()[0], nn.Sequential(linears()[0], linears()[1])]
    modules[1][1].bias = nn.Parameter(modules[1][1].bias.to("meta"))
    assert refused(ValueError, modules) == (
        "stage 1 is on several devices: 1.bias is on meta, but it belongs on cpu; "
        "move it whole: modules[1].to('cpu')"
    )


def test_a_buffer_counts_as_well():
    modules = [linears()[0], nn.BatchNorm1d(3, dtype=torch.float64)]
    modules[1].running_var = modules[1].running_var.to("meta")
    assert "running_var is on meta" in refused(ValueError, modules)


# Modules


@pytest.mark.parametrize("wrapper", [nn.DataParallel, nn.parallel.DistributedDataParallel])
def test_a_wrapped_module_is_told_to_come_without(wrapper):
    wrapped = wrapper.__new__(wrapper)  # made without devices or processes
    nn.Module.__init__(wrapped)
    assert refused(TypeError, [linears()[0], wrapped]) == (
        f"stage 1 is wrapped in {wrapper.__name__}, which runs it on several devices; "
        "a stage is on one: pass the module inside, .module"
    )


def test_an_attribute_is_not_read_through_the_wrapper_and_one_is_told_where_it_is():
    pipeline = Pipeline(linears(), SCHEDULE, mse, devices=HERE)
    with pytest.raises(AttributeError) as error:
        pipeline.in_features  # noqa: B018
    assert str(error.value) == (
        "a Pipeline has no attribute 'in_features', but the module of stage 0 has: "
        "pipeline.modules[0].in_features"
    )
    with pytest.raises(AttributeError, match="no attribute 'in_feature', and none of its modules has"):
        pipeline.in_feature  # noqa: B018
    assert pipeline.modules[0].in_features == 3
    assert not hasattr(pipeline, "in_features") and "cpu, cpu" in repr(pipeline)


def test_an_attribute_that_only_a_later_stage_has_is_told_of_that_stage():
    pipeline = Pipeline([nn.Sequential(linears()[0]), linears()[1]], SCHEDULE, mse, devices=HERE)
    with pytest.raises(
        AttributeError, match=r"the module of stage 1 has: pipeline.modules\[1\].out_features"
    ):
        pipeline.out_features  # noqa: B018


def test_stages_of_two_devices_that_share_a_parameter_are_refused():
    first, second = linears()
    second.bias = first.bias
    said = refused(ValueError, [first, second])
    assert said.startswith(
        "stages 0 and 1 share a parameter (bias and bias), but are on devices 0 and 1, which"
    )
    assert said.endswith("on one device, as ZB-V has the first and the last stage")
    assert "share a parameter (weight and 0.weight)" in refused(ValueError, [first, nn.Sequential(first)])


def test_one_stage_may_use_a_parameter_twice():
    first, second, third = linears(3)
    second.weight = first.weight
    step = train_step([nn.Sequential(first, second), third], SCHEDULE, some_batch(), mse)
    assert set(step.gradients) == {(0, "weight"), (0, "bias"), (1, "bias"), (2, "weight"), (2, "bias")}


@pytest.mark.parametrize("count", [1, 3])
def test_another_number_of_modules_is_told_the_number(count):
    assert refused(ValueError, linears(count)) == (
        f"{SCHEDULE!r} has 2 stages, but there are {count} modules; "
        "split(nn.Sequential(...), stages=2) would fit"
    )


def test_numpy_partitions_are_told_how_to_become_modules():
    said = refused(TypeError, gp.split(gp.mlp([3, 3, 3]), stages=2))
    assert said == (
        "stage 0 must be a torch module (got Partition); "
        "to_torch(gp.split(layers, stages=...)) makes modules of NumPy layers"
    )
    assert refused(TypeError, [linears()[0], torch.tanh]).startswith(
        "stage 1 must be a torch module (got builtin"
    )


@pytest.mark.parametrize("modules", [nn.Linear(3, 3), 2], ids=lambda one: type(one).__name__)
def test_one_module_is_told_to_be_cut(modules):
    said = refused(TypeError, modules)
    assert said == (
        f"a pipeline takes a list of torch modules, one per stage (got {type(modules).__name__}); "
        "split(nn.Sequential(...), stages=...) makes one"
    )


# Arguments of another kind


@pytest.mark.parametrize(
    ("batch", "found"),
    [
        (7, "(got int)"),
        ({"x": [], "y": []}, "(got dict)"),
        (some_batch()[0], "(got ndarray)"),
        ((1, 2), "inputs (got 1)"),
        ((some_batch()[0], torch.tensor(1.0)), "targets (got tensor(1.))"),
    ],
    ids=["number", "dict", "one array", "numbers", "one number"],
)
def test_what_is_no_batch_is_refused(batch, found):
    said = refused(TypeError, batch=batch)
    assert said.startswith("a batch is (inputs, targets)") and said.endswith(found)


def test_a_batch_that_asks_for_a_gradient_gets_none():
    x = torch.ones(8, 3, dtype=torch.float64, requires_grad=True)
    train_step(linears(2), SCHEDULE, (x, some_batch()[1]), mse)
    assert x.grad is None


def test_a_batch_made_without_autograd_is_a_batch():
    with torch.inference_mode():
        x = torch.ones(8, 3, dtype=torch.float64)
    train_step(linears(2), SCHEDULE, (x, some_batch()[1]), mse)


def test_a_first_stage_may_change_what_comes_in_and_the_callers_batch_stays():
    x = -torch.ones(1, 3, dtype=torch.float64)
    modules = [nn.Sequential(nn.Hardtanh(0, 1, inplace=True), *linears(1)), *linears(1)]
    train_step(modules, gp.GPipe(2, 1), (x, some_batch(1)[1]), mse)
    assert (x == -1).all()


@pytest.mark.parametrize("names", [{"cpu": 2}, {"cpu"}, 2.0, (name for name in HERE), LocalProcesses])
def test_what_is_no_list_of_devices_is_refused(names):
    said = refused(TypeError, devices=names)
    assert said.startswith(f"devices lists one for each of {SCHEDULE!r}'s devices: ")
    assert " or is LocalProcesses(2) (got " in said


@pytest.mark.parametrize("count", [1, 3])
def test_place_wants_a_module_for_each_stage(count):
    with pytest.raises(ValueError, match=f"has 2 stages, but there are {count} modules"):
        place(linears(count), SCHEDULE)


def test_one_layer_or_partition_is_told_to_come_in_a_list():
    for one in (gp.mlp([3, 3])[0], gp.Partition(gp.mlp([3, 3]))):
        with pytest.raises(TypeError, match=r"to_torch takes a list of layers or partitions: "):
            to_torch(one)


@pytest.mark.parametrize("time", [-1, float("nan"), float("inf")])
def test_a_sleep_lasts_a_number_of_milliseconds(time):
    with pytest.raises(ValueError, match="Sleep needs 0 <= input_grad < inf"):
        Sleep(20, time, 20)


def test_a_step_is_told_that_its_timeline_is_wanted():
    step = train_step(linears(2), SCHEDULE, some_batch(), mse)
    for wants in (gp.fit_costs, lambda step: gp.overlay(gp.simulate(SCHEDULE), step)):
        with pytest.raises(
            TypeError, match=r"needs a timeline, such as its \.timeline \(got <MeasuredStep with loss"
        ):
            wants(step)


# What a stage gives


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(
    ("gives", "called"),
    [
        (lambda x: {"hidden": x}, "dict"),
        (lambda x: (x, (x, x)), "tuple of Tensor, tuple"),
        (lambda x: None, "NoneType"),
        (lambda x: [], "list of nothing"),
    ],
)
def test_a_stage_that_gives_no_tensors_is_refused(gives, called, at):
    modules = linears(2)
    modules[at] = torch_modules.Gives(gives)
    with pytest.raises(TypeError) as refusal:
        train_step(modules, gp.OneFOneB(2, 4), some_batch(), mse)
    stage = f"stage {at}, Gives"
    assert str(refusal.value) == f"{stage} gives {called}, but stages send a tensor or a tuple of tensors"


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["cuda:0", "cuda:1", "cuda:0"], "NCCL wants a GPU for each process; to put several stages on one"),
        (["cuda:0", "cpu"], "NCCL sends between GPUs, gloo between CPUs, and nothing between the two"),
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
        train_step(modules, gp.OneFOneB(2, 4), some_batch(), mse)
    assert failure.value.__notes__ == [
        "in the forward of stage 1, Sequential: if it changes what comes in, use inplace=False "
        "in its first layer, or x = x + 1 for x += 1"
    ]


# Losses


@pytest.mark.parametrize(
    ("loss", "got"),
    [
        (lambda y, t: (y - t) ** 2, r"a tensor of shape (2, 3)"),
        (lambda y, t: ((y - t) ** 2).mean(0), "a tensor of shape (3,)"),
        (lambda y, t: 0.5, "0.5"),
        (lambda y, t: None, "None"),
    ],
    ids=["each", "per column", "float", "nothing"],
)
def test_a_loss_that_is_not_one_number_is_refused(loss, got):
    said = refused(ValueError, loss=loss)
    assert said == f"a loss gives a tensor with one number, the mean over the microbatch (got {got})"


@pytest.mark.parametrize(
    "loss",
    [
        lambda y, t: ((y.detach() - t) ** 2).mean(),
        lambda y, t: (y.argmax(1) == 0).double().mean(),
        lambda y, t: torch.tensor(((y - t) ** 2).mean().item()),
    ],
    ids=["detached", "accuracy", "item"],
)
def test_a_loss_without_a_gradient_is_refused(loss):
    assert refused(ValueError, loss=loss).startswith("the loss has no gradient: what it does to the outputs")


@pytest.mark.parametrize("at", [0, 3])
def test_a_loss_that_fails_is_not_taken_for_a_backward(at):
    """In the engine's trial beforehand, or at a microbatch: it is said in the same words."""
    calls = []

    def loss(outputs, targets):
        calls.append(at)
        return 1 / 0 if len(calls) > at else functional.mse_loss(outputs, targets)

    with pytest.raises(ZeroDivisionError) as error:
        train_step(linears(), SCHEDULE, some_batch(), loss, devices=HERE)
    assert error.value.__notes__ == ["in the loss, after the forward of stage 1"]


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_a_caller_who_turned_gradients_off_gets_them(off):
    modules = linears(2)
    with off():
        step = train_step(modules, gp.OneFOneB(2, 4), some_batch(), mse)
    assert all(gradient.any() for gradient in step.gradients.values())


def test_a_loss_of_numpy_that_torch_does_not_have_is_refused():
    class Own(type(mse)):
        def __repr__(self):
            return "Own()"

    assert refused(TypeError, loss=Own()) == (
        "on torch a step knows mse and cross_entropy (got Own()); "
        "give a function (outputs, targets) -> mean over the microbatch instead"
    )


def test_what_is_no_loss_is_refused():
    assert refused(TypeError, loss="mse") == "a step needs a loss, such as cross_entropy or mse (got 'mse')"


# Schedules


@pytest.mark.parametrize("schedule", [gp.Chimera(2, 4), gp.DualPipe(2, 4)], ids=repr)
def test_two_copies_of_the_model_are_refused_by_name(schedule):
    said = refused(gp.ScheduleError, schedule=schedule)
    assert said.startswith(f"{schedule!r} holds stage ")
    assert "gives a stage one rank: it cannot run schedules that keep two copies" in said


def test_updates_within_a_step_are_refused_by_name():
    said = refused(gp.ScheduleError, schedule=with_updates(SCHEDULE))
    assert said.startswith("0U3 of Explicit(devices=2, microbatches=4) updates weights within the step")


@pytest.mark.parametrize("family", gp.WITHOUT_FLUSH)
def test_streams_without_a_flush_are_refused_by_name(family):
    said = refused(gp.ScheduleError, schedule=family(2, 4))
    assert said.startswith(f"{family(2, 4)!r} updates weights on the way, 0U")
    assert "PyTorch's engine runs one synchronous step" in said


def test_an_order_that_cannot_finish_is_refused_before_anything_runs():
    stuck = gp.Explicit(["0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"])
    assert "device 0 is stuck at 0B0" in refused(gp.DeadlockError, schedule=stuck)


@pytest.mark.parametrize("schedule", [gp.OneFOneB, "1F1B", None])
def test_what_is_not_a_schedule_is_refused(schedule):
    assert "needs a schedule, such as GPipe(4, 8)" in refused(TypeError, schedule=schedule)


def test_recomputation_and_fewer_microbatches_than_devices_are_no_mistake():
    for schedule in (gp.remat(gp.OneFOneB(3, 2), "always"), gp.OneFOneB(3, 1)):
        assert train_step(linears(3), schedule, some_batch(), mse).loss > 0


# A torch that is another, or not there


def without_torch(code: str) -> subprocess.CompletedProcess:
    code = f"import sys; sys.modules['torch'] = None\n{code}"
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=Path(gp.__file__).parents[1],
        capture_output=True,
        text=True,
    )


def test_without_torch_the_names_say_how_to_get_it():
    for code in (
        "import gpipe_sim as gp; gp.torch_backend",
        "from gpipe_sim.torch_backend import train_step",
    ):
        ran = without_torch(code)
        assert ran.returncode != 0
        assert (
            "ImportError: gpipe_sim.torch_backend needs torch, which is not installed: pip install"
            in ran.stderr
        )
        assert "gpipe_sim[torch]" in ran.stderr and "everything else works without it" in ran.stderr


def test_without_torch_everything_else_works():
    ran = without_torch(
        "import gpipe_sim as gp\n"
        "from gpipe_sim import *\n"
        "assert 'torch_backend' not in gp.__all__ and 'to_torch_csv' in dir(gp)\n"
        "assert from_torch_csv(to_torch_csv(OneFOneB(2, 3))).actions == OneFOneB(2, 3).actions\n"
        "assert [getattr(gp, name) for name in gp.__all__ if name not in ('plots', 'course')]\n"
        "print(simulate(OneFOneB(4, 8)).makespan)"
    )
    assert ran.stdout == "33\n", ran.stderr


def test_a_module_that_torch_itself_misses_is_not_called_torch():
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.modules['torch.fx'] = None; import gpipe_sim as gp; gp.torch_backend",
        ],
        cwd=Path(gp.__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert "ModuleNotFoundError" in ran.stderr and "pip install" not in ran.stderr


# No speed-up: the mistake that is none


def test_in_one_process_devices_take_turns_and_nothing_is_gained():
    """Every instant has one action at most, however many devices are named."""
    step = train_step(
        to_torch(gp.split(gp.mlp([3] * 9), stages=4)), gp.OneFOneB(4, 8), some_batch(), functional.mse_loss
    )
    spans = sorted(step.timeline.spans, key=lambda span: span.start)
    assert all(a.end <= b.start for a, b in pairwise(spans))
    assert gp.speedup(step.timeline) < 1
