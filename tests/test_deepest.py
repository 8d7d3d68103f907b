"""The deepest model that fits: one more block would not, whichever stages it goes to."""

from dataclasses import replace

import numpy as np
import pytest
from cases import every_schedule, over

import gpipe_sim as gp
from gpipe_sim.core import Linear
from gpipe_sim.memory.deepest import _made
from gpipe_sim.memory.profile import Profile, Size

H, TOKENS, PLACES, GIB = 2_048, 32_000, 1_024, 2**30


def language(batch: int = 8, features: int = 8, optimizer: gp.core.Optimizer | None = None) -> Profile:
    """A small Transformer on paper, one block deep, in a single stage: its block is layer 2."""
    layers = gp.gpt(1, features, 2, tokens=20, sequence=6)
    text = gp.MetaArray((batch, 6), int)
    return gp.profile(gp.split(layers, stages=1), (text, text), gp.cross_entropy, optimizer)


def peaks(schedule: gp.core.Schedule, profile: Profile) -> list[int]:
    return [trace.peak_inside.bytes for trace in gp.predict_memory(schedule, profile)]


def of_depth(profile: Profile, blocks: list[int]) -> Profile:
    """The same model with so many blocks in each stage."""
    first, second, block, *rest = profile.stages[0]
    stages = [(block,) * count for count in blocks]
    stages[0] = (first, second, *stages[0])
    stages[-1] += tuple(rest)
    return Profile(profile.samples, profile.input, profile.target, tuple(stages), profile.loss)


@over(
    [*every_schedule([(2, 2), (4, 4)]), gp.remat(gp.GPipe(3, 4), "always"), gp.remat(gp.ZBV(2, 4), "always")]
)
def test_it_fits_and_one_more_block_on_any_device_does_not(schedule):
    profile, limit = language(), 130_000
    found = gp.deepest_model(schedule, profile, 2, limit)
    assert found.memory == gp.predict_memory(schedule, found.profile)
    assert max(peaks(schedule, found.profile)) <= limit
    for blocks in ([each] * schedule.stages for each in (1, 2, 5)):  # no byte to spare, and still as deep
        exactly = gp.deepest_model(schedule, profile, 2, peaks(schedule, of_depth(profile, blocks)))
        assert [*exactly.blocks] == blocks
    assert found.profile == of_depth(profile, found.blocks)
    assert found.depth == sum(found.blocks) == sum(len(stage) for stage in found.profile.stages) - 4
    for held in schedule.placement:
        sharing = {device for device, other in enumerate(schedule.placement) if set(held) & set(other)}
        mine = set().union(*(schedule.placement[device] for device in sharing))
        more = [count + (stage in mine) for stage, count in enumerate(found.blocks)]
        over_it = peaks(schedule, of_depth(profile, more))
        assert max(over_it[device] for device in sharing) > limit


@pytest.mark.parametrize("limit", [range(50_000, 90_001, 20_000), range(90_000, 49_999, -20_000)])
def test_each_device_has_its_own_limit(limit):
    schedule, profile = gp.OneFOneB(3, 4), language()
    blocks = gp.deepest_model(schedule, profile, 2, list(limit)).blocks
    assert blocks == tuple(
        next(n for n in range(1, 100) if peaks(schedule, of_depth(profile, [n + 1] * 3))[k] > most)
        for k, most in enumerate(limit)
    )


def test_the_model_that_was_found_runs_within_its_limit():
    text = np.random.default_rng(0).integers(20, size=(8, 6))
    schedule, limit, optimizer = gp.remat(gp.OneFOneB(3, 4), "always"), 60_000, gp.Adam()
    found = gp.deepest_model(schedule, language(optimizer=optimizer), 2, limit)
    layers = gp.gpt(found.depth, 8, 2, tokens=20, sequence=6, rng=np.random.default_rng(0))
    first, *middle, last = found.blocks
    partitions = gp.split(layers, balance=[first + 2, *middle, last + 2])
    how = {"optimizer": gp.Adam(), "memory_limit": limit}
    assert gp.train_step(partitions, schedule, (text, text), gp.cross_entropy, **how).memory == found.memory


def test_how_the_profiled_model_is_cut_does_not_matter():
    text = gp.MetaArray((8, 6), int)
    layers = gp.gpt(1, 8, 2, tokens=20, sequence=6)
    whole, cut = (gp.profile(gp.split(layers, stages=n), (text, text), gp.cross_entropy) for n in (1, 5))
    schedule = gp.GPipe(2, 4)
    assert gp.deepest_model(schedule, whole, 2, 60_000) == gp.deepest_model(schedule, cut, 2, 60_000)


def test_recompute_and_an_early_backward_both_make_room_for_depth():
    profile = language(batch=16)
    depth = {
        (schedule.name, mode): gp.deepest_model(gp.remat(schedule, mode), profile, 2, 100_000).depth
        for schedule in (gp.GPipe(4, 16), gp.OneFOneB(4, 16))
        for mode in ("never", "always")
    }
    assert depth["GPipe", "never"] < depth["1F1B", "never"] < depth["1F1B", "always"]
    assert depth["GPipe", "never"] < depth["GPipe", "always"] <= depth["1F1B", "always"]


# GPipe's table 1


@pytest.fixture(scope="module")
def giant() -> Profile:
    """Its Transformer: 32 sequences of 1,024 places in a batch; 4 bytes each for w, g and RMSProp's v."""
    layers = gp.gpt(1, H, 32, tokens=TOKENS, sequence=PLACES, dropout=0.1)
    text = gp.MetaArray((32, PLACES), int)
    return gp.profile(gp.split(layers, stages=1), (text, text), gp.cross_entropy, gp.transformers.RMSProp())


def depth(giant: Profile, devices: int, limit: float) -> int:
    return gp.deepest_model(gp.remat(gp.GPipe(devices, 32), "always"), giant, 2, limit).depth


def test_12_bytes_for_each_parameter(giant):
    [memory] = gp.deepest_model(gp.remat(gp.GPipe(1, 32), "always"), giant, 2, 16 * GIB).memory
    held = [memory.peak(category) for category in ("parameters", "gradients", "optimizer state")]
    assert held == 3 * held[:1]


def test_the_depth_is_linear_in_the_devices(giant):
    """Where there are ends without embedding and head, every further device has room for as many blocks."""
    assert depth(giant, 1, 16 * GIB) == 14
    depths = {devices: depth(giant, devices, 16 * GIB) for devices in (2, 4)}
    assert depths == {2: 16 * 2 - 2, 4: 16 * 4 - 2}


# Bad input


def test_what_does_not_fit_even_once_is_refused_with_what_would_help():
    with pytest.raises(
        gp.errors.MemoryLimitError, match=r"(?s)device 1 would hold .* and may hold 5 kB.*With"
    ):
        gp.deepest_model(gp.GPipe(2, 4), language(), 2, 5_000)


@pytest.mark.parametrize(
    ("block", "error", "says"),
    [
        (0, ValueError, "layer 0 cannot follow itself: it takes 48 bytes for a sample, and gives 192"),
        (4, ValueError, "layer 4 cannot follow itself: it takes 192 bytes for a sample, and gives 480"),
        (5, ValueError, r"deepest_model needs block, the number of a layer, from 0 to 4 \(got 5\)"),
    ],
)
def test_a_layer_that_cannot_be_repeated_is_refused(block, error, says):
    with pytest.raises(error, match=says):
        gp.deepest_model(gp.GPipe(2, 4), language(), block, 60_000)


@pytest.mark.parametrize("limit", [10**7, 10**400])
def test_a_limit_that_any_depth_keeps_is_refused(limit, monkeypatch):
    monkeypatch.setattr("gpipe_sim.memory.deepest.MOST", 50)
    with pytest.raises(ValueError, match="needs a smaller memory_limit, 25 blocks in each stage fit"):
        gp.deepest_model(gp.GPipe(2, 1), language(), 2, limit)
    assert gp.deepest_model(gp.GPipe(2, 1), language(), 2, 70_000).depth < 50


@pytest.mark.parametrize("schedule", [gp.GPipe(2, 8), gp.OneFOneB(4, 8), gp.ZBV(2, 4)], ids=repr)
def test_whatever_the_limit_few_blocks_are_predicted(schedule, monkeypatch):
    """Ten times too large a limit, and 64 microbatches, took a minute: 20,000 blocks, however many of those.

    Now a block counts once for each microbatch, and what was predicted on the way is not predicted again.
    """
    predicted, most = [], 1_000

    def counted(order, profile):
        predicted.append(sum(map(len, profile.stages)) * order.microbatches)
        return gp.predict_memory(order, profile)

    monkeypatch.setattr("gpipe_sim.memory.deepest.predict_memory", counted)
    monkeypatch.setattr("gpipe_sim.memory.deepest.MOST", most)
    profile, found = language(), set()
    for limit in (70_000, 100_000, *np.geomspace(50_000, 50_000_000, 13).astype(int).tolist()):
        predicted.clear()
        try:
            found.add(gp.deepest_model(schedule, profile, 2, limit).depth)
        except ValueError as error:
            found.add("refused" if "smaller memory_limit" in str(error) else "too small")
        assert sum(predicted) <= 4 * most + 1_000
    assert "refused" in found and len(found) > 5


@over([*every_schedule([(2, 2), (4, 4)]), gp.remat(gp.GPipe(3, 4), "always")])
def test_eight_more_blocks_take_less_than_all_that_a_step_makes_of_them(schedule):
    """So a limit that keeps all of it is known to be too large without a prediction of 20,000 blocks."""
    for optimizer in (None, gp.Adam(0.1)):
        profile = language(optimizer=optimizer)
        made = _made(profile.stages[0][2], schedule.microbatches, profile.samples)
        one, nine = (peaks(schedule, of_depth(profile, [n] * schedule.stages)) for n in (1, 9))
        for few, many, held in zip(one, nine, schedule.placement, strict=True):
            assert 0 < many - few < 8 * len(held) * made


def test_blocks_that_take_more_bytes_once_there_are_many_are_found():
    """W of the first layer, 3 MB with its gradient, comes after all of the blocks' activations are freed.

    So a second block costs 16 bytes, which make a million fit by a straight line, and the hundredth 51 kB.
    """
    x = np.zeros((16, 400))
    layers = [Linear(400, 400, rng=None), gp.core.ReLU(), Linear(400, 1, rng=None)]
    profile = gp.profile(gp.split(layers, stages=1), (x, x[:, :1]), gp.mse)
    first, relu, last = profile.layers
    light = replace(relu, parameters={"g": 8}, gradients={"g": Size(8, 0)})
    profile = replace(profile, stages=((first, light, last),))
    schedule = gp.Explicit(["0F0 0F1 0I0 0I1 0W0 0W1"])
    found = gp.deepest_model(schedule, profile, 1, 30_000_000)
    assert (
        max(peaks(schedule, found.profile))
        <= 30_000_000
        < max(peaks(schedule, replace(profile, stages=((first, *[light] * (found.depth + 1), last),))))
    )


def test_a_block_that_changes_what_travels_along_is_refused():
    text = np.zeros((4, 6), int)
    layers = [
        gp.transformers.PaddingMask(),
        gp.transformers.Embedding(7, 4, rng=None),
        gp.core.Tanh(),
        gp.transformers.SequenceMean(),
    ]
    profile = gp.profile(gp.split(layers, stages=1), (text, text[:, 0]), gp.cross_entropy)
    with pytest.raises(ValueError, match="layer 0 cannot follow itself: it changes what travels along"):
        gp.deepest_model(gp.GPipe(1, 2), profile, 0, 60_000)
    assert gp.deepest_model(gp.GPipe(1, 2), profile, 2, 60_000).depth > 1


def test_it_shows_itself_in_a_line():
    assert repr(gp.deepest_model(gp.GPipe(2, 4), language(), 2, 60_000)).startswith("<Deepest: ")
