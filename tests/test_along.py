"""A boundary of several arrays: a mask that travels from stage to stage, and what may not travel."""

import numpy as np
import pytest
from cases import every_schedule, over
from numeric import furthest_apart

import gpipe_sim as gp
from gpipe_sim.core import Layer, outputs
from gpipe_sim.core.boundary import copy_boundary
from gpipe_sim.core.layers import Context
from gpipe_sim.core.memory import BOUNDARY, MESSAGES
from gpipe_sim.transformers import PaddingMask, SequenceMean

TOKENS, LONGEST, H = 9, 7, 8


def model(stages: int = 4, *, recompute: bool = False, dropout: float = 0.0) -> list[Layer]:
    """It reads sequences with padding, and gives one row for each."""
    rng = np.random.default_rng(0)
    how = {"rng": rng, "dropout": dropout, "recompute": recompute}
    blocks = [
        gp.transformers.TransformerBlock(H, 2, norm=("pre", "post")[i % 2], **how) for i in range(stages)
    ]
    blocks[0] = gp.transformers.Checkpoint(blocks[0])
    first = (
        PaddingMask(0),
        gp.transformers.Embedding(TOKENS, H, rng=rng),
        gp.transformers.Positions(LONGEST, H, rng=rng),
    )
    return [*first, *blocks, SequenceMean(), gp.core.Linear(H, 5, rng=rng)]


def padded(samples: int = 9) -> tuple[np.ndarray, np.ndarray]:
    """Sequences of 1 to 6 tokens, filled up with zeros."""
    rng = np.random.default_rng(1)
    text = rng.integers(1, TOKENS, size=(samples, LONGEST))
    for row, length in zip(text, rng.integers(1, LONGEST, size=samples), strict=True):
        row[length:] = 0
    return text, rng.integers(5, size=samples)


def attention(**how) -> Layer:
    return gp.transformers.Attention(H, 2, rng=np.random.default_rng(0), **how)


def test_nor_is_it_in_any_gradient():
    """The sum over unpadded sequences, one at a time, of each gradient is that of the padded batch."""
    (text, classes), layers = padded(), model()
    batch = gp.single_device_step(layers, (text, classes), gp.cross_entropy).gradients
    total = dict.fromkeys(batch, 0)
    for row, label in zip(text, classes, strict=True):
        one = row[None, : (row != 0).sum()], label[None]
        for key, gradient in gp.single_device_step(layers, one, gp.cross_entropy).gradients.items():
            total[key] = total[key] + gradient / len(text)
    assert furthest_apart(batch, total) < 1e-12


@over(every_schedule([(2, 4)]))
def test_every_schedule_gives_one_devices_gradients_and_what_was_predicted(schedule):
    batch = padded(2 * schedule.microbatches + 1)
    for mode in ("never", "always"):
        again = gp.remat(schedule, mode)
        layers = model(schedule.stages, recompute=mode == "never", dropout=0.1)
        alone = gp.single_device_step(
            layers, batch, gp.cross_entropy, microbatches=schedule.microbatches, seed=3
        )
        partitions = gp.split(layers, stages=schedule.stages)
        step = gp.train_step(partitions, again, batch, gp.cross_entropy, seed=3)
        assert furthest_apart(step.gradients, alone.gradients) < 1e-12
        assert step.memory == gp.predict_memory(again, gp.profile(partitions, batch, gp.cross_entropy))


def test_a_mask_is_part_of_the_message_and_of_the_boundary_input():
    """7 truth values of a byte each for a sample, beside 7 x 8 numbers; the gradient comes back without."""
    text, classes = padded(4)
    partitions = gp.split(model(1), balance=[3, 3])
    step = gp.train_step(partitions, gp.remat(gp.GPipe(2, 2), "always"), (text, classes), gp.cross_entropy)
    forward, back = 2 * (7 * H * 8 + 7), 2 * 7 * H * 8
    assert step.memory[1].peak(MESSAGES) == forward
    assert step.memory[1].peak(BOUNDARY) == 2 * forward
    assert step.memory[0].peak(MESSAGES) == back


def test_a_message_is_a_copy_of_all_that_travels():
    sent = np.ones((2, 3, H)), np.ones((2, 3), bool)
    arrived = copy_boundary(sent)
    assert all((a == b).all() and not np.shares_memory(a, b) for a, b in zip(sent, arrived, strict=True))


def test_a_place_that_sees_nothing_gets_zeros_and_no_nan():
    layer, x = attention(causal=True), np.random.default_rng(0).normal(size=(2, 3, H))
    mask = np.array([[False, False, True], [False, False, False]])
    (y, passed), saved = layer.forward((x, mask), Context())
    assert passed is mask
    nothing = layer.parameters["bo"]
    assert (y[0, :2] == nothing).all() and (y[1] == nothing).all() and (y[0, 2] != nothing).any()
    dx, pending = layer.backward_input(saved, np.ones_like(y))
    assert np.isfinite(dx).all() and all(
        np.isfinite(g).all() for g in layer.backward_weight(pending).values()
    )


# Refused


@pytest.mark.parametrize(
    ("mask", "says"),
    [
        (np.ones((2, 4), bool), r"a mask of truth values \(2, 3\), one for each place, got \(2, 4\) of bool"),
        (np.ones((2, 3), int), r"a mask of truth values \(2, 3\), one for each place, got \(2, 3\) of int64"),
    ],
)
@pytest.mark.parametrize("layer", [attention(), SequenceMean()], ids=repr)
def test_a_mask_of_another_length_is_refused(layer, mask, says):
    class Masks(Layer):
        def forward(self, x, ctx):
            return (x.copy(), mask), None

        def backward_input(self, saved, dy):
            return dy, None

    with pytest.raises(ValueError, match="layer 1, .* takes " + says):
        outputs(gp.split([Masks(), layer], stages=2), np.ones((2, 3, H)))


class Skips(Layer):
    """It sends its input along, for a later stage to add: a skip connection."""

    def forward(self, x, ctx):
        return (np.tanh(x), x), x

    def outline(self, x, ctx):
        return (gp.MetaArray(x.shape, x.dtype), x), x

    def backward_input(self, saved, dy):
        return dy, None


def test_a_skip_connection_across_stages_is_refused_by_name():
    layers = [Skips(), gp.core.Tanh()]
    batch = np.ones((4, 3)), np.ones((4, 3))
    says = r"layer 0, Skips\(\), lets an array of float64 travel along, as a skip connection .*Residual"
    for refuse in (
        lambda: gp.train_step(gp.split(layers, stages=2), gp.GPipe(2, 2), batch, gp.mse),
        lambda: gp.single_device_step(layers, batch, gp.mse),
        lambda: gp.profile(gp.split(layers, stages=2), batch, gp.mse),
    ):
        with pytest.raises(ValueError, match=says):
            refuse()


@pytest.mark.parametrize("x", [np.ones((2, 3)), np.ones(3, int), np.ones((2, 3, 4), int)])
def test_padding_is_found_in_whole_numbers_of_two_axes(x):
    with pytest.raises(ValueError, match=r"PaddingMask\(0\), takes whole numbers \(batch, sequence\), got"):
        outputs([gp.core.Partition([PaddingMask()])], x)


@pytest.mark.parametrize(("padding", "error"), [(-1, ValueError), ("0", TypeError), (0.5, TypeError)])
def test_padding_is_a_token(padding, error):
    with pytest.raises(error, match="PaddingMask needs padding"):
        PaddingMask(padding)
