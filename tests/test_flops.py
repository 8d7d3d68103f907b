"""FLOPs of forward, input gradient and weight gradient: stated, counted on real products, and in papers."""

from fractions import Fraction

import numpy as np
import pytest
from numeric import furthest_apart
from test_layers import EVERY, RNG, input_for, small, wide

import gpipe_sim as gp
from gpipe_sim.core import Context, Layer, Linear
from gpipe_sim.core.work import Work
from gpipe_sim.memory.profile import Profile
from gpipe_sim.transformers import Attention, Checkpoint, Residual, TransformerBlock


class Counted(np.ndarray):
    """An array that counts the operations of matrix products in which it, or what it makes, takes part."""

    made = 0

    def __array_ufunc__(self, ufunc, method, *inputs, out=(), **options):
        plain = [np.asarray(each) for each in inputs]
        if out:
            options["out"] = tuple(np.asarray(each) for each in out)
        result = getattr(ufunc, method)(*plain, **options)
        if ufunc is np.matmul:
            Counted.made += 2 * result.size * plain[0].shape[-1]
        return out[0] if out else result.view(Counted) if isinstance(result, np.ndarray) else result


def counted(run, *arguments):
    """(what it returns, how many operations its products take)."""
    Counted.made = 0
    return run(*arguments), Counted.made


def counting(layer: Layer) -> Layer:
    """The layer, with weights that count."""
    for inner in getattr(layer, "layers", ()):
        counting(inner)
    layer.parameters = {name: array.view(Counted) for name, array in layer.parameters.items()}
    return layer


#: Layers that compute something again, beside those of ``EVERY``.
AGAIN = [
    Attention(3, 1, recompute=True, rng=RNG),
    TransformerBlock(3, 3, dropout=0.1, recompute=True, rng=RNG),
    Checkpoint(TransformerBlock(3, 3, norm="post", recompute=True, rng=RNG)),
    Residual(Checkpoint(Linear(3, 3, rng=RNG)), Linear(3, 3, rng=RNG)),
]


EIGHT = wide()  #: of eight features


@pytest.mark.parametrize("layer", [*map(small, EVERY), *AGAIN, *EIGHT], ids=repr)
def test_the_flops_that_a_layer_states_are_those_of_the_products_that_it_makes(layer):
    sequences = np.ones((5, 4, 8 if layer in EIGHT else 3))
    x = sequences if layer in AGAIN + EIGHT else input_for(layer)
    on_paper = gp.MetaArray(x.shape, x.dtype)
    (y, saved), forward = counted(counting(layer).forward, x.view(Counted), Context())
    (_, pending), to_input = counted(layer.backward_input, saved, np.ones(y.shape).view(Counted))
    _, to_weights = counted(layer.backward_weight, pending)
    work = layer.work(on_paper)
    assert forward == work.flops
    assert to_weights == work.weight_flops
    assert to_input == 2 * forward - to_weights + (work.again or Work()).flops


def test_the_count_sees_every_product():
    """What is stated of these is not 0, so the test above compares something."""
    on_paper = gp.MetaArray((5, 4, 3), float)
    assert [layer.work(on_paper).flops for layer in AGAIN] == [2400, 5280, 5280, 720]
    assert [layer.work(on_paper).again.flops for layer in AGAIN] == [480, 480, 5760, 360]


def block_profile(h: int, a: int, s: int, samples: int = 1, **options) -> Profile:
    block = TransformerBlock(h, a, dropout=0.1, rng=None, dtype=np.float16, **options)
    x = gp.MetaArray((samples, s, h), np.float16)
    return gp.profile(gp.split([block], stages=1), (x, x), gp.mse)


@pytest.mark.parametrize(("h", "a", "s", "b"), [(12_288, 96, 2_048, 1), (1_024, 16, 512, 4), (64, 2, 256, 3)])
def test_a_block_costs_what_zero_bubbles_table_1_says(h, a, s, b):
    """F sbh(24h + 4s), I sbh(24h + 8s), W sbh(24h): Qi et al. 2024, arXiv:2401.10241, who call I "B"."""
    costs = block_profile(h, a, s, samples=b).costs()
    assert (costs.forward, costs.input_grad, costs.weight_grad) == (
        (s * b * h * (24 * h + 4 * s),),
        (s * b * h * (24 * h + 8 * s),),
        (s * b * h * 24 * h,),
    )
    assert costs.weight_grad < costs.forward < costs.input_grad
    assert costs.input_grad[0] + costs.weight_grad[0] == 2 * costs.forward[0]


@pytest.mark.parametrize(
    ("h", "a", "s", "printed"), [(12_288, 96, 2_048, 0.027), (20_480, 128, 2_048, 0.016)]
)
def test_selective_recompute_takes_a_sixth_of_the_flops_that_korthikanti_printed(h, a, s, printed):
    """They give 2.7% and 1.6%, which is s/6h of 1 + s/6h: 12 s^2 h, or attention's forward three times.

    Its two products run once more are 4 s^2 h. We save what the second gives, so the first is enough:
    2 s^2 h.
    """
    [[layer]] = block_profile(h, a, s, recompute=True).stages
    step = 3 * layer.flops
    assert layer.recompute_flops == 2 * s * s * h
    assert Fraction(6 * layer.recompute_flops, step) == Fraction(s, 6 * h) / (1 + Fraction(s, 6 * h))
    assert 6 * layer.recompute_flops / step == pytest.approx(printed, abs=0.0005)


def test_costs_are_those_of_the_largest_microbatch_and_exact():
    partitions = gp.split([Linear(3, 5, rng=RNG), gp.core.Tanh(), Linear(5, 2, rng=RNG)], stages=3)
    profile = gp.profile(partitions, (np.ones((7, 3)), np.ones((7, 2))), gp.mse)
    costs = profile.costs(microbatches=2)  # of 4 and 3 samples
    assert costs == gp.Costs([4 * 30, 0, 4 * 20], [4 * 30, 0, 4 * 20], [4 * 30, 0, 4 * 20])
    assert profile.costs() == gp.Costs([7 * 30, 0, 7 * 20], [7 * 30, 0, 7 * 20], [7 * 30, 0, 7 * 20])
    alone = gp.simulate(gp.OneFOneB(3, 1), profile.costs(1))
    assert alone.makespan == 3 * 7 * (30 + 20)


def test_a_checkpoint_costs_one_more_forward():
    layers = [Checkpoint(Linear(3, 4, rng=RNG), gp.core.GELU(), Linear(4, 2, rng=RNG))]
    profile = gp.profile(gp.split(layers, stages=1), (np.ones((1, 3)), np.ones((1, 2))), gp.mse)
    assert profile.costs() == gp.Costs([40], [80], [40])


@pytest.mark.parametrize(
    "layer",
    [
        Attention(4, 2, dropout=0.3, rng=RNG),
        TransformerBlock(4, 2, dropout=0.3, rng=RNG),
        Residual(gp.transformers.LayerNorm(4), TransformerBlock(4, 2, norm="post", causal=True, rng=RNG)),
    ],
    ids=repr,
)
def test_the_selective_layer_has_the_same_weights_and_gradients_and_saves_less(layer):
    x, selective = np.random.default_rng(0).normal(size=(3, 5, 4)), layer.selective()
    found, saved = [], []
    for each in (layer, selective):
        y, kept = each.forward(x, Context())
        dx, pending = each.backward_input(kept, np.sin(y))
        found.append({"x": dx, **each.backward_weight(pending)})
        saved.append(sum(array.nbytes for array in gp.core.roots(kept)))
    assert selective.parameters is layer.parameters
    assert furthest_apart(*found) == 0
    shares = 3 * 2 * 5 * 5 * 8
    assert saved[0] - saved[1] in (shares, 2 * shares + shares // 8), "with dropout: what it leaves, and what"
    assert selective.selective() is None and repr(selective) == repr(layer)


def test_layers_without_attention_have_no_selective_one():
    others = [small(kind) for kind in EVERY if kind not in (Attention, TransformerBlock)]  # a Llama's: flash
    assert [layer.selective() for layer in others] == [None] * len(others)
    assert Checkpoint(Attention(4, 2, rng=RNG)).selective() is None


@pytest.mark.parametrize("microbatches", [0, 8, 2.0, "2", True])
def test_costs_of_no_microbatches_are_refused(microbatches):
    profile = block_profile(4, 2, 3, samples=7)
    with pytest.raises((TypeError, ValueError), match="microbatches"):
        profile.costs(microbatches)
