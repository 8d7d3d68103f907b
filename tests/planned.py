"""Small models and clusters to plan for, and all their plans one by one."""

import random
from collections.abc import Iterator
from itertools import combinations, pairwise

import pytest

import gpipe_sim as gp
from gpipe_sim.planning.plans import Plans
from gpipe_sim.planning.problem import Problem
from gpipe_sim.planning.space import Way, read_space, ways

SAMPLES = 8
ALIKE = gp.Link(latency=1, bandwidth=400)
NODES = gp.Nodes(2, gp.Link(latency=1, bandwidth=800), gp.Link(latency=3, bandwidth=200))
ACCELERATOR = gp.Accelerator(5000, 2, hbm=40_000, launch=0.5, exposed=0.2, call=1)
#: One family of each kind.
FEW = (gp.GPipe, gp.OneFOneB, gp.Interleaved1F1B, gp.ZBV, gp.families.Chimera)


def toy(flops: int, overhead: int = 0, **more) -> gp.Accelerator:
    """A device so slow that times are small; it is warned of, because there is none."""
    with pytest.warns(UserWarning, match="fewer than any in a nanosecond"):
        return gp.Accelerator(flops, overhead, **more)


def model(blocks: int = 4) -> list[gp.core.Layer]:
    return gp.gpt(blocks, 16, 4, tokens=10, sequence=8, dtype="f2")


def tokens(samples: int = SAMPLES):
    return (gp.MetaArray((samples, 8), "i4"),) * 2


def cluster(devices: int = 4, memory: float = 1e9, links=ALIKE) -> gp.Cluster:
    return gp.Cluster(devices, ACCELERATOR, memory, links)


def plan(cluster: gp.Cluster, blocks: int = 4, **options) -> Plans:
    return gp.plan(model(blocks), cluster, tokens(), **{"schedules": FEW} | options)


def all_ways(problem: Problem, **options) -> list[Way]:
    """Of a problem, with the options of ``plan``."""
    usual = {"schedules": FEW, "recompute": ("none", "full"), "zero": (0, 1)}
    usual |= {"sequence_parallel": (False, True)} | options
    space = read_space(
        problem.cluster, usual["schedules"], (None, None, None), None, usual["recompute"],
        usual["sequence_parallel"], usual["zero"], "best",
    )  # fmt: skip
    return [each for each in ways(problem, space) if isinstance(each, Way)]


def all_cuts(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    for marks in combinations(range(1, layers), stages - 1):
        yield tuple(b - a for a, b in pairwise([0, *marks, layers]))


def random_case(seed: int) -> tuple[Problem, dict]:
    """A few layers on a few devices of all kinds, and what to search."""
    pick = random.Random(seed)
    if seed % 2:
        sizes = [pick.choice([4, 8, 16, 40]) for _ in range(pick.randint(3, 4))]
        layers, samples = gp.mlp(sizes), pick.choice([4, 6])
        batch = gp.MetaArray((samples, sizes[0]), "f8"), gp.MetaArray((samples,), "i8")
    else:
        dtype, samples = pick.choice(["f2", "f4"]), pick.choice([2, 4])
        layers = gp.gpt(pick.randint(1, 3), 8, 2, tokens=6, sequence=4, dtype=dtype)
        batch = (gp.MetaArray((samples, 4), "i8"),) * 2
    near = gp.Link(pick.choice([0, 1, 5]), pick.choice([10, 1000, 100_000]))
    links = pick.choice([near, gp.Nodes(2, near, gp.Link(pick.choice([1, 10]), pick.choice([5, 2000])))])
    accelerator = toy(
        pick.choice([10, 100, 900]), pick.choice([0, 2]), hbm=pick.choice([float("inf"), 50, 1000]),
        launch=pick.choice([0, 1]), exposed=pick.choice([0, 0.3]), call=pick.choice([0, 2]),
        microbatch=pick.choice([0, 1]),
    )  # fmt: skip
    where = gp.Cluster(pick.choice([1, 2, 3, 4]), accelerator, 1e9, links)
    options = {
        "schedules": pick.sample(gp.SCHEDULES, pick.choice([1, 2])),
        "recompute": pick.sample(["none", "selective", "full"], pick.choice([1, 2])),
        "sequence_parallel": pick.choice([(False,), (True,), (False, True)]),
        "zero": pick.choice([(0,), (1,), (0, 1), (2,), (3,)]),
    }
    return Problem("plan", layers, where, batch, None, None), options
