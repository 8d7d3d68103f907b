"""The Transformer that lesson 16 trains for a minute: what was stored is what the code still does."""

import pytest

import gpipe_sim as gp
from gpipe_sim.course import trained
from gpipe_sim.course.trained import ALONE, PIPELINE, reader, stored, training

TOLERANCE = 1e-9  #: other processors round otherwise, and training carries that on


def test_the_two_trainings_that_are_stored():
    assert list(stored()) == [ALONE, PIPELINE]
    for found in stored().values():
        assert (len(found.losses), len(found.accuracies)) == (40 * (1438 // 64), 40)
        assert found.losses[0] > 2.3 > 0.01 > found.losses[-1]
        assert min(found.accuracies[-20:]) > 0.95, "not by chance"


def test_four_devices_learn_what_one_learns():
    alone, pipeline = (stored()[name].losses for name in (ALONE, PIPELINE))
    assert 0 < max(abs(a - b) for a, b in zip(alone, pipeline, strict=True)) < 1e-12


def test_the_first_epoch_comes_out_again():
    again, found = training(PIPELINE, epochs=1), stored()[PIPELINE]
    assert again.losses == pytest.approx(found.losses[:22], abs=TOLERANCE)
    assert again.accuracies == pytest.approx(found.accuracies[:1], abs=0.003)


def test_each_device_has_a_block():
    stages = gp.split(reader(), balance=trained.BALANCE)
    blocks = [
        sum(isinstance(layer, gp.transformers.TransformerBlock) for layer in stage.layers) for stage in stages
    ]
    assert blocks == [1, 1, 1, 1]


def test_a_digit_is_eight_rows_from_the_top():
    rows, whole = trained.rows_of_eight(), gp.digits()
    assert rows.x.shape == (1438, 8, 8) and rows.x_held_out.shape == (359, 8, 8)
    assert (rows.x[5, 2] == whole.x[5, 16:24]).all() and (rows.y == whole.y).all()
