import numpy as np
import pytest
from numeric import furthest_apart

from gpipe_sim.core.layers import Context, ReLU, mlp
from gpipe_sim.core.partition import Partition
from gpipe_sim.core.split import split

LAYERS = [64] + [32] * 5 + [10]


def sizes(partitions: list[Partition]) -> list[int]:
    return [len(partition) for partition in partitions]


# How a model is cut


def test_eleven_layers_on_four_stages_are_3_3_3_2():
    """S1's 11 // 4 leaves 2, 2, 2, 5; S2's greedy cut loses two layers."""
    assert sizes(split(mlp(LAYERS), stages=4)) == [3, 3, 3, 2]


def test_stages_differ_by_at_most_one_layer_and_lose_none():
    for layers, stages in ((n, k) for n in range(1, 9) for k in range(1, n + 1)):
        cut = split([ReLU() for _ in range(layers)], stages=stages)
        assert sum(sizes(cut)) == layers
        assert max(sizes(cut)) - min(sizes(cut)) <= 1
        assert sizes(cut) == sorted(sizes(cut), reverse=True)


def test_a_balance_says_how_many_layers_each_partition_gets():
    partitions = split(mlp([64, 32, 32, 10]), balance=[2, 2, 1])
    assert [str(list(partition.layers)) for partition in partitions] == [
        "[Linear(64, 32), ReLU()]",
        "[Linear(32, 32), ReLU()]",
        "[Linear(32, 10)]",
    ]
    assert repr(partitions[2]) == "Partition([Linear(32, 10)], first_layer=4)"


def test_layers_are_numbered_along_the_whole_model():
    partitions = split(mlp([4, 4, 4, 4]), balance=[1, 3, 1])
    assert [list(partition.numbers) for partition in partitions] == [[0], [1, 2, 3], [4]]
    assert [list(partition.parameters) for partition in partitions] == [
        [(0, "W"), (0, "b")],
        [(2, "W"), (2, "b")],
        [(4, "W"), (4, "b")],
    ]


def test_partitions_share_their_layers_with_the_model():
    layers = mlp([4, 4, 4])
    partitions = split(layers, stages=3)
    partitions[2].parameters[2, "W"][:] = 7
    assert (layers[2].parameters["W"] == 7).all()


# torchgpipe's device rules


def test_each_partition_has_a_device_surplus_ones_are_unused_and_one_may_be_listed_again():
    def devices_of(**options):
        return [partition.device for partition in split(mlp([4, 4, 4]), **options)]

    assert devices_of(stages=3) == [None] * 3
    assert devices_of(stages=3, devices=["a", "b", "a"]) == ["a", "b", "a"]
    assert devices_of(balance=[2, 1], devices=[0, 1, 2, 3]) == [0, 1]


def test_too_few_devices_are_an_index_error_because_sharing_must_be_said():
    with pytest.raises(
        IndexError,
        match=r"^too few devices to hold given partitions \(devices: 2, partitions: 4\); a device may be",
    ):
        split(mlp([4, 4, 4, 4]), stages=4, devices=["cuda:0", "cuda:1"])


# A partition is its layers in turn


def through(partition: Partition, x: np.ndarray, dy: np.ndarray):
    y, saved = partition.forward(x, Context())
    into: dict = {}
    dx = partition.backward(saved, dy, into=into)
    return y, dx, into


def test_split_backward_gives_the_bits_of_a_whole_one_and_gradients_are_added_up():
    partition = Partition(mlp([5, 6, 7, 4], activation="gelu"), first_layer=3)
    rng = np.random.default_rng(0)
    x, dy = rng.normal(size=(3, 5)), rng.normal(size=(3, 4))
    _, whole_dx, whole = through(partition, x, dy)
    _, saved = partition.forward(x, Context())
    dx, pending = partition.backward_input(saved, dy)
    halves: dict = {}
    partition.backward_weight(pending, into=halves)
    assert (dx == whole_dx).all()
    assert halves.keys() == whole.keys() == partition.parameters.keys()
    assert all((halves[key] == whole[key]).all() for key in whole)
    partition.backward(partition.forward(x, Context())[1], dy, into=halves)
    assert furthest_apart(halves, {key: 2 * whole[key] for key in whole}) < 1e-15, "added to what is there"


def test_two_partitions_in_turn_are_the_whole_model():
    layers = mlp([5, 6, 7, 4], activation="tanh")
    rng = np.random.default_rng(0)
    x, dy = rng.normal(size=(3, 5)), rng.normal(size=(3, 4))
    y, dx, gradients = through(Partition(layers), x, dy)
    first, second = split(layers, stages=2)
    middle, first_saved = first.forward(x, Context())
    end, second_saved = second.forward(middle, Context())
    into: dict = {}
    start = first.backward(first_saved, second.backward(second_saved, dy, into=into), into=into)
    assert (end == y).all()
    assert (start == dx).all()
    assert all((into[key] == gradients[key]).all() for key in gradients)


# Bad input


@pytest.mark.parametrize("balance", [[3, 0, 2], [6, -1], [2.5, 2.5], ["5"], [True, 4]])
def test_a_balance_number_that_cannot_be_is_refused_with_the_balance(balance):
    with pytest.raises(ValueError, match="all balance numbers must be positive integers") as error:
        split(mlp([4, 4, 4, 4]), balance=balance)
    assert f"(balance: {balance})" in str(error.value)


@pytest.mark.parametrize("balance", [[2, 2], [3, 3], [12] * 8, []])
def test_a_balance_must_add_up_to_the_layers(balance):
    with pytest.raises(ValueError, match=f"has 5 layers but the balance adds up to {sum(balance)}") as error:
        split(mlp([4, 4, 4, 4]), balance=balance)
    assert f"(balance: {balance})" in str(error.value)


def test_split_needs_either_stages_or_balance():
    for options in ({}, {"stages": 2, "balance": [3, 2]}):
        with pytest.raises(TypeError, match="split needs either stages=, how many, or balance="):
            split(mlp([4, 4, 4, 4]), **options)


def test_another_split_of_the_same_layers_renumbers_nothing():
    """Numbers belong to the partition: once they stood on the layers, and the last split won."""
    layers = mlp([4, 4, 4])
    later = Partition(layers, first_layer=7)
    split(layers, stages=3)
    assert list(later.numbers) == [7, 8, 9]
    assert list(later.parameters) == [(7, "W"), (7, "b"), (9, "W"), (9, "b")]
    gradients = {}
    later.backward(later.forward(np.ones((2, 4)), Context())[1], np.ones((2, 4)), into=gradients)
    assert sorted(gradients) == sorted(later.parameters)
