"""The activations of a Transformer's block in bytes: Korthikanti et al. 2022 beside what a profile says.

arXiv:2205.05198. Ours has exactly 4sb more for each block: its two LayerNorms keep 1/std for each place, a
2-byte number, which the paper leaves out as small.
"""

from fractions import Fraction

import numpy as np
import pytest

import gpipe_sim as gp
from gpipe_sim.core import Layer, Linear
from gpipe_sim.transformers import Dropout, Residual

f = gp.formulas
GPT3, MT_NLG, BERT = (12_288, 96, 2_048), (20_480, 128, 2_048), (1_024, 16, 512)
SIZES = pytest.mark.parametrize(("h", "a", "s"), [GPT3, MT_NLG, BERT], ids=["GPT-3", "530B", "BERT-large"])
ON_PAPER = {"rng": None, "dtype": np.float16}


def profiled(layer: Layer, features: int, sequence: int):
    x = gp.MetaArray((1, sequence, features), np.float16)
    [[found]] = gp.profile(gp.split([layer], stages=1), (x, x), gp.mse).stages
    return found


def saved(layer: Layer, features: int, sequence: int, batch: int = 3) -> list[int]:
    """The bytes of each array that a layer saves of a microbatch, its input among them."""
    x = 2 * sequence * batch * features
    return [x if size == "x" else size.of(batch) for size in profiled(layer, features, sequence).saved]


def attention(features: int, heads: int, **options) -> Layer:
    return Residual(
        gp.transformers.Attention(features, heads, dropout=0.1, **options, **ON_PAPER), Dropout(0.1)
    )


def network(features: int) -> Layer:
    wide, narrow = (
        Linear(*sizes, **ON_PAPER) for sizes in ((features, 4 * features), (4 * features, features))
    )
    return Residual(wide, gp.core.GELU(), narrow, Dropout(0.1))


def block(features: int, heads: int, **options) -> Layer:
    return gp.transformers.TransformerBlock(features, heads, dropout=0.1, **options, **ON_PAPER)


def core_flops(features: int, heads: int, sequence: int) -> int:
    """What attention computes for one sample beside its two linear layers."""
    x = gp.MetaArray((1, sequence, features), np.float16)
    linear = (Linear(features, out, **ON_PAPER) for out in (3 * features, features))
    return attention(features, heads).work(x).flops - sum(layer.work(x).flops for layer in linear)


@SIZES
def test_a_block_saves_34sbh_plus_5as2b_and_4sb_more(h, a, s):
    b = 3
    found = sum(saved(block(h, a), h, s, b))
    assert found == f.block_memory(s, b, h, a) + 4 * s * b
    assert f.block_memory(s, b, h, a) == s * b * h * (34 + Fraction(5 * a * s, h))


@SIZES
def test_its_parts_save_11sbh_plus_5as2b_and_19sbh_and_4sbh(h, a, s):
    b = 3
    assert sum(saved(attention(h, a), h, s, b)) == 11 * s * b * h + 5 * a * s * s * b
    assert sum(saved(network(h), h, s, b)) == 19 * s * b * h
    normal = gp.transformers.LayerNorm(h, on_paper=True, dtype=np.float16)
    assert 2 * sum(saved(normal, h, s, b)) == 4 * s * b * h + 4 * s * b


@SIZES
def test_selective_recompute_frees_the_attention_core_and_full_recompute_all_but_the_input(h, a, s):
    """The core is the softmax, the entries that dropout lets stay at a byte each, and what is left."""
    b = 3
    core = [2 * a * s * s * b, a * s * s * b, 2 * a * s * s * b]
    kept = saved(block(h, a, recompute=True), h, s, b)
    assert sum(kept) == 34 * s * b * h + 4 * s * b
    assert sorted(saved(block(h, a), h, s, b)) == sorted(kept + core)
    assert saved(gp.transformers.Checkpoint(block(h, a)), h, s, b) == [2 * s * b * h]


@pytest.mark.parametrize(
    ("h", "a", "s", "printed"),
    [(*GPT3, 0.702), (*MT_NLG, 0.653), (*BERT, 0.5405)],
    ids=["GPT-3", "530B", "BERT"],
)
def test_selective_recompute_frees_70_percent_of_gpt3s_bytes_and_54_percent_of_bert_larges(h, a, s, printed):
    """Section 5: 70% for GPT-3 and 65% for the model of 530 billion; BERT-large by the same formula."""
    full, left = sum(saved(block(h, a), h, s)), sum(saved(block(h, a, recompute=True), h, s))
    freed = 5 * a * s / (34 * h + 5 * a * s)
    assert freed == pytest.approx(printed, abs=0.00005 + 0.0005 * (h > 9999))
    assert 1 - left / full == pytest.approx(freed, abs=0.0005)


@SIZES
def test_a_flop_spent_on_the_attention_core_frees_about_as_many_times_more_as_there_are_heads(h, a, s):
    """20a/19 times what a FLOP spent on the network frees: 101 times, for GPT-3."""
    freed = sum(saved(attention(h, a), h, s, 1)) - sum(saved(attention(h, a, recompute=True), h, s, 1))
    of_core = Fraction(freed, core_flops(h, a, s))
    of_network = Fraction(sum(saved(network(h), h, s, 1)), profiled(network(h), h, s).flops)
    assert of_core == Fraction(5 * a, 4 * h)
    assert of_network == Fraction(19, 16 * h)
    assert of_core / of_network == Fraction(20 * a, 19)


@pytest.mark.parametrize(
    ("h", "a", "s", "printed"), [(*GPT3, 0.027), (*MT_NLG, 0.016)], ids=["GPT-3", "530B"]
)
def test_the_core_takes_2_7_percent_of_gpt3s_flops(h, a, s, printed):
    """Section 5 gives these as the cost of selective recompute: of a forward; of a step it is a third."""
    share = Fraction(core_flops(h, a, s), profiled(block(h, a), h, s).flops)
    assert share == Fraction(s, 6 * h + s)
    assert float(share) == pytest.approx(printed, abs=0.0005)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_24_blocks_save_24_times_as_much_with_either_norm(norm):
    """BERT-large's at s = 512: 38.8 MB each. A post-norm block saves its input, which the last one made."""
    h, a, s = BERT
    assert f.block_memory(s, 1, h, a) == 38_797_312
    blocks = [block(h, a, norm=norm) for _ in range(24)]
    x = gp.MetaArray((1, s, h), np.float16)
    profile = gp.profile(gp.split(blocks, stages=1), (x, x), gp.mse)
    [trace] = gp.predict_memory(gp.GPipe(1, 1), profile)
    error = 2 * s * h
    assert trace.activation_peak == 24 * (38_797_312 + 4 * s) + error


# Stages of blocks under 1F1B and interleaved


def first_device(schedule: gp.core.Schedule, blocks: int) -> int:
    """The activation peak of device 0, which holds no loss."""
    x = gp.MetaArray((schedule.microbatches, 32, 64), np.float16)
    stages = gp.split(
        gp.gpt(blocks, 64, 4, tokens=9, sequence=32, dropout=0.1, dtype=np.float16)[2:-2],
        stages=schedule.stages,
    )
    return gp.predict_memory(schedule, gp.profile(stages, (x, x), gp.mse))[0].activation_peak


@pytest.mark.parametrize("devices", [2, 4, 6])
def test_the_first_device_of_1f1b_holds_as_much_as_one_microbatch_leaves_in_the_whole_model(devices):
    """Section 4: K microbatches of 1/K of the model, however many microbatches there are."""
    for microbatches in (devices, 3 * devices):
        found = first_device(gp.OneFOneB(devices, microbatches), blocks=12)
        assert found == 12 * (f.block_memory(32, 1, 64, 4) + 4 * 32)


@pytest.mark.parametrize("stages_per_device", [1, 2, 3])
@pytest.mark.parametrize("devices", [1, 2, 4])
def test_interleaved_holds_1_plus_k_minus_1_over_kv_times_as_much(devices, stages_per_device):
    """Korthikanti et al. 2022, arXiv:2205.05198, section 4."""
    blocks = devices * stages_per_device
    factor = 1 + Fraction(devices - 1, blocks)
    for microbatches in (2 * devices, 5 * devices):
        plain = first_device(gp.OneFOneB(devices, microbatches), blocks)
        interleaved = first_device(gp.Interleaved1F1B(devices, microbatches, stages_per_device), blocks)
        assert Fraction(interleaved, plain) == factor
    at_once = first_device(gp.Interleaved1F1B(devices, devices, stages_per_device), blocks)
    assert at_once == plain, "with M = K there are not enough microbatches for it"
