"""Updates on the way: training equals a plain loop on delayed weights, and versions are what the rows say."""

import time
from copy import deepcopy
from textwrap import dedent

import numpy as np
import pytest
from cases import over

import gpipe_sim as gp
from gpipe_sim import PipeDream, PipeDream2BW, PipelinedBackprop
from gpipe_sim.runtime.device import pieces_of
from gpipe_sim.runtime.limit import in_bytes
from gpipe_sim.runtime.memory import Memory
from gpipe_sim.runtime.step import performed, told

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
    (gp.remat(PipeDream(3, 8), "always"), "latest"),
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
    assert "recompute" in str(refused.value) and "16 microbatches" not in str(refused.value)


def test_what_would_help_is_computed_with_the_versions_that_are_asked_for():
    schedule, peaks = PipeDream(4, 8), {}
    for mode in ("stashed", "latest"):
        with pytest.raises(gp.MemoryLimitError) as refused:
            trained(schedule, mode, memory_limit=1000)
        again = trained(gp.remat(schedule, "always"), mode).memory
        peaks[mode] = max(trace.peak_inside.bytes for trace in again)
        assert f'remat(..., "always"): at most {in_bytes(peaks[mode])} on a device' in str(refused.value)
    assert in_bytes(peaks["stashed"]) != in_bytes(peaks["latest"])


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


@pytest.mark.parametrize("schedule", [PipeDream(2, 2, every=2), gp.OneFOneB(2, 2)], ids=repr)
def test_a_last_update_that_runs_away_is_told_where_samples_are_held_out(schedule, recwarn):
    """Once NumPy warned, and then ``evaluate`` was said to need another model, without the losses."""
    data = DIGITS.x[:2], DIGITS.y[:2], DIGITS.x[2:9], DIGITS.y[2:9]
    how = {"loss": gp.cross_entropy, "optimizer": gp.SGD(1e160), "epochs": 1, "batch_size": 2, "report": None}
    deep = gp.split(gp.mlp([64, 12, 12, 12, 10], activation="relu", seed=3), stages=2)
    with pytest.raises(gp.DivergedError, match="training diverged: after 1 mini-batch, ") as training:
        gp.train(deep, schedule, data, **how)
    assert training.value.losses and np.isfinite(training.value.losses).all()
    assert not recwarn.list


def test_backwards_are_told_apart_from_what_finishes_them_later():
    """W may stand behind an update that I stood before; only with "latest" does that matter."""
    late = gp.Explicit(["0F0 0I0 0W0 0F1 0I1 0U0 0W1 0U1"])
    assert gp.staleness(late, "latest").backward == ((0, 0),)
    assert trained(late, "latest").versions[gp.W(0, 1)] == 1


def test_a_staleness_is_printed_with_both_versions_where_they_differ():
    assert str(gp.staleness(PipelinedBackprop(3, 5))) == dedent("""\
        stage 0:   0 0/1 0/2 1/3 2/4
        stage 1:   0 0/1 1/2 2/3 3/4
        stage 2:   0   1   2   3   4""")


def test_while_an_update_runs_it_holds_what_it_sets_aside():
    step = trained(gp.Explicit(["0F0 0F1 0B0 0U0 0B1 0U1"]), "stashed", costs=gp.Costs(update=1))
    [trace] = step.memory
    before, copy = trace.over_time()[3], trace.peak("older weights")
    inside = {each.action: each.bytes for each in trace.inside}
    assert copy == trace.peak("parameters")
    assert inside[gp.U(0, 0)] == before + copy and inside[gp.U(0, 1)] < before + copy


@pytest.mark.parametrize("mode", ["stashed", "vertical"])
def test_versions_that_are_let_go_are_gone_and_not_just_uncounted(mode):
    schedule = PipeDream(3, 6)
    told_them = told(schedule, stream(schedule), gp.cross_entropy, gp.SGD(RATE), mode)
    devices = performed(model(3), gp.simulate(schedule), told_them, Memory)
    assert [device.versions.older for device in devices] == [{}, {}, {}]


def test_a_staleness_is_one_line_with_the_largest_delay():
    assert repr(gp.staleness(PipeDream(3, 4))) == (
        "<staleness of PipeDream(devices=3, microbatches=4, every=1), weights='stashed': "
        "at most 2 updates too old>"
    )
    assert repr(gp.staleness(PipeDream2BW(2, 4))).endswith("at most 1 update too old>")
    assert repr(gp.staleness(gp.OneFOneB(2, 4))).endswith("at most 0 updates too old>")


def test_a_version_that_is_not_there_yet_is_told_of_the_update_on_the_same_device():
    rows = ["0F0 0B0 0U0 0F1 0B1 0U1 0F4 0B4 0U4", "0F2 0F3 0F5 0B2 0U2 0B3 0U3 0B5 0U5"]
    says = r"has 0F5 use version 1 of stage 0, but 0U2, which makes it, stands behind 0F5 on device 1"
    with pytest.raises(ValueError, match=says):
        gp.staleness(gp.Explicit(rows, placement=[[0], [0]]), "double")


def test_a_long_stream_is_checked_in_time_that_grows_with_it():
    """With 20,000 updates of each stage it once took ten times as long as now, and grew with their square."""
    stream = PipeDream(4, 20_000)
    program, began = stream.program, time.perf_counter()
    gp.check(stream)
    assert len(program.updates.members) == 20_000
    assert time.perf_counter() - began < 3


@pytest.mark.parametrize("samples", range(12, 25))
def test_microbatches_and_mini_batches_of_a_stream_differ_by_at_most_one_sample(samples):
    """Cut with the larger microbatches first, the first mini-batches had all that is left over."""
    for schedule in (PipeDream2BW(2, 12), PipeDream(2, 12, every=4), PipeDream(3, 12)):
        cut = pieces_of(schedule.program, samples)
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


def test_losses_of_a_training_that_runs_away_begin_with_its_first_batch():
    """The step that notices knows of its own two mini-batches only."""
    how = {"loss": gp.mse, "optimizer": gp.SGD(0.5), "epochs": 9, "batch_size": 4, "report": None}
    rng = np.random.default_rng(0)
    straight = gp.split([gp.Linear(64, 10, rng=rng), gp.Linear(10, 10, rng=rng)], stages=2)
    with pytest.raises(
        gp.DivergedError, match=r"after \d+ mini-batches, the first of loss [0-9.]+, "
    ) as said:
        gp.train(straight, PipeDream(2, 2), (DIGITS.x, np.eye(10)[DIGITS.y]), **how)
    assert len(said.value.losses) > 3 and said.value.losses[0] < 10


def test_a_limit_is_that_of_the_versions_that_are_asked_for():
    schedule = PipeDream(3, 6)
    limit = [trace.peak_inside.bytes for trace in trained(schedule, "stashed").memory]
    trained(schedule, "stashed", memory_limit=limit)
    with pytest.raises(gp.MemoryLimitError, match=r"device [12] would hold"):
        trained(schedule, "vertical", memory_limit=limit)


@pytest.mark.parametrize("mode", PipeDream.weights)
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
