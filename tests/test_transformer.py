"""What the layers of a Transformer compute, by hand; the laws that all layers keep are in test_layers."""

import numpy as np
import pytest
from numeric import furthest_apart

import gpipe_sim as gp
from gpipe_sim.core import GELU, Context, Linear, roots
from gpipe_sim.transformers import (
    Attention,
    BatchNorm,
    Checkpoint,
    Dropout,
    Embedding,
    LayerNorm,
    Positions,
    Residual,
    SequenceMean,
    TransformerBlock,
)

RNG = np.random.default_rng(5)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape)


# Attention


def by_hand(layer: Attention, x: np.ndarray) -> np.ndarray:
    """Attention with a loop over samples, heads and places: each place mixes the values that it may see."""
    batch, sequence, features = x.shape
    d, mixed = features // layer.heads, np.zeros_like(x)
    for sample in range(batch):
        query, key, value = np.split(x[sample] @ layer.parameters["W"] + layer.parameters["b"], 3, axis=1)
        for head in range(layer.heads):
            own = slice(head * d, (head + 1) * d)
            for place in range(sequence):
                seen = slice(0, place + 1) if layer.causal else slice(None)
                score = np.exp(key[seen, own] @ query[place, own] / np.sqrt(d))
                mixed[sample, place, own] = score / score.sum() @ value[seen, own]
    return mixed @ layer.parameters["Wo"] + layer.parameters["bo"]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [1, 2, 6])
def test_attention_by_hand(heads, causal):
    layer = Attention(6, heads, causal=causal, rng=RNG)
    for name in ("b", "bo"):
        layer.parameters[name][:] = RNG.normal(size=layer.parameters[name].shape)
    x = drawn(3, 5, 6)
    assert np.allclose(layer.forward(x, Context())[0], by_hand(layer, x), rtol=1e-12, atol=1e-13)


def test_with_a_causal_mask_no_place_sees_a_later_one():
    layer, x = Attention(4, 2, causal=True, rng=RNG), drawn(2, 5, 4)
    before, _ = layer.forward(x, Context())
    x[:, 3:] += 1
    after, _ = layer.forward(x, Context())
    assert (before[:, :3] == after[:, :3]).all() and not np.allclose(before[:, 3:], after[:, 3:])


def test_attention_takes_large_scores():
    layer, x = Attention(2, 1, rng=RNG), 1e3 * drawn(1, 3, 2)
    assert np.isfinite(layer.forward(x, Context())[0]).all()


def test_attention_saves_its_input_once_and_queries_keys_and_values_as_one_array():
    """With s places and h features: x, the three of them, what the last layer reads; s^2 for each head."""
    layer, x = Attention(6, 3, dropout=0.5, rng=RNG), drawn(2, 5, 6)
    saved_x, qkv, (shares, stays, dropped), mixed = layer.forward(x, Context())[1]
    assert saved_x is x
    assert (qkv.size, mixed.size) == (3 * x.size, x.size)
    assert shares.shape == dropped.shape == stays.shape == (2, 3, 5, 5)
    assert stays.dtype == bool
    _, without = Attention(6, 3, rng=RNG).forward(x, Context())
    shares, stays, dropped = without[2]
    assert stays is None and dropped is shares, "without dropout it is the softmax itself"


def test_selective_recompute_frees_what_has_the_sequence_twice_and_changes_no_bit():
    """70.2% of a GPT-3 block: Korthikanti et al. 2022."""
    how = {"causal": True, "dropout": 0.3}
    layers = [
        TransformerBlock(8, 2, **how, recompute=again, rng=np.random.default_rng(0))
        for again in (False, True)
    ]
    x, dy, ctx = drawn(2, 6, 8), drawn(2, 6, 8), Context(seed=1)
    results = []
    for layer in layers:
        y, saved = layer.forward(x, ctx)
        dx, pending = layer.backward_input(saved, dy)
        results.append([y, dx, *layer.backward_weight(pending).values()])
    assert all((a == b).all() for a, b in zip(*results, strict=True))
    kept, less = (sum(root.nbytes for root in roots(layer.forward(x, ctx)[1])) for layer in layers)
    assert kept - less == 2 * 2 * 6 * 6 * (8 + 1 + 8)


def test_a_checkpoint_saves_its_input_alone_and_changes_no_bit():
    parts = [Linear(8, 20, rng=RNG), GELU(), Linear(20, 8, rng=RNG)]
    x, dy = drawn(5, 8), drawn(5, 8)
    (y, dx, many), (same_y, same_dx, kept) = (
        (y, layer.backward_input(saved, dy)[0], list(roots(saved)))
        for layer in (Residual(*parts), Residual(Checkpoint(*parts)))
        for y, saved in [layer.forward(x, Context())]
    )
    assert (y == same_y).all() and (dx == same_dx).all()
    assert len(many) == 3 and len(kept) == 1 and kept[0] is x


# Normalisation


def test_layer_norm_by_hand():
    layer = LayerNorm(4, eps=0)
    layer.parameters["g"][:], layer.parameters["b"][:] = 10, 1
    y, _ = layer.forward(np.array([[1.0, 3.0, 1.0, 3.0], [2.0, 2.0, 2.0, 6.0]]), Context())
    assert y == pytest.approx(np.array([[-9, 11, -9, 11], [1 - 10 / 3**0.5] * 3 + [1 + 30 / 3**0.5]]))


def test_batch_norms_gradient_depends_on_how_the_batch_is_cut():
    """How many devices does not matter; how many microbatches does, and here by more than a tenth."""

    def gradients(K: int, M: int) -> dict:
        rng = np.random.default_rng(0)
        layers = [Linear(64, 8, rng=rng), BatchNorm(8), gp.core.ReLU(), Linear(8, 10, rng=rng)]
        step = gp.train_step(gp.split(layers, stages=K), gp.GPipe(K, M), batch, gp.cross_entropy)
        return step.gradients

    data = gp.digits()
    batch = data.x[:32], data.y[:32]
    assert furthest_apart(gradients(2, 8), gradients(2, 1)) > 0.1
    assert furthest_apart(gradients(4, 8), gradients(1, 8)) < 1e-12


# Dropout


def test_dropout_keeps_the_mean_and_drops_its_share():
    x = np.ones((400, 500))
    y, stays = Dropout(0.3).forward(x, Context())
    assert stays.mean() == pytest.approx(0.7, abs=0.005) and y.mean() == pytest.approx(1, abs=0.01)
    assert set(np.unique(y)) == {0, 1 / 0.7}
    assert Dropout(0.3).forward(x, Context(training=False))[0] is x


def test_a_recomputed_dropout_draws_the_same_entries_under_every_schedule():
    """And two in one layer, or in two layers, do not draw the same ones."""

    def model() -> list[gp.core.Layer]:
        rng = np.random.default_rng(0)
        blocks = [TransformerBlock(8, 2, dropout=0.4, rng=rng) for _ in range(3)]
        return [*blocks, SequenceMean()]

    batch = drawn(8, 4, 8), drawn(8, 8)
    alone = gp.single_device_step(model(), batch, gp.mse, microbatches=4, seed=3, step=2)
    for schedule in (gp.GPipe(2, 4), gp.remat(gp.OneFOneB(2, 4), "always"), gp.ZBV(2, 4)):
        partitions = gp.split(model(), stages=schedule.stages)
        step = gp.train_step(partitions, schedule, batch, gp.mse, seed=3, step=2)
        assert furthest_apart(step.gradients, alone.gradients) < 1e-12
    x = np.ones((2, 3, 8))
    twice = Residual(Dropout(0.5)).forward(x, Context(layer=1))[0]
    assert (twice != Residual(Dropout(0.5)).forward(x, Context(layer=2))[0]).any()
    first, second = TransformerBlock(8, 2, dropout=0.5, rng=RNG).forward(x, Context())[1]
    assert (first[-1] != second[-1]).any()


# Embedding, positions, means


def test_an_embedding_looks_up_rows_and_adds_up_their_gradients():
    layer = Embedding(3, 2, rng=RNG)
    x = np.array([[0, 2, 2]])
    y, saved = layer.forward(x, Context())
    assert (y[0] == layer.parameters["E"][[0, 2, 2]]).all()
    dx, pending = layer.backward_input(saved, np.array([[[1.0, 0.0], [2.0, 5.0], [3.0, 0.0]]]))
    assert layer.backward_weight(pending)["E"].tolist() == [[1, 0], [0, 0], [5, 5]]
    assert not dx.any()


def test_positions_are_told_apart_and_unused_ones_get_no_gradient():
    layer = Positions(4, 2, rng=RNG)
    y, saved = layer.forward(np.zeros((3, 2, 2)), Context())
    assert (y == layer.parameters["P"][:2]).all()
    gradient = layer.backward_weight(layer.backward_input(saved, np.ones((3, 2, 2)))[1])["P"]
    assert gradient.tolist() == [[3, 3], [3, 3], [0, 0], [0, 0]]


def test_the_mean_over_a_sequence():
    y, saved = SequenceMean().forward(np.array([[[1.0, 2.0], [3.0, 6.0]]]), Context())
    assert y.tolist() == [[2, 4]]
    assert SequenceMean().backward_input(saved, y)[0].tolist() == [[[1, 2], [1, 2]]]


# Layers of layers


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_block_is_its_parts(norm):
    block, x = TransformerBlock(6, 2, norm=norm, causal=True, rng=RNG), drawn(2, 4, 6)
    layers = [layer for part in block.layers for layer in getattr(part, "layers", [part])]
    run = {type(layer).__name__: layer for layer in layers}
    attend, wide, narrow = (
        run["Attention"],
        *(layer for layer in layers if isinstance(layer, Linear)),
    )
    first, second = (layer for layer in layers if isinstance(layer, LayerNorm))

    def of(layer, x):
        return layer.forward(x, Context())[0]

    if norm == "pre":
        middle = x + of(attend, of(first, x))
        expected = middle + of(narrow, of(GELU(), of(wide, of(second, middle))))
    else:
        middle = of(first, x + of(attend, x))
        expected = of(second, middle + of(narrow, of(GELU(), of(wide, middle))))
    assert (of(block, x) == expected).all()


def test_a_block_has_12_h_squared_and_13_h_weights():
    """As Narayanan et al. 2021 count them (arXiv:2104.04473, section 5.1)."""
    for features in (4, 64):
        block = TransformerBlock(features, 4, rng=RNG)
        count = sum(array.size for array in block.parameters.values())
        assert count == 12 * features**2 + 13 * features


def test_what_a_layer_of_layers_updates_is_what_its_parts_read():
    block = TransformerBlock(4, 2, rng=RNG)
    for name, array in block.parameters.items():
        *places, last = name.split(".")
        part = block
        for place in places:
            part = part.layers[int(place)]
        assert part.parameters[last] is array


@pytest.mark.parametrize("of_layers", [Checkpoint, Residual])
def test_a_layer_of_no_layers_is_refused(of_layers):
    with pytest.raises(ValueError, match=f"{of_layers.__name__} needs at least one layer"):
        of_layers()


def test_a_residual_that_changes_the_shape_is_refused():
    layer = Residual(Linear(3, 4, rng=RNG))
    with pytest.raises(
        ValueError, match=r"Residual\(Linear\(3, 4\)\), must keep the shape \(5, 3\), got \(5, 4\)"
    ):
        layer.forward(drawn(5, 3), Context(layer=2))


# Sequences in other layers and losses


def test_a_linear_treats_every_place_alike():
    layer, x, dy = Linear(3, 4, rng=RNG), drawn(2, 5, 3), drawn(2, 5, 4)
    y, saved = layer.forward(x, Context())
    dx, pending = layer.backward_input(saved, dy)
    flat, flat_saved = layer.forward(x.reshape(10, 3), Context())
    flat_dx, flat_pending = layer.backward_input(flat_saved, dy.reshape(10, 4))
    assert np.allclose(y.reshape(10, 4), flat) and np.allclose(dx.reshape(10, 3), flat_dx)
    gradients, expected = layer.backward_weight(pending), layer.backward_weight(flat_pending)
    assert all(np.allclose(gradients[name], expected[name], rtol=1e-14) for name in expected)


# Bad input


@pytest.mark.parametrize(
    ("layer", "x", "says"),
    [
        (Embedding(3, 2, rng=RNG), np.zeros((2, 2)), "takes whole numbers of shape (batch, sequence)"),
        (Embedding(3, 2, rng=RNG), np.array([[0, 3]]), "takes tokens from 0 to 2, got 0 to 3"),
        (Embedding(3, 2, rng=RNG), np.array([[-1, 0]]), "takes tokens from 0 to 2, got -1 to 0"),
        (Positions(3, 2, rng=RNG), np.zeros((1, 4, 2)), "takes (batch, at most 3, 2), got (1, 4, 2)"),
        (LayerNorm(3), np.zeros((1, 4, 2)), "takes (batch, 3) or (batch, sequence, 3), got (1, 4, 2)"),
        (Attention(3, 1, rng=RNG), np.zeros((1, 3)), "takes (batch, sequence, 3), got (1, 3)"),
        (Attention(3, 1, rng=RNG), np.zeros((1, 0, 3)), "takes (batch, sequence, 3), got (1, 0, 3)"),
        (SequenceMean(), np.zeros((1, 0, 3)), "takes (batch, sequence, features), got (1, 0, 3)"),
        (SequenceMean(), np.zeros((1, 3)), "takes (batch, sequence, features), got (1, 3)"),
    ],
    ids=lambda value: getattr(value, "shape", None) and str(value.shape),
)
def test_an_input_that_does_not_fit_is_refused_with_the_layers_number(layer, x, says):
    with pytest.raises(ValueError, match=r"^layer 7, ") as error:
        layer.forward(x, Context(layer=7))
    assert says in str(error.value)
    if "tokens from" not in says:  # a token on paper is any
        with pytest.raises(ValueError) as on_paper:
            layer.outline(gp.MetaArray(x.shape, x.dtype), Context(layer=7))
        assert str(on_paper.value) == str(error.value)


def test_what_is_recomputed_in_evaluation_drops_nothing_either():
    x, dy, ctx = drawn(2, 6, 8), drawn(2, 6, 8), Context(training=False)
    gradients = []
    for again in (False, True):
        layer = Attention(8, 2, dropout=0.5, recompute=again, rng=np.random.default_rng(0))
        gradients.append(layer.backward_input(layer.forward(x, ctx)[1], dy)[0])
    assert (gradients[0] == gradients[1]).all()
