"""Small models and clusters to plan for, and all their plans one by one."""

import numpy as np
import pytest

import gpipe_sim as gp
from gpipe_sim.planning.candidates import Candidate, candidates, read_space
from gpipe_sim.planning.layer_table import LayerTable, table_of
from gpipe_sim.planning.plans import Plans

SAMPLES = 8
X = np.random.default_rng(0).normal(size=(SAMPLES, 12))
Y = np.arange(SAMPLES) % 4
ALIKE = gp.Link(latency=1, bandwidth=400)
NODES = gp.Nodes(2, gp.Link(latency=1, bandwidth=800), gp.Link(latency=3, bandwidth=200))


def toy(flops: int, overhead: int = 0) -> gp.Accelerator:
    """A device so slow that times are small whole numbers; it is warned of, because there is none."""
    with pytest.warns(UserWarning, match="fewer than any in a nanosecond"):
        return gp.Accelerator(flops, overhead)


ACCELERATOR = toy(flops=64, overhead=2)


def model() -> list[gp.core.Linear | gp.core.ReLU]:
    """Eight linear layers of several sizes, and activations."""
    return gp.mlp([12, 16, 16, 8, 8, 24, 8, 8, 4], seed=1)


def cluster(devices: int = 4, memory: float = 1e9, links=ALIKE) -> gp.Cluster:
    return gp.Cluster(devices, ACCELERATOR, memory, links)


#: One family of each kind: the search treats all others alike.
FEW = (gp.GPipe, gp.OneFOneB, gp.Interleaved1F1B, gp.ZBV, gp.families.Chimera)


def plan(cluster: gp.Cluster, **options) -> Plans:
    options = {"schedules": FEW} | options
    return gp.plan(model(), cluster, (X, Y), gp.cross_entropy, gp.Adam(0.1), **options)


def table(cluster: gp.Cluster) -> LayerTable:
    return table_of("plan", model(), cluster, (X, Y), gp.cross_entropy, gp.Adam(0.1))


def every_candidate(table: LayerTable, stages_per_device=(2, 3), **options) -> list[Candidate]:
    usual = {"schedules": FEW, "replicas": None, "microbatches": None, "recompute": (False, True)}
    space = read_space(table.cluster, stages_per_device=stages_per_device, **usual | options)
    return candidates(table, space)[0]
