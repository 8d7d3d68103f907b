"""Training that runs away ends with a sentence, and with the losses up to there."""

import numpy as np
import pytest
from streams import DIGITS, RATE, model, stream

import gpipe_sim as gp
from gpipe_sim import PipeDream
from gpipe_sim.core import Linear
from gpipe_sim.errors import DivergedError
from gpipe_sim.streams import PipelinedBackprop


def test_training_that_runs_away_ends_with_a_sentence_and_its_losses(recwarn):
    schedule = PipelinedBackprop(4, 40)
    says = r"training diverged: after \d+ mini-batches, the first of loss .* the loss is no longer finite"
    with pytest.raises(DivergedError, match=says) as step:
        gp.train_step(model(4), schedule, stream(schedule), gp.cross_entropy, optimizer=gp.SGD(50.0))
    how = {"loss": gp.cross_entropy, "optimizer": gp.SGD(50.0), "epochs": 9, "report": None}
    with pytest.raises(DivergedError, match=says) as training:
        gp.train(model(4), schedule, DIGITS[:2], batch_size=40, **how)
    straight = {"loss": gp.mse, "optimizer": gp.SGD(5.0), "epochs": 9, "report": None}
    with pytest.raises(DivergedError, match=says) as alone:
        gp.core.train_single_device(
            gp.mlp([64, 10]), (DIGITS.x, np.eye(10)[DIGITS.y]), batch_size=16, **straight
        )
    for error in (step, training, alone):
        losses = error.value.losses
        assert losses and np.isfinite(losses).all() and max(losses) > 1e6
    assert not recwarn.list


def test_losses_of_a_first_step_that_are_no_numbers_point_at_the_data():
    schedule = PipeDream(2, 4)
    x, y = stream(schedule)
    x = np.where(np.arange(x.size).reshape(x.shape) == 7, np.nan, x)
    with pytest.raises(DivergedError, match="the very first loss is not finite: do inputs or weights"):
        gp.train_step(model(2), schedule, (x, y), gp.cross_entropy, optimizer=gp.SGD(RATE))


@pytest.mark.parametrize("schedule", [PipeDream(2, 2, every=2), gp.OneFOneB(2, 2)], ids=repr)
def test_a_last_update_that_runs_away_is_told_where_samples_are_held_out(schedule, recwarn):
    """Once NumPy warned, and then ``evaluate`` was said to need another model, without the losses."""
    data = DIGITS.x[:2], DIGITS.y[:2], DIGITS.x[2:9], DIGITS.y[2:9]
    how = {"loss": gp.cross_entropy, "optimizer": gp.SGD(1e160), "epochs": 1, "batch_size": 2, "report": None}
    deep = gp.split(gp.mlp([64, 12, 12, 12, 10], activation="relu", seed=3), stages=2)
    with pytest.raises(DivergedError, match="training diverged: after 1 mini-batch, ") as training:
        gp.train(deep, schedule, data, **how)
    assert training.value.losses and np.isfinite(training.value.losses).all()
    assert not recwarn.list


def test_losses_of_a_training_that_runs_away_begin_with_its_first_batch():
    """The step that notices knows of its own two mini-batches only."""
    how = {"loss": gp.mse, "optimizer": gp.SGD(0.5), "epochs": 9, "batch_size": 4, "report": None}
    rng = np.random.default_rng(0)
    straight = gp.split([Linear(64, 10, rng=rng), Linear(10, 10, rng=rng)], stages=2)
    with pytest.raises(DivergedError, match=r"after \d+ mini-batches, the first of loss [0-9.]+, ") as said:
        gp.train(straight, PipeDream(2, 2), (DIGITS.x, np.eye(10)[DIGITS.y]), **how)
    assert len(said.value.losses) > 3 and said.value.losses[0] < 10
