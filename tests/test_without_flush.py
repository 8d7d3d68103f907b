"""Updates on the way: training equals a plain loop on delayed weights."""

from copy import deepcopy

import numpy as np
import pytest
from cases import over
from streams import DIGITS, RATE, SAMPLES, model, stream, trained, weights_of

import gpipe_sim as gp
from gpipe_sim import PipeDream
from gpipe_sim.core.schedule import WEIGHTS
from gpipe_sim.core.step import kind_of_step
from gpipe_sim.replicas import side_by_side
from gpipe_sim.streams import PipeDream2BW, PipelinedBackprop


def plain_loop(partitions, mini_batches, version_of, rule=None) -> list[float]:
    """Updates whose gradient is taken at older weights: ``version_of(t, stage)`` says which."""
    current, rule = weights_of(partitions), rule or gp.SGD(RATE)
    history, losses = [deepcopy(current)], []
    for t, (x, y) in enumerate(mini_batches):
        for stage, partition in enumerate(partitions):
            for key, array in partition.parameters.items():
                array[...] = history[version_of(t, stage)][key]
        layers = [layer for partition in partitions for layer in partition.layers]
        found = gp.single_device_step(layers, (x, y), gp.cross_entropy)
        losses.append(found.loss)
        history.append(deepcopy(history[-1]))
        rule.step(history[-1], found.gradients)
    for key, array in current.items():
        array[...] = history[-1][key]
    return losses


def cut(x, y, size: int) -> list[tuple]:
    return [(x[at : at + size], y[at : at + size]) for at in range(0, len(x), size)]


def formula(mode: str, devices: int):
    """The rule of the papers: how old each stage's weights are for mini-batch t."""
    delays = {
        "stashed": [devices - stage - 1 for stage in range(devices)],
        "vertical": [devices - 1] * devices,
        "double": [1] * devices,
    }[mode]
    return lambda t, stage: max(0, t - delays[stage])


RULES = [lambda: gp.SGD(RATE), lambda: gp.SGD(0.01, momentum=0.9), lambda: gp.Adam(0.01)]


@pytest.mark.parametrize("rule", RULES, ids=["SGD", "momentum", "Adam"])
@pytest.mark.parametrize("mode", ["stashed", "vertical", "double"])
@pytest.mark.parametrize("devices", [2, 4])
def test_training_is_a_plain_loop_on_delayed_weights(devices, mode, rule):
    """The rules of Harlap et al. 2018 and Narayanan et al. 2021. An update moves a state once."""
    every = devices if mode == "double" else 1
    schedule = PipeDream2BW(devices, 12 * every) if mode == "double" else PipeDream(devices, 12)
    x, y = stream(schedule)
    pipelined, plain = model(devices), model(devices)
    step = gp.train_step(
        pipelined, schedule, (x, y), gp.cross_entropy, optimizer=rule(), weights=mode, meter=False
    )
    losses = plain_loop(plain, cut(x, y, SAMPLES * every), formula(mode, devices), rule())
    np.testing.assert_allclose(step.losses, losses, rtol=1e-12)
    for key, array in weights_of(plain).items():
        np.testing.assert_allclose(weights_of(pipelined)[key], array, rtol=1e-12, atol=1e-14)
    assert np.ptp(losses) > 0.05, "and it has learned something"


@over([gp.with_updates(family(3, 4)) for family in (gp.GPipe, gp.OneFOneB, gp.ZBH1, gp.families.ZBH2)])
def test_steps_that_overlap_but_update_in_between_are_those_of_one_device(schedule):
    partitions, alone = model(3), model(3)
    several = gp.repeat(schedule, 5)
    x, y = stream(several)
    step = gp.train_step(partitions, several, (x, y), gp.cross_entropy, optimizer=gp.SGD(RATE))
    losses = plain_loop(alone, cut(x, y, len(x) // 5), lambda t, stage: t)
    np.testing.assert_allclose(step.losses, losses, rtol=1e-12)
    assert {late for row in gp.staleness(several).delay for late in row} == {0}


@pytest.mark.parametrize("family", gp.families.WITHOUT_FLUSH)
def test_what_is_made_of_a_stream_is_trained_with_its_weights(family):
    """An order of ``colocate`` or ``repeat`` once forgot them, and stashed what was to be the latest."""
    stream = family(2, 4)
    made = [
        gp.balance.colocate(stream, ["a", "a"]),
        gp.repeat(stream, 2),
        gp.remat(stream, "always"),
        gp.replicate(stream, 2),
        side_by_side([stream, stream]),
        gp.repeat(gp.remat(stream, "always"), 2),
        deepcopy(gp.repeat(stream, 2)),
    ]
    for order in made:
        assert order.weights == stream.weights
        assert gp.staleness(order).weights == stream.weights[0]
    assert gp.Explicit(stream.actions).weights == WEIGHTS, "the rows alone do not say"
    assert side_by_side([PipeDream(2, 4), PipelinedBackprop(2, 4)]).weights == ("latest",)


def test_the_loss_is_that_of_the_forward_also_if_it_is_run_again_on_newer_weights():
    """Once the loss of R was told, while the outputs were those of F.

    The last stage of a family runs R on the version of F, so only an order like this one can tell.
    """
    schedule = gp.Explicit(["0F0 0F1 0R0 0B0 0U0 0R1 0B1 0U1"])
    step = trained(schedule, "latest")
    _, y = stream(schedule)
    of_outputs = [
        gp.cross_entropy(step.outputs[at : at + SAMPLES], y[at : at + SAMPLES])
        for at in range(0, len(y), SAMPLES)
    ]
    np.testing.assert_allclose(step.losses, of_outputs, rtol=1e-12)


@pytest.mark.parametrize("samples", range(12, 25))
def test_microbatches_and_mini_batches_of_a_stream_differ_by_at_most_one_sample(samples):
    """Cut with the larger microbatches first, the first mini-batches had all that is left over."""
    for schedule in (PipeDream2BW(2, 12), PipeDream(2, 12, every=4), PipeDream(3, 12)):
        cut = kind_of_step(schedule).cut(schedule.program, samples)
        assert [row for piece in cut for row in range(samples)[piece.rows]] == list(range(samples))
        sizes = np.array([piece.samples for piece in cut])
        together = sizes.reshape(-1, schedule.every).sum(axis=1)
        assert np.ptp(sizes) <= 1 and np.ptp(together) <= 1
        shares = sizes / np.repeat(together, schedule.every)
        np.testing.assert_allclose([piece.weight for piece in cut], shares, rtol=1e-15)


def test_the_loss_of_a_stream_is_the_mean_over_its_samples():
    x, y = DIGITS.x[:17], DIGITS.y[:17]
    for schedule in (PipeDream(2, 5), PipeDream(2, 5, every=2), PipeDream2BW(3, 7)):
        partitions = model(schedule.stages)
        step = gp.train_step(partitions, schedule, (x, y), gp.cross_entropy, optimizer=gp.SGD(RATE))
        assert step.loss == pytest.approx(gp.cross_entropy(step.outputs, y), rel=1e-12)


@pytest.mark.parametrize("schedule", [gp.GPipe(2, 4), gp.with_updates(gp.OneFOneB(2, 4))], ids=repr)
def test_a_step_without_updates_on_the_way_notes_no_versions_and_gives_what_loss_there_is(schedule):
    assert trained(schedule, None).versions == {}
    x, y = stream(schedule)
    step = gp.train_step(model(2), schedule, (x * np.nan, y), gp.cross_entropy, optimizer=gp.SGD(RATE))
    assert np.isnan(step.loss), "only a stream is stopped: its later mini-batches are of no use then"


@pytest.mark.parametrize("mode", WEIGHTS)
def test_train_uses_the_versions_that_are_asked_for(mode):
    """Two epochs are two streams, one after the other, on what the shuffles give."""
    schedule, order = PipeDream(3, 9, every=3), np.random.default_rng(5)
    x, y = stream(schedule)
    trained_at_once, alone, losses = model(3), model(3), []
    how = {"loss": gp.cross_entropy, "epochs": 2, "batch_size": len(x), "seed": 5, "report": None}
    history = gp.train(trained_at_once, schedule, (x, y), optimizer=gp.SGD(RATE), weights=mode, **how)
    for _ in range(2):
        rows = order.permutation(len(x))
        step = gp.train_step(
            alone, schedule, (x[rows], y[rows]), gp.cross_entropy, optimizer=gp.SGD(RATE), weights=mode
        )
        losses += step.losses
    assert history.losses == losses
    for key, array in weights_of(alone).items():
        assert (array == weights_of(trained_at_once)[key]).all()
