"""Balances by what real layers have and take, and `split` by them."""

import time

import numpy as np

import gpipe_sim as gp
from gpipe_sim.core import Layer, Linear

X = np.random.default_rng(0).normal(size=(16, 64))


class Sleeps(Layer):
    """Takes its time: so many milliseconds for a forward, and again for a backward."""

    def __init__(self, milliseconds):
        super().__init__()
        self.seconds = milliseconds / 1000

    def forward(self, x, ctx):
        time.sleep(self.seconds)
        return x, None

    def backward_input(self, saved, dy):
        time.sleep(self.seconds)
        return dy, None


def slow_in_front() -> list[Layer]:
    return [Sleeps(40), *(Sleeps(10) for _ in range(8))]


def sizes(partitions: list[gp.core.Partition]) -> list[int]:
    return [len(partition) for partition in partitions]


# Weights


def test_bert_large_by_weights_has_fewer_blocks_beside_its_embedding_and_its_head():
    """6, 6, 6, 6 leaves them out: each has the weights of two and a half blocks."""
    layers = gp.bert_large()
    balance = gp.balance_by_parameters(layers, 4)
    blocks = [
        sum(isinstance(layer, gp.transformers.TransformerBlock) for layer in p.layers)
        for p in gp.split(layers, balance=balance)
    ]
    assert blocks == [5, 7, 7, 5]


def test_weights_are_counted_not_bytes():
    """The same in float32 and in float64, and for a model on paper."""
    single = [Linear(64, 64, rng=np.random.default_rng(0), dtype=np.float32) for _ in range(4)]
    double = [Linear(64, 64, rng=np.random.default_rng(0)) for _ in range(2)]
    assert gp.balance_by_parameters([*single, *double], 2) == [3, 3]
    assert gp.balance_by_parameters(gp.gpt(4, 8, 2, tokens=20, sequence=6), 2) == gp.balance_by_parameters(
        gp.gpt(4, 8, 2, tokens=20, sequence=6, rng=np.random.default_rng(0)), 2
    )


def test_an_activation_function_stays_with_the_layer_before_it():
    assert gp.balance_by_parameters(gp.mlp([64] * 5), 2) == [4, 3]


# Bytes


def test_sizes_of_an_mlp_by_hand():
    """16 x 32 floats are 4,096 bytes: what each of the first four layers leaves, and 16 x 10 of the last.

    W and b of Linear(64, 32) are 16,640 bytes, of (32, 32) 8,448, of (32, 10) 2,640.
    """
    layers = gp.mlp([64, 32, 32, 10])
    costs = [4096 + 2 * 16640, 4096, 4096 + 2 * 8448, 4096, 1280 + 2 * 2640]
    for stages in range(1, 6):
        assert gp.balance_by_size(layers, stages, X) == gp.balance_by_cost(costs, stages)
    assert gp.balance_by_size(layers, 3, X) == [1, 2, 2]


def test_smaller_microbatches_leave_the_weights_to_decide():
    layers = gp.mlp([64, 32, 32, 10])
    text = gp.MetaArray((1024, 64), float)
    found = {m: gp.balance_by_size(layers, 2, text, microbatches=m) for m in (1, 1024)}
    assert found == {1: [2, 3], 1024: [1, 4]}


def test_a_model_and_a_sample_on_paper_have_sizes():
    layers = gp.gpt(4, 8, 2, tokens=20, sequence=6)
    real = gp.gpt(4, 8, 2, tokens=20, sequence=6, rng=np.random.default_rng(0))
    text = np.random.default_rng(0).integers(20, size=(8, 6))
    on_paper = gp.balance_by_size(layers, 3, gp.MetaArray((8, 6), text.dtype), microbatches=3)
    assert on_paper == gp.balance_by_size(real, 3, text, microbatches=3)


# Seconds


def test_the_slow_layer_gets_a_stage_of_its_own():
    assert gp.balance_by_time(slow_in_front(), 3, X, runs=3) == [1, 4, 4]
    assert gp.balance_by_time(slow_in_front(), 3, X, runs=3, speeds=[3, 1, 1]) == [5, 2, 2]


def test_layers_that_were_timed_are_as_they_were():
    layers = gp.mlp([64, 10, 10])
    before = [array.copy() for layer in layers for array in layer.parameters.values()]
    assert sum(gp.balance_by_time(layers, 2, X)) == 3
    after = [array for layer in layers for array in layer.parameters.values()]
    assert all((a == b).all() for a, b in zip(before, after, strict=True))


# Split


def test_split_cuts_by_time_size_or_parameters():
    layers = gp.mlp([64, 32, 32, 10])
    assert sizes(gp.split(layers, stages=2)) == [3, 2]
    assert sizes(gp.split(layers, stages=2, balance="parameters")) == [2, 3]
    assert sizes(gp.split(layers, stages=3, balance="size", sample=X)) == [1, 2, 2]
    assert sizes(gp.split(slow_in_front(), stages=3, balance="time", sample=X)) == [1, 4, 4]
    named = gp.split(layers, stages=2, balance="parameters", devices=["a", "b"])
    assert [partition.device for partition in named] == ["a", "b"]
