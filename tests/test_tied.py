"""A head with the embedding's weights: one weight, on one device or at both ends of a pipeline."""

import numpy as np
import pytest
from cases import every_schedule, over
from numeric import apart, furthest_apart, numeric_gradient

import gpipe_sim as gp
from gpipe_sim.core import Layer, Linear
from gpipe_sim.transformers import Checkpoint, Embedding, Head

TOKENS, H = 9, 8
E = TOKENS * H * 8  #: bytes of the weight
TEXT = np.random.default_rng(1).integers(TOKENS, size=(17, 7))
BATCH = TEXT[:, :-1], TEXT[:, 1:]


def model(blocks: int = 2, **how) -> list[Layer]:
    sizes = {"tokens": TOKENS, "sequence": 6, "rng": np.random.default_rng(0), "dtype": "float64"}
    return gp.gpt(blocks, H, 2, **{"tied": True} | sizes | how)


def alone(layers: list[Layer], **how) -> gp.core.step.StepResult:
    return gp.single_device_step(layers, BATCH, gp.cross_entropy, **how)


def last(layers: list[Layer]) -> tuple[int, str]:
    return len(layers) - 1, "E"


def test_its_gradient_is_what_central_differences_of_both_ends_at_once_give():
    layers = model(1)
    first, head = (layers[i].parameters["E"] for i in (0, -1))
    assert (first == head).all() and not np.shares_memory(first, head)
    both = first.copy()

    def loss() -> float:
        first[...] = head[...] = both
        return alone(layers).loss

    gradients = alone(layers).gradients
    expected = numeric_gradient(loss, both)
    assert apart(gradients[0, "E"], expected) < 1e-8
    assert (gradients[0, "E"] == gradients[last(layers)]).all()


def test_it_is_the_sum_of_the_two_that_an_untied_model_has():
    tied, apart_ = model(), model()
    apart_[-1].tied = False
    one, two = alone(tied).gradients, alone(apart_).gradients
    assert apart(one[0, "E"], two[0, "E"] + two[last(tied)]) < 1e-14
    assert apart(one[0, "E"], two[0, "E"]) > 0.1
    assert furthest_apart(*({k: g for k, g in each.items() if k[1] != "E"} for each in (one, two))) == 0


@over(every_schedule([(2, 4), (4, 4)]))
def test_every_schedule_gives_one_devices_gradients_and_the_same_at_both_ends(schedule):
    layers = model(schedule.stages)
    expected = alone(layers, microbatches=schedule.microbatches)
    partitions = gp.split(layers, stages=schedule.stages)
    step = gp.train_step(partitions, schedule, BATCH, gp.cross_entropy)
    assert furthest_apart(step.gradients, expected.gradients) < 1e-12
    assert (step.gradients[0, "E"] == step.gradients[last(layers)]).all()
    assert step.memory == gp.predict_memory(schedule, gp.profile(partitions, BATCH, gp.cross_entropy))


@pytest.mark.parametrize(
    ("schedule", "sent"),
    [
        (gp.GPipe(1, 4), (0,)),
        (gp.OneFOneB(2, 4), (E, E)),
        (gp.OneFOneB(4, 4), (E, 0, 0, E)),
        (gp.ZBV(2, 4), (0, 0)),
    ],
    ids=repr,
)
def test_a_ring_of_the_two_ends_sends_the_weights_bytes_from_each(schedule, sent):
    """2 (n - 1)/n of them, with n = 2; in ZB-V the first device has both ends."""
    partitions = gp.split(model(), stages=schedule.stages)
    step = gp.train_step(partitions, schedule, BATCH, gp.cross_entropy, meter=False)
    assert step.ring_bytes == sent


def test_copies_of_a_pipeline_sum_theirs_before():
    schedule, layers = gp.replicate(gp.OneFOneB(2, 4), 2), model()
    partitions = gp.split(layers, stages=2)
    step = gp.train_step(partitions, schedule, BATCH, gp.cross_entropy)
    untied = model()
    untied[-1].tied = False
    without = gp.train_step(gp.split(untied, stages=2), schedule, BATCH, gp.cross_entropy)
    assert [a - b for a, b in zip(step.ring_bytes, without.ring_bytes, strict=True)] == [E] * 4
    assert furthest_apart(step.gradients, alone(layers, microbatches=8).gradients) < 1e-12


@pytest.mark.parametrize("rule", [gp.Adam, gp.SGD])
def test_in_training_both_ends_stay_the_same_and_the_losses_are_one_devices(rule):
    how = {"loss": gp.cross_entropy, "epochs": 3, "batch_size": 8, "report": None}
    layers, others = model(), model()
    pipeline = gp.train(gp.split(layers, stages=2), gp.OneFOneB(2, 4), BATCH, optimizer=rule(0.05), **how)
    one = gp.core.train_single_device(others, BATCH, optimizer=rule(0.05), microbatches=4, **how)
    assert np.allclose(pipeline.losses, one.losses, rtol=1e-9) and pipeline.losses[-1] < pipeline.losses[0]
    for ended in (layers, others):
        assert (ended[0].parameters["E"] == ended[-1].parameters["E"]).all()


def test_a_tied_llama_and_one_on_paper():
    layers = gp.llama(2, 8, 4, hidden=12, tokens=TOKENS, tied=True, rng=np.random.default_rng(0))
    assert repr(layers[-1]) == "Head(8, 9, tied)"
    step = gp.train_step(gp.split(layers, stages=2), gp.ZBH1(2, 4), BATCH, gp.cross_entropy)
    assert furthest_apart(step.gradients, alone(layers, microbatches=4).gradients) < 1e-5, "float32"
    on_paper = gp.llama(2, 8, 4, hidden=12, tokens=TOKENS, tied=True, dtype="bfloat16")
    assert on_paper[-1].parameters["E"] is not on_paper[0].parameters["E"]
    assert on_paper[-1].parameters["E"].nbytes == E // 4


# Refused


@pytest.mark.parametrize("schedule", [gp.with_updates(gp.OneFOneB(2, 4)), gp.PipeDream(2, 4)], ids=repr)
def test_an_update_on_the_way_would_not_wait_for_the_other_end(schedule):
    with pytest.raises(ValueError, match=r"Head\(8, 9, tied\) shares its weights with the embedding"):
        gp.train_step(gp.split(model(), stages=2), schedule, BATCH, gp.cross_entropy, optimizer=gp.SGD(0.1))


def test_a_tied_head_without_its_embedding_is_refused():
    rng = np.random.default_rng(0)
    embedding = Embedding(TOKENS, H, rng=rng)
    head = Head(H, TOKENS, tied_to=embedding, rng=rng)
    second = Embedding(TOKENS, H, rng=rng)
    x = np.ones((4, 6, H)), BATCH[1][:4]
    with pytest.raises(ValueError, match=r"layer 1, Head\(8, 9, tied\), is tied to .*\(9, 8\).*there are 0"):
        gp.single_device_step([Linear(H, H, rng=rng), head], x, gp.cross_entropy)
    for layers in ([Checkpoint(embedding), head], [Checkpoint(second), head]):
        with pytest.raises(
            ValueError, match=r"is tied to one Embedding\(9, 8\) of its model, but there are 0"
        ):
            alone(layers)
    embedding.parameters["E"] += 1
    with pytest.raises(ValueError, match="their weights are not the same any more"):
        alone([embedding, head])


def test_it_is_tied_to_an_embedding_of_its_shape_and_stands_alone():
    embedding = Embedding(TOKENS, H, rng=None)
    with pytest.raises(ValueError, match=r"Head\(8, 5\) needs Embedding\(5, 8\) \(got Embedding\(9, 8\)\)"):
        Head(H, 5, tied_to=embedding, rng=None)
    with pytest.raises(TypeError, match="Head needs tied_to to be the model's Embedding, or None"):
        Head(H, TOKENS, tied_to=Linear(H, TOKENS, rng=None), rng=None)
    with pytest.raises(
        ValueError, match=r"Checkpoint cannot hold Head\(8, 9, tied\), which a step has to find"
    ):
        Checkpoint(Head(H, TOKENS, tied_to=embedding, rng=None))
