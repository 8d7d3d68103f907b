"""A training step on simulated devices, against a plain NumPy loop that does the same arithmetic.

And a stream without a flush, which sets versions of its weights aside, against as many steps with one.
"""

import numpy as np

from benchmarks.timing import medians, report
from gpipe_sim import SGD, OneFOneB, PipeDream, cross_entropy, mlp, split, train_step, with_updates

DEVICES, MICROBATCHES = 4, 8


def plain_step(layers: list, x: np.ndarray, targets: np.ndarray) -> tuple[float, dict]:
    """Forward, loss and backward written out for Linear and ReLU; gradients accumulated over microbatches."""
    loss = 0.0
    weights = [(p["W"], p["b"]) for p in (layer.parameters for layer in layers) if p]
    gradients: dict = {}
    for m in np.array_split(np.arange(len(x)), MICROBATCHES):
        inputs, y = [], x[m[0] : m[-1] + 1]
        for i, (w, b) in enumerate(weights):
            inputs.append(y)
            y = y @ w + b
            if i < len(weights) - 1:
                y = np.maximum(y, 0)
        y = y - y.max(axis=1, keepdims=True)
        exp = np.exp(y)
        total = exp.sum(axis=1, keepdims=True)
        loss -= (y[np.arange(len(m)), targets[m]] - np.log(total[:, 0])).sum() / len(x)
        dy = exp / total
        dy[np.arange(len(m)), targets[m]] -= 1
        dy *= 1 / len(x)
        for i in reversed(range(len(weights))):
            dx = dy @ weights[i][0].T
            fresh = {(i, "W"): inputs[i].T @ dy, (i, "b"): dy.sum(axis=0)}
            for key, gradient in fresh.items():
                if key in gradients:
                    gradients[key] += gradient
                else:
                    gradients[key] = gradient
            dy = dx * (inputs[i] > 0) if i else dx
    return loss, gradients


def compare(width: int, batch: int, rounds: int, meter: bool) -> tuple[float, float, int]:
    """(seconds of our step, seconds of the plain loop, how many actions our step runs)."""
    layers = mlp([width] * 12 + [10], seed=0)
    rng = np.random.default_rng(0)
    x, targets = rng.normal(size=(batch, width)), rng.integers(0, 10, batch)
    schedule, partitions = OneFOneB(DEVICES, MICROBATCHES), split(layers, stages=DEVICES)
    ours = train_step(partitions, schedule, (x, targets), cross_entropy)
    loss, plain = plain_step(layers, x, targets)
    np.testing.assert_allclose(ours.loss, loss)
    for (i, name), gradient in plain.items():
        np.testing.assert_allclose(ours.gradients[2 * i, name], gradient, rtol=1e-9, atol=1e-12)
    times = medians(
        lambda: train_step(partitions, schedule, (x, targets), cross_entropy, meter=meter),
        lambda: plain_step(layers, x, targets),
        rounds=rounds,
    )
    return *times, sum(map(len, schedule.actions))


def without_a_flush(width: int, mini_batches: int, rounds: int, meter: bool) -> float:
    """How many times longer PipeDream takes for a stream of mini-batches than a step of 1F1B for each."""
    rng, samples = np.random.default_rng(0), 4
    x, targets = rng.normal(size=(samples * mini_batches, width)), rng.integers(0, 10, samples * mini_batches)
    stream, step = PipeDream(DEVICES, mini_batches), with_updates(OneFOneB(DEVICES, 1))
    several = [(step, (x[at : at + samples], targets[at : at + samples])) for at in range(0, len(x), samples)]

    def train(steps: list) -> None:
        partitions, optimizer = split(mlp([width] * 12 + [10], seed=0), stages=DEVICES), SGD(0.01)
        for schedule, batch in steps:
            train_step(partitions, schedule, batch, cross_entropy, optimizer=optimizer, meter=meter)

    ours, flushed = medians(lambda: train([(stream, (x, targets))]), lambda: train(several), rounds=rounds)
    return ours / flushed


def run() -> bool:
    ours, plain, _ = compare(width=256, batch=512, rounds=41, meter=False)
    met = report("training step, 12 layers, width 256 / plain NumPy", ours / plain, "x", 1.05)
    for meter, target in ((False, 10), (True, 30)):
        ours, plain, actions = compare(width=16, batch=64, rounds=201, meter=meter)
        name = f"overhead per action, width 16, {'with' if meter else 'without'} the meter"
        met &= report(name, (ours - plain) / actions * 1e6, "µs", target)
        name = f"PipeDream / as many steps of 1F1B, {'with' if meter else 'without'} the meter"
        met &= report(name, without_a_flush(16, 56, rounds=21, meter=meter), "x", 1.25)
    return met


if __name__ == "__main__":
    run()
