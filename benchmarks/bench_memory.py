"""Predicting what a step holds, against running that step with the meter on."""

from benchmarks.timing import medians, report
from gpipe_sim import OneFOneB, cross_entropy, digits, mlp, predict_memory, profile, split, train_step


def compare(devices: int, microbatches: int, rounds: int) -> tuple[float, float]:
    """(seconds of a prediction, seconds of the metered step), of the same step, whose traces are equal."""
    schedule, data = OneFOneB(devices, microbatches), digits()
    partitions = split(mlp([64] * (2 * devices) + [10]), stages=devices)
    batch = data.x[: 4 * microbatches], data.y[: 4 * microbatches]
    known = profile(partitions, batch, cross_entropy)
    assert predict_memory(schedule, known) == train_step(partitions, schedule, batch, cross_entropy).memory
    return medians(
        lambda: predict_memory(schedule, known),
        lambda: train_step(partitions, schedule, batch, cross_entropy),
        rounds=rounds,
    )


def run() -> bool:
    met = True
    for devices, microbatches, rounds in ((4, 8, 101), (8, 64, 11)):
        predicted, metered = compare(devices, microbatches, rounds)
        name = f"memory of a step of {devices} x {microbatches} predicted / measured"
        met &= report(name, predicted / metered, "x", 1.2)
    return met


if __name__ == "__main__":
    run()
