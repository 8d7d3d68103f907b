"""A torch that goes another way: each private name is taken away in turn, and no gradient is merely wrong."""

import re

import pytest

torch = pytest.importorskip("torch")

from torch.distributed.pipelining import PipelineStage, schedules  # noqa: E402
from torch_modules import linears, some_batch  # noqa: E402

import gpipe_sim as gp  # noqa: E402
from gpipe_sim.torch_backend import UnsupportedTorch, canary, program, train_step  # noqa: E402
from gpipe_sim.torch_backend.private import TESTED, RepairedStage  # noqa: E402

ENGINE = schedules._PipelineScheduleRuntime
#: What a stage's engine calls, and this package with it.
CALLED = (
    "forward_one_chunk",
    "forward_maybe_with_nosync",
    "backward_one_chunk",
    "backward_maybe_with_nosync",
    "backward_weight_one_chunk",
    "set_local_fwd_input",
    "set_local_bwd_input",
)


@pytest.fixture(autouse=True)
def untried(monkeypatch):
    """Every test is the first to run a step."""
    monkeypatch.setattr(canary, "_FLEW", set())


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


def fails(error: str) -> str:
    return rf"fails in a small step before the first \({error}.*\)"


# Names that are gone


def test_without_the_engine(monkeypatch):
    monkeypatch.delattr(schedules, "_PipelineScheduleRuntime")
    assert re.fullmatch(fails("AttributeError.*_PipelineScheduleRuntime"), unsupported())


def test_an_engine_that_keeps_no_order_with_messages(monkeypatch):
    monkeypatch.setattr(ENGINE, "_prepare_schedule_with_comms", lambda self, path: None)
    with pytest.raises(UnsupportedTorch, match="does not say which messages its engine adds"):
        program(gp.OneFOneB(2, 2))


@pytest.mark.parametrize(
    ("owner", "name"), [(ENGINE, "_prepare_schedule_with_comms"), *((PipelineStage, name) for name in CALLED)]
)
def test_without_a_method_of_the_engine_or_of_a_stage(monkeypatch, owner, name):
    for kind in owner.__mro__:
        if name in vars(kind):
            monkeypatch.delattr(kind, name)
    assert re.fullmatch(fails(f"AttributeError.*{name}"), unsupported())


def test_an_engine_without_an_option(monkeypatch):
    init = ENGINE.__init__

    def without(self, *args, **options):
        if "scale_grads" in options:
            raise TypeError("__init__() got an unexpected keyword argument 'scale_grads'")
        init(self, *args, **options)

    monkeypatch.setattr(ENGINE, "__init__", without)
    assert re.fullmatch(fails("TypeError.*scale_grads"), unsupported())


def test_an_engine_that_scales_gradients_although_it_was_told_not_to(monkeypatch):
    monkeypatch.setattr(
        ENGINE, "scale_grads", property(lambda self: True, lambda self, value: None), raising=False
    )
    assert unsupported() == "gives wrong gradients in a small step before the first"


# Names that stand for something else


@pytest.mark.parametrize("key", ["input_values", "stage_output", "output_grads", "param_groups"])
def test_a_backward_that_is_handed_something_under_another_name(monkeypatch, key):
    run = RepairedStage.backward_maybe_with_nosync
    monkeypatch.setattr(
        RepairedStage,
        "backward_maybe_with_nosync",
        lambda self, kind, given, **options: run(self, kind, renamed(given, key), **options),
    )
    assert re.fullmatch(fails(f"KeyError.*{key}"), unsupported())


def renamed(part: dict, key: str) -> dict:
    return {name + "_" * (name == key): value for name, value in part.items()}


OTHER_GROUPS = {
    "KeyError.*params": lambda group: renamed(group, "params"),
    "KeyError.*intermediates": lambda group: renamed(group, "intermediates"),
    "TypeError.*None": None,
    "AttributeError.*variable": lambda group: group | {"params": {object()}},
}


@pytest.mark.parametrize("error", OTHER_GROUPS)
def test_groups_of_weights_that_are_others(monkeypatch, error):
    theirs, changed = torch.distributed.pipelining.stage.stage_backward_input, OTHER_GROUPS[error]

    def otherwise(*args, **options):
        gradients, groups = theirs(*args, **options)
        return gradients, changed and [changed(group) for group in groups]

    monkeypatch.setattr(torch.distributed.pipelining.stage, "stage_backward_input", otherwise)
    assert re.fullmatch(fails(error), unsupported())


def test_a_part_of_a_backward_that_nobody_knows(monkeypatch):
    run = PipelineStage.backward_one_chunk

    def otherwise(self, chunk, *args, **options):
        self.backward_maybe_with_nosync("sideways", {})
        return run(self, chunk, *args, **options)

    monkeypatch.setattr(PipelineStage, "backward_one_chunk", otherwise)
    assert re.fullmatch(fails(".*"), unsupported())


# Ways around the stage


def test_a_forward_that_goes_around_the_stages_own(monkeypatch):
    """Tokens are taken for those of a trial, and turn into zeros."""
    run = PipelineStage.forward_one_chunk

    def around(self, *args, **options):
        self.forward_maybe_with_nosync = self.submod
        return run(self, *args, **options)

    monkeypatch.setattr(PipelineStage, "forward_one_chunk", around)
    assert "small step before the first" in unsupported()


def test_a_backward_that_goes_around_the_stages_own(monkeypatch):
    run, theirs = PipelineStage.backward_one_chunk, PipelineStage.backward_maybe_with_nosync

    def around(self, *args, **options):
        self.backward_maybe_with_nosync = lambda *given, **others: theirs(self, *given, **others)
        return run(self, *args, **options)

    monkeypatch.setattr(PipelineStage, "backward_one_chunk", around)
    assert unsupported() == "gives wrong gradients and ways in a small step before the first"


def test_an_engine_that_runs_something_else(monkeypatch):
    """A weight gradient is left out: all others are right, and this one is missing."""
    load = ENGINE._prepare_schedule_with_comms

    def shortened(self, *given):
        load(self, *given)
        order = self.pipeline_order_with_comms
        order[0] = [action for action in order[0] if str(action) != "1W3"]

    monkeypatch.setattr(ENGINE, "_prepare_schedule_with_comms", shortened)
    assert unsupported() == "ran other actions than it was told (23 noted)"
