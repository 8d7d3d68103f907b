"""A torch that goes another way: each private name is taken away in turn, and no gradient is merely wrong."""

import re

import pytest

torch = pytest.importorskip("torch")

from torch.distributed.pipelining import PipelineStage, schedules  # noqa: E402
from torch_modules import linears, some_batch  # noqa: E402

import gpipe_sim as gp  # noqa: E402
from gpipe_sim.torch_backend import UnsupportedTorch, program, train_step  # noqa: E402
from gpipe_sim.torch_backend.private import HOOKS, TENSOR, TESTED, RepairedStage  # noqa: E402

ENGINE = schedules._PipelineScheduleRuntime


def unsupported(schedule: gp.core.Schedule | None = None, **options) -> str:
    """What a step says; no parameter has a gradient after that."""
    modules = linears(2)
    with pytest.raises(UnsupportedTorch) as error:
        train_step(modules, schedule or gp.ZBH1(2, 4), some_batch(), gp.mse, **options)
    assert isinstance(error.value, ImportError)
    found = re.fullmatch(
        rf"torch {re.escape(torch.__version__)} (.*), so its pipeline engine is not the one that gpipe_sim "
        rf"knows; it was tested with torch {re.escape(TESTED)}: pip install torch==2\.13\.0",
        str(error.value),
    )
    assert all(p.grad is None for module in modules for p in module.parameters())
    return found[1]


# Names that are gone


def test_without_the_engine(monkeypatch):
    monkeypatch.delattr(schedules, "_PipelineScheduleRuntime")
    assert unsupported() == "has no pipeline engine that reads an order (_PipelineScheduleRuntime)"


def test_an_engine_that_keeps_no_order_with_messages(monkeypatch):
    monkeypatch.setattr(ENGINE, "_load_csv", lambda self, path: None)
    with pytest.raises(UnsupportedTorch, match="does not say which messages its engine adds"):
        program(gp.OneFOneB(2, 2))


@pytest.mark.parametrize(
    ("owner", "name"), [(ENGINE, "_load_csv"), *((PipelineStage, name) for name in HOOKS)]
)
def test_without_a_method_of_the_engine_or_of_a_stage(monkeypatch, owner, name):
    for kind in owner.__mro__:
        if name in vars(kind):
            monkeypatch.delattr(kind, name)
    assert unsupported() == f"has no {owner.__name__}.{name}"


@pytest.mark.parametrize("name", TENSOR)
def test_without_something_that_a_tensor_knows(monkeypatch, name):
    """Its owner is torch's own C++ class, from which nothing can be taken."""
    monkeypatch.setattr("gpipe_sim.torch_backend.private.Tensor", type("Tensor", (), dict.fromkeys(TENSOR)))
    monkeypatch.delattr("gpipe_sim.torch_backend.private.Tensor." + name)
    assert unsupported() == f"has no Tensor.{name}"


@pytest.mark.parametrize("option", ["scale_grads", "defer_pp_recv"])
def test_an_engine_without_an_option(monkeypatch, option):
    init = ENGINE.__init__

    def without(self, *args, **options):
        if option in options:
            raise TypeError(f"__init__() got an unexpected keyword argument '{option}'")
        init(self, *args, **options)

    monkeypatch.setattr(ENGINE, "__init__", without)
    said = unsupported(defer_pp_recv=True)
    assert said.startswith("makes no engine with loss_fn, scale_grads, defer_pp_recv") and option in said
    if option == "defer_pp_recv":
        assert train_step(linears(2), gp.ZBH1(2, 4), some_batch(), gp.mse).loss > 0, "unless it is wanted"


def test_an_engine_that_scales_gradients_although_it_was_told_not_to(monkeypatch):
    monkeypatch.setattr(
        ENGINE, "scale_grads", property(lambda self: True, lambda self, value: None), raising=False
    )
    assert unsupported() == "may scale gradients although it was told not to (scale_grads)"


# Names that stand for something else


@pytest.mark.parametrize("key", ["input_values", "stage_output", "output_grads", "param_groups"])
def test_a_backward_that_is_handed_something_under_another_name(monkeypatch, key):
    run = RepairedStage.backward_maybe_with_nosync
    monkeypatch.setattr(
        RepairedStage,
        "backward_maybe_with_nosync",
        lambda self, kind, given, **options: run(self, kind, renamed(given, key), **options),
    )
    assert unsupported().startswith(f"hands a backward no '{key}', but ")


def renamed(part: dict, key: str) -> dict:
    return {name + "_" * (name == key): value for name, value in part.items()}


OTHER_GROUPS = {
    "hands a backward no 'params', but .*": lambda group: renamed(group, "params"),
    "hands a backward no 'intermediates', but .*": lambda group: renamed(group, "intermediates"),
    "gives no groups of weights after an input gradient": None,
    "has nodes of weights without a variable": lambda group: group | {"params": {object()}},
}


@pytest.mark.parametrize("says", OTHER_GROUPS)
def test_groups_of_weights_that_are_others(monkeypatch, says):
    theirs, changed = torch.distributed.pipelining.stage.stage_backward_input, OTHER_GROUPS[says]

    def otherwise(*args, **options):
        gradients, groups = theirs(*args, **options)
        return gradients, changed and [changed(group) for group in groups]

    monkeypatch.setattr(torch.distributed.pipelining.stage, "stage_backward_input", otherwise)
    assert re.fullmatch(says, unsupported())


def test_a_part_of_a_backward_that_nobody_knows(monkeypatch):
    run = PipelineStage.backward_one_chunk

    def otherwise(self, chunk, *args, **options):
        self.backward_maybe_with_nosync("sideways", {})
        return run(self, chunk, *args, **options)

    monkeypatch.setattr(PipelineStage, "backward_one_chunk", otherwise)
    assert unsupported() == "runs a backward called 'sideways'"


# Ways around the stage


def test_a_forward_that_goes_around_the_stages_own(monkeypatch):
    """Tokens would be taken for those of a trial, and turn into zeros."""
    run = PipelineStage.forward_one_chunk

    def around(self, *args, **options):
        self.forward_maybe_with_nosync = self.submod
        return run(self, *args, **options)

    monkeypatch.setattr(PipelineStage, "forward_one_chunk", around)
    assert unsupported() == "ran 0F0 without the forward of its stage"


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        (gp.OneFOneB(2, 4), "ran 1B0 another way (None where full was expected)"),
        (gp.ZBH1(2, 4), "ran 1I0 another way (None where input was expected)"),
    ],
    ids=repr,
)
def test_a_backward_that_goes_around_the_stages_own(monkeypatch, schedule, says):
    run, theirs = PipelineStage.backward_one_chunk, PipelineStage.backward_maybe_with_nosync

    def around(self, *args, **options):
        self.backward_maybe_with_nosync = lambda *given, **others: theirs(self, *given, **others)
        return run(self, *args, **options)

    monkeypatch.setattr(PipelineStage, "backward_one_chunk", around)
    assert unsupported(schedule=schedule) == says


def test_an_engine_that_runs_something_else(monkeypatch):
    """A weight gradient is left out: all others are right, and this one is missing."""
    load = ENGINE._load_csv

    def shortened(self, path):
        load(self, path)
        order = self.pipeline_order_with_comms
        order[0] = [action for action in order[0] if str(action) != "1W3"]

    monkeypatch.setattr(ENGINE, "_load_csv", shortened)
    assert unsupported() == "ran other actions than it was told (23 noted)"
