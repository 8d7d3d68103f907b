"""The trainings with and without a flush: what was stored is what the code still does, and what it shows."""

import json
from collections import Counter
from itertools import product

import numpy as np
import pytest

import gpipe_sim as gp
from gpipe_sim.course import late
from gpipe_sim.course.late import (
    BLOCK,
    COMMON,
    DEPTHS,
    EACH,
    FLUSHED,
    HIGH,
    METHODS,
    MICROBATCHES,
    OWN,
    RATES,
    SEEDS,
    WEIGHTS,
    stored,
    train_late,
)

TOLERANCE = 1e-3  #: four digits are stored, and other processors round otherwise


def test_what_is_stored_has_the_settings_of_the_script():
    assert set(stored()) == set(product(DEPTHS, METHODS, (COMMON, HIGH, OWN)))
    for (devices, method, rate), found in stored().items():
        assert rate in (found.rate, OWN)
        assert len(found.losses) == len(found.diverged) == len(SEEDS)
        for curve, end in zip(found.losses, found.diverged, strict=True):
            microbatches = MICROBATCHES if end is None else end * late.every(method, devices)
            assert len(curve) == microbatches // BLOCK


def test_a_tuned_rate_is_the_best_of_the_rates_and_not_the_last_that_was_tried():
    tuning = json.loads(late.FILE.read_text())["tuning"]
    for devices, method in product(DEPTHS, METHODS):
        table = tuning[str(devices)][method]
        assert [float(rate) for rate in table] == list(RATES)
        rated = {float(rate): loss for rate, loss in table.items() if loss is not None}
        own = stored()[devices, method, OWN].rate
        assert own == min(rated, key=rated.get)
        assert RATES[0] < own < RATES[-1]


@pytest.mark.parametrize(("devices", "rate"), [(2, COMMON), (8, HIGH)])
@pytest.mark.parametrize("method", METHODS)
def test_the_first_losses_come_out_again(method, devices, rate):
    losses, end = train_late(method, devices, rate, seed=3, microbatches=BLOCK + devices)
    assert end is None
    [again, *_] = late.blocks(losses, method, devices)
    assert again == pytest.approx(stored()[devices, method, rate].losses[3][0], rel=TOLERANCE)


@pytest.mark.parametrize("family", [gp.GPipe, gp.OneFOneB])
@pytest.mark.parametrize("method", [EACH, FLUSHED])
def test_with_a_flush_the_devices_learn_what_one_device_learns(method, family):
    size = late.every(method, 4)
    schedule = gp.repeat(gp.with_updates(family(4, size)), 24 // size)
    assert gp.simulate(schedule).makespan == gp.simulate(late.order(method, 4, 24)).makespan
    partitions = gp.split(late.layers(4, seed=0), stages=4)
    batch, how = late.stream(24, seed=0), {"optimizer": gp.SGD(COMMON), "meter": False}
    step = gp.train_step(partitions, schedule, batch, gp.cross_entropy, **how)
    alone, _ = train_late(method, 4, COMMON, seed=0, microbatches=24)
    np.testing.assert_allclose(step.losses, alone, rtol=1e-12)


def test_a_flush_takes_time_and_a_stream_takes_none():
    """Per microbatch of F = 1 and B = 2: 3 on a stream, 3K if all wait for each, less if K of them share."""
    for devices in DEPTHS:
        between = {
            method: {b - a for a, b in zip(ends, ends[1:], strict=False)}
            for method in METHODS
            if (ends := late.times(method, devices))
        }
        assert between.pop(EACH) == {3 * devices * BLOCK}
        assert between.pop(FLUSHED) == {3 * (2 * devices - 1) * BLOCK // devices}
        assert set(between) == set(WEIGHTS)
        for method, found in between.items():
            assert found == {3 * BLOCK}, method
            assert late.times(method, devices)[0] == 3 * (BLOCK + devices - 1)


def test_each_epoch_of_the_stream_visits_a_digit_once_and_then_shuffles_anew():
    x, y = late.stream(100, seed=1)
    assert (x.shape, y.shape) == ((1600, 64), (1600,))
    epoch = 89 * late.SAMPLES
    first, there = (Counter(row.tobytes() for row in rows) for rows in (x[:epoch], gp.digits().x))
    assert first <= there and first.total() == epoch == there.total() - 14
    assert not (x[: 11 * 16] == x[epoch:]).all()


SAME = {"one Linear each": ([64, 32, 10], [2, 1]), "three on the last": ([64, 32, 32, 32, 10], [2, 5])}
OTHER = {"two on the first": ([64, 32, 32, 10], [4, 1]), "three devices": ([64, 32, 32, 10], [2, 2, 1])}


@pytest.mark.parametrize(("name", "same"), [*((n, True) for n in SAME), *((n, False) for n in OTHER)])
def test_without_stashing_nothing_changes_where_no_gradient_passes_newer_weights(name, same):
    """The gradient of a Linear's weights is of what it saved; only that of its input reads weights."""
    sizes, balance = (SAME | OTHER)[name]
    stashed, latest = (short_run(sizes, balance, weights) for weights in ("stashed", "latest"))
    assert (stashed == latest) == same


def test_recompute_reads_newer_weights_so_that_stashing_matters_again():
    stashed, latest = (
        short_run(*SAME["one Linear each"], weights, recompute=True) for weights in ("stashed", "latest")
    )
    assert stashed != latest
    assert stashed == short_run(*SAME["one Linear each"], "stashed")


def short_run(sizes, balance, weights, recompute=False) -> tuple[float, ...]:
    rows = gp.PipeDream(len(balance), 12)
    how = {"optimizer": gp.SGD(0.1), "weights": weights, "meter": False}
    partitions = gp.split(gp.mlp(sizes), balance=balance)
    if recompute:
        rows = gp.remat(rows, "always")
    return gp.train_step(partitions, rows, late.stream(12, seed=0), gp.cross_entropy, **how).losses
