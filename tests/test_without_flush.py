"""Updates on the way: training equals a plain loop on delayed weights, and versions are what the rows say."""

from copy import deepcopy

import numpy as np
import pytest
from cases import over

import gpipe_sim as gp
from gpipe_sim import PipeDream, PipeDream2BW, PipelinedBackprop

RATE, SAMPLES = 0.1, 6
DIGITS = gp.digits()
STREAMS = [
    *(
        (PipeDream(devices, 9), mode)
        for devices in (1, 2, 3, 4)
        for mode in ("stashed", "vertical", "latest")
    ),
    *(
        (PipeDream(4, 11, every), mode)
        for every in (2, 3, 5, 20)
        for mode in ("stashed", "vertical", "latest")
    ),
    *((PipeDream2BW(devices, 5 * devices), "double") for devices in (1, 2, 3, 4)),
    (PipeDream2BW(3, 17, every=5), "double"),
    (PipelinedBackprop(4, 9), "latest"),
    (gp.remat(PipeDream(3, 8), "always"), "stashed"),
    (gp.remat(PipeDream(3, 8), "always"), "vertical"),
    (gp.repeat(gp.with_updates(gp.ZBH2(3, 4)), 3), "stashed"),
    (gp.repeat(gp.with_updates(gp.ZBV(2, 4)), 3), "vertical"),
    (gp.repeat(gp.with_updates(gp.Chimera(2, 4)), 3), "latest"),
    (gp.replicate(PipeDream(2, 6), 2), "stashed"),
    (gp.replicate(PipeDream(3, 6), 2), "vertical"),
]


def model(stages: int, seed: int = 3) -> list[gp.Partition]:
    return gp.split(gp.mlp([64] + [12] * (2 * stages - 1) + [10], seed=seed), stages=stages)


def stream(schedule, samples: int = SAMPLES):
    n = samples * schedule.microbatches
    return DIGITS.x[:n], DIGITS.y[:n]


def weights_of(partitions) -> dict:
    return {key: array for partition in partitions for key, array in partition.parameters.items()}


def plain_loop(partitions, mini_batches, version_of) -> list[float]:
    """SGD whose gradient is taken at older weights: ``version_of(t, stage)`` says which."""
    current = weights_of(partitions)
    history = [{key: array.copy() for key, array in current.items()}]
    losses = []
    for t, (x, y) in enumerate(mini_batches):
        for stage, partition in enumerate(partitions):
            for key, array in partition.parameters.items():
                array[...] = history[version_of(t, stage)][key]
        layers = [layer for partition in partitions for layer in partition.layers]
        found = gp.single_device_step(layers, (x, y), gp.cross_entropy)
        losses.append(found.loss)
        history.append({key: history[-1][key] - RATE * found.gradients[key] for key in current})
    for key, array in current.items():
        array[...] = history[-1][key]
    return losses


def formula(mode: str, devices: int):
    """The rule of the papers: how old each stage's weights are for mini-batch t."""
    delays = {
        "stashed": [devices - stage - 1 for stage in range(devices)],
        "vertical": [devices - 1] * devices,
        "double": [1] * devices,
    }[mode]
    return lambda t, stage: max(0, t - delays[stage])


@pytest.mark.parametrize("mode", ["stashed", "vertical", "double"])
@pytest.mark.parametrize("devices", [2, 3, 4])
def test_training_is_a_plain_loop_on_delayed_weights(devices, mode):
    """The rules of Harlap et al. 2018 and Narayanan et al. 2021."""
    every = devices if mode == "double" else 1
    schedule = PipeDream2BW(devices, 12 * every) if mode == "double" else PipeDream(devices, 12)
    x, y = stream(schedule)
    pipelined, plain = model(devices), model(devices)
    step = gp.train_step(
        pipelined, schedule, (x, y), gp.cross_entropy, optimizer=gp.SGD(RATE), weights=mode, meter=False
    )
    size = SAMPLES * every
    mini_batches = [(x[at : at + size], y[at : at + size]) for at in range(0, len(x), size)]
    losses = plain_loop(plain, mini_batches, formula(mode, devices))
    np.testing.assert_allclose(step.losses, losses, rtol=1e-12)
    for key, array in weights_of(plain).items():
        np.testing.assert_allclose(weights_of(pipelined)[key], array, rtol=1e-12, atol=1e-14)
    assert np.ptp(losses) > 0.05, "and it has learned something"


@over([gp.with_updates(family(3, 4)) for family in (gp.GPipe, gp.OneFOneB, gp.ZBH1, gp.ZBH2)])
def test_steps_that_overlap_but_update_in_between_are_those_of_one_device(schedule):
    partitions, alone = model(3), model(3)
    several = gp.repeat(schedule, 5)
    x, y = stream(several)
    step = gp.train_step(partitions, several, (x, y), gp.cross_entropy, optimizer=gp.SGD(RATE))
    size = len(x) // 5
    mini_batches = [(x[at : at + size], y[at : at + size]) for at in range(0, len(x), size)]
    losses = plain_loop(alone, mini_batches, lambda t, stage: t)
    np.testing.assert_allclose(step.losses, losses, rtol=1e-12)
    assert {late for row in gp.staleness(several).delay for late in row} == {0}


@pytest.mark.parametrize(("schedule", "mode"), STREAMS, ids=repr)
def test_each_action_uses_the_version_that_the_rows_say(schedule, mode):
    step = trained(schedule, mode)
    found = gp.staleness(schedule, mode)
    for action, version in step.versions.items():
        stage, kind, m = action
        if kind in (gp.Kind.F, gp.Kind.R) and not (kind is gp.Kind.R and mode == "latest"):
            assert version == found.forward[stage][m], action
        elif kind in (gp.Kind.B, gp.Kind.I):
            assert version == found.backward[stage][m], action
    assert len(step.losses) == len(found.mini_batches)


@pytest.mark.parametrize(("schedule", "mode"), STREAMS, ids=repr)
def test_the_bytes_of_older_weights_are_predicted_and_are_those_of_the_versions(schedule, mode):
    step = trained(schedule, mode)
    x, y = stream(schedule)
    profile = gp.profile(model(schedule.stages), (x, y), gp.cross_entropy, gp.SGD(RATE))
    assert gp.predict_memory(schedule, profile, weights=mode) == step.memory
    held = gp.staleness(schedule, mode).held
    for trace, stages in zip(step.memory, schedule.placement, strict=True):
        if len(stages) == 1:
            one = trace.peak("parameters")
            assert trace.peak("parameters", "older weights") == held[stages[0]] * one
        assert trace.over_time("older weights")[-1] == 0, "what nobody uses any more is gone"


def trained(schedule, mode, **options) -> gp.StepResult:
    how = {"optimizer": gp.SGD(RATE), "weights": mode} | options
    return gp.train_step(model(schedule.stages), schedule, stream(schedule), gp.cross_entropy, **how)


def test_the_update_of_a_version_is_counted_in_its_row():
    """What the executor really used, against what it really did: updates that ended before."""
    step = trained(PipeDream(4, 9), "latest")
    for row in step.timeline.rows:
        done = 0
        for span in row:
            if span.action.kind is gp.Kind.U:
                done += 1
            else:
                assert step.versions[span.action] == done


@pytest.mark.parametrize(
    ("schedule", "mode", "held"),
    [
        (PipeDream(4, 12), "stashed", (4, 3, 2, 1)),
        (PipeDream(4, 12), "vertical", (4, 4, 4, 4)),
        (PipeDream2BW(4, 12), "double", (2, 2, 2, 2)),
        (PipelinedBackprop(4, 12), "latest", (1, 1, 1, 1)),
    ],
)
def test_versions_at_four_devices(schedule, mode, held):
    assert gp.staleness(schedule, mode).held == gp.staleness(schedule).held or mode == "vertical"
    assert gp.staleness(schedule, mode).held == held


def test_no_bubble_after_the_warm_up():
    """56 microbatches on 4 devices: what an update costs if everything is flushed before it."""
    flushed = gp.with_updates(gp.OneFOneB(4, 8))
    each = gp.repeat(gp.with_updates(gp.OneFOneB(4, 1)), 56)
    orders = [PipeDream(4, 56), gp.OneFOneB(4, 56), gp.repeat(flushed, 7), each]
    assert [gp.simulate(order).makespan for order in orders] == [177, 177, 231, 672]


def test_a_family_that_is_named_after_its_versions_has_no_others():
    with pytest.raises(ValueError, match=r"PipeDream2BW.* is trained with weights='double'.*PipeDream can"):
        gp.staleness(PipeDream2BW(4, 8), "stashed")
    with pytest.raises(ValueError, match=r"PipelinedBackprop.* is trained with weights='latest'"):
        trained(PipelinedBackprop(4, 8), "double")
    with pytest.raises(ValueError, match=r"GPipe.* updates no weights on the way.* takes no weights="):
        trained(gp.GPipe(2, 2), "stashed")
    with pytest.raises(
        ValueError,
        match="0F2 use version 1 of stage 0, but 0U0, which makes it, stands behind 0F2 on device 0",
    ):
        trained(PipeDream(4, 8), "double")
    with pytest.raises(ValueError, match=r"needs every >= devices, here 4.*\(got 3\)"):
        PipeDream2BW(4, 8, every=3)


def test_training_that_runs_away_ends_with_a_sentence_and_its_losses(recwarn):
    schedule = PipelinedBackprop(4, 40)
    says = r"training diverged: after \d+ mini-batches, the first of loss .* the loss is no longer finite"
    with pytest.raises(gp.DivergedError, match=says) as step:
        gp.train_step(model(4), schedule, stream(schedule), gp.cross_entropy, optimizer=gp.SGD(50.0))
    how = {"loss": gp.cross_entropy, "optimizer": gp.SGD(50.0), "epochs": 9, "report": None}
    with pytest.raises(gp.DivergedError, match=says) as training:
        gp.train(model(4), schedule, DIGITS[:2], batch_size=40, **how)
    straight = {"loss": gp.mse, "optimizer": gp.SGD(5.0), "epochs": 9, "report": None}
    with pytest.raises(gp.DivergedError, match=says) as alone:
        gp.train_single_device(gp.mlp([64, 10]), (DIGITS.x, np.eye(10)[DIGITS.y]), batch_size=16, **straight)
    for error in (step, training, alone):
        losses = error.value.losses
        assert losses and np.isfinite(losses).all() and max(losses) > 1e6
    assert not recwarn.list


def test_losses_of_a_first_step_that_are_no_numbers_point_at_the_data():
    schedule = PipeDream(2, 4)
    x, y = stream(schedule)
    x = np.where(np.arange(x.size).reshape(x.shape) == 7, np.nan, x)
    with pytest.raises(gp.DivergedError, match="the very first loss is not finite: do inputs or weights"):
        gp.train_step(model(2), schedule, (x, y), gp.cross_entropy, optimizer=gp.SGD(RATE))


@pytest.mark.parametrize("family", gp.WITHOUT_FLUSH)
def test_what_is_made_of_a_stream_is_trained_with_its_weights(family):
    """An order of ``colocate`` or ``repeat`` once forgot them, and stashed what was to be the latest."""
    stream = family(2, 4)
    made = [
        gp.colocate(stream, ["a", "a"]),
        gp.repeat(stream, 2),
        gp.remat(stream, "always"),
        gp.replicate(stream, 2),
        gp.side_by_side([stream, stream]),
        gp.repeat(gp.remat(stream, "always"), 2),
        deepcopy(gp.repeat(stream, 2)),
    ]
    for order in made:
        assert order.weights == stream.weights
        assert gp.staleness(order).weights == stream.weights[0]
    assert gp.Explicit(stream.actions).weights == PipeDream.weights, "the rows alone do not say"
    assert gp.side_by_side([PipeDream(2, 4), PipelinedBackprop(2, 4)]).weights == ("latest",)


def test_a_stream_that_does_not_fit_is_told_of_smaller_microbatches_in_the_same_mini_batches():
    """Half as large, and twice as many for each update: the mini-batches stay."""
    for schedule, says in (
        (PipeDream(4, 8, every=2), "  16 microbatches with every=4: at most "),
        (PipeDream2BW(4, 8), "  16 microbatches with every=8: at most "),
        (gp.remat(PipeDream(4, 8), "always"), "  16 microbatches with every=2: at most "),
    ):
        with pytest.raises(gp.MemoryLimitError) as refused:
            trained(schedule, None, memory_limit=1000)
        assert says in str(refused.value)
    with pytest.raises(gp.MemoryLimitError) as refused:
        trained(PipelinedBackprop(4, 8), None, memory_limit=1000)
    assert "recompute" in str(refused.value) and "microbatches" not in str(refused.value).splitlines()[-1]


@pytest.mark.parametrize("rule", [gp.Adam, gp.AdamW, lambda rate: gp.SGD(rate, momentum=0.9)])
@pytest.mark.parametrize("mode", ["stashed", "vertical"])
def test_an_optimizers_state_goes_on_from_update_to_update(rule, mode):
    """A plain loop on delayed weights, with one optimizer for all: an update moves its state once."""
    schedule, delays = PipeDream(3, 10), formula(mode, 3)
    x, y = stream(schedule)
    pipelined, plain, optimizer = model(3), model(3), rule(0.01)
    gp.train_step(pipelined, schedule, (x, y), gp.cross_entropy, optimizer=rule(0.01), weights=mode)
    current = weights_of(plain)
    history = [{key: array.copy() for key, array in current.items()}]
    for t in range(10):
        for stage, partition in enumerate(plain):
            for key, array in partition.parameters.items():
                array[...] = history[delays(t, stage)][key]
        layers = [layer for partition in plain for layer in partition.layers]
        rows = slice(t * SAMPLES, (t + 1) * SAMPLES)
        gradients = gp.single_device_step(layers, (x[rows], y[rows]), gp.cross_entropy).gradients
        history.append({key: array.copy() for key, array in history[-1].items()})
        optimizer.step(history[-1], gradients)
    for key, array in weights_of(pipelined).items():
        np.testing.assert_allclose(array, history[-1][key], rtol=1e-10, atol=1e-13)


def test_the_loss_is_that_of_the_forward_also_if_it_is_run_again_on_newer_weights():
    """Once the loss of R was told, while the outputs were those of F."""
    schedule = gp.remat(PipelinedBackprop(3, 6), "always")
    step = trained(schedule, "latest")
    _, y = stream(schedule)
    of_outputs = [
        gp.cross_entropy(step.outputs[at : at + SAMPLES], y[at : at + SAMPLES])
        for at in range(0, len(y), SAMPLES)
    ]
    np.testing.assert_allclose(step.losses, of_outputs, rtol=1e-12)
