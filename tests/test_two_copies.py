"""Chimera and DualPipe: two devices hold a copy each of every stage, and share none of it."""

import numpy as np
import pytest
from cases import entrances, parts
from closed_forms import transformer_parameters

from gpipe_sim import (
    ZBV,
    Adam,
    MetaArray,
    OneFOneB,
    cross_entropy,
    digits,
    gpt3_175b,
    mlp,
    predict_memory,
    profile,
    remat,
    single_device_step,
    split,
    train_step,
)
from gpipe_sim.core import Kind, Partition
from gpipe_sim.core.memory import PARAMETERS
from gpipe_sim.families import Chimera, DualPipe, DualPipeV

BOTH_WAYS = pytest.mark.parametrize("schedule", [Chimera(4, 8), Chimera(4, 5), DualPipe(4, 8)], ids=repr)


def model():
    return mlp([64] + [12] * 6 + [10])


def sixteen_digits():
    """Two in each of eight microbatches."""
    data = digits()
    return data.x[:16], data.y[:16]


def run(schedule, **options):
    return train_step(
        split(model(), stages=schedule.stages), schedule, sixteen_digits(), cross_entropy, **options
    )


@BOTH_WAYS
def test_the_second_holder_of_a_stage_has_a_partition_of_its_own(schedule, devices):
    partitions = split(model(), stages=4)
    train_step(partitions, schedule, sixteen_digits(), cross_entropy)
    for stage, given in enumerate(partitions):
        one, other = [device.partitions[stage] for device in devices if stage in device.partitions]
        assert one is given and other is not given
        assert list(other.parameters) == list(given.parameters)
        for key, weights in given.parameters.items():
            assert (other.parameters[key] == weights).all()
            assert not np.shares_memory(other.parameters[key], weights)
        assert not {*map(id, one.layers)} & {*map(id, other.layers)}


def test_two_copies_of_the_model_take_twice_the_parameters():
    """DeepSeek-V3 report, table 2, and Chimera's 2M; DualPipeV has one copy, on half as many devices."""

    def parameters(schedule):
        return sum(memory.peak(PARAMETERS) for memory in run(schedule).memory)

    alone = parameters(OneFOneB(4, 8))
    assert alone == sum(array.nbytes for array in Partition(model()).parameters.values())
    assert parameters(Chimera(4, 8)) == parameters(DualPipe(4, 8)) == 2 * alone
    assert parameters(DualPipeV(2, 8)) == alone


def test_gpt3_on_paper_takes_twice_its_bytes_under_chimera_and_dualpipe_and_once_otherwise():
    """350 GB of 2-byte weights: its 174.6 billion, the head's own 629 million, and a last LayerNorm."""
    text = MetaArray((8, 2_048), np.int32)
    layers = profile(split(gpt3_175b(), stages=4), (text, text), cross_entropy)
    beside = 12_288 * 51_200 + 51_200 + 2 * 12_288
    whole = 2 * (transformer_parameters(96, 12_288, 51_200, 2_048) + beside)
    assert round(whole / 1e9, 1) == 350.5
    for schedule, copies in ((Chimera(4, 8), 2), (DualPipe(4, 8), 2), (OneFOneB(4, 8), 1), (ZBV(2, 8), 1)):
        assert sum(each.peak(PARAMETERS) for each in predict_memory(schedule, layers)) == copies * whole


@pytest.mark.parametrize("schedule", [Chimera(4, 8), DualPipe(4, 8)], ids=repr)
def test_each_copy_adds_up_in_order_and_the_two_are_summed_once(schedule):
    """Bit for bit: half of the samples weigh twice what they do among all, and twice is exact."""
    x, y = sixteen_digits()
    halves = []
    for entered in entrances(schedule).values():
        rows = [row for m in entered for row in (2 * m, 2 * m + 1)]
        half = single_device_step(model(), (x[rows], y[rows]), cross_entropy, microbatches=4)
        halves.append(half.gradients)
    one, other = halves
    found = run(schedule).gradients
    assert all((found[key] == (one[key] + other[key]) / 2).all() for key in found)


def test_a_copy_that_has_no_microbatch_adds_nothing():
    lone = Chimera(4, 2)
    assert len(entrances(lone)) == 1
    found, expected = run(lone), single_device_step(model(), sixteen_digits(), cross_entropy, microbatches=2)
    assert all((found.gradients[key] == expected.gradients[key]).all() for key in expected.gradients)


def test_after_a_plain_step_of_the_optimizer_both_copies_start_the_next_from_the_new_weights():
    partitions, alone = split(model(), stages=4), model()
    inside, outside = Adam(0.01), Adam(0.01)
    for step in range(3):
        found = train_step(partitions, DualPipe(4, 8), sixteen_digits(), cross_entropy, step=step)
        expected = single_device_step(alone, sixteen_digits(), cross_entropy, step=step)
        assert found.loss == pytest.approx(expected.loss, rel=1e-12)
        weights = {key: array for each in partitions for key, array in each.parameters.items()}
        inside.step(weights, found.gradients)
        outside.step(Partition(alone).parameters, expected.gradients)


def test_remat_except_last_spares_the_last_microbatch_of_each_direction():
    """Microbatches 0 and 1 enter at device 0, 2 and 3 at device 3: 1 and 3 are spared."""
    for schedule, again in ((Chimera(4, 4), {0, 2}), (DualPipe(4, 8), {0, 1, 2, 4, 5, 6})):
        recomputing = parts(remat(schedule, "except_last"))
        assert {part.microbatch for part in recomputing if part.kind is Kind.R} == again
