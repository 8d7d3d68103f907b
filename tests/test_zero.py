"""ZeRO's formula, beside what copies of a model are measured to keep."""

from fractions import Fraction

import numpy as np
import pytest

import gpipe_sim as gp

f = gp.formulas
KEPT = ("parameters", "gradients", "optimizer state")
BATCH = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float16), np.arange(8) % 4


def copies(n: int) -> gp.core.Schedule:
    """The same model on each of n devices, and a microbatch for each."""
    return gp.Explicit([f"0F{m} 0B{m}" for m in range(n)], placement=[[0]] * n)


def test_7_5_billion_weights_on_64_devices_take_120_31_and_16_6_and_1_9_gb():
    """Rajbhandari et al. 2020, figure 1."""
    memory = [f.zero_memory(7_500_000_000, 64, stage) / 1e9 for stage in range(4)]
    assert [round(each, 1) for each in memory] == [120, 31.4, 16.6, 1.9]


@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_copy_keeps_the_16_psi_of_stage_0_as_predicted_and_as_metered(n):
    """Plain data parallelism, in mixed precision with Adam."""
    layers, adam = gp.mlp([16, 8, 4], dtype=np.float16), gp.MixedPrecision(gp.Adam())
    weights = sum(array.size for layer in layers for array in layer.parameters.values())
    stages = gp.split(layers, stages=1)
    predicted = gp.predict_memory(copies(n), gp.profile(stages, BATCH, gp.cross_entropy, optimizer=adam))
    step = gp.train_step(stages, copies(n), BATCH, gp.cross_entropy, optimizer=adam)
    assert len(predicted) == n and predicted == step.memory
    for device in predicted:
        parts = [device.peak(kind) for kind in KEPT]
        assert parts == [2 * weights, 2 * weights, 12 * weights]
        assert sum(parts) == f.zero_memory(weights, n, 0) == 16 * weights


def test_each_stage_shares_out_one_more_of_what_is_measured():
    """State, then gradients, then weights: of 2, 2 and 12 bytes, those that every copy still has."""
    layers, n = gp.gpt(2, 64, 4, tokens=50, sequence=8, dtype=np.float16), 4
    text, adam = gp.MetaArray((n, 8), int), gp.MixedPrecision(gp.Adam())
    found = gp.profile(gp.split(layers, stages=1), (text, text), gp.cross_entropy, optimizer=adam)
    device = gp.predict_memory(copies(n), found)[0]
    weights, kept = found.parameters // 2, [device.peak(kind) for kind in KEPT]
    for stage in range(4):
        whole, shared = kept[: 3 - stage], kept[3 - stage :]
        assert f.zero_memory(weights, n, stage) == sum(whole) + Fraction(sum(shared), n)
