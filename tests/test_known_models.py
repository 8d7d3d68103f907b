"""Models by name: their weights against published counts; bfloat16 on paper; a mixture of experts."""

from fractions import Fraction

import numpy as np
import pytest
from closed_forms import transformer_parameters

import gpipe_sim as gp
from gpipe_sim.core import Context
from gpipe_sim.core.work import Work
from gpipe_sim.errors import BFLOAT16
from gpipe_sim.transformers import (
    KNOWN,
    Attention,
    Experts,
    Head,
    LlamaBlock,
    Residual,
    RMSNorm,
    SwiGLU,
    unpacked,
)


def weights(layers: list[gp.core.Layer]) -> int:
    return sum(array.size for layer in layers for array in layer.parameters.values())


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("llama2-7b", 6_738_415_616),
        ("llama2-13b", 13_015_864_320),
        ("llama2-70b", 68_976_648_192),
        ("llama3-8b", 8_030_261_248),
        ("llama3-70b", 70_553_706_496),
        ("llama3-405b", 405_853_388_800),
    ],
)
def test_a_llama_has_as_many_weights_as_the_files_that_meta_published(name, published):
    """As counted in the checkpoints."""
    assert weights(gp.known_model(name)) == published


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("gpt-1.7b", 1.7), ("gpt-3.6b", 3.6), ("gpt-7.5b", 7.5), ("gpt-18b", 18.4), ("gpt-39b", 39.1),
        ("gpt-76b", 76.1), ("gpt-146b", 145.6), ("gpt-310b", 310.1), ("gpt-530b", 529.6), ("gpt-1t", 1008.0),
        ("gpt3-175b", 174.6), ("gpt-22b", 22.1),
    ],
)  # fmt: skip
def test_a_gpt_has_as_many_as_its_table_says(name, billions):
    """Its equation has one embedding, which the head shares, and leaves out the last LayerNorm."""
    model, known = gp.known_model(name), KNOWN[name]
    found = weights(model[:-2])
    assert found == transformer_parameters(known.blocks, known.features, known.tokens, known.sequence)
    assert found / 1e9 == pytest.approx(billions, abs=0.06)


def test_every_known_model_has_sizes_a_source_and_as_many_blocks():
    for name, known in KNOWN.items():
        model = gp.known_model(name)
        blocks = [layer for layer in model if type(layer).__name__.endswith("Block")]
        assert len(blocks) == known.blocks and known.source.startswith("arXiv:")
        assert {array.dtype.itemsize for layer in model for array in layer.parameters.values()} == {2}
    assert repr(gp.gpt3_175b()) == repr(gp.known_model("gpt3-175b"))
    assert repr(gp.bert_large()) == repr(gp.known_model("bert-large"))


def test_a_name_that_is_not_known_is_refused_with_all_that_are():
    with pytest.raises(
        ValueError, match=r"known_model needs name to be one of .*'llama3-405b'.*got 'llama4'"
    ):
        gp.known_model("llama4")


def test_a_llama_of_ones_own_sizes_runs():
    sizes = {"hidden": 24, "tokens": 11, "kv_heads": 2}
    layers = gp.llama(2, 8, 4, **sizes, rng=np.random.default_rng(0))
    text = np.random.default_rng(1).integers(11, size=(6, 9))
    schedule = gp.OneFOneB(2, 3)
    batch = text[:, :-1], text[:, 1:]
    step = gp.train_step(gp.split(layers, stages=2), schedule, batch, gp.cross_entropy)
    assert 2 < step.loss < 3
    on_paper = tuple(gp.MetaArray(part.shape, part.dtype) for part in batch)
    profile = gp.profile(gp.split(gp.llama(2, 8, 4, **sizes), stages=2), on_paper, gp.cross_entropy)
    assert gp.predict_memory(schedule, profile) == step.memory
    assert [type(layer).__name__ for layer in unpacked(layers)] == [
        "Embedding", *["Residual"] * 4, "RMSNorm", "Head"
    ]  # fmt: skip


def test_flops_of_a_llama_are_six_for_each_weight_and_token_and_attentions():
    """Of the forward two, but for the embedding's; and 4 s h for scores and mixes, of which half is made."""
    known, s = KNOWN["llama2-7b"], 4096
    layers = gp.known_model("llama2-7b")
    x = gp.MetaArray((1, s), np.int32)
    profile = gp.profile(gp.split(layers, stages=1), (x, x), gp.cross_entropy)
    found = sum(layer.flops for layer in profile.layers)
    products = 2 * s * (weights(layers[1:]) - known.features * (2 * known.blocks + 1))
    assert found - products == known.blocks * 4 * s * s * known.features * Fraction(33, 64)


# bfloat16


def test_bfloat16_is_two_bytes_by_that_name():
    x = gp.MetaArray((3, 4), "bfloat16")
    assert (x.nbytes, repr(x)) == (24, "MetaArray((3, 4), bfloat16)")
    assert repr(x[:2]) == "MetaArray((2, 4), bfloat16)" and repr(x.copy()) == repr(x)


@pytest.mark.parametrize("layers", [gp.gpt, gp.llama], ids=["gpt", "llama"])
def test_a_model_in_bfloat16_takes_the_bytes_of_one_in_float16(layers):
    """And every array of it is called so; a master copy in float32 stays one."""
    sizes = {"tokens": 9, **({"sequence": 6} if layers is gp.gpt else {"hidden": 12})}
    text = gp.MetaArray((4, 6), np.int32)
    found = []
    for dtype in ("bfloat16", "float16"):
        model = layers(2, 8, 2, **sizes, dtype=dtype)
        stages, rule = gp.split(model, stages=2), gp.MixedPrecision(gp.Adam())
        found.append(gp.profile(stages, (text, text), gp.cross_entropy, rule))
        y = text
        for layer in model:
            y, _ = layer.outline(y, Context())
            assert repr(y).endswith(f"{dtype})")
    assert found[0] == found[1]
    assert sum(layer.state for layer in found[0].layers) == 6 * found[0].parameters


@pytest.mark.parametrize("dtype", ["bfloat16", BFLOAT16])
def test_what_runs_has_no_bfloat16(dtype):
    rng = np.random.default_rng(0)
    for make in (
        lambda: gp.mlp([2, 2], dtype=dtype),
        lambda: gp.core.Linear(2, 2, rng=rng, dtype=dtype),
        lambda: gp.transformers.LayerNorm(2, dtype=dtype),
        lambda: gp.llama(1, 4, 2, hidden=4, tokens=4, rng=rng, dtype=dtype),
        lambda: gp.digits(dtype=dtype),
    ):
        with pytest.raises(ValueError, match=r"\(got bfloat16\); NumPy has no .*A model on paper takes 'bfl"):
            make()


def test_on_paper_another_spelling_is_told_the_right_one():
    with pytest.raises(ValueError, match=r"got 'bf16'.*A model on paper takes 'bfloat16'"):
        gp.gpt(1, 4, 2, tokens=3, sequence=4, dtype="bf16")


# A mixture of experts


def experts(**how) -> Experts:
    return Experts(8, 12, **{"experts": 4, "chosen": 2, "dtype": "bfloat16"} | how)


def test_mixtral_has_46_7_billion_weights_of_which_a_token_meets_12_9():
    """Jiang et al. 2024, arXiv:2401.04088: 47B, and 13B active; counted in its checkpoint."""
    paper = {"rng": None, "dtype": "bfloat16"}
    attention = Attention(4096, 32, kv_heads=8, causal=True, bias=False, rotary=1e6, flash=True, **paper)
    norm = RMSNorm(4096, on_paper=True, dtype="bfloat16")
    mixture = Experts(4096, 14_336, experts=8, chosen=2, dtype="bfloat16")
    ends = 2 * 32_000 * 4096 + 4096
    block = weights([Residual(norm, attention)]) + weights([norm, mixture])
    assert 32 * block + ends == 46_702_792_704
    assert 32 * (block - weights([mixture]) + mixture.active) + ends == 12_879_925_248


def test_active_flops_are_two_for_each_weight_that_a_token_meets():
    for tokens in (1, 3, 8, 4096):
        x = gp.MetaArray((1, tokens, 8), "bfloat16")
        assert experts().work(x).flops == 2 * tokens * experts().active
    alone = experts(experts=1, chosen=1)
    assert alone.active == weights([SwiGLU(8, 12, rng=None)]) + 8


def test_tokens_are_shared_out_as_equally_as_can_be():
    """3 tokens with 2 experts each are 6 for 4 experts: two get 2, and two get 1."""
    router, *products = experts().work(gp.MetaArray((1, 3, 8), "bfloat16")).products
    assert router[:4] == (1, 3, 4, 8)
    assert [each[:4] for each in products] == [(2, 1, 24, 8), (2, 1, 8, 12), (2, 2, 24, 8), (2, 2, 8, 12)]


def test_a_token_is_sent_to_its_experts_and_back_but_for_those_at_home():
    """2 experts x 8 features x 2 bytes, there and back; of 4 devices 3/4 of it leaves."""
    assert [experts().exchanged(devices) for devices in (1, 2, 4)] == [0, 32, 48]
    assert Experts(7168, 2048, experts=256, chosen=8, dtype="bfloat16").exchanged(
        64
    ) == 2 * 8 * 7168 * 2 * Fraction(63, 64)
    with pytest.raises(ValueError, match=r"exchanged needs devices that divide 4 experts \(got 3\)"):
        experts().exchanged(3)


def test_what_a_mixture_keeps_grows_with_the_chosen_and_not_with_the_experts():
    def saved(**how) -> int:
        block, x = Residual(RMSNorm(8, on_paper=True), experts(**how)), gp.MetaArray((2, 5, 8), "bfloat16")
        profile = gp.profile(gp.split([block], stages=1), (x, x), gp.mse)
        [trace] = gp.predict_memory(gp.GPipe(1, 1), profile)
        return trace.activation_peak

    assert saved(experts=8) - saved(experts=4) == 4 * 2 * 5 * 8
    assert saved(chosen=3) - saved(chosen=2) == saved(chosen=2) - saved(chosen=1) > 0


def test_a_mixture_is_planned_with_and_not_run():
    with pytest.raises(ValueError, match="Experts is on paper, and has no forward on arrays: rng is None"):
        experts(rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"layer 0, Experts\(8, 12, experts=4, chosen=2\), is on paper"):
        gp.train_step(gp.split([experts()], stages=1), gp.GPipe(1, 1), (np.ones((2, 8)),) * 2, gp.mse)
    with pytest.raises(ValueError, match=r"layer 3, .* is on paper and cannot run; profile"):
        experts().forward(np.ones((2, 8)), Context(layer=3))
    with pytest.raises(ValueError, match=r"takes .* got"):
        experts().outline(gp.MetaArray((2, 7), float), Context())
    with pytest.raises(ValueError, match=r"Experts needs chosen from 1 to 4 \(got 5\)"):
        experts(chosen=5)


def test_a_llama_in_gigabytes():
    """A block of Llama 2 7B keeps 16.06 x 2sh bytes of a text, and two scales and a logarithm per query."""
    s, h, hidden = 4096, 4096, 11_008
    block = LlamaBlock(h, 32, hidden, rng=None, dtype="bfloat16")
    x = gp.MetaArray((1, s, h), "bfloat16")
    [[found]] = gp.profile(gp.split([block], stages=1), (x, x), gp.mse).stages
    kept = sum(2 * s * h if size == "x" else size.of(1) for size in found.saved)
    assert kept == 2 * s * (8 * h + 3 * hidden) + 2 * s * (2 + 32)
    assert block.work(x).again == Work(block.work(x).again.products, launches=0)
    assert weights([block, Head(h, 32_000, rng=None)]) == 4 * h * h + 3 * h * hidden + 2 * h + 32_000 * h
