"""Real models on paper: weights and FLOPs against the formulas of papers, with nothing in memory."""

import tracemalloc

import numpy as np
import pytest
from closed_forms import transformer_parameters

import gpipe_sim as gp
from gpipe_sim.core import Linear, outputs

#: (blocks, features, heads, billions of parameters): arXiv:2104.04473, table 1, and GPT-3.
MEGATRON = (
    (24, 2304, 24, 1.7),
    (30, 3072, 32, 3.6),
    (36, 4096, 32, 7.5),
    (40, 6144, 48, 18.4),
    (48, 8192, 64, 39.1),
    (60, 10240, 80, 76.1),
    (80, 12288, 96, 145.6),
    (96, 16384, 128, 310.1),
    (105, 20480, 128, 529.6),
    (128, 25600, 160, 1008.0),
    (96, 12288, 96, 174.6),
)


def weights(layers: list[gp.core.Layer]) -> int:
    return sum(array.size for layer in layers for array in layer.parameters.values())


@pytest.mark.parametrize(("blocks", "features", "heads", "billions"), MEGATRON)
def test_parameters_are_those_of_megatrons_table(blocks, features, heads, billions):
    """Its equation 2 has one embedding, which the head shares, and leaves out the last LayerNorm."""
    V, s = 51_200, 2_048
    layers = gp.gpt(blocks, features, heads, tokens=V, sequence=s)
    equation = transformer_parameters(blocks, features, V, s)
    assert equation == pytest.approx(
        12 * blocks * features**2 * (1 + 13 / (12 * features) + (V + s) / (12 * blocks * features))
    )
    *body, last, head = layers
    assert weights(body) == equation
    assert weights([last]) == 2 * features and weights([head]) == features * V + V
    assert equation / 1e9 == pytest.approx(billions, abs=0.06)


def test_gpt3_has_174_6_billion_parameters_and_takes_no_memory():
    tracemalloc.start()
    layers = gp.gpt3_175b()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert weights(layers[:-2]) == 174_615_822_336
    assert transformer_parameters(96, 12_288, 51_200, 2_048) == 174_615_822_336
    assert most < 2_000_000


def test_flops_are_those_of_megatrons_equation_3():
    """The forward runs twice and a backward is as long as two, so four forwards; the head's runs once."""
    blocks, h, V, s, B = 3, 256, 1_000, 128, 5
    layers = gp.gpt(blocks, h, 4, tokens=V, sequence=s)
    text = gp.MetaArray((B, s), np.int32)
    profile = gp.profile(gp.split(layers, stages=1), (text, text), gp.cross_entropy)
    forward = B * sum(layer.flops for layer in profile.stages[0])
    head = B * 2 * s * h * V
    found = 4 * (forward - head) + 3 * head
    assert found == gp.formulas.transformer_flops(blocks, h, V, s, B)
    assert found == pytest.approx(96 * B * s * blocks * h**2 * (1 + s / (6 * h) + V / (16 * blocks * h)))


def test_a_model_on_paper_holds_what_the_same_model_would():
    """Byte for byte, whether its weights exist or not."""

    def made(rng):
        how = {"tokens": 11, "sequence": 6, "dropout": 0.2, "dtype": np.float64, "rng": rng}
        return gp.split(gp.gpt(2, 8, 2, **how), stages=2)

    text = np.random.default_rng(0).integers(11, size=(8, 7))
    batch = text[:, :-1], text[:, 1:]
    step = gp.train_step(made(np.random.default_rng(0)), gp.OneFOneB(2, 4), batch, gp.cross_entropy)
    on_paper = tuple(gp.MetaArray(part.shape, part.dtype) for part in batch)
    profile = gp.profile(made(None), on_paper, gp.cross_entropy)
    assert gp.predict_memory(gp.OneFOneB(2, 4), profile) == step.memory


def test_what_is_on_paper_does_not_run():
    partitions = gp.split([Linear(3, 2, rng=None)], stages=1)
    batch = np.zeros((4, 3)), np.zeros((4, 2))
    for run in (
        lambda: gp.train_step(partitions, gp.GPipe(1, 2), batch, gp.mse),
        lambda: gp.single_device_step(partitions[0].layers, batch, gp.mse),
        lambda: outputs(partitions, batch[0]),
    ):
        with pytest.raises(ValueError, match=r"layer 0, Linear\(3, 2\), is on paper.*rng=.*profile"):
            run()


def test_a_batch_on_paper_does_not_run():
    partitions = gp.split([gp.core.Tanh()], stages=1)
    x, on_paper = np.zeros((4, 3)), gp.MetaArray((4, 3), float)
    for run in (
        lambda: gp.train_step(partitions, gp.GPipe(1, 2), (on_paper, on_paper), gp.mse),
        lambda: gp.single_device_step(partitions[0].layers, (x, on_paper), gp.mse),
        lambda: outputs(partitions, on_paper),
        lambda: gp.mse(on_paper, x),
        lambda: on_paper[0],
    ):
        with pytest.raises(
            TypeError, match=r"MetaArray\(\(4, 3\), float64\) is on paper and has no contents"
        ):
            run()


@pytest.mark.parametrize(
    ("shape", "dtype", "says"),
    [
        (3, float, r"MetaArray needs a shape, such as \(8, 64\) \(got 3\)"),
        ((-1,), float, "every size of its shape >= 0"),
        ((2.5,), float, "every size of its shape to be a whole number"),
        ((3,), "foo", "MetaArray needs a dtype, such as np.float32"),
    ],
)
def test_an_array_that_cannot_be_is_refused(shape, dtype, says):
    with pytest.raises((TypeError, ValueError), match=says):
        gp.MetaArray(shape, dtype)


def test_a_stand_in_views_the_bytes_of_another_and_of_nothing_else():
    with pytest.raises(TypeError, match=r"MetaArray needs base to be the MetaArray .*, or None \(got True\)"):
        gp.MetaArray((3,), float, True)
    with pytest.raises(TypeError, match=r"MetaArray needs a dtype, such as np.float32 \(got int\)"):
        gp.MetaArray((3,), 10**5000)


PAPER, REAL = gp.MetaArray((4, 3), float), np.zeros((4, 3))
ONE = gp.split([Linear(3, 3, rng=None)], stages=1)


@pytest.mark.parametrize(
    ("of", "says"),
    [
        ((ONE, (PAPER, REAL), gp.mse), "both arrays, or both MetaArrays"),
        ((ONE, (PAPER,), gp.mse), r"a batch is \(inputs, targets\)"),
        ((ONE, None, gp.mse), r"a batch is \(inputs, targets\)"),
        ((ONE, (PAPER, gp.MetaArray((5, 3), float)), gp.mse), "equal length"),
        ((ONE, (gp.MetaArray((4, 3), complex), PAPER), gp.mse), "real numbers"),
        ((ONE, (gp.MetaArray((4, 7), float), PAPER), gp.mse), r"layer 0, Linear\(3, 3\), takes"),
        ((ONE, (PAPER, gp.MetaArray((4, 2), float)), gp.mse), "mse needs targets of shape"),
        ((ONE, (PAPER, PAPER), gp.cross_entropy), "cross_entropy needs outputs"),
        ((ONE, (PAPER, PAPER), "mse"), "profile needs a loss"),
        ((ONE[0], (PAPER, PAPER), gp.mse), "profile needs a list of partitions"),
        ((ONE[0].layers, (PAPER, PAPER), gp.mse), "profile needs a list of partitions"),
        (([], (PAPER, PAPER), gp.mse), "profile needs a list of partitions"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_has_no_profile_is_refused(of, says):
    with pytest.raises((TypeError, ValueError), match=says):
        gp.profile(*of)
