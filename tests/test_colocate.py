"""Several partitions on one device: torchgpipe's repeated devices."""

import numpy as np
import pytest
from cases import over_every_order, zero_bubble
from numeric import furthest_apart

from gpipe_sim import (
    GPipe,
    Interleaved1F1B,
    OneFOneB,
    cross_entropy,
    mlp,
    problems,
    remat,
    simulate,
    single_device_step,
    split,
    train_step,
)
from gpipe_sim.balance import colocate
from gpipe_sim.core import busy_time


def test_four_partitions_on_two_devices_take_turns():
    shared = colocate(OneFOneB(4, 1), ["cuda:0", "cuda:1", "cuda:0", "cuda:1"])
    assert str(shared) == "device 0: 0F0 2F0 2B0 0B0\ndevice 1: 1F0 3F0 3B0 1B0"
    assert shared.placement == ((0, 2), (1, 3))


def test_devices_of_their_own_change_nothing_and_surplus_ones_are_unused():
    schedule = GPipe(3, 4)
    for devices in (["a", "b", "c"], [0, 1, 2, 3, 4]):
        assert colocate(schedule, devices).actions == schedule.actions
        assert colocate(schedule, devices).placement == schedule.placement


def test_devices_are_numbered_as_they_are_first_listed():
    assert colocate(GPipe(3, 1), ["b", "a", "b"]).placement == ((0, 2), (1,))


def sharings(devices: int):
    yield ["cpu"] * devices
    yield [k % 2 for k in range(devices)]
    yield [k // 2 for k in range(devices)]
    yield list(np.random.default_rng(devices).integers(0, 3, devices))


@over_every_order([(1, 3), (3, 2), (4, 4)])
def test_sharing_loses_no_action_and_deadlocks_nothing(schedule):
    for order in (remat(schedule, "always"), schedule):
        before = simulate(order)
        for devices in sharings(schedule.devices):
            shared = colocate(order, devices)
            assert problems(shared) == []
            assert shared.devices == len(set(devices))
            after = simulate(shared)
            assert after.ends.keys() == before.ends.keys()
            assert busy_time(after) == busy_time(before)
            assert after.makespan >= before.makespan


@pytest.mark.parametrize(
    "schedule", [OneFOneB(4, 3), Interleaved1F1B(2, 4), zero_bubble(4, 4)], ids=["1F1B", "V=2", "split"]
)
def test_gradients_do_not_depend_on_who_shares_a_device(schedule):
    x, y = np.random.default_rng(0).normal(size=(10, 6)), np.arange(10) % 4
    layers = mlp([6, 5, 5, 5, 4])
    expected = single_device_step(layers, (x, y), cross_entropy).gradients
    for devices in sharings(schedule.devices):
        partitions = split(layers, stages=schedule.stages)
        step = train_step(partitions, colocate(schedule, devices), (x, y), cross_entropy)
        assert furthest_apart(step.gradients, expected) < 1e-12


def test_too_few_devices_are_torchgpipes_index_error():
    with pytest.raises(
        IndexError,
        match=r"^too few devices to hold given partitions \(devices: 2, partitions: 4\); a device may be",
    ):
        colocate(OneFOneB(4, 4), ["cuda:0", "cuda:1"])
