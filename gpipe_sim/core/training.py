"""The training loop: shuffle, run steps, update the weights, and report after each epoch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import nan

import numpy as np

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.boundary import Boundary, first
from gpipe_sim.core.device import Batch, as_batch
from gpipe_sim.core.layers import Context, Layer
from gpipe_sim.core.losses import Loss, cross_entropy, require_finite, without_warnings
from gpipe_sim.core.optimizers import Optimizer, require_optimizer
from gpipe_sim.core.partition import Gradients, Partition, require_partitions
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.core.step import StepResult, require_fit, require_loss, single_device_step, train_step
from gpipe_sim.core.timeline import rounded
from gpipe_sim.errors import DivergedError, Real, got, numbers, require_few, whole

Array = np.ndarray
Data = Batch | tuple[Array, Array, Array, Array]  #: (x, y), or these and (x, y) that are held out
Report = Callable[[str], object] | None


@rounded
@dataclass(frozen=True)
class History:
    """``losses``: the mean loss of each mini-batch that an update applies. ``accuracies``: of the held-out
    samples, from 0 to 1, per epoch.
    """

    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)


def train(
    partitions: Sequence[Partition],
    schedule: Schedule,
    data: "Data",
    *,
    loss: Loss,
    optimizer: Optimizer,
    epochs: int,
    batch_size: int,
    weights: str | None = None,
    memory_limit: "Real | Sequence[Real] | None" = None,
    seed: int = 0,
    report: "Report" = print,
) -> History:
    """Train the partitions' weights in place, each step run by the schedule on simulated devices.

    >>> partitions, data = gp.split(gp.mlp([64, 32, 10]), stages=2), gp.digits()
    >>> settings = {"optimizer": gp.Adam(0.01), "epochs": 2, "batch_size": 64}
    >>> history = gp.train(partitions, gp.OneFOneB(2, 4), data, loss=gp.cross_entropy, **settings)
    epoch 1/2  loss 1.468  held-out accuracy 86.6%
    epoch 2/2  loss 0.472  held-out accuracy 93.0%

    ``data`` is (x, y), or (x, y, x_held_out, y_held_out). Each epoch visits the samples in an order drawn
    from ``seed``, in batches of ``batch_size``; samples that do not fill a batch are skipped until the next
    epoch shuffles anew. ``report`` is called with a line of text after every epoch; None is silent.
    Of a schedule with updates on the way, such as PipeDream, a batch is a stream of mini-batches, after which
    the pipeline is empty; an epoch can be one. ``weights`` and ``memory_limit`` are those of ``train_step``;
    all batches are alike, so the first step's prediction serves.

    MemoryLimitError if a step would not fit; ValueError or TypeError if the data do not fit the model or the
    loss; ValueError if inputs hold NaN or infinity, or if there are fewer samples than ``batch_size``. No
    weight has changed then. DivergedError, with the losses up to there, once a loss is no longer finite.
    """

    require_optimizer("train", optimizer)
    require_schedule("train", schedule)
    require_fit(partitions, schedule)

    def step(batch: Batch, number: int) -> StepResult:
        limit = memory_limit if number == 0 else None
        how = partial(train_step, optimizer=optimizer, weights=weights, memory_limit=limit, meter=False)
        return how(partitions, schedule, batch, loss, seed=seed, step=number)

    update = None if Kind.U in schedule.program.where else optimizer
    return _train(partitions, step, data, loss, update, epochs, batch_size, seed, report)


def train_single_device(
    layers: Sequence[Layer],
    data: "Data",
    *,
    loss: Loss,
    optimizer: Optimizer,
    epochs: int,
    batch_size: int,
    microbatches: int = 1,
    seed: int = 0,
    report: "Report" = print,
) -> History:
    """The same training without a pipeline: with every schedule, ``train`` must give this loss curve."""

    def step(batch: Batch, number: int) -> StepResult:
        return single_device_step(layers, batch, loss, microbatches=microbatches, seed=seed, step=number)

    require_optimizer("train", optimizer)
    return _train([Partition(layers)], step, data, loss, optimizer, epochs, batch_size, seed, report)


def evaluate(partitions: Sequence[Partition], x: Array, y: Array) -> float:
    """The accuracy, from 0 to 1: for how many samples the largest output is that of their class.

    ``x`` is (samples, features), ``y`` (samples,) class numbers; of sequences every place counts, with y
    (samples, sequence). Layers run in evaluation mode. ValueError or TypeError if ``y`` does not fit the
    outputs.
    """
    x, y = numbers("evaluate", "x", x), numbers("evaluate", "y", y)
    samples = len(x) if x.ndim else 0
    if y.shape[:1] != (samples,):
        raise ValueError(f"evaluate needs a class for each of {samples} samples, got {y.shape}")
    if not samples:
        raise ValueError("evaluate needs at least one sample")
    _require_finite("evaluate", x)
    found = outputs(partitions, x)
    if y.ndim == found.ndim:
        raise ValueError(f"evaluate needs a class for each of {samples} samples, got {y.shape}")
    cross_entropy.require(found, y)
    if not np.isfinite(found).all():
        raise ValueError("evaluate needs a model whose outputs are finite: its weights hold NaN or infinity")
    return _accuracy(found, y)


def _accuracy(found: Array, y: Array) -> float:
    return float(np.mean(found.argmax(axis=-1) == y))


def outputs(partitions: Sequence[Partition], x: Array) -> Array:
    """The model's outputs for x, (samples, features of the last layer), in evaluation mode."""
    require_partitions("outputs", partitions, runnable=True)
    y: Boundary = numbers("outputs", "x", x)
    for partition in partitions:
        y, _ = partition.forward(y, Context(training=False))
    return first(y)


def _train(
    partitions: Sequence[Partition],
    step: Callable[[Batch, int], StepResult],
    data: "Data",
    loss: Loss,
    optimizer: Optimizer | None,  # None where the steps update the weights themselves
    epochs: int,
    batch_size: int,
    seed: int,
    report: Report,
) -> History:
    if report is not None and not callable(report):
        raise TypeError(f"train needs report to be a function of a line of text, or None {got(report)}")
    require_few("train", epochs := whole("train", "epochs", epochs), "epochs")
    seed, batch_size = whole("train", "seed", seed, low=0), whole("train", "batch_size", batch_size)
    (x, y), held_out = _read_data(partitions, data, loss, batch_size)
    parameters = {key: p for partition in partitions for key, p in partition.parameters.items()}
    history, rng = History(), np.random.default_rng(seed)
    for epoch in range(1, epochs + 1):
        before = len(history.losses)
        for rows in _batches(len(x), batch_size, rng):
            found = _taken(step, (x[rows], y[rows]), history.losses, optimizer, parameters)
            history.losses.extend(found)
        mean = np.mean(history.losses[before:])
        line = f"epoch {epoch:>{len(str(epochs))}}/{epochs}  loss {mean:.3f}"
        if held_out:
            history.accuracies.append(_held_out(partitions, *held_out, history.losses))
            line += f"  held-out accuracy {history.accuracies[-1]:.1%}"
        if report is not None:
            report(line)
    return history


def _taken(
    step: Callable[[Batch, int], StepResult],
    batch: Batch,
    losses: list[float],
    optimizer: Optimizer | None,
    parameters: Gradients,
) -> tuple[float, ...]:
    """Take the next step; its losses. DivergedError, with all losses so far, if one is not finite."""
    with without_warnings():
        try:
            result = step(batch, len(losses))
            found = result.losses
        except DivergedError as error:
            found = (*error.losses, nan)
        require_finite(found, losses)
        if optimizer:
            optimizer.step(parameters, result.gradients)
    return found


def _held_out(partitions: Sequence[Partition], x: Array, y: Array, losses: list[float]) -> float:
    """The accuracy after an epoch. DivergedError if the last update has driven the outputs to infinity."""
    with without_warnings():
        found = outputs(partitions, x)
    if not np.isfinite(found).all():
        require_finite([nan], losses)
    return _accuracy(found, y)


def _read_data(
    partitions: Sequence[Partition], data: Data, loss: Loss, batch_size: int
) -> tuple[Batch, Batch | None]:
    """(x, y), and what is held out or None, all looked at before any weight changes."""
    needs = "train needs (x, y) or (x, y, x_held_out, y_held_out)"
    if not isinstance(data, tuple | list):
        raise TypeError(f"{needs} (got {type(data).__name__})")
    if len(data) not in (2, 4):
        raise ValueError(f"{needs} (got {len(data)} arrays)")
    require_loss(loss)
    x, y = as_batch(data[:2])
    held_out = as_batch(data[2:]) if len(data) == 4 else None
    if batch_size > len(x):
        raise ValueError(f"train needs batch_size <= {len(x)}, the number of samples (got {batch_size})")
    _require_targets(partitions, loss, x, y)
    _require_finite("train", x)
    if held_out:
        evaluate(partitions, *held_out)
        _require_targets(partitions, loss, *held_out)
    return (x, y), held_out


def _require_targets(partitions: Sequence[Partition], loss: Loss, x: Array, y: Array) -> None:
    """Check all targets before any weight changes; the outputs for one sample show the shape of all."""
    one = outputs(partitions, x[:1])
    loss.require(np.broadcast_to(one, (len(x), *one.shape[1:])), y)


def _require_finite(owner: str, x: Array) -> None:
    bad = ~np.isfinite(x).reshape(len(x), -1).all(axis=1)
    if bad.any():
        raise ValueError(f"{owner} needs finite inputs (sample {bad.argmax()} holds NaN or infinity)")


def _batches(samples: int, size: int, rng: np.random.Generator) -> Iterator[Array]:
    order = rng.permutation(samples)
    for start in range(0, samples - size + 1, size):
        yield order[start : start + size]
