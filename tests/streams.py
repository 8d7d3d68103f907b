"""Orders with updates on the way, and models to train with them."""

import gpipe_sim as gp
from gpipe_sim import PipeDream
from gpipe_sim.core.step import StepResult
from gpipe_sim.streams import PipeDream2BW, PipelinedBackprop

RATE, SAMPLES = 0.1, 6
DIGITS = gp.digits()
ANY = "stashed", "vertical", "latest"
STREAMS = [
    *((PipeDream(devices, 9), mode) for devices in (1, 2, 4) for mode in ANY),
    *((PipeDream(4, 11, every), mode) for every in (2, 5, 20) for mode in ANY),
    *((PipeDream2BW(devices, 5 * devices), "double") for devices in (1, 3)),
    (PipeDream2BW(3, 17, every=5), "double"),
    (PipelinedBackprop(4, 9), "latest"),
    *((gp.remat(PipeDream(3, 8), "always"), mode) for mode in ANY),
    (gp.repeat(gp.with_updates(gp.families.ZBH2(3, 4)), 3), "stashed"),
    (gp.repeat(gp.with_updates(gp.ZBV(2, 4)), 3), "vertical"),
    (gp.repeat(gp.with_updates(gp.families.Chimera(2, 4)), 3), "latest"),
    (gp.replicate(PipeDream(2, 6), 2), "stashed"),
    (gp.replicate(PipeDream(3, 6), 2), "vertical"),
]


def model(stages: int, seed: int = 3) -> list[gp.core.Partition]:
    return gp.split(gp.mlp([64] + [12] * (2 * stages - 1) + [10], seed=seed), stages=stages)


def stream(schedule, samples: int = SAMPLES):
    n = samples * schedule.microbatches
    return DIGITS.x[:n], DIGITS.y[:n]


def weights_of(partitions) -> dict:
    return {key: array for partition in partitions for key, array in partition.parameters.items()}


def trained(schedule, mode, **options) -> StepResult:
    how = {"optimizer": gp.SGD(RATE), "weights": mode} | options
    return gp.train_step(model(schedule.stages), schedule, stream(schedule), gp.cross_entropy, **how)
