"""What autograd saves of a model is what ``predict_memory`` says that a device holds."""

import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.autograd.graph import saved_tensors_hooks  # noqa: E402

import gpipe_sim as gp  # noqa: E402
from gpipe_sim.core.memory import ACTIVATIONS  # noqa: E402
from gpipe_sim.torch_backend import Pipeline, to_torch  # noqa: E402


class Counted:
    """The bytes behind what autograd has saved and not let go of, without weights: at most, at any time."""

    def __init__(self, modules):
        self.weights = {p.untyped_storage().data_ptr() for module in modules for p in module.parameters()}
        self.alive: weakref.WeakSet = weakref.WeakSet()
        self.most = 0

    def pack(self, tensor):
        kept = Kept(tensor.detach())
        self.alive.add(kept)
        held = {kept.tensor.data_ptr(): kept.tensor.nbytes for kept in self.alive}
        self.most = max(self.most, sum(held[start] for start in held.keys() - self.weights))
        return kept


class Kept:
    def __init__(self, tensor):
        self.tensor = tensor


@pytest.mark.parametrize("schedule", [gp.GPipe(1, 4), gp.OneFOneB(1, 4)], ids=repr)
def test_what_torch_saves_of_an_mlp_is_predicted_but_for_a_number_of_the_loss(schedule):
    layers = gp.mlp([8, 16, 16, 4], seed=0)
    batch = np.random.default_rng(0).normal(size=(32, 8)), np.arange(32) % 4
    partitions = gp.split(layers, stages=1)
    [trace] = gp.predict_memory(schedule, gp.profile(partitions, batch, gp.cross_entropy))
    modules = to_torch(partitions)
    pipeline = Pipeline(modules, schedule, gp.cross_entropy)
    pipeline.step(batch)
    counted = Counted(modules)
    with saved_tensors_hooks(counted.pack, lambda kept: kept.tensor):
        pipeline.step(batch)
    held = max(map(sum, zip(*(trace.bytes[category] for category in ACTIVATIONS), strict=True)))
    assert counted.most == pytest.approx(held, abs=8 * gp.peak_in_flight(schedule)[0] + 8 * 32)
