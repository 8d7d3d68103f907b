import numpy as np
import pytest
from numeric import apart, numeric_gradient

from gpipe_sim.core.losses import cross_entropy, mse

OUTPUTS = np.random.default_rng(0).normal(size=(4, 3))
CLASSES = np.array([2, 0, 1, 1])
CASES = [(mse, np.random.default_rng(1).normal(size=(4, 3))), (cross_entropy, CLASSES)]
SEQUENCES, TARGETS = np.random.default_rng(0).normal(size=(4, 5, 3)), np.arange(20).reshape(4, 5) % 3
every_loss = pytest.mark.parametrize(("loss", "targets"), CASES, ids=["mse", "cross_entropy"])


@every_loss
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_the_gradient_is_what_central_differences_give(loss, targets, weight):
    outputs = OUTPUTS.copy()
    found = loss.backward(loss.forward(outputs, targets)[1], weight)
    assert apart(found, numeric_gradient(lambda: weight * loss(outputs, targets), outputs)) < 1e-9


@every_loss
def test_uneven_microbatches_weighted_by_their_share_add_up_to_the_batch(loss, targets):
    cuts = [(slice(0, 3), 3 / 4), (slice(3, 4), 1 / 4)]
    parts = [loss.forward(OUTPUTS[rows], targets[rows]) for rows, _ in cuts]
    value = sum(share * part[0] for part, (_, share) in zip(parts, cuts, strict=True))
    gradient = [loss.backward(part[1], share) for part, (_, share) in zip(parts, cuts, strict=True)]
    whole, saved = loss.forward(OUTPUTS, targets)
    assert value == pytest.approx(whole, rel=1e-15)
    assert apart(np.concatenate(gradient), loss.backward(saved, 1.0)) < 1e-15


def test_mse_by_hand_is_the_mean_over_all_elements():
    outputs, targets = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 0.0], [0.0, 4.0]])
    assert mse(outputs, targets) == (4 + 9) / 4
    assert mse.backward(mse.forward(outputs, targets)[1], 1.0).tolist() == [[0, 1], [1.5, 0]]


def test_cross_entropy_of_equal_outputs_is_log_of_the_classes():
    assert cross_entropy(np.zeros((5, 10)), np.arange(5)) == pytest.approx(np.log(10))
    gradient = cross_entropy.backward(cross_entropy.forward(np.zeros((1, 4)), np.array([2]))[1], 1.0)
    assert gradient.tolist() == [[0.25, 0.25, -0.75, 0.25]]


def test_cross_entropy_by_hand():
    """-log(e^2 / (e^1 + e^2)) = log(1 + 1/e)."""
    assert cross_entropy(np.array([[1.0, 2.0]]), np.array([1])) == pytest.approx(np.log(1 + np.exp(-1)))


def test_cross_entropy_of_sequences_is_the_mean_over_all_places():
    flat, classes = SEQUENCES.reshape(20, 3), TARGETS.reshape(20)
    value, saved = cross_entropy.forward(SEQUENCES, TARGETS)
    expected, flat_saved = cross_entropy.forward(flat, classes)
    assert value == pytest.approx(expected, rel=1e-15)
    found = cross_entropy.backward(saved, 0.5)
    assert (found.reshape(20, 3) == cross_entropy.backward(flat_saved, 0.5)).all()
    with pytest.raises(ValueError, match=r"targets \(batch, sequence\), got \(4, 5, 3\) and \(4,\)"):
        cross_entropy(SEQUENCES, CLASSES)


def test_cross_entropy_does_not_overflow_and_does_not_care_for_a_shift():
    assert cross_entropy(np.array([[1000.0, 0.0]]), np.array([0])) == 0
    assert cross_entropy(np.array([[-1000.0, 0.0]]), np.array([0])) == 1000
    assert cross_entropy(OUTPUTS + 1e6, CLASSES) == pytest.approx(cross_entropy(OUTPUTS, CLASSES), rel=1e-9)


@every_loss
def test_a_loss_changes_nothing_that_it_reads(loss, targets):
    outputs, kept = OUTPUTS.copy(), targets.copy()
    _, saved = loss.forward(outputs, targets)
    first = loss.backward(saved, 1.0).copy()
    assert (first == loss.backward(saved, 1.0)).all()
    assert (outputs == OUTPUTS).all()
    assert (targets == kept).all()


@every_loss
def test_float32_stays_float32(loss, targets):
    value, saved = loss.forward(OUTPUTS.astype(np.float32), targets)
    assert type(value) is float
    assert loss.backward(saved, 0.5).dtype == np.float32


# Bad input


@pytest.mark.parametrize("shape", [(4,), (4, 2), (3, 3), (4, 3, 1)])
def test_mse_needs_targets_of_the_outputs_shape(shape):
    with pytest.raises(ValueError, match=r"mse needs targets of shape \(4, 3\)") as error:
        mse(OUTPUTS, np.zeros(shape))
    assert f"got {shape}" in str(error.value)


def test_cross_entropy_needs_a_target():
    with pytest.raises(ValueError, match=r"at least one target, got \(2, 0\)"):
        cross_entropy.forward(np.zeros((2, 0, 3)), np.zeros((2, 0), int))


def test_cross_entropy_needs_one_class_number_per_sample():
    with pytest.raises(ValueError, match=r"targets \(batch,\), got \(4, 3\) and \(3,\)"):
        cross_entropy(OUTPUTS, CLASSES[:3])
    with pytest.raises(ValueError, match=r"got \(4, 3\) and \(4, 3\)"):
        cross_entropy(OUTPUTS, np.eye(4, 3, dtype=int))
    with pytest.raises(ValueError, match=r"outputs \(batch, classes\).* got \(4,\) and \(4,\)"):
        cross_entropy(OUTPUTS[:, 0], CLASSES)
    with pytest.raises(TypeError, match="class numbers, got float64"):
        cross_entropy(OUTPUTS, CLASSES.astype(float))


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_class_out_of_range_is_refused_with_the_range(wrong):
    with pytest.raises(ValueError, match=r"targets from 0 to 2, got ") as error:
        cross_entropy(OUTPUTS, np.array([0, 1, 2, wrong]))
    assert str(wrong) in str(error.value).split("got")[1]
