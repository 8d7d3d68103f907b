"""What to recompute under a budget: against all choices, and against bytes that were measured."""

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest
from numeric import furthest_apart

import gpipe_sim as gp
from gpipe_sim.core import Layer, Linear, Tanh
from gpipe_sim.core.step import StepResult
from gpipe_sim.memory import checkpointed, freed
from gpipe_sim.memory.profile import LayerProfile, LossProfile, Profile, Selective, Size
from gpipe_sim.memory.recompute import recompute_frontier
from gpipe_sim.transformers import Checkpoint, Dropout, TransformerBlock, unpacked

# Against all choices


def random_layer(draw: random.Random, most: int, masks: int) -> LayerProfile:
    """Of any kind: it may pass its input on, save it or its output, and have attention to recompute.

    It gets so many masks that travel along, and may save them, end the last one, or make another.
    """
    output = "x" if draw.random() < 0.15 else Size(draw.randint(0, 3), draw.randint(1, most))
    along = [f"x{i + 1}" for i in range(masks)]
    along = draw.choice([along, along, along[:-1], [*along[:1], Size(0, draw.randint(1, most))]])
    saved = ["x"] * (draw.random() < 0.5) + ["y"] * (output != "x" and draw.random() < 0.4)
    saved += [f"x{i + 1}" for i in range(masks) if draw.random() < 0.4]
    new = [f"y{i}" for i, each in enumerate(along, start=1) if isinstance(each, Size)]
    saved += [name for name in new if draw.random() < 0.5]
    saved += [Size(draw.randint(0, 3), draw.randint(1, most)) for _ in range(draw.randint(0, 2))]
    flops = draw.choice([0, draw.randint(1, most), draw.randint(1, most)])
    fewer = Selective(tuple(each for each in saved if draw.random() < 0.6), draw.randint(0, flops))
    return LayerProfile(
        {}, flops, {}, output, tuple(saved), Size(0, 1), (),
        recompute_flops=draw.choice([0, 0, draw.randint(0, 3)]),
        selective=draw.choice([None, fewer]),
        along=tuple(along),
    )  # fmt: skip


def random_layers(draw: random.Random, count: int, most: int) -> Iterator[LayerProfile]:
    masks = 0
    for _ in range(count):
        layer = random_layer(draw, most, masks)
        masks = len(layer.along)
        yield layer


def random_profile(seed: int, layers: int, most: int = 20) -> Profile:
    draw = random.Random(seed)
    every, stages = list(random_layers(draw, 2 * layers, most)), draw.randint(1, 2)
    stages = [tuple(every[i * layers : (i + 1) * layers]) for i in range(stages)]
    loss = tuple(each for each in ("x", "target", Size(1, 3)) if draw.random() < 0.5)
    ends = Size(0, draw.randint(1, most)), Size(0, draw.randint(1, most))
    return Profile(7, *ends, tuple(stages), LossProfile(loss, Size(0, 1)))


def held(profile: Profile, stage: int, ways: tuple[str, ...], samples: int) -> tuple[int, int] | None:
    """(bytes, FLOPs) of a choice, by making the arrays and counting each once; None if a way is missing."""

    def made(size: Size) -> gp.MetaArray:
        return gp.MetaArray((size.of(samples),), "u1")

    there, kept, flops = {"x": made(profile.input)}, [], 0
    for i, layers in enumerate(profile.stages[: stage + 1]):
        for j, layer in enumerate(layers):
            outputs = dict(enumerate((layer.output, *layer.along)))
            after = {i: made(each) if isinstance(each, Size) else there[each] for i, each in outputs.items()}
            known = there | {f"y{i or ''}": each for i, each in after.items()}
            way = ways[j] if i == stage else None
            if way == "attention" and not layer.selective:
                return None
            saved, again = {
                "nothing": (layer.saved, layer.recompute_flops),
                "attention": layer.selective or ((), 0),
                "all": (tuple(there), layer.flops + layer.recompute_flops),
            }.get(way, ((), 0))
            kept += [made(each) if isinstance(each, Size) else known[each] for each in saved]
            flops += samples * again
            there = {f"x{i or ''}": each for i, each in after.items()}
    if stage == len(profile.stages) - 1:
        known = {"x": there["x"], "target": made(profile.target)}
        kept += [known[each] if isinstance(each, str) else made(each) for each in profile.loss.saved]
    return sum(root.nbytes for root in gp.core.roots(kept)), flops


def unbeaten(profile: Profile, stage: int, samples: int) -> list[tuple[int, int]]:
    every = itertools.product(("nothing", "attention", "all"), repeat=len(profile.stages[stage]))
    found = {held(profile, stage, ways, samples) for ways in every} - {None}
    return sorted(a for a in found if not any(b != a and b[0] <= a[0] and b[1] <= a[1] for b in found))


@pytest.mark.parametrize("seed", range(60))
def test_a_plan_is_the_best_of_all_choices(seed):
    profile = random_profile(seed, layers=1 + seed % 5)
    stage, microbatches = seed % len(profile.stages), 1 + seed % 3
    samples = -(-7 // microbatches)
    best = unbeaten(profile, stage, samples)
    plans = recompute_frontier(profile, stage, microbatches)
    assert [(plan.bytes, plan.flops) for plan in plans] == best
    assert [held(profile, stage, plan.recompute, samples) for plan in plans] == best
    for budget in {*range(best[0][0], best[-1][0] + 2, 3), *(size for size, _ in best)}:
        plan = gp.recompute_plan(profile, budget + 0.5, stage, microbatches)
        assert (plan.bytes, plan.flops) == max(point for point in best if point[0] <= budget)
        assert held(profile, stage, plan.recompute, samples) == (plan.bytes, plan.flops)


def test_where_nearly_every_choice_is_the_best_for_some_budget_it_is_refused():
    """Different layers, whose bytes and FLOPs grow together."""
    draw, layers = random.Random(0), []
    for _ in range(30):
        size = draw.randint(10**5, 10**6)
        layers.append(LayerProfile({}, size, {}, Size(0, 9), ("x", Size(0, size)), Size(0, 1), ()))
    profile = Profile(1, Size(0, 9), Size(0, 1), (tuple(layers),), LossProfile((), Size(0, 1)))
    with pytest.raises(ValueError, match=r"of 30 layers, more than 20,000 choices may be the best; ask for"):
        gp.recompute_plan(profile, 10**6)


# Against real arrays

RNG = np.random.default_rng(0)


def mixed() -> list[Layer]:
    rng = np.random.default_rng(0)
    how = {"dropout": 0.2, "rng": rng}
    return [
        Linear(6, 8, rng=rng),
        TransformerBlock(8, 2, **how),
        Dropout(0.3),
        *unpacked([TransformerBlock(8, 4, norm="post", **how), TransformerBlock(8, 2, **how)]),
        Dropout(0.0),
        gp.core.GELU(),
        Linear(8, 5, rng=rng),
        Tanh(),
    ]


def masked() -> list[Layer]:
    """A mask travels along: every attention that recomputes keeps it, and so does every checkpoint."""
    rng = np.random.default_rng(0)
    blocks = [TransformerBlock(8, 2, dropout=0.1, rng=rng) for _ in range(4)]
    first = gp.transformers.PaddingMask(), gp.transformers.Embedding(6, 8, rng=rng)
    return [*first, *unpacked(blocks), Linear(8, 6, rng=rng)]


TOKENS = RNG.integers(6, size=(7, 9))
BATCH = RNG.normal(size=(7, 9, 6)), RNG.integers(5, size=(7, 9))
STAGES, MICROBATCHES = 2, 3


def profiled(layers: list[Layer], batch=BATCH) -> Profile:
    return gp.profile(gp.split(layers, stages=STAGES), batch, gp.cross_entropy)


def step(layers: list[Layer], batch=BATCH) -> StepResult:
    return gp.train_step(
        gp.split(layers, stages=STAGES), gp.GPipe(STAGES, MICROBATCHES), batch, gp.cross_entropy
    )


@pytest.mark.parametrize(
    ("make", "batch", "varied"),
    [(mixed, BATCH, 0.5), (masked, (TOKENS, TOKENS), 0.6)],
    ids=["mixed", "masked"],
)
@pytest.mark.parametrize("share", [0, 0.25, 0.5, 0.6, 0.8, 1])
def test_a_plan_holds_the_bytes_that_a_step_measures_and_changes_no_gradient(make, batch, varied, share):
    """Of the first microbatch, the largest, where its forward ends on each device."""
    layers = make()
    before, usual = profiled(layers, batch), step(layers, batch)
    plans = []
    for stage in range(STAGES):
        least, *_, most = (plan.bytes for plan in recompute_frontier(before, stage, MICROBATCHES))
        budget = least + share * (most - least)
        plans.append(gp.recompute_plan(before, budget, stage, MICROBATCHES))
    words = [word for plan in plans for word in plan.recompute]
    assert share != varied or {*words} == {"nothing", "attention", "all"}
    lighter = checkpointed(layers, words)
    after, again = profiled(lighter, batch), step(lighter, batch)
    samples = before.largest(MICROBATCHES)
    for stage, plan in enumerate(plans):
        held = again.memory[stage].at(stage + 1)
        assert held["boundary inputs"] + held["saved activations"] == plan.bytes
        assert samples * sum(layer.recompute_flops for layer in after.stages[stage]) == plan.flops
    assert gp.predict_memory(gp.GPipe(STAGES, MICROBATCHES), after) == again.memory
    assert again.loss == usual.loss
    named = {
        (i, name.removeprefix("0." if words[i] == "all" else "")): gradient
        for (i, name), gradient in again.gradients.items()
    }
    assert furthest_apart(named, usual.gradients) < 1e-12


def test_one_layer_in_a_checkpoint_draws_what_it_would_alone():
    x, ctx = np.ones((4, 5)), gp.core.Context(seed=3, layer=2)
    outputs = [layer.forward(x, ctx)[0] for layer in (Dropout(0.5), Checkpoint(Dropout(0.5)))]
    assert (outputs[0] == outputs[1]).all()
    block = TransformerBlock(4, 2, dropout=0.3, rng=RNG)
    x = RNG.normal(size=(2, 3, 4))
    outputs = [layer.forward(x, ctx)[0] for layer in (block, Checkpoint(block))]
    assert (outputs[0] == outputs[1]).all()


# Of real models


def on_paper(layers: list[Layer], sequence: int, features: int) -> Profile:
    x = gp.MetaArray((1, sequence, features), np.float16)
    return gp.profile(gp.split(layers, stages=1), (x, x), gp.mse)


def test_attention_only_comes_out_for_gpt3_by_itself():
    """Korthikanti et al. 2022 recompute the attention core alone: 70.2% fewer bytes. Here nothing says so."""
    text = gp.MetaArray((1, 2_048), np.int32)
    partitions = gp.split(gp.gpt3_175b(), balance=[14, *6 * [12], 14])
    profile = gp.profile(partitions, (text, text), gp.cross_entropy)
    everything = recompute_frontier(profile, stage=1)[-1].bytes
    plan = gp.recompute_plan(profile, 0.3 * everything, stage=1)
    assert plan.recompute == 12 * ("attention",)
    assert 1 - plan.bytes / everything == pytest.approx(0.7018, abs=0.00005)
    costs = profile.costs()
    step = costs.forward[1] + costs.input_grad[1] + costs.weight_grad[1]
    assert plan.flops / step == pytest.approx(0.0045, abs=0.00005)
    assert repr(plan) == "<RecomputePlan 12 attention; keeps 10.27 GB, 1.237e+12 FLOPs again>"
    corner = [other.recompute for other in recompute_frontier(profile, stage=1)]
    assert len(corner) == 25, "12 blocks from nothing to attention, and 12 more to everything"
    assert corner[12] == plan.recompute and corner[0] == 12 * ("all",)


def halves(features: int, heads: int, sequence: int, blocks: int = 4) -> Profile:
    """Attention and network of each block as layers of their own."""
    how = {"dropout": 0.1, "rng": None, "dtype": np.float16}
    layers = [TransformerBlock(features, heads, **how) for _ in range(blocks)]
    return on_paper(unpacked(layers), sequence, features)


def test_a_transformers_network_frees_few_bytes_for_its_flops_and_the_attention_core_many():
    """In units of sh bytes and FLOPs: 80 for 4096, 91 for 106496, 19 for 196608. Korthikanti et al. 2022."""
    core, attention, network = freed(halves(12_288, 96, 2_048))[:3]
    sh = 12_288 * 2_048
    assert [each[:2] for each in (core, attention, network)] == [(0, "attention"), (0, "all"), (1, "all")]
    std = 2 * 2_048  # a LayerNorm's 1/std, 2 bytes for each place
    assert [each.bytes for each in (core, attention, network)] == [80 * sh, 91 * sh + std, 19 * sh + std]
    assert [each.flops for each in (core, attention, network)] == [4_096 * sh, 106_496 * sh, 196_608 * sh]
    assert core.per_flop / network.per_flop == pytest.approx(202.1, abs=0.05)


def test_a_block_in_halves_needs_fewer_flops_for_the_same_bytes():
    blocks = [TransformerBlock(1_024, 16, dropout=0.1, rng=None, dtype=np.float16) for _ in range(4)]
    whole, apart = (on_paper(layers, 512, 1_024) for layers in (blocks, unpacked(blocks)))
    budget = int(0.35 * recompute_frontier(whole)[-1].bytes)
    assert recompute_frontier(whole)[-1].bytes == recompute_frontier(apart)[-1].bytes
    assert gp.recompute_plan(apart, budget).flops < 0.7 * gp.recompute_plan(whole, budget).flops


def test_what_a_layer_frees_depends_on_what_its_neighbours_keep():
    """A Tanh alone frees nothing: Linear saves the same array. A mask is smaller than what makes it again."""
    layers = [
        Linear(4, 4, rng=RNG),
        Tanh(),
        Linear(4, 4, rng=RNG),
        gp.transformers.LayerNorm(4),
        Dropout(0.5),
    ]
    x = np.ones((10, 4))
    profile = gp.profile(gp.split(layers, stages=1), (x, x), gp.mse)
    array = 10 * 4 * 8
    assert freed(profile) == (
        (0, "all", 0, 10 * 32),
        (1, "all", -array, 0),  # it keeps its input as well
        (2, "all", 0, 10 * 32),
        (3, "all", 10 * 8, 0),  # 1/std
        (4, "all", 40 - array, 0),
    )
    assert [each.per_flop for each in freed(profile)] == [0, 0, 0, float("inf"), 0]
    [plan] = recompute_frontier(profile)
    assert plan.recompute == ("nothing", "nothing", "nothing", "all", "nothing")
    assert freed(profile, microbatches=5)[3].bytes == 2 * 8


def test_blocks_unpacked_are_the_same_model():
    blocks = [TransformerBlock(8, 2, norm=norm, rng=RNG) for norm in ("pre", "post")]
    layers = [Linear(6, 8, rng=RNG), *blocks, Linear(8, 5, rng=RNG)]
    parts = unpacked(layers)
    assert [type(part).__name__ for part in parts] == [
        "Linear", "Residual", "Residual", "Residual", "LayerNorm", "Residual", "LayerNorm", "Linear",
    ]  # fmt: skip
    steps = [step(each) for each in (layers, parts)]
    assert steps[0].loss == steps[1].loss
    sizes = [sorted(np.abs(array).sum() for array in each.gradients.values()) for each in steps]
    assert sizes[0] == sizes[1]


# Bad input


def test_a_budget_below_the_least_possible_is_refused_with_the_least():
    profile = halves(64, 4, 32)
    least = recompute_frontier(profile)[0]
    words = f"the least is {least.bytes:,} bytes, for which {least.flops:,} FLOPs are computed again"
    with pytest.raises(ValueError, match=f"cannot keep {least.bytes - 1:,} bytes or fewer: {words}"):
        gp.recompute_plan(profile, least.bytes - 1)
    assert gp.recompute_plan(profile, least.bytes) == least
