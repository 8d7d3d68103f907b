"""What a Llama's layers compute, by hand, and attention in tiles beside the plain one."""

import tracemalloc

import numpy as np
import pytest
from numeric import apart, furthest_apart

import gpipe_sim as gp
from gpipe_sim.core import Context, Linear, roots
from gpipe_sim.transformers import Attention, Head, LlamaBlock, PaddingMask, RMSNorm, SwiGLU, flash
from gpipe_sim.transformers.rotary import turn

X = np.random.default_rng(1).normal(size=(3, 7, 12))


def made(**how) -> Attention:
    return Attention(12, 6, rng=np.random.default_rng(0), **how)


def run(layer, x=X) -> dict:
    """Output and all gradients, by name."""
    y, saved = layer.forward(x, Context())
    y = y[0] if isinstance(y, tuple) else y
    dx, pending = layer.backward_input(saved, np.sin(y))
    return {"y": y, "dx": dx, **layer.backward_weight(pending)}


# By hand


def test_rms_norm_by_hand():
    layer = RMSNorm(4, eps=0)
    layer.parameters["g"][:] = [1, 1, 1, 10]
    y, _ = layer.forward(
        np.array([[1.0, 1.0, 1.0, 1.0], [3.0, 3.0, 3.0, -3.0], [0.0, 0.0, 0.0, 2.0]]), Context()
    )
    assert y == pytest.approx(np.array([[1, 1, 1, 10], [1, 1, 1, -10], [0, 0, 0, 20]]))


def test_rms_norm_of_small_whole_numbers_does_not_overflow():
    y, _ = RMSNorm(2, eps=0).forward(np.array([[100, -100]], np.int8), Context())
    assert y.tolist() == [[1, -1]]


def test_swiglu_by_hand():
    """x = (1, 2): the gate is 2 and the other half 3, so the middle is 2 / (1 + e^-2) x 3."""
    layer = SwiGLU(2, 1, rng=np.random.default_rng(0))
    layer.parameters["W"][:] = [[0, 1], [1, 1]]
    layer.parameters["Wo"][:] = [[1, -1]]
    middle = 6 / (1 + np.exp(-2))
    assert layer.forward(np.array([[1.0, 2.0]]), Context())[0] == pytest.approx(np.array([[middle, -middle]]))


def test_swiglu_takes_large_numbers():
    with np.errstate(all="raise"):
        assert np.isfinite(run(SwiGLU(12, 5, rng=np.random.default_rng(0)), 1e3 * X)["dx"]).all()


def test_a_head_is_a_linear_layer_without_biases():
    head, linear = Head(12, 5, rng=np.random.default_rng(0)), Linear(12, 5, rng=None)
    linear.parameters = {"W": head.parameters["E"].T, "b": np.zeros(5)}
    own, other = run(head), run(linear)
    assert apart(own["E"], other["W"].T) < 1e-14
    assert all(apart(own[name], other[name]) < 1e-14 for name in ("y", "dx"))


# Rotary positions


def test_a_place_turns_pair_i_by_its_number_times_base_to_the_minus_2i_over_d():
    """As complex numbers: arXiv:2104.09864, equation 14."""
    x = np.random.default_rng(2).normal(size=(2, 3, 5, 6))
    turned = x.copy()
    turn(turned, 100.0)
    angles = np.arange(5)[:, None] * 100.0 ** (-np.array([0, 1, 2]) / 3)
    expected = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
    assert np.allclose(turned[..., ::2], expected.real) and np.allclose(turned[..., 1::2], expected.imag)
    turn(turned, 100.0, back=True)
    assert np.allclose(turned, x, rtol=1e-12)


def test_a_score_depends_only_on_how_far_apart_two_places_are():
    query, key = np.random.default_rng(3).normal(size=(2, 1, 1, 1, 8)).repeat(6, axis=3)
    turn(query, 10.0)
    turn(key, 10.0)
    scores = (query @ key.swapaxes(2, 3))[0, 0]
    for apart_by in range(-5, 6):
        assert np.ptp(np.diag(scores, apart_by)) < 1e-12
    assert np.ptp(scores) > 0.1


def test_rotary_positions_tell_an_order_apart_and_have_no_weights():
    plain, rotary = made(), made(rotary=10.0)
    assert plain.parameters.keys() == rotary.parameters.keys()
    swapped = X[:, [1, 0, *range(2, 7)]]
    last = [[layer.forward(x, Context())[0][:, -1] for x in (X, swapped)] for layer in (plain, rotary)]
    assert np.allclose(*last[0], rtol=1e-12) and not np.allclose(*last[1], rtol=1e-3)


# Grouped queries


@pytest.mark.parametrize("kv_heads", [1, 2, 3])
@pytest.mark.parametrize("how", [{}, {"flash": True}, {"recompute": True, "rotary": 10.0}], ids=str)
def test_grouped_queries_are_all_heads_with_the_same_keys_and_values(kv_heads, how):
    """The gradient of a shared key is the sum over the heads that share it."""
    grouped, whole = made(kv_heads=kv_heads, **how), made(**how)
    d, shared = 2, 6 // kv_heads

    def repeated(array, axis=-1):
        q, k, v = np.split(array, [12, 12 + d * kv_heads], axis=axis)
        each = [np.repeat(np.stack(np.split(part, kv_heads, axis), 0), shared, 0) for part in (k, v)]
        return np.concatenate([q, *(np.concatenate(list(part), axis) for part in each)], axis=axis)

    grouped.parameters["b"][:] = np.random.default_rng(5).normal(size=grouped.parameters["b"].shape)
    whole.parameters = {name: array.copy() for name, array in grouped.parameters.items()}
    whole.parameters |= {name: repeated(grouped.parameters[name]) for name in "Wb"}
    found, expected = run(grouped), run(whole)
    assert all(apart(found[name], expected[name]) < 1e-12 for name in ("y", "dx", "Wo", "bo"))
    three = expected["W"].reshape(12, 3, 6, d)
    summed = three[:, 1:].reshape(12, 2, kv_heads, shared, d).sum(axis=3).reshape(12, -1)
    assert apart(found["W"], np.concatenate([three[:, 0].reshape(12, 12), summed], axis=1)) < 1e-12


def test_one_head_of_keys_and_values_makes_the_array_of_all_a_third_plus():
    """8 d of 18 d columns: 6 heads of queries, and one of keys and of values."""
    assert made(kv_heads=1).parameters["W"].shape == (12, 16)
    _, qkv, *_ = made(kv_heads=1, flash=True).forward(X, Context())[1]
    assert qkv.shape == (3, 7, 16)


# In tiles


@pytest.mark.parametrize("side", [1, 2, 3, 7, 128])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("how", [{}, {"kv_heads": 2, "rotary": 10.0, "bias": False}], ids=str)
def test_attention_in_tiles_gives_what_the_plain_one_gives(side, causal, how):
    plain, tiled = made(causal=causal, **how), made(causal=causal, flash=True, **how)
    tiled.tile = side
    assert furthest_apart(run(tiled), run(plain)) < 1e-12


@pytest.mark.parametrize("causal", [False, True])
def test_so_it_does_where_a_mask_travels_along(causal):
    """Also where a query sees nothing: that gives zeros, and no NaN."""
    mask = np.random.default_rng(3).random((3, 7)) < 0.5
    mask[0], mask[1, :3] = False, False
    plain, tiled = made(causal=causal), made(causal=causal, flash=True)
    tiled.tile = 2
    assert furthest_apart(run(tiled, (X, mask)), run(plain, (X, mask))) < 1e-12
    assert (tiled.forward((X, mask), Context())[0][0][0] == tiled.parameters["bo"]).all()


@pytest.mark.parametrize(("scale", "within"), [(1e-3, 1e-12), (30, 1e-12), (1e3, 1e-9)])
def test_so_it_does_for_large_scores_and_without_a_warning(scale, within):
    """The logarithm of a sum is rounded, of one as large as 10^6 to 10^-10, and the backward subtracts it."""
    plain, tiled = made(causal=True), made(causal=True, flash=True)
    tiled.tile = 2
    with np.errstate(all="raise", under="ignore"):
        assert furthest_apart(run(tiled, scale * X), run(plain, scale * X)) < within


def test_it_saves_nothing_with_the_sequence_twice():
    """x, queries, keys and values, what is mixed, and a number for each query and head."""
    for sequence in (64, 128):
        layer, x = made(flash=True), np.zeros((2, sequence, 12))
        saved = [root.size for root in roots(layer.forward(x, Context())[1])]
        assert sorted(saved) == sorted([x.size, 3 * x.size, x.size, 2 * 6 * sequence])


def test_no_array_of_it_has_the_sequence_twice_while_it_runs():
    """At s = 2,048 one of 6 heads alone would take 32 MiB in float64."""
    layer, x = made(flash=True, causal=True), np.random.default_rng(0).normal(size=(1, 2048, 12))
    tracemalloc.start()
    y, saved = layer.forward(x, Context())
    layer.backward_input(saved, y)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 16 * 2**20


@pytest.mark.parametrize(("sequence", "side", "tiles"), [(8, 2, (16, 10)), (7, 2, (16, 10)), (5, 8, (1, 1))])
def test_with_a_causal_mask_half_of_the_tiles_are_left_out(sequence, side, tiles):
    assert tuple(len(flash.tiles(sequence, side, causal)) for causal in (False, True)) == tiles
    covered = np.zeros((sequence, sequence), int)
    for tile in flash.tiles(sequence, side, True):
        covered[tile] += 1
    assert (covered <= 1).all() and (covered >= np.tri(sequence)).all()


def test_in_tiles_a_causal_attention_of_4096_places_makes_half_of_the_products():
    on_paper = {"rng": None, "dtype": np.float16, "causal": True}
    x = gp.MetaArray((1, 4096, 4096), np.float16)
    plain, tiled = (Attention(4096, 32, flash=way, **on_paper).work(x) for way in (False, True))
    linear = 2 * 4096 * 4096 * 4096 * 4
    assert plain.flops - linear == 4 * 4096**3
    assert (tiled.flops - linear) / (plain.flops - linear) == (32 * 33 / 2) / 32**2
    assert (tiled.moved, plain.moved) == (4 * 2 * 4096**2, 2 * 2 * 32 * 4096**2)
    assert 2 * tiled.again.flops == tiled.flops - linear and tiled.again.moved == 0


# A model of them


def test_a_pipeline_of_llama_blocks_and_its_prediction():
    """On text with padding: every schedule gives one device's gradients, and holds what was predicted."""

    def model() -> list[gp.core.Layer]:
        rng = np.random.default_rng(0)
        blocks = [LlamaBlock(8, 4, 12, kv_heads=2, flash=i % 2 == 0, rng=rng) for i in range(3)]
        embedding = gp.transformers.Embedding(9, 8, rng=rng)
        return [PaddingMask(0), embedding, *blocks, RMSNorm(8), Head(8, 9, rng=rng)]

    text = np.random.default_rng(1).integers(1, 9, size=(9, 6))
    text[0, 2:] = text[3, 4:] = 0
    batch = text, text % 9
    alone = gp.single_device_step(model(), batch, gp.cross_entropy, microbatches=4)
    for schedule in (gp.OneFOneB(2, 4), gp.remat(gp.ZBH1(3, 4), "always"), gp.ZBV(2, 4)):
        partitions = gp.split(model(), stages=schedule.stages)
        step = gp.train_step(partitions, schedule, batch, gp.cross_entropy)
        assert furthest_apart(step.gradients, alone.gradients) < 1e-12
        assert step.memory == gp.predict_memory(schedule, gp.profile(partitions, batch, gp.cross_entropy))


def test_float32_stays_float32_in_a_block():
    block = LlamaBlock(8, 4, 12, kv_heads=2, rng=np.random.default_rng(0), dtype=np.float32)
    found = run(block, X[..., :8].astype(np.float32))
    assert {array.dtype for array in found.values()} == {np.dtype(np.float32)}


# Bad input


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"kv_heads": 4}, r"Attention needs kv_heads that divide 6 heads \(got 4\)"),
        ({"kv_heads": 0}, r"Attention needs kv_heads >= 1 \(got 0\)"),
        ({"rotary": 0.5}, r"Attention needs 1 <= rotary < inf \(got 0.5\)"),
        ({"flash": True, "dropout": 0.1}, "Attention has flash without dropout"),
        (
            {"flash": True, "recompute": True},
            "Attention has flash without recompute, as it recomputes anyway",
        ),
    ],
)
def test_what_cannot_be_together_is_refused(how, says):
    with pytest.raises(ValueError, match=says):
        made(**how)


def test_a_head_of_an_odd_number_of_features_has_no_pairs():
    with pytest.raises(
        ValueError, match=r"with rotary needs an even number of features for each head \(got 3\)"
    ):
        Attention(6, 2, rotary=10.0, rng=None)


@pytest.mark.parametrize("layer", [RMSNorm(3), SwiGLU(3, 5, rng=None), Head(3, 5, rng=None)], ids=repr)
def test_another_number_of_features_is_refused_with_the_layers_number(layer):
    says = r"layer 7, .*, takes \(batch, 3\) or \(batch, sequence, 3\), got \(1, 4, 2\)"
    for x, forward in ((np.zeros((1, 4, 2)), layer.forward), (gp.MetaArray((1, 4, 2), float), layer.outline)):
        with pytest.raises(ValueError, match=says):
            forward(x, Context(layer=7))
