"""Laws that every layer of ``LAYERS`` keeps, and what some of them compute, by hand."""

import inspect
import itertools
from fractions import Fraction

import numpy as np
import pytest
from numeric import apart, furthest_apart, numeric_gradient

import gpipe_sim as gp
from gpipe_sim.core import GELU, LAYERS, Context, Layer, Linear, ReLU, Tanh
from gpipe_sim.core.meta_array import MetaArray
from gpipe_sim.transformers import (
    Attention,
    BatchNorm,
    Checkpoint,
    Dropout,
    Embedding,
    LayerNorm,
    LlamaBlock,
    Residual,
    attention,
    blocks,
    llama,
    transformer,
)

RNG = np.random.default_rng(7)
#: What a small layer is made with. A layer whose constructor needs an argument of another name adds it here.
ARGUMENTS = {"inputs": 3, "outputs": 4, "features": 3, "rng": RNG}
ARGUMENTS |= {"tokens": 6, "longest": 7, "heads": 3, "rate": 0.25, "hidden": 5}
OTHERS = [getattr(room, name) for room in (transformer, attention, blocks, llama) for name in room.__all__]
EVERY = (*LAYERS, *OTHERS)
#: Layers for whole numbers, and for sequences of features.
TOKENS, SEQUENCES = (
    (Embedding,),
    (
        gp.transformers.Positions,
        Attention,
        gp.transformers.SequenceMean,
        gp.transformers.TransformerBlock,
        gp.transformers.LlamaBlock,
    ),
)


def small(layer: type[Layer], **others) -> Layer:
    """One for three features: a law that needs no more runs over a layer once it stands in ``LAYERS``."""
    if layer is Residual:
        return Residual(LayerNorm(3, **others), Linear(3, 3, rng=RNG, **others), Dropout(0.25), Tanh())
    if layer is Checkpoint:
        return Checkpoint(Linear(3, 5, rng=RNG, **others), Dropout(0.25), Linear(5, 3, rng=RNG, **others))
    if layer is LlamaBlock:
        others["rotary"] = None  # a head of one feature has no pair to turn
    takes = inspect.signature(layer).parameters.values()
    needed = [argument.name for argument in takes if argument.default is argument.empty]
    unknown = [name for name in needed if name not in ARGUMENTS]
    assert not unknown, f"tests/test_layers.py makes no {layer.__name__}: name {unknown} in ARGUMENTS"
    return layer(**{name: ARGUMENTS[name] for name in needed}, **others)


def in_tiles(layer: Layer, side: int = 3) -> Layer:
    """The layer, with attention in tiles that are smaller than its sequences, and do not divide them."""
    for inner in getattr(layer, "layers", ()):
        in_tiles(inner, side)
    layer.tile = side
    return layer


def wide(dtype: type = np.float64) -> list[Layer]:
    """Attention for eight features, in all the ways in which it is computed, and a Llama's block."""
    how = {"rng": np.random.default_rng(4), "dtype": dtype}
    ways = [
        {"kv_heads": 2, "rotary": 10.0, "bias": False},
        {"kv_heads": 1, "dropout": 0.25, "causal": True},
        {"kv_heads": 2, "recompute": True, "rotary": 10.0},
        {"flash": True},
        {"flash": True, "causal": True, "kv_heads": 2, "rotary": 10.0, "bias": False},
    ]
    layers = [Attention(8, 4, **way, **how) for way in ways]
    layers += [LlamaBlock(8, 4, 5, kv_heads=2, **how), LlamaBlock(8, 2, 5, flash=False, **how)]
    return [in_tiles(layer) for layer in layers]


WIDE = wide()
WEIGHTED = [kind for kind in EVERY if small(kind).parameters]
every_layer = pytest.mark.parametrize("layer", [*map(small, EVERY), *WIDE], ids=repr)


def input_for(layer: Layer, dtype: type = np.float64) -> np.ndarray:
    """Five samples, of three features or eight, none so near 0 that a ReLU's kink gets between differences.

    Where the layer takes sequences, each is four places long; where it takes tokens, they are whole numbers.
    """
    if isinstance(layer, TOKENS):
        return np.random.default_rng(0).integers(6, size=(5, 4))
    features = (8,) if any(layer is each for each in WIDE) else (3,)
    x = np.random.default_rng(0).normal(size=(5, 4, *features) if isinstance(layer, SEQUENCES) else (5, 3))
    return (x + 0.05 * np.sign(x)).astype(dtype)


# Gradients


@every_layer
def test_the_input_gradient_is_what_central_differences_give(layer):
    x = input_for(layer)
    y, saved = layer.forward(x.copy(), Context())
    dy = np.random.default_rng(1).normal(size=y.shape)
    dx, _ = layer.backward_input(saved, dy)
    assert (len(y), dx.shape) == (len(x), x.shape)
    if isinstance(layer, TOKENS):
        assert not dx.any()
        return
    assert apart(dx, numeric_gradient(lambda: (layer.forward(x, Context())[0] * dy).sum(), x)) < 1e-9


@every_layer
def test_every_weight_gradient_is_what_central_differences_give(layer):
    x = input_for(layer)
    y, saved = layer.forward(x, Context())
    dy = np.random.default_rng(1).normal(size=y.shape)
    found = layer.backward_weight(layer.backward_input(saved, dy)[1])
    assert found.keys() == layer.parameters.keys()
    for name, parameter in layer.parameters.items():
        expected = numeric_gradient(lambda: (layer.forward(x, Context())[0] * dy).sum(), parameter)
        assert found[name].shape == parameter.shape and apart(found[name], expected) < 1e-9


@every_layer
def test_samples_do_not_see_each_other(layer):
    """Or microbatches would change what a model computes. Only BatchNorm lets them."""
    x, evaluating = input_for(layer), Context(training=False)
    whole, saved = layer.forward(x, evaluating)
    dx, pending = layer.backward_input(saved, np.ones_like(whole))
    summed = {name: np.zeros_like(array) for name, array in layer.parameters.items()}
    for rows in (slice(0, 2), slice(2, 5)):
        y, saved = layer.forward(x[rows], evaluating)
        part, part_pending = layer.backward_input(saved, np.ones_like(y))
        if isinstance(layer, BatchNorm):
            assert not np.allclose(y, whole[rows], rtol=1e-2)
            return
        assert np.allclose(y, whole[rows], rtol=1e-12) and np.allclose(part, dx[rows], rtol=1e-12)
        for name, gradient in layer.backward_weight(part_pending).items():
            summed[name] += gradient
    gradients = layer.backward_weight(pending)
    assert all(np.allclose(summed[name], gradients[name], rtol=1e-12) for name in gradients)


@pytest.mark.parametrize("schedule", [gp.GPipe(3, 4), gp.remat(gp.ZBH1(3, 4), "always")], ids=repr)
@every_layer
def test_a_pipeline_computes_its_gradients_as_one_device_does(layer, schedule):
    """On the same microbatches, because BatchNorm and Dropout depend on how the batch is cut."""

    def model() -> list[Layer]:
        rng = np.random.default_rng(0)
        layers = [layer, Linear(y.shape[-1], 4, rng=rng), Tanh()]
        return layers if isinstance(layer, TOKENS) else [Linear(x.shape[-1], x.shape[-1], rng=rng), *layers]

    x = np.concatenate(2 * [input_for(layer)])[:9]
    y, _ = layer.forward(x, Context())
    batch = x, np.random.default_rng(2).normal(size=(*y.shape[:-1], 4))
    step = gp.train_step(gp.split(model(), stages=3), schedule, batch, gp.mse)
    alone = gp.single_device_step(model(), batch, gp.mse, microbatches=4)
    assert furthest_apart(step.gradients, alone.gradients) < 1e-12


# Values


def test_linear_by_hand():
    layer = Linear(2, 3, rng=RNG)
    layer.parameters["W"][:] = [[1, 2, 3], [4, 5, 6]]
    layer.parameters["b"][:] = [10, 20, 30]
    x, dy = np.array([[1.0, -1.0], [2.0, 0.0]]), np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 2.0]])
    y, saved = layer.forward(x, Context())
    dx, pending = layer.backward_input(saved, dy)
    gradients = layer.backward_weight(pending)
    assert y.tolist() == [[7, 17, 27], [12, 24, 36]]
    assert dx.tolist() == [[1, 4], [6, 12]]
    assert gradients["W"].tolist() == [[1, 0, 4], [-1, 0, 0]]
    assert gradients["b"].tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    ("layer", "outputs"),
    [
        (ReLU(), [0, 0, 2]),
        (Tanh(), [-0.7615941559557649, 0, 0.9640275800758169]),
        (GELU(), [-0.15880801, 0, 1.95459769]),
    ],
    ids=repr,
)
def test_activations_at_minus_1_0_and_2(layer, outputs):
    """GELU's tanh form; the exact one, x Phi(x), gives -0.15865525 and 1.95449974."""
    y, _ = layer.forward(np.array([[-1.0, 0.0, 2.0]]), Context())
    assert y[0] == pytest.approx(outputs, abs=1e-8)


def test_a_relu_passes_no_gradient_at_zero_or_below():
    _, saved = ReLU().forward(np.array([[-1.0, 0.0, 2.0]]), Context())
    assert ReLU().backward_input(saved, np.array([[5.0, 5.0, 5.0]]))[0].tolist() == [[0, 0, 5]]


def test_linear_is_he_initialised_from_its_generator():
    """Variance 2 / inputs, mean 0, no bias: He et al. 2015, arXiv:1502.01852."""
    layer = Linear(200, 300, rng=np.random.default_rng(3))
    weight = layer.parameters["W"]
    assert weight.std() == pytest.approx(np.sqrt(2 / 200), rel=0.01)
    assert abs(weight.mean()) < 3 * np.sqrt(2 / 200 / weight.size)
    assert not layer.parameters["b"].any()
    assert (Linear(200, 300, rng=np.random.default_rng(3)).parameters["W"] == weight).all()


# What every layer keeps to


@every_layer
def test_no_layer_changes_its_input_or_the_gradient_that_it_gets(layer):
    x = input_for(layer)
    y, saved = layer.forward(x, Context())
    dy = np.ones_like(y)
    kept = [array.copy() for array in (x, y, dy)]
    layer.backward_weight(layer.backward_input(saved, dy)[1])
    assert all((array == copy).all() for array, copy in zip((x, y, dy), kept, strict=True))


@pytest.mark.parametrize("kind", EVERY)
def test_float32_stays_float32(kind):
    layer = small(kind, **({"dtype": np.float32} if small(kind).parameters else {}))
    x = input_for(layer, np.float32)
    y, saved = layer.forward(x, Context())
    dx, pending = layer.backward_input(saved, np.ones_like(y))
    gradients = layer.backward_weight(pending).values()
    assert {array.dtype for array in (y, dx, *gradients)} == {np.dtype(np.float32)}


@pytest.mark.parametrize("make", [ReLU, Tanh])
def test_relu_and_tanh_save_the_output_that_the_next_layer_saves_anyway(make):
    y, saved = make().forward(input_for(make()), Context())
    assert saved is y


@every_layer
def test_what_is_saved_is_the_input_the_output_or_owns_its_bytes(layer):
    """So that a device holds no byte that nobody reads: no view of a larger array keeps it alive."""
    x = input_for(layer)
    y, saved = layer.forward(x, Context())
    assert y.flags.c_contiguous
    dy = np.ones_like(y)
    for array in arrays(layer.backward_input(saved, dy)[1], saved):
        assert array is x or array is y or array is dy or array.base is None


def arrays(*values):
    """The arrays inside nested tuples, lists and dicts, as they are: a view is not taken for its root."""
    for value in values:
        if isinstance(value, tuple | list | dict):
            yield from arrays(*(value.values() if isinstance(value, dict) else value))
        elif isinstance(value, np.ndarray):
            yield value


@pytest.mark.parametrize(
    "dtypes",
    itertools.product((np.float32, np.float64), repeat=2),
    ids=str,
)
@pytest.mark.parametrize(
    "layer", [*map(small, EVERY), *(small(kind, dtype=np.float32) for kind in WEIGHTED), *WIDE], ids=repr
)
def test_an_outline_has_the_shapes_dtypes_and_shared_bytes_of_the_arrays(layer, dtypes):
    """So what a step will hold can be counted without running it."""
    require_outlined(layer, *dtypes)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, bool])
@pytest.mark.parametrize("kind", [Linear, ReLU, Tanh, GELU, *OTHERS])
def test_so_it_has_where_the_inputs_are_whole_numbers(kind, dtype):
    require_outlined(small(kind), dtype, np.float64)


def require_outlined(layer: Layer, x_dtype: type, dy_dtype: type) -> None:
    x, ctx = input_for(layer, x_dtype), Context()
    y, saved = layer.forward(x, ctx)
    dy = np.ones(y.shape, dy_dtype)
    dx, pending = layer.backward_input(saved, dy)
    found = layer.backward_weight(pending)
    x_, dy_ = MetaArray(x.shape, x.dtype), MetaArray(dy.shape, dy.dtype)
    y_, saved_ = layer.outline(x_, ctx)
    dx_, pending_ = layer.outline_input(saved_, dy_)
    expected = described(x, y, saved, dy, dx, pending, found if layer.parameters else None)
    weights = layer.outline_weight(pending_) if layer.parameters else None
    assert described(x_, y_, saved_, dy_, dx_, pending_, weights) == expected


def described(*values) -> list[tuple]:
    """(shape, dtype, which root) of every array inside nested tuples, lists and dicts; others as they are."""
    known: dict[int, int] = {}
    return [
        (array.shape, array.dtype, known.setdefault(id(root_of(array)), len(known)))
        if hasattr(array, "shape")
        else array
        for array in flat(values)
    ]


def flat(value):
    if isinstance(value, dict):
        value = [value[name] for name in sorted(value)]
    if isinstance(value, tuple | list):
        for one in value:
            yield from flat(one)
    else:
        yield value


def root_of(array):
    while array.base is not None:
        array = array.base
    return array


def test_a_layer_without_an_outline_says_what_to_write():
    class Softsign(Tanh):
        outline = Layer.outline

    with pytest.raises(NotImplementedError, match=r"Softsign\(\) does not say .*; give Softsign the methods"):
        Softsign().outline(MetaArray((2, 3), float), Context())


@every_layer
def test_a_layer_introduces_itself(layer):
    assert repr(layer).startswith(f"{type(layer).__name__}(")


def test_layers_show_their_sizes():
    assert [repr(small(layer)) for layer in (Linear, ReLU)] == ["Linear(3, 4)", "ReLU()"]


def test_every_listed_layer_is_public_by_its_name():
    public = vars(gp.transformers) | {name: getattr(gp.core, name) for name in dir(gp.core)}
    assert [public[layer.__name__] for layer in EVERY] == list(EVERY)
    assert {"LAYERS", "Layer", "Context"} <= set(public)


# Randomness


def test_what_a_layer_draws_depends_on_seed_step_layer_and_microbatch_alone():
    base = Context(seed=1, step=2, microbatch=3, layer=4).rng().random(3).tolist()
    assert Context(False, seed=1, step=2, microbatch=3, layer=4).rng().random(3).tolist() == base
    for changed in (
        Context(seed=9, step=2, microbatch=3, layer=4),
        Context(seed=1, step=9, microbatch=3, layer=4),
        Context(seed=1, step=2, microbatch=9, layer=4),
        Context(seed=1, step=2, microbatch=3, layer=9),
        Context(seed=2, step=1, microbatch=3, layer=4),
        Context(seed=1, step=2, microbatch=3, layer=4, inner=(0,)),
        Context(seed=1, step=2, microbatch=3, layer=4, inner=(0, 0)),
    ):
        assert changed.rng().random(3).tolist() != base


# Bad input


@pytest.mark.parametrize("shape", [(5, 2), (3,), (5, 3, 1), (0,)])
def test_an_input_of_the_wrong_shape_is_refused_with_the_layers_number(shape):
    layer = Linear(3, 4, rng=RNG)
    with pytest.raises(
        ValueError, match=r"layer 6, Linear\(3, 4\), takes an input of shape \(batch, 3\)"
    ) as error:
        layer.forward(np.zeros(shape), Context(layer=6))
    assert f"got {shape}" in str(error.value)


@pytest.mark.parametrize("number", [np.float64, Fraction])
def test_a_number_of_another_kind_changes_no_dtype(number):
    x = np.ones((2, 4), np.float32)
    for layer in (Dropout(number(1) / 4), LayerNorm(4, eps=number(1) / 8, dtype=np.float32)):
        y, saved = layer.forward(x, Context())
        assert {array.dtype.kind + str(array.dtype.itemsize) for array in (y, *arrays(saved))} <= {"f4", "b1"}


def test_the_weights_of_a_layer_belong_to_it_alone():
    shared = Linear(3, 3, rng=RNG)
    with pytest.raises(
        ValueError, match=r"layers 0 and 1 share the weights '0.W' of Residual\(Linear\(3, 3\)\)"
    ):
        gp.split([Residual(shared), Residual(shared)], stages=2)
    with pytest.raises(ValueError, match="has a layer twice"):
        Residual(shared, Tanh(), shared)
    Residual(tanh := Tanh(), tanh)
