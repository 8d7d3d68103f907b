"""``check_layer`` names the law that a layer of one's own breaks."""

import numpy as np
import pytest

import gpipe_sim as gp
from gpipe_sim.core.meta_array import like

X = np.random.default_rng(0).normal(size=(4, 6))


class Scale(gp.Layer):
    """y = x s: a right layer, which the others break in one place each."""

    def __init__(self):
        self.parameters = {"s": np.linspace(1, 2, 6).copy()}

    def forward(self, x, ctx):
        return x * self.parameters["s"], x

    def backward_input(self, saved, dy):
        return dy * self.parameters["s"], (saved, dy)

    def backward_weight(self, pending):
        x, dy = pending
        return {"s": (x * dy).sum(axis=0)}

    def outline(self, x, ctx):
        return like(x), x

    def outline_input(self, saved, dy):
        return like(dy), (saved, dy)


class KeepsItsWeight(Scale):
    def forward(self, x, ctx):
        return x * self.parameters["s"], (x, self.parameters["s"])

    def backward_input(self, saved, dy):
        return dy * saved[1], (saved[0], dy)

    def outline(self, x, ctx):
        return like(x), (x, like(x, shape=(6,)))

    def outline_input(self, saved, dy):
        return like(dy), (saved[0], dy)


class KeepsATable(KeepsItsWeight):
    """The same with a constant of its own that is no weight."""

    table = np.ones(6)

    def forward(self, x, ctx):
        return x * self.parameters["s"], (x, self.table)

    def backward_input(self, saved, dy):
        return dy * self.parameters["s"], (saved[0], dy)


class KeepsEveryPairOfSamples(Scale):
    def forward(self, x, ctx):
        return x * self.parameters["s"], (x, x @ x.T)

    def backward_input(self, saved, dy):
        return super().backward_input(saved[0], dy)

    def outline(self, x, ctx):
        return like(x), (x, like(x, shape=(len(x), len(x))))

    def outline_input(self, saved, dy):
        return super().outline_input(saved[0], dy)


class Box:
    def __init__(self, array):
        self.array = array


class HidesWhatItKeeps(Scale):
    def forward(self, x, ctx):
        return x * self.parameters["s"], Box(x)

    def backward_input(self, saved, dy):
        return super().backward_input(saved.array, dy)


class Strided(Scale):
    def forward(self, x, ctx):
        return np.asfortranarray(x * self.parameters["s"]), x


class KeepsAView(Scale):
    def forward(self, x, ctx):
        return x * self.parameters["s"], np.hstack([x, x])[:, :6]


class ChangesItsInput(Scale):
    def forward(self, x, ctx):
        x *= 2
        return x * self.parameters["s"], x


class ChangesTheGradient(Scale):
    def backward_input(self, saved, dy):
        pending = saved, dy.copy()
        dy *= self.parameters["s"]
        return dy, pending


class Forgetful(Scale):
    calls = 0

    def forward(self, x, ctx):
        self.calls += 1
        return x * self.parameters["s"] + self.calls, x


class WrongShape(Scale):
    def backward_weight(self, pending):
        return {"s": super().backward_weight(pending)["s"][None]}


class Mixes(Scale):
    def forward(self, x, ctx):
        return (x - x.mean(axis=0)) * self.parameters["s"], x


class WrongGradient(Scale):
    def backward_input(self, saved, dy):
        return 2 * dy * self.parameters["s"], (saved, dy)


class WrongWeightGradient(Scale):
    def backward_weight(self, pending):
        return {"s": pending[1].sum(axis=0)}


class WrongOutline(Scale):
    def outline(self, x, ctx):
        return like(x), like(x)


class NotANumber(Scale):
    def backward_input(self, saved, dy):
        return dy * np.nan, (saved, dy)


class KeepsItsGradient(Scale):
    def backward_input(self, saved, dy):
        return dy * self.parameters["s"], ((saved * dy).sum(axis=0), dy)

    def backward_weight(self, pending):
        return {"s": pending[0]}


class GivesNoPair(Scale):
    def forward(self, x, ctx):
        return x * self.parameters["s"]


class Unprepared(Scale):
    def __init__(self):
        pass


def test_a_layer_that_keeps_the_laws_passes():
    gp.check_layer(Scale(), X)
    gp.check_layer(gp.TransformerBlock(6, 2, rng=np.random.default_rng(0)), X.reshape(4, 1, 6).repeat(3, 1))


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        (Strided, "gives an output that is not contiguous"),
        (KeepsItsWeight, r"keeps or gives an array of shape \(6,\) that is the same for every microbatch"),
        (KeepsATable, r"keeps or gives an array of shape \(6,\) that is the same for every microbatch"),
        (KeepsEveryPairOfSamples, r"makes an array of \(1, 1\) for one sample, \(2, 2\) for two"),
        (HidesWhatItKeeps, "keeps a Box, in which the meter finds no arrays"),
        (KeepsAView, r"keeps a view of shape \(4, 6\) of a larger array"),
        (ChangesItsInput, "changes its input or its weights"),
        (ChangesTheGradient, "changes the gradient that it is given"),
        (Forgetful, "gives another output when its forward is run again"),
        (WrongShape, r"gives weight gradients of shapes .*\(1, 6\).* for weights of .*\(6,\)"),
        (Mixes, "gives sample 0 another output .* over which axis does it mix"),
        (WrongGradient, "gives a gradient of its input that is 1 off what differences give"),
        (WrongWeightGradient, "gives a gradient of s that is .* off what differences give"),
        (NotANumber, "gives a gradient of its input that is nan off"),
        (KeepsItsGradient, "gives a gradient of s that is no new array"),
        (GivesNoPair, "must give from forward an array and what it keeps"),
        (Unprepared, "has no parameters; begin its __init__ with super"),
        (WrongOutline, "says in its outlines that there will be"),
    ],
)
def test_the_broken_law_is_named(layer, says):
    with pytest.raises(ValueError, match=rf"^{layer.__name__}\(\) {says}"):
        gp.check_layer(layer(), X.copy())


@pytest.mark.parametrize("of_input", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("of_weights", [np.float32, np.float64])
def test_rounding_breaks_no_law(of_weights, of_input):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 64)).astype(of_input)
    gp.check_layer(gp.Linear(64, 64, rng=rng, dtype=of_weights), x)


@pytest.mark.parametrize("layer", [KeepsItsWeight, KeepsATable])
def test_what_is_the_same_for_every_microbatch_would_be_counted_once_and_predicted_for_each(layer):
    partitions, schedule = gp.split([gp.Tanh(), layer()], stages=2), gp.GPipe(2, 2)
    step = gp.train_step(partitions, schedule, (X, X), gp.mse)
    assert gp.predict_memory(schedule, gp.profile(partitions, (X, X), gp.mse)) != step.memory


def test_attention_of_one_head_or_place_keeps_no_view():
    rng = np.random.default_rng(0)
    gp.check_layer(gp.Attention(6, 1, rng=rng), rng.normal(size=(3, 4, 6)))
    gp.check_layer(gp.Attention(6, 2, rng=rng), rng.normal(size=(3, 1, 6)))


def test_an_input_that_nobody_may_write_to_is_checked():
    x = X.copy()
    x.flags.writeable = False
    gp.check_layer(Scale(), x)


def test_a_layer_that_makes_a_mask_is_told_apart():
    with pytest.raises(ValueError, match=r"^PaddingMask\(0\) gives several arrays from forward"):
        gp.check_layer(gp.PaddingMask(), np.ones((2, 3), int))


@pytest.mark.parametrize("of_layers", [gp.Checkpoint, gp.Residual])
def test_a_layer_of_no_layers_is_refused(of_layers):
    with pytest.raises(ValueError, match=f"{of_layers.__name__} needs at least one layer"):
        of_layers()


def test_batch_norm_is_allowed_to_mix_where_that_is_said():
    gp.check_layer(gp.BatchNorm(6), X, independent=False)
    with pytest.raises(ValueError, match="over which axis"):
        gp.check_layer(gp.BatchNorm(6), X)


def test_attention_over_the_batch_by_mistake_is_found():
    """A missing ``batch_first``: the softmax mixes samples, so microbatches would change the result."""

    class OverTheBatch(gp.Attention):
        def forward(self, x, ctx):
            y, saved = super().forward(np.ascontiguousarray(x.swapaxes(0, 1)), ctx)
            return np.ascontiguousarray(y.swapaxes(0, 1)), saved

    x = np.random.default_rng(1).normal(size=(3, 3, 6))
    layer = OverTheBatch(6, 2, rng=np.random.default_rng(0))
    with pytest.raises(ValueError):
        gp.check_layer(layer, x)
    from gpipe_sim.transformers.laws import _independent, _Run

    assert "over which axis does it mix" in _independent(_Run(layer, x))


@pytest.mark.parametrize(
    "x",
    [np.zeros(3), np.zeros((1, 3)), np.zeros((2, 0)), [[1, 2], [3, 4]], np.array([["a"], ["b"]])],
    ids=["flat", "one", "no features", "a list", "words"],
)
def test_it_takes_at_least_two_samples(x):
    with pytest.raises((ValueError, TypeError), match="check_layer needs"):
        gp.check_layer(Scale(), x)
