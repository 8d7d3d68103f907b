"""Bytes predicted from a profile equal, sample by sample, those that a step's meter counts."""

import itertools
from copy import deepcopy

import numpy as np
import pytest
from cases import every_schedule, over, over_every_order, overlapped

import gpipe_sim as gp
from gpipe_sim.core import GELU, F, Layer, Linear, Tanh
from gpipe_sim.families import DualPipe
from gpipe_sim.memory.prediction import _partitions
from gpipe_sim.memory.profile import Size
from gpipe_sim.transformers import Checkpoint, LayerNorm, TransformerBlock

SIZES = ((1, 1), (3, 2), (4, 4))
RNG = np.random.default_rng(0)


def activations(stages: int, dtype: type) -> list[Layer]:
    """Linear layers with the activations in turn; what one layer makes, the next may save as well."""
    rng = np.random.default_rng(0)
    kinds = itertools.cycle([gp.core.ReLU, GELU, Tanh])
    layers: list[Layer] = []
    for width in range(stages):
        layers += [Linear(5 + width, 6 + width, rng=rng, dtype=dtype), next(kinds)()]
    return layers


def residuals(stages: int, dtype: type) -> list[Layer]:
    rng = np.random.default_rng(0)
    layers: list[Layer] = [Linear(5, 8, rng=rng, dtype=dtype)]
    for _ in range(stages):
        parts = LayerNorm(8), Linear(8, 8, rng=rng, dtype=dtype), gp.transformers.Dropout(0.3), Tanh()
        layers += [gp.transformers.Residual(*parts), gp.transformers.BatchNorm(8, dtype=dtype)]
    return layers


def language(stages: int, dtype: type) -> list[Layer]:
    rng = np.random.default_rng(0)
    how = {"causal": True, "dropout": 0.1, "rng": rng, "dtype": dtype}
    blocks = [TransformerBlock(8, 2, norm=("pre", "post")[i % 2], **how) for i in range(stages)]
    first = (
        gp.transformers.Embedding(7, 8, rng=rng, dtype=dtype),
        gp.transformers.Positions(6, 8, rng=rng, dtype=dtype),
    )
    return [*first, *blocks, LayerNorm(8, dtype=dtype), Linear(8, 7, rng=rng, dtype=dtype)]


def recomputing(kind: str, stages: int, dtype: type) -> list[Layer]:
    """Layers that compute again, on sequences so long that what they need meanwhile is the most there is."""
    rng = np.random.default_rng(0)
    how = {"dropout": 0.1, "rng": rng, "dtype": dtype}

    def layer() -> Layer:
        if kind == "attention":
            return TransformerBlock(8, 2, recompute=True, **how)
        if kind == "block":
            return Checkpoint(TransformerBlock(8, 2, **how))
        wide, narrow = (Linear(*sizes, rng=rng, dtype=dtype) for sizes in ((8, 64), (64, 8)))
        return Checkpoint(wide, GELU(), Tanh(), narrow)

    return [Linear(5, 8, rng=rng, dtype=dtype), *(layer() for _ in range(2 * stages))]


def batch_for(model, samples: int, dtype: type) -> tuple[np.ndarray, np.ndarray]:
    if model is language:
        text = np.random.default_rng(1).integers(7, size=(samples, 6))
        return text[:, :-1], text[:, 1:]
    if model is recomputing:  # sequences
        x = np.random.default_rng(1).normal(size=(samples, 40, 5)).astype(dtype)
        return x, np.random.default_rng(2).normal(size=(samples, 40, 8))
    x = np.random.default_rng(1).normal(size=(samples, 5)).astype(dtype)
    return x, np.random.default_rng(2).integers(5, size=samples)


def assert_predicted(schedule, layers, batch, loss=gp.cross_entropy, **options):
    partitions = gp.split(layers, stages=schedule.stages)
    if gp.core.Kind.U in schedule.program.where:
        options = {"optimizer": gp.SGD(0.01)} | options
    profile = gp.profile(partitions, batch, loss, options.get("optimizer"))
    predicted = gp.predict_memory(schedule, profile, options.get("costs"))
    assert predicted == gp.train_step(partitions, schedule, batch, loss, **options).memory


@over_every_order(SIZES)
def test_of_every_family_with_pieces_of_uneven_size(schedule):
    samples = 2 * schedule.microbatches + 1
    assert_predicted(
        schedule, activations(schedule.stages, np.float64), batch_for(activations, samples, np.float64)
    )


@over_every_order([(2, 3), (3, 2)])
def test_with_recompute(schedule):
    mode = "always" if schedule.devices == 2 else "except_last"
    layers, batch = language(schedule.stages, np.float64), batch_for(language, 5, np.float64)
    assert_predicted(gp.remat(schedule, mode), layers, batch)


@pytest.mark.parametrize("dtypes", [(np.float32, np.float64), (np.float64, np.float32)], ids=str)
@pytest.mark.parametrize("model", [activations, residuals, language])
@over([gp.GPipe(2, 3), gp.remat(gp.ZBH1(2, 3), "always"), gp.ZBV(2, 3), DualPipe(2, 4), overlapped(2, 4)])
def test_of_every_layer_in_every_dtype(schedule, model, dtypes):
    weights, samples = dtypes
    assert_predicted(schedule, model(schedule.stages, weights), batch_for(model, 9, samples))


@pytest.mark.parametrize("kind", ["attention", "block", "several"])
@over([gp.GPipe(2, 3), gp.ZBH1(2, 3), gp.remat(gp.ZBV(2, 3), "always"), DualPipe(2, 4)])
def test_of_layers_that_compute_again_what_is_larger_than_all_they_save(schedule, kind):
    layers, batch = recomputing(kind, schedule.stages, np.float32), batch_for(recomputing, 7, np.float64)
    assert_predicted(schedule, layers, batch, gp.mse)


@pytest.mark.parametrize(("kind", "least"), [("attention", 2 * 2 * 40 * 40), ("several", 3 * 40 * 64)])
def test_what_a_layer_computes_again_is_in_the_peak_while_its_backward_runs(kind, least):
    """Two heads' tables of 40 x 40 numbers, before and after dropout; or three arrays of 40 x 64."""
    batch = batch_for(recomputing, 4, np.float64)
    partitions = gp.split(recomputing(kind, 1, np.float64)[:2], stages=1)
    [memory] = gp.train_step(partitions, gp.GPipe(1, 1), batch, gp.mse).memory
    assert memory.inside[-1].bytes > memory.peak() + 4 * 8 * least


@over(every_schedule([(3, 2)]))
def test_with_several_stages_on_a_device_and_updates(schedule):
    layers, batch = residuals(schedule.stages, np.float64), batch_for(residuals, 7, np.float64)
    shared = gp.balance.colocate(schedule, ["a", "b", "a"])
    assert_predicted(shared, layers, batch)
    assert_predicted(gp.with_updates(schedule), layers, batch, optimizer=gp.SGD(0.0), costs=gp.Costs(comm=2))


OPTIMIZERS = (
    lambda: gp.SGD(0.1, momentum=0.9),
    lambda: gp.transformers.RMSProp(0.1),
    lambda: gp.transformers.AdamW(0.1),
    lambda: gp.MixedPrecision(gp.Adam(0.1)),
)


@pytest.mark.parametrize("make", OPTIMIZERS)
@over([gp.with_updates(gp.ZBV(2, 3)), gp.families.Chimera(4, 4), gp.ZBH1(3, 4)])
def test_with_what_an_optimizer_keeps_before_and_after_its_first_step(schedule, make):
    layers, batch = residuals(schedule.stages, np.float32), batch_for(residuals, 7, np.float32)
    optimizer = make()
    for _ in range(2):
        assert_predicted(schedule, layers, batch, optimizer=optimizer)


def test_of_an_optimizer_of_ones_own_that_names_the_arrays_it_keeps():
    class Signs(gp.core.Optimizer):
        moments = ("last",)

        def change(self, parameter, gradient, state):
            state["last"] = np.sign(gradient)  # a new array each time
            return self.learning_rate * state["last"]

    layers, batch = residuals(3, np.float64), batch_for(residuals, 7, np.float64)
    assert_predicted(gp.with_updates(gp.GPipe(3, 4)), layers, batch, optimizer=Signs(0.1))


def test_a_prediction_is_what_a_smaller_batch_would_hold_too():
    """A profile is linear in the samples, so it serves microbatches of every size."""
    layers, batch = language(2, np.float64), batch_for(language, 32, np.float64)
    partitions = gp.split(layers, stages=2)
    profile = gp.profile(partitions, batch, gp.cross_entropy)
    for M in (1, 2, 5, 32):
        step = gp.train_step(partitions, gp.OneFOneB(2, M), batch, gp.cross_entropy)
        assert gp.predict_memory(gp.OneFOneB(2, M), profile) == step.memory


def test_a_profile_counts_linear_by_hand():
    """Linear(3, 2) saves its input; with 4-byte weights and 8-byte inputs all gradients have 8 bytes."""
    partitions = gp.split([Linear(3, 2, rng=RNG, dtype=np.float32)], stages=1)
    profile = gp.profile(partitions, (np.zeros((6, 3)), np.zeros((6, 2))), gp.mse)
    [[layer]] = profile.stages
    assert layer.parameters == {"W": 24, "b": 8}
    assert layer.gradients == {"W": Size(48, 0), "b": Size(16, 0)}
    assert (layer.output, layer.saved) == (Size(0, 16), ("x",))
    assert (layer.input_gradient, layer.pending) == (Size(0, 24), (0, "dy"))
    assert (profile.samples, profile.input, profile.target) == (6, Size(0, 24), Size(0, 16))
    assert (profile.loss.saved, profile.loss.gradient) == ((Size(0, 16),), Size(0, 16))
    assert repr(profile) == "<Profile of 1 stages, 32 bytes of parameters>"


def test_nothing_runs():
    class Loud(Tanh):
        def forward(self, x, ctx):
            raise AssertionError("it ran")

    partitions = gp.split([Linear(5, 3, rng=RNG), Loud()], stages=2)
    profile = gp.profile(partitions, batch_for(activations, 8, np.float64), gp.cross_entropy)
    first, second = gp.predict_memory(gp.GPipe(2, 4), profile, gp.Costs(comm=1))
    assert first.peak() > 0 and second.peak("messages") > 0


def test_a_peak_among_actions_that_take_no_time_is_after_the_one_that_filled_it():
    """All of them end at 0, and each has a sample of its own; the last one, 0B0, was named."""
    x = np.zeros((8, 4))
    profile = gp.profile(gp.split([Tanh()], stages=1), (x, x), gp.mse)
    [alone] = gp.predict_memory(gp.GPipe(1, 2), profile, gp.Costs(0, 0, 0))
    assert alone.over_time() == (0, 256, 512, 256, 0)
    assert alone.peak_moment == (0, 512, F(0, 1))
    [idle] = gp.predict_memory(gp.GPipe(1, 2), profile, gp.Costs(0, 1, 1))
    assert idle.peak_moment == (0, 512, F(0, 1))


# Bad input


@pytest.mark.parametrize(
    ("x", "y", "got"),
    [((16, 5), (16,), r"got \(16, 5\)$"), ((16, 8), (16, 3), r"got \(16, 4\) and \(16, 3\)$")],
)
@pytest.mark.parametrize("make", [np.zeros, gp.MetaArray])
def test_a_refusal_shows_the_shape_of_the_batch_not_of_the_samples_that_were_tried(make, x, y, got):
    partitions = gp.split(gp.mlp([8, 8, 4]), stages=2)
    with pytest.raises(ValueError, match=got):
        gp.profile(partitions, (make(x, float), make(y, int)), gp.cross_entropy)


def test_attention_of_what_is_no_sequence_is_refused_in_its_own_words():
    """Its FLOPs were asked for first, which gave NumPy's "not enough values to unpack"."""
    [attention] = gp.split([gp.transformers.Attention(4, 2, rng=RNG)], stages=1)
    with pytest.raises(ValueError, match=r"Attention\(4, 2\), takes \(batch, sequence, 4\), got \(8, 4\)"):
        gp.profile([attention], (np.zeros((8, 4)), np.zeros((8, 4))), gp.mse)


@pytest.mark.parametrize(
    ("loss", "y", "says"),
    [
        (gp.mse, np.zeros((8, 0)), "mse needs at least one output"),
        (gp.cross_entropy, np.zeros(8, int), "class"),
    ],
)
def test_outputs_without_features_are_refused_by_a_profile_and_by_a_step(loss, y, says):
    """The step divided by zero, and the profile went through."""
    partitions, x = gp.split([Tanh()], stages=1), np.zeros((8, 0))
    for refused in (
        lambda: gp.profile(partitions, (x, y), loss),
        lambda: gp.train_step(partitions, gp.GPipe(1, 2), (x, y), loss),
    ):
        with pytest.raises(ValueError, match=says):
            refused()


def test_an_optimizer_of_another_model_is_refused_as_a_step_refuses_it():
    """Its bytes were counted, as if they were this model's."""
    optimizer, batch = gp.Adam(0.1), batch_for(activations, 4, np.float64)
    for layers in (gp.mlp([5, 9, 5]), gp.mlp([5, 8, 5])):
        partitions = gp.split(layers, stages=2)
        if optimizer.state:
            with pytest.raises(ValueError, match=r"the state of parameter .* is another model's"):
                gp.profile(partitions, batch, gp.cross_entropy, optimizer)
        else:
            gp.train_step(
                partitions, gp.with_updates(gp.GPipe(2, 2)), batch, gp.cross_entropy, optimizer=optimizer
            )


def test_an_older_version_of_stand_ins_has_arrays_of_its_own_but_no_list_of_its_own():
    """Each once copied the sizes of all microbatches: of 2,000, that took five times as long as the step."""
    batch = RNG.normal(size=(8, 6)), RNG.integers(0, 3, 8)
    profile = gp.profile(gp.split(gp.mlp([6, 5, 3]), stages=2), batch, gp.cross_entropy)
    partition = _partitions(profile, [2, 2, 2, 2])[0]
    older = deepcopy(partition)
    for layer, copy in zip(partition.layers, older.layers, strict=True):
        assert copy.samples is layer.samples and copy.profile is layer.profile
        assert all(copy.parameters[name] is not array for name, array in layer.parameters.items())
        assert {name: array.nbytes for name, array in copy.parameters.items()} == layer.profile.parameters
    assert older.parameters
