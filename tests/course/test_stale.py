"""The trainings with and without a flush: what was stored is what the code still does, and what it shows."""

import json
from collections import Counter
from itertools import pairwise, product

import numpy as np
import pytest

import gpipe_sim as gp
from benchmarks.staleness import best, gathered, to_text, tuning_table
from gpipe_sim.course import stale
from gpipe_sim.course.stale import (
    BLOCK,
    COMMON,
    DEPTHS,
    DOUBLE,
    EACH,
    FLUSHED,
    HIGH,
    LATEST,
    METHODS,
    MICROBATCHES,
    OWN,
    RATES,
    SEEDS,
    STASHED,
    VERTICAL,
    WEIGHTS,
    stored,
    train_stale,
)

TOLERANCE = 1e-3  #: four digits are stored, and other processors round otherwise


def test_what_is_stored_has_the_settings_of_the_script():
    assert set(stored()) == set(product(DEPTHS, METHODS, (COMMON, HIGH, OWN)))
    for (devices, method, rate), found in stored().items():
        assert rate in (found.rate, OWN)
        assert len(found.losses) == len(found.diverged) == len(SEEDS)
        for curve, end in zip(found.losses, found.diverged, strict=True):
            microbatches = MICROBATCHES if end is None else end * stale.every(method, devices)
            assert len(curve) == microbatches // BLOCK


def test_a_tuned_rate_is_the_best_of_the_rates_and_not_the_last_that_was_tried():
    tuning = json.loads(stale.FILE.read_text())["tuning"]
    for devices, method in product(DEPTHS, METHODS):
        table = tuning[str(devices)][method]
        assert [float(rate) for rate in table] == list(RATES)
        rated = {float(rate): loss for rate, loss in table.items() if loss is not None}
        own = stored()[devices, method, OWN].rate
        assert own == best(rated) == min(rated, key=rated.get)
        assert RATES[0] < own < RATES[-1]


def test_the_script_writes_what_is_stored():
    text = stale.FILE.read_text()
    assert len(text) < 150_000 and to_text(json.loads(text)) == text
    trained = json.loads(text)["trained"]["2"][STASHED]["0.1"]
    curves = {(STASHED, 2, HIGH, seed): (trained["losses"][seed], None) for seed in SEEDS}
    assert gathered(curves, STASHED, 2, HIGH) == trained


def test_a_rate_at_which_a_training_diverges_is_not_chosen():
    tuned = {(LATEST, 4, rate, seed): ([2.0], None) for rate in RATES for seed in stale.TUNING_SEEDS}
    tuned |= {(LATEST, 4, RATES[2], seed): ([1.0], None) for seed in stale.TUNING_SEEDS}
    assert best(tuning_table(tuned, LATEST, 4)) == RATES[2]
    tuned[LATEST, 4, RATES[2], 101] = [0.5], 30
    assert tuning_table(tuned, LATEST, 4)[RATES[2]] is None
    assert best(tuning_table(tuned, LATEST, 4)) == RATES[0]


@pytest.mark.parametrize(("devices", "rate"), [(2, COMMON), (8, HIGH)])
@pytest.mark.parametrize("method", METHODS)
def test_the_first_losses_come_out_again(method, devices, rate):
    losses, end = train_stale(method, devices, rate, seed=3, microbatches=BLOCK + devices)
    assert end is None
    [again, *_] = stale.blocks(losses, method, devices)
    assert again == pytest.approx(stored()[devices, method, rate].losses[3][0], rel=TOLERANCE)


@pytest.mark.parametrize("family", [gp.GPipe, gp.OneFOneB])
@pytest.mark.parametrize("method", [EACH, FLUSHED])
def test_with_a_flush_the_devices_learn_what_one_device_learns(method, family):
    size = stale.every(method, 4)
    schedule = gp.repeat(gp.with_updates(family(4, size)), 24 // size)
    assert gp.simulate(schedule).makespan == gp.simulate(stale.order(method, 4, 24)).makespan
    partitions = gp.split(stale.layers(4, seed=0), stages=4)
    batch, how = stale.stream(24, seed=0), {"optimizer": gp.SGD(COMMON), "meter": False}
    step = gp.train_step(partitions, schedule, batch, gp.cross_entropy, **how)
    alone, _ = train_stale(method, 4, COMMON, seed=0, microbatches=24)
    np.testing.assert_allclose(step.losses, alone, rtol=1e-12)


def test_a_flush_takes_time_and_a_stream_takes_none():
    """Per microbatch of F = 1 and B = 2: 3 on a stream, 3K if all wait for each, less if K of them share."""
    for devices in (DEPTHS[0], DEPTHS[-1]):
        between = {
            method: {b - a for a, b in pairwise(ends)}
            for method in METHODS
            if (ends := stale.times(method, devices))
        }
        assert between.pop(EACH) == {3 * devices * BLOCK}
        assert between.pop(FLUSHED) == {3 * (2 * devices - 1) * BLOCK // devices}
        assert set(between) == set(WEIGHTS)
        for method, found in between.items():
            assert found == {3 * BLOCK}, method
            assert stale.times(method, devices)[0] == 3 * (BLOCK + devices - 1)


def test_each_epoch_of_the_stream_visits_a_digit_once_and_then_shuffles_anew():
    x, y = stale.stream(100, seed=1)
    assert (x.shape, y.shape) == ((1600, 64), (1600,))
    epoch = 89 * stale.SAMPLES
    first, there = (Counter(row.tobytes() for row in rows) for rows in (x[:epoch], gp.digits().x))
    assert first <= there and first.total() == epoch == there.total() - 14
    assert not (x[: 11 * 16] == x[epoch:]).all()


def final(devices: int, method: str, rate: float | str) -> float:
    """The mean over the seeds; infinity if one diverged."""
    return float(np.mean(stored()[devices, method, rate].final))


def diverged(devices: int, method: str, rate: float | str) -> int:
    return sum(end is not None for end in stored()[devices, method, rate].diverged)


def test_staleness_costs_more_the_deeper_the_pipeline():
    lost = [final(k, STASHED, OWN) - final(k, EACH, OWN) for k in DEPTHS]
    assert lost == sorted(lost) and lost[0] < 0.02 and lost[-1] > 0.4


def test_where_stashing_is_worth_its_bytes():
    """Of eight: how many diverge at K = 2, 4, 6, 8."""
    assert [diverged(k, LATEST, COMMON) for k in DEPTHS] == [0, 0, 2, 7]
    assert [diverged(k, LATEST, HIGH) for k in DEPTHS] == [0, 0, 5, 6]
    assert [diverged(k, STASHED, COMMON) for k in DEPTHS] == [0, 0, 0, 0]
    assert [diverged(k, STASHED, HIGH) for k in DEPTHS] == [0, 0, 0, 1]
    chance = np.log(10)
    assert max(stored()[8, STASHED, COMMON].final) < 0.9 * chance, "and it learns"
    assert max(stored()[6, STASHED, HIGH].final) < 0.9 * chance
    assert abs(final(2, LATEST, COMMON) - final(2, STASHED, COMMON)) < 0.01, "two devices need none"
    assert final(8, LATEST, OWN) > 1.5 * final(8, STASHED, OWN), "also at its own rate"


def test_vertical_sync_is_later_than_pipedream_on_most_stages_and_learns_less():
    for devices in DEPTHS[1:]:
        assert final(devices, VERTICAL, OWN) > final(devices, STASHED, OWN)
        assert final(devices, VERTICAL, OWN) > final(devices, LATEST, OWN), "stashing nothing is better"
    assert final(8, VERTICAL, COMMON) > 2.2, "no better than chance"


def test_two_versions_learn_less_by_samples_than_a_flush_after_as_many():
    for devices in DEPTHS:
        assert final(devices, DOUBLE, COMMON) > final(devices, FLUSHED, COMMON)
        assert final(devices, DOUBLE, OWN) > final(devices, FLUSHED, OWN)


def test_by_time_pipedream_is_ahead():
    """When it has used up its samples, those with a flush are not as far."""
    for devices, rate in product(DEPTHS[1:], (COMMON, OWN)):
        end = stale.times(STASHED, devices)[-1]
        for method in (EACH, FLUSHED):
            so_far = sum(at <= end for at in stale.times(method, devices))
            assert so_far < 20
            losses = [curve[so_far - 1] for curve in stored()[devices, method, rate].losses]
            assert np.mean(losses) > final(devices, STASHED, rate)


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
    return gp.train_step(partitions, rows, stale.stream(12, seed=0), gp.cross_entropy, **how).losses
