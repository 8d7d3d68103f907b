"""What torch holds in a step, measured, beside what the profile of the NumPy layers predicts."""

import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from engine_cases import batch_for, model, runnable  # noqa: E402
from torch import nn  # noqa: E402
from torch_modules import Gives, four, linears, some_batch  # noqa: E402

import gpipe_sim as gp  # noqa: E402
from gpipe_sim import cross_entropy, mse, remat  # noqa: E402
from gpipe_sim.core import F  # noqa: E402
from gpipe_sim.core.actions import Kind  # noqa: E402
from gpipe_sim.core.memory import GRADIENTS, PARAMETERS  # noqa: E402
from gpipe_sim.core.rules import BOUNDARY, PENDING, SAVED  # noqa: E402
from gpipe_sim.torch_backend import Pipeline, UnsupportedTorch, canary, to_torch, train_step  # noqa: E402
from gpipe_sim.torch_backend import meter as torch_meter  # noqa: E402

NUMBER = 8  #: bytes
COUNTED = (PARAMETERS, GRADIENTS, BOUNDARY, SAVED)
HEADS, PLACES, FEATURES, TOKENS = 4, 16, 32, 50


def both(layers, schedule, batch, loss=cross_entropy, devices=None) -> list[tuple]:
    """(measured, predicted) of each device."""
    partitions = gp.split(layers, stages=schedule.stages)
    devices = devices or ["cpu"] * schedule.devices
    step = train_step(to_torch(partitions), schedule, batch, loss, devices=devices, meter=True)
    predicted = gp.predict_memory(schedule, gp.profile(partitions, batch, loss))
    return list(zip(step.memory, predicted, strict=True))


def peaks(trace) -> list[int]:
    return [trace.peak(category) for category in COUNTED]


def language_model(**options) -> list[gp.core.Layer]:
    rng = np.random.default_rng(0)
    blocks = [
        gp.transformers.TransformerBlock(FEATURES, HEADS, causal=True, rng=rng, **options) for _ in range(2)
    ]
    start = [
        gp.transformers.Embedding(TOKENS, FEATURES, rng=rng),
        gp.transformers.Positions(PLACES, FEATURES, rng=rng),
    ]
    return [*start, *blocks, gp.transformers.LayerNorm(FEATURES), gp.core.Linear(FEATURES, TOKENS, rng=rng)]


def text(samples: int = 16) -> tuple[np.ndarray, np.ndarray]:
    tokens = np.random.default_rng(1).integers(TOKENS, size=(samples, PLACES + 1))
    return tokens[:, :-1], tokens[:, 1:]


# Beside the prediction


def whole_backwards(schedule) -> bool:
    """Whether it has neither I, W nor R, nor pairs, whose halves torch runs one after the other."""
    return all(
        type(a) is gp.core.Action and a.kind in (Kind.F, Kind.B) for row in schedule.actions for a in row
    )


WHOLE = list(filter(whole_backwards, runnable([(2, 3), (4, 8)])))


@pytest.mark.parametrize(
    ("schedule", "activation"),
    [*((schedule, "gelu") for schedule in WHOLE), (WHOLE[0], "relu"), (WHOLE[0], "tanh")],
    ids=repr,
)
def test_an_mlp_holds_what_is_predicted_and_one_number_per_microbatch_for_the_loss(schedule, activation):
    last = schedule.device_of(F(schedule.stages - 1, 0))
    memory = both(model(activation), schedule, batch_for(schedule.microbatches))
    for device, (found, expected) in enumerate(memory):
        losses = (peaks(found)[3] - peaks(expected)[3]) / NUMBER
        assert peaks(found)[:3] == peaks(expected)[:3]
        assert 1 <= losses <= schedule.microbatches if device == last else losses == 0


def test_of_mean_squared_errors_torch_saves_outputs_and_targets_numpy_their_difference():
    schedule, layers = gp.GPipe(2, 3), model()
    batch = batch_for(3, mse)
    (_, _), (found, expected) = both(layers, schedule, batch, mse)
    assert peaks(found)[3] - peaks(expected)[3] == batch[1].nbytes


def test_a_transformer_block_saves_numbers_per_row_where_numpys_saves_the_softmax():
    batch, schedule = text(), gp.GPipe(4, 4)
    found, expected = both(language_model(), schedule, batch)[1]  # the two blocks
    softmax, rows, means = HEADS * PLACES**2, HEADS * PLACES, 2 * PLACES
    less = 2 * len(batch[0]) * (softmax - rows - means) * NUMBER
    assert expected.activation_peak - found.activation_peak == less
    assert found.activation_peak / expected.activation_peak == pytest.approx(0.90, abs=0.005)
    assert found.peak(BOUNDARY) == len(batch[0]) * PLACES * FEATURES * NUMBER  # what its LayerNorm reads
    assert expected.peak(BOUNDARY) == 0


def test_with_dropout_torch_saves_a_number_for_each_entry_where_numpys_saves_a_byte():
    batch = text()
    found, expected = both(language_model(dropout=0.1), gp.GPipe(4, 4), batch)[1]  # the two blocks
    entries, means = HEADS * PLACES**2 + 2 * PLACES * FEATURES, 2 * PLACES
    more = 2 * len(batch[0]) * ((NUMBER - 1) * entries + NUMBER * means)
    assert found.activation_peak - expected.activation_peak == more
    assert found.activation_peak / expected.activation_peak == pytest.approx(1.17, abs=0.01)


def test_autocast_saves_copies_of_the_weights():
    layers, batch, schedule = gp.mlp([64] * 3, dtype=np.float32), some_batch(8, 64), gp.GPipe(2, 2)
    modules = to_torch(gp.split(layers, stages=2))
    plain = train_step(modules, schedule, batch, mse, meter=True)
    with torch.autocast("cpu", torch.bfloat16):
        cast = train_step(modules, schedule, batch, mse, meter=True)
    assert plain.memory[1].peak(SAVED) < 64 * 64 * 2 <= cast.memory[1].peak(SAVED)
    assert cast.memory[1].peak(PARAMETERS) == plain.memory[1].peak(PARAMETERS)


def test_a_split_backward_keeps_until_w_what_lies_below_the_last_weights():
    """Linear, Tanh, Linear, Tanh: I frees the last output, and leaves W a gradient for each Linear."""
    schedule = gp.Explicit(["0F0 0I0 0W0", "1F0 1I0 1W0", "2F0 2I0 2W0"])
    partitions = gp.split(gp.mlp([6] * 6, activation="tanh"), balance=[2, 4, 3])
    batch = np.ones((2, 6)), np.zeros((2, 6))
    step = train_step(to_torch(partitions), schedule, batch, mse, meter=True)
    array = 2 * 6 * NUMBER
    held = [[trace.bytes[category] for category in (BOUNDARY, SAVED, PENDING)] for trace in step.memory]
    assert held[0] == [(array, array, 0), (array, 0, 0), (0, array, 0)]  # stage 0 does all in W
    assert held[1] == [(array, array, 0), (2 * array, 0, 0), (0, 3 * array, 0)]


def test_a_recompute_is_there_when_it_ends():
    """Only boundary inputs from F to R; what the forward saves from R to the end of B."""
    schedule = gp.Explicit(["0F0 0F1 0R0 0B0 0R1 0B1", "1F0 1F1 1B0 1B1"])
    found, expected = both(gp.mlp([6, 6, 6, 6]), schedule, (np.ones((4, 6)), np.zeros((4, 6))), mse)[0]
    array = 2 * 6 * NUMBER
    assert found.bytes[BOUNDARY] == (array, 2 * array, 2 * array, array, array, 0)
    assert found.bytes[SAVED] == (0, 0, array, 0, array, 0)
    assert peaks(found) == peaks(expected)


def test_where_the_checkpoint_cannot_be_watched_a_recompute_is_refused_not_miscounted(monkeypatch):
    monkeypatch.delattr(torch._C._autograd, "_top_saved_tensors_default_hooks")
    schedule = remat(gp.GPipe(2, 2), "always")
    modules, batch = linears(), some_batch()
    assert train_step(modules, schedule, batch, mse).loss > 0
    monkeypatch.setattr(canary, "_FLEW", set())
    with pytest.raises(UnsupportedTorch, match="_top_saved_tensors_default_hooks"):
        train_step(modules, schedule, batch, mse, meter=True)


# What is counted


def test_every_step_is_counted_anew_on_the_timelines_clock():
    pipeline = Pipeline(to_torch(gp.split(model(), stages=3)), gp.ZBH1(3, 4), cross_entropy, meter=True)
    first, second = (pipeline.step(batch_for(4)) for _ in range(2))
    assert [trace.bytes for trace in first.memory] == [trace.bytes for trace in second.memory]
    for device, trace in enumerate(second.memory):
        assert len(trace.actions) == 12
        assert trace.times == pytest.approx([span.end for span in second.timeline.on(device)])


def test_weights_that_stages_share_and_buffers_count_once():
    shared = nn.Linear(3, 3, bias=False)
    modules = [shared, nn.Sequential(nn.Linear(3, 3, bias=False), nn.BatchNorm1d(3)), nn.Tanh(), shared]
    step = train_step(modules, gp.ZBV(2, 2), some_batch(), mse, devices=["cpu"] * 2, meter=True)
    assert [trace.peak(PARAMETERS) for trace in step.memory] == [9 * 4, (9 + 2 * 3 + 2 * 3) * 4 + 8]
    assert [trace.peak(GRADIENTS) for trace in step.memory] == [9 * 4, (9 + 2 * 3) * 4]


def test_a_sparse_gradient_counts_what_it_has():
    modules = [nn.Embedding(1000, 3, sparse=True), nn.Linear(3, 3)]
    batch = np.array([[1, 2], [3, 4]]), np.ones((2, 2, 3))
    step = train_step(modules, gp.GPipe(2, 1), batch, mse, meter=True)
    assert step.memory[0].peak(GRADIENTS) == 4 * NUMBER + 4 * 3 * 4  # four places, and a row for each


@pytest.mark.parametrize("meter", [False, True])
def test_what_was_changed_in_place_is_refused_with_a_meter_as_without(meter):
    """An exponential function has saved what it gave."""
    modules = [Gives(lambda x: x.exp().add_(1)), *linears(1)]
    with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
        train_step(modules, gp.GPipe(2, 2), some_batch(), mse, meter=meter)


# Where it runs


def test_local_processes_hold_what_one_process_does():
    schedule, batch = gp.OneFOneB(2, 4), text()
    here = both(language_model(), schedule, batch)
    there = both(language_model(), schedule, batch, devices=four())
    assert [found.bytes for found, _ in there] == [found.bytes for found, _ in here]


# Only if it is asked for


def test_without_a_meter_nothing_is_counted_and_no_hook_is_set(monkeypatch):
    def refuse(*_):
        raise AssertionError("a hook, although nobody asked")

    monkeypatch.setattr(torch_meter, "saved_tensors_hooks", refuse)
    modules = linears()
    for schedule in (gp.GPipe(2, 2), gp.ZBH1(2, 2), remat(gp.GPipe(2, 2), "always")):
        assert train_step(modules, schedule, some_batch(), mse).memory == ()
        with pytest.raises(AssertionError, match="nobody asked"):
            train_step(modules, schedule, some_batch(), mse, meter=True)


def test_the_peak_says_after_which_action_by_the_microbatchs_own_number():
    """And it is shown so."""
    layers, schedule = gp.mlp([3, 3, 3]), gp.Explicit(["0F1 0F0 0B1 0B0", "1F1 1B1 1F0 1B0"])
    found, _ = both(layers, schedule, (np.ones((4, 3)), np.ones((4, 3))), mse)[0]
    assert found.peak_moment.action == F(0, 0)
    assert [str(action) for action in found.actions] == ["0F1", "0F0", "0B1", "0B0"]
    assert re.fullmatch(r"<MeasuredMemory: at most [0-9,]+ bytes after 0F0 at \S+ ms>", repr(found))


def test_a_meter_is_on_or_off():
    modules = linears()
    with pytest.raises(TypeError, match="Pipeline needs meter to be True or False"):
        Pipeline(modules, gp.GPipe(2, 2), mse, meter="yes")
