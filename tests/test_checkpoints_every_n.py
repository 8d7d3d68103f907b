"""A checkpoint every n layers is what the stages of one device are that recompute.

Chen et al. 2016, arXiv:1604.06174. Each stage keeps its input, and all else only while its backward needs it.
No code knows of this.
"""

from math import isqrt

import numpy as np
import pytest

import gpipe_sim as gp

WIDTH, SAMPLES = 6, 5
ARRAY = WIDTH * SAMPLES * 8
BATCH = np.random.default_rng(0).normal(size=(2, SAMPLES, WIDTH))


def in_pieces(depth: int, pieces: int, make=None) -> tuple[list[gp.core.Partition], gp.core.Schedule]:
    """So many equal layers in as many pieces, each of which recomputes."""
    rng = np.random.default_rng(0)
    layers = [make() if make else gp.core.Linear(WIDTH, WIDTH, rng=rng) for _ in range(depth)]
    schedule = gp.remat(gp.Interleaved1F1B(1, 1, stages_per_device=pieces), "always")
    return gp.split(layers, stages=pieces), schedule


def arrays_held(depth: int, pieces: int, make=None) -> int:
    """At the peak, as the meter counts them and as they are predicted; the loss keeps one."""
    partitions, schedule = in_pieces(depth, pieces, make)
    step = gp.train_step(partitions, schedule, tuple(BATCH), gp.mse)
    assert gp.predict_memory(schedule, gp.profile(partitions, tuple(BATCH), gp.mse)) == step.memory
    held, rest = divmod(step.memory[0].activation_peak, ARRAY)
    assert rest == 0
    return held


@pytest.mark.parametrize("make", [None, gp.core.Tanh], ids=["Linear", "Tanh"])
def test_sixteen_layers_hold_8_arrays_in_four_pieces_and_17_in_one_or_sixteen(make):
    """Whether a layer saves its input or its output."""
    assert [arrays_held(16, pieces, make) for pieces in (1, 2, 4, 8, 16)] == [17, 10, 8, 10, 17]


@pytest.mark.parametrize("depth", [4, 9, 16, 36])
def test_as_many_pieces_as_layers_in_each_are_the_best(depth):
    """Pieces + depth / pieces arrays: the inputs of all, and what one of them saves again. 2 sqrt(depth)."""
    held = {pieces: arrays_held(depth, pieces) for pieces in range(1, depth + 1) if depth % pieces == 0}
    assert held == {pieces: pieces + depth // pieces for pieces in held}
    assert min(held, key=held.get) == isqrt(depth)
    assert min(held.values()) == 2 * isqrt(depth)


@pytest.mark.parametrize("pieces", [1, 4, 16])
def test_it_takes_one_more_forward_however_many_pieces(pieces):
    """In FLOPs, from the same schedule: a third more than the three forwards that a step takes."""
    partitions, schedule = in_pieces(16, pieces)
    costs = gp.profile(partitions, tuple(BATCH), gp.mse).costs()
    forward = sum(costs.forward)
    assert forward == 16 * 2 * SAMPLES * WIDTH * WIDTH
    assert gp.simulate(schedule, costs).makespan == 4 * forward
    assert gp.simulate(schedule.inner, costs).makespan == 3 * forward


def test_without_recompute_pieces_save_nothing():
    for pieces in (1, 4, 16):
        partitions, schedule = in_pieces(16, pieces)
        step = gp.train_step(partitions, schedule.inner, tuple(BATCH), gp.mse)
        assert step.memory[0].activation_peak == 17 * ARRAY


def test_gradients_are_those_without_pieces():
    one, four = (gp.train_step(*in_pieces(16, pieces), tuple(BATCH), gp.mse) for pieces in (1, 4))
    assert one.gradients.keys() == four.gradients.keys()
    assert all((one.gradients[key] == four.gradients[key]).all() for key in one.gradients)
