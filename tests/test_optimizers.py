import re

import numpy as np
import pytest

from gpipe_sim import SGD, Adam, MixedPrecision
from gpipe_sim.transformers import AdamW, RMSProp

KEY, ALL = (0, "W"), (SGD, RMSProp, Adam, AdamW)
EACH = pytest.mark.parametrize(
    "make",
    [lambda: SGD(0.1, momentum=0.9), lambda: Adam(0.1), lambda: AdamW(0.1)],
    ids=["SGD", "Adam", "AdamW"],
)


def walk(optimizer, gradients: list[float], start: float = 1.0) -> list[float]:
    """A single weight after each of several steps."""
    weight, path = np.array([start]), []
    for gradient in gradients:
        optimizer.step({KEY: weight}, {KEY: np.array([gradient])})
        path.append(float(weight[0]))
    return path


# Steps by hand


def test_sgd_steps_down_the_gradient():
    assert walk(SGD(0.5), [1.0, 1.0, -2.0]) == [0.5, 0.0, 1.0]


def test_momentum_adds_up_the_steps_before():
    """v = 1, 1.5, -0.25; w = 1 - v/2 in turn."""
    assert walk(SGD(0.5, momentum=0.5), [1.0, 1.0, -1.0]) == [0.5, -0.25, -0.125]


def test_adams_first_step_is_the_learning_rate_whatever_the_gradients_size():
    for gradient in (1e-3, 1.0, -50.0):
        assert walk(Adam(0.1), [gradient]) == pytest.approx([1 - np.sign(gradient) * 0.1], rel=1e-5)


def test_two_steps_of_adam_by_hand():
    """m = 0.5, -0.25 and v = 0.25, 0.4375, divided by 1 - 0.5^t and 1 - 0.75^t: m = 1, -1/3 and v = 1, 1."""
    path = walk(Adam(0.1, betas=(0.5, 0.75), eps=1e-30), [1.0, -1.0])
    assert path == pytest.approx([0.9, 0.9 + 0.1 / 3], rel=1e-15)


def test_eps_stands_outside_the_root():
    assert walk(Adam(0.1, eps=1.0), [1.0]) == pytest.approx([1 - 0.1 / 2])


def test_adamw_shrinks_the_weight_besides_and_keeps_the_decay_out_of_the_moments():
    """0.1 from Adam and 0.1 x 0.5 x 2 from decay; with the gradient at 0 the decay alone."""
    assert walk(AdamW(0.1, eps=1e-30, weight_decay=0.5), [1.0], start=2.0) == pytest.approx([2 - 0.1 - 0.1])
    assert walk(AdamW(0.1, weight_decay=0.5), [0.0, 0.0], start=2.0) == pytest.approx([1.9, 1.805])
    assert walk(AdamW(0.1, weight_decay=0.0), [1.0, 3.0]) == walk(Adam(0.1), [1.0, 3.0])


@EACH
def test_every_parameter_has_its_own_state(make):
    """Two weights, updated together or one after the other, take the same path."""
    together, apart = make(), make()
    gradients = {(0, "W"): np.array([1.0, -2.0]), (3, "b"): np.array([[0.5]])}
    a = {key: np.ones_like(g) for key, g in gradients.items()}
    b = {key: np.ones_like(g) for key, g in gradients.items()}
    for _ in range(3):
        together.step(a, gradients)
        for key in b:
            apart.step({key: b[key]}, {key: gradients[key]})
    assert all((a[key] == b[key]).all() for key in gradients)
    assert not (a[0, "W"] == 1).any()


@EACH
def test_steps_change_the_arrays_in_place_and_leave_the_gradients_alone(make):
    weight, gradient = np.ones(3, np.float32), np.full(3, 0.5, np.float32)
    parameters, optimizer = {KEY: weight}, make()
    for _ in range(2):
        optimizer.step(parameters, {KEY: gradient})
    assert parameters[KEY] is weight
    assert weight.dtype == np.float32
    assert (weight < 1).all()
    assert (gradient == 0.5).all()


def test_the_state_is_not_the_callers_gradient():
    """A gradient array that is used again for the next step must not reach back into the velocity."""
    weight, gradient, optimizer = np.ones(1), np.ones(1), SGD(1.0, momentum=0.5)
    optimizer.step({KEY: weight}, {KEY: gradient})
    gradient[:] = 100
    optimizer.step({KEY: weight}, {KEY: np.zeros(1)})
    assert weight[0] == 1 - 1 - 0.5


# Bad input: refused, and nothing has changed


@EACH
@pytest.mark.parametrize(
    ("gradients", "got"),
    [
        ({(0, "W"): np.ones(2)}, "none"),
        ({(0, "W"): np.ones(2), (1, "W"): np.ones(2)}, r"\(2,\)"),
        ({}, "none"),
    ],
    ids=["missing", "misshapen", "empty"],
)
def test_a_missing_or_misshapen_gradient_changes_no_weight_and_no_state(make, gradients, got):
    optimizer, parameters = make(), {(0, "W"): np.ones(2), (1, "W"): np.ones(3)}
    with pytest.raises(ValueError, match=rf"parameter \(\d, 'W'\) has shape \(\d,\), its gradient {got}"):
        optimizer.step(parameters, gradients)
    assert all((parameter == 1).all() for parameter in parameters.values())
    assert not any(optimizer.state.values())


NAN, INF = float("nan"), float("inf")
REFUSED = [
    *((make, {"learning_rate": x}, f"0 <= learning_rate < inf (got {x})") for make in ALL for x in (-1, NAN)),
    (SGD, {"learning_rate": INF}, "0 <= learning_rate < inf (got inf)"),
    *((SGD, {"momentum": x}, f"0 <= momentum < 1 (got {x})") for x in (-0.1, 1.0, 2, NAN)),
    *((AdamW, {"betas": (x, 0.9)}, f"0 <= betas < 1 (got {x})") for x in (-0.1, 1.0, 2, NAN)),
    *((AdamW, {"betas": (0.9, x)}, f"0 <= betas < 1 (got {x})") for x in (-0.1, 1.0, 2, NAN)),
    *((AdamW, {"weight_decay": x}, f"0 <= weight_decay < inf (got {x})") for x in (-1, NAN, INF)),
    *((Adam, {"eps": x}, f"0 <= eps < inf (got {x})") for x in (-1, NAN, INF)),
    *((make, {"eps": x}, "eps > 0") for make in ALL[1:] for x in (0, 0.0)),
    *((Adam, {"betas": betas}, "two betas") for betas in ((0.9,), (0.9, 0.99, 0.999))),
]


@pytest.mark.parametrize(("make", "options", "says"), REFUSED)
def test_a_number_that_is_out_of_bounds_is_refused(make, options, says):
    with pytest.raises(ValueError, match=re.escape(f"{make.__name__} needs {says}")):
        make(**{"learning_rate": 0.1} | options)


def test_rmsprop_divides_by_the_root_of_a_running_mean_of_squares():
    """v = 0.75, 0.9375 with decay 0.25; each gradient divided by its root."""
    path = walk(RMSProp(0.1, decay=0.25, eps=1e-30), [1.0, 1.0])
    assert path == pytest.approx([1 - 0.1 / 0.75**0.5, 1 - 0.1 / 0.75**0.5 - 0.1 / 0.9375**0.5], rel=1e-15)


@pytest.mark.parametrize("make", [lambda: SGD(1e-5, momentum=0.9), lambda: Adam(1e-5), lambda: RMSProp(1e-5)])
def test_mixed_precision_adds_up_what_is_too_small_beside_a_2_byte_weight(make):
    """A thousand steps, too small for float16 at 1: alone the weight never moves."""
    halves, copied, exact = ({(0, "W"): np.ones(3, dtype)} for dtype in (np.float16, np.float16, np.float32))
    optimizers = make(), MixedPrecision(make()), make()
    gradient = np.array([1.0, 0.5, -0.25])
    for _ in range(1000):
        for optimizer, weights in zip(optimizers, (halves, copied, exact), strict=True):
            optimizer.step(weights, {(0, "W"): gradient.astype(weights[0, "W"].dtype)})
    assert (halves[0, "W"] == 1).all()
    assert copied[0, "W"].dtype == np.float16 and (copied[0, "W"] != 1).all()
    assert (copied[0, "W"] == exact[0, "W"].astype(np.float16)).all()


def test_the_learning_rate_of_mixed_precision_is_that_of_its_rule():
    rule = SGD(0.5)
    optimizer = MixedPrecision(rule)
    optimizer.learning_rate = 0.25
    assert rule.learning_rate == 0.25 and walk(optimizer, [1.0]) == [0.75]


def test_mixed_precision_takes_a_rule():
    with pytest.raises(TypeError, match="MixedPrecision needs an optimizer, such as Adam"):
        MixedPrecision(Adam)


def test_the_state_of_another_model_is_refused_before_any_is_made():
    optimizer = Adam(0.1)
    optimizer.step({(1, "W"): np.ones(2)}, {(1, "W"): np.ones(2)})
    with pytest.raises(ValueError, match=r"the state of parameter \(1, 'W'\) is another model's"):
        optimizer.prepare({(0, "W"): np.ones(2), (1, "W"): np.ones(3)})
    assert list(optimizer.state) == [(1, "W")]
