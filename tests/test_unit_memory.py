"""ZB-H1 and ZB-H2 in bytes: M_B from F until I or B, M_W from I until W, against the zero-bubble paper.

Qi, Wan, Huang and Lin 2024, arXiv:2401.10241, tables 1 and 2. First on a made-up model that saves M_B and
then keeps M_W, which is how the papers count; then on Transformer blocks.
"""

import numpy as np
import pytest
from cases import every_order, over
from closed_forms import zbh1_memory, zbh2_memory

import gpipe_sim as gp
from gpipe_sim.core import Schedule
from gpipe_sim.core.memory import PENDING, SAVED
from gpipe_sim.families import ZBH2
from gpipe_sim.memory.profile import LayerProfile, LossProfile, Profile, Size

f = gp.formulas
ZERO_BUBBLE = pytest.mark.parametrize(
    ("family", "formula"), [(gp.ZBH1, zbh1_memory), (ZBH2, zbh2_memory)], ids=["ZB-H1", "ZB-H2"]
)


def made_up(schedule: Schedule, saved: int, pending: int) -> Profile:
    """A model each stage of which holds so many bytes of a microbatch, before I and after it."""
    one = Size(0, 1)
    stage = LayerProfile({}, 0, {}, one, (Size(0, saved),), one, (Size(0, pending),))
    stages = tuple((stage,) for _ in range(schedule.stages))
    return Profile(schedule.microbatches, one, one, stages, LossProfile((), one))


def peaks(schedule: Schedule, saved: int = 10, pending: int = 4) -> list[int]:
    traces = gp.predict_memory(schedule, made_up(schedule, saved, pending))
    return [trace.activation_peak for trace in traces]


def test_the_peaks_of_zb_h1_and_zb_h2_for_four_devices():
    """Table 2: (p-i+1) M_B + (i-1) M_W, and (2p-2i+1) M_B + (2i-2) M_W, for workers i from 1 on."""
    assert peaks(gp.ZBH1(4, 8)) == [40, 34, 28, 22]
    assert peaks(ZBH2(4, 8)) == [70, 58, 46, 34]
    assert peaks(gp.OneFOneB(4, 8)) == [40, 30, 20, 10]


@ZERO_BUBBLE
@pytest.mark.parametrize(("saved", "pending"), [(10, 4), (34, 32), (7, 7), (5, 0)])
@pytest.mark.parametrize("devices", range(1, 8))
def test_the_papers_formula_holds_for_every_number_of_devices(family, formula, devices, saved, pending):
    expected = [formula(devices, k, saved, pending) for k in range(devices)]
    for microbatches in (2 * devices - 1, 3 * devices):
        assert peaks(family(devices, microbatches), saved, pending) == expected


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_where_w_keeps_more_than_i_frees_a_device_holds_most_after_an_i(devices):
    """(K-k-1) M_B + (k+1) M_W, which the formula is not for."""
    expected = [(devices - k - 1) * 34 + (k + 1) * 40 for k in range(devices)]
    assert peaks(gp.ZBH1(devices, 3 * devices), 34, 40) == expected


def test_one_microbatch_on_one_device_step_by_step():
    def steps(schedule):
        [trace] = gp.predict_memory(schedule, made_up(schedule, saved=10, pending=4))
        return list(zip(trace.times, trace.over_time(SAVED), trace.over_time(PENDING), strict=True))

    assert steps(gp.ZBH1(1, 1)) == [(0, 0, 0), (1, 10, 0), (2, 0, 4), (3, 0, 0)]
    assert steps(gp.OneFOneB(1, 1)) == [(0, 0, 0), (1, 10, 0), (3, 0, 0)]


def without_pairs(schedule: Schedule) -> bool:
    """While a pair runs, more is in flight than where it ends."""
    return all(len(action.parts) == 1 for row in schedule.actions for action in row)


@over(filter(without_pairs, every_order([(1, 2), (3, 4), (4, 8)])))
def test_where_w_keeps_as_much_it_is_what_is_in_flight(schedule):
    timeline, traces = gp.simulate(schedule), gp.predict_memory(schedule, made_up(schedule, 3, 3))
    for device, trace in enumerate(traces):
        for time, count in gp.why.in_flight(timeline, device):
            assert sum(trace.at(time)[category] for category in (SAVED, PENDING)) == 3 * count
        assert trace.over_time(SAVED, PENDING)[-1] == 0


# Transformer blocks


def of_blocks(schedule: Schedule, blocks: int, features: int, heads: int, sequence: int) -> Profile:
    """Equal stages of this many blocks on paper, in 2-byte numbers, a sequence in each microbatch."""
    x = gp.MetaArray((schedule.microbatches, sequence, features), np.float16)
    model = gp.gpt(
        blocks * schedule.stages, features, heads, tokens=2, sequence=sequence, dropout=0.1, dtype=np.float16
    )
    return gp.profile(gp.split(model[2:-2], stages=schedule.stages), (x, x), gp.mse)


@ZERO_BUBBLE
@pytest.mark.parametrize("devices", [1, 2, 4, 5])
def test_stages_of_transformer_blocks_hold_it_in_bytes(family, formula, devices):
    """Of a block, M_B is 34sbh + 5as^2b, and 4sb as LayerNorm keeps 1/std; M_W is 32sbh, and 8sbh of its
    LayerNorms, whose weights wait for W as well. The last device also holds the error of its loss until I.
    """
    blocks, h, a, s = 2, 64, 4, 32
    schedule = family(devices, 2 * devices)
    M_B = blocks * (f.block_memory(s, 1, h, a) + 4 * s)
    M_W = blocks * (32 * s * h + 8 * s * h)
    assert (M_B, M_W) == (180_480, 163_840)
    error = [0] * (devices - 1) + [2 * s * h]
    traces = gp.predict_memory(schedule, of_blocks(schedule, blocks, h, a, s))
    assert [trace.activation_peak for trace in traces] == [
        formula(devices, k, M_B + error[k], M_W) for k in range(devices)
    ]


def test_gpt3_in_32_stages_holds_8_gib_of_a_microbatch_until_i_and_2_8_gib_until_w():
    """Three blocks in a stage, one sequence in a microbatch; the first device holds 32 of them."""
    h, a, s = 12_288, 96, 2_048
    schedule = gp.ZBH1(32, 64)
    traces = gp.predict_memory(schedule, of_blocks(schedule, 3, h, a, s))
    M_B, M_W = 3 * (f.block_memory(s, 1, h, a) + 4 * s), 3 * (32 * s * h + 8 * s * h)
    assert [round(held / 2**30, 1) for held in (M_B, M_W)] == [8.0, 2.8]
    assert [trace.activation_peak for trace in traces[:-1]] == [
        zbh1_memory(32, k, M_B, M_W) for k in range(31)
    ]


@ZERO_BUBBLE
def test_a_step_that_runs_holds_it_too(family, formula):
    """M_B and M_W of each device are what one microbatch alone leaves there after F and after I."""
    devices, rng = 3, np.random.default_rng(0)
    layers = [gp.transformers.TransformerBlock(4, 2, dropout=0.1, rng=rng) for _ in range(devices)]
    x = rng.normal(size=(2 * devices, 12, 4))

    def measured(microbatches):
        batch = x[:microbatches], x[:microbatches]
        partitions = gp.split(layers, stages=devices)
        return gp.train_step(partitions, family(devices, microbatches), batch, gp.mse).memory

    def alone(trace):
        before, after = (held for held in dict.fromkeys(trace.over_time(SAVED, PENDING)) if held)
        return before, after

    units = [alone(trace) for trace in measured(1)]
    assert [trace.activation_peak for trace in measured(2 * devices)] == [
        formula(devices, k, *units[k]) for k in range(devices)
    ]
