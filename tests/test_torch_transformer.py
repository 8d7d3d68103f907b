"""The layers of a Transformer, against torch's own functions."""

import numpy as np
import pytest
from numeric import apart, furthest_apart

torch = pytest.importorskip("torch")

import gpipe_sim as gp  # noqa: E402
from gpipe_sim.core import Context, Linear  # noqa: E402
from gpipe_sim.torch_backend import to_torch, train_step  # noqa: E402
from gpipe_sim.transformers import (  # noqa: E402
    Attention,
    Embedding,
    Head,
    LayerNorm,
    LlamaBlock,
    Positions,
    RMSNorm,
    SequenceMean,
    SwiGLU,
    TransformerBlock,
)

RNG = np.random.default_rng(0)
SEQUENCES = np.random.default_rng(1).normal(size=(3, 5, 8))
LAYERS = [
    LayerNorm(8),
    gp.transformers.BatchNorm(8),
    Positions(7, 8, rng=RNG),
    Attention(8, 2, rng=RNG),
    Attention(8, 4, causal=True, rng=RNG),
    SequenceMean(),
    gp.transformers.Residual(LayerNorm(8), Linear(8, 8, rng=RNG)),
    TransformerBlock(8, 2, rng=RNG),
    TransformerBlock(8, 2, norm="post", causal=True, rng=RNG),
    RMSNorm(8),
    SwiGLU(8, 5, rng=RNG),
    Head(8, 5, rng=RNG),
    Attention(8, 4, kv_heads=2, rotary=10.0, bias=False, rng=RNG),
    Attention(8, 4, kv_heads=1, causal=True, flash=True, rng=RNG),
    Attention(8, 2, rotary=10_000.0, causal=True, flash=True, bias=False, rng=RNG),
    LlamaBlock(8, 4, 12, kv_heads=2, rng=RNG),
]


@pytest.mark.parametrize("layer", LAYERS, ids=repr)
def test_outputs_and_gradients_are_torchs(layer):
    for array in layer.parameters.values():
        array += np.random.default_rng(2).normal(scale=0.1, size=array.shape)
    [module] = to_torch([layer])
    x = torch.tensor(SEQUENCES, requires_grad=True)
    expected = module(x)
    y, saved = layer.forward(SEQUENCES, Context())
    dy = np.random.default_rng(3).normal(size=y.shape)
    expected.backward(torch.tensor(dy))
    dx, pending = layer.backward_input(saved, dy)
    assert apart(y, expected.detach().numpy()) < 1e-12
    assert apart(dx, x.grad.numpy()) < 1e-12
    weights = {name: weight.grad.numpy() for name, weight in module.named_parameters()}
    if weights:
        assert furthest_apart(layer.backward_weight(pending), weights) < 1e-12


def test_an_embedding_takes_whole_numbers_of_every_size():
    layer = Embedding(5, 3, rng=RNG)
    [module] = to_torch([layer])
    for dtype in (np.int8, np.uint8, np.int32, np.int64):
        x = np.array([[0, 4, 4]], dtype)
        assert (module(torch.tensor(x)).detach().numpy() == layer.forward(x, Context())[0]).all()


@pytest.mark.parametrize(
    ("layer", "x"),
    [
        (Embedding(5, 3, rng=RNG), np.array([[0, 5]])),
        (Embedding(5, 3, rng=RNG), np.array([[-1, 4]])),
        (Embedding(5, 3, rng=RNG), np.array([1, 2])),
        (Embedding(5, 3, rng=RNG), np.array([[1.0, 2.0]])),
        (Embedding(5, 3, rng=RNG), np.array([[True]])),
        (Positions(4, 3, rng=RNG), np.zeros((2, 5, 3))),
        (Positions(4, 3, rng=RNG), np.zeros((2, 4, 2))),
        (Positions(4, 3, rng=RNG), np.zeros((2, 3))),
    ],
)
def test_what_numpys_layer_refuses_is_refused_in_the_same_words(layer, x):
    with pytest.raises(ValueError) as expected:
        layer.forward(x, Context())
    [module] = to_torch([layer])
    with pytest.raises(ValueError) as found:
        module(torch.tensor(x))
    words = str(expected.value).removeprefix("layer 0, ").replace("), takes", ") takes")
    assert str(found.value).replace("torch.", "") == words


def test_in_a_step_an_unknown_token_says_in_which_stage():
    layers = [Embedding(5, 3, rng=RNG), Positions(4, 3, rng=RNG), Linear(3, 5, rng=RNG)]
    modules, tokens = to_torch(gp.split(layers, stages=2)), np.array([[0, 1], [2, 5]])
    with pytest.raises(ValueError, match=r"Embedding\(5, 3\) takes tokens from 0 to 4, got 2 to 5") as error:
        train_step(modules, gp.GPipe(2, 2), (tokens, tokens), gp.cross_entropy)
    assert "in the forward of stage 0, Chain" in "".join(error.value.__notes__)


def test_a_tied_head_is_refused_as_nobody_would_sum_its_gradients():
    embedding = Embedding(5, 3, rng=RNG)
    with pytest.raises(TypeError, match=r"to_torch ties no weights: .* gradients of Head\(3, 5, tied\)"):
        to_torch([embedding, Head(3, 5, tied_to=embedding, rng=RNG)])


def test_where_reading_a_number_would_wait_for_a_gpu_tokens_are_not_read():
    """A meta tensor has no numbers, so whoever reads one fails."""
    [module] = to_torch([Embedding(5, 3, rng=RNG)])
    assert module.to("meta")(torch.zeros(2, 4, dtype=torch.long, device="meta")).shape == (2, 4, 3)


def masked(padding: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Sequences of 5 tokens of 7, some of them padded."""
    text = np.random.default_rng(4).integers(1, 7, size=(8, 5))
    for row, length in zip(text, (1, 5, 3, 4, 5, 2, 3, 5), strict=True):
        row[length:] = padding
    return text, np.arange(8) % 3


@pytest.mark.parametrize(
    ("schedule", "pooled", "causal"),
    [
        (gp.GPipe(3, 4), True, False),
        (gp.remat(gp.OneFOneB(3, 4), "always"), False, True),
        (gp.ZBH1(3, 4), True, True),
        (gp.ZBH1(3, 4), False, False),
    ],
    ids=repr,
)
def test_a_language_model_and_its_mask_travel_on_pytorchs_engine_too(schedule, pooled, causal):
    rng = np.random.default_rng(0)
    blocks = [TransformerBlock(8, 2, causal=causal, rng=rng, norm=norm) for norm in ("pre", "post")]
    blocks.append(LlamaBlock(8, 4, 12, kv_heads=2, rng=rng))
    layers = [gp.transformers.PaddingMask(), Embedding(7, 8, rng=rng), Positions(6, 8, rng=rng), *blocks]
    layers += [LayerNorm(8), *([SequenceMean()] if pooled else []), Linear(8, 3, rng=rng)]
    text, classes = masked()
    batch = text, classes if pooled else text % 3
    expected = gp.train_step(gp.split(layers, stages=3), schedule, batch, gp.cross_entropy)
    modules = to_torch(gp.split(layers, stages=3))
    step = train_step(modules, schedule, batch, gp.cross_entropy, devices=["cpu"] * 3)
    assert step.loss == pytest.approx(expected.loss, rel=1e-12)
    assert furthest_apart(step.gradients, expected.gradients) < 1e-12
    assert apart(step.outputs, expected.outputs) < 1e-12
