"""The two halves of a backward, tried on steps of several sizes: what each reads, sends, adds and keeps."""

from collections.abc import Callable

import numpy as np

from gpipe_sim.course import answers, mine
from gpipe_sim.course.called import called
from gpipe_sim.course.reply import Reply, almost, keep_working
from gpipe_sim.nn.losses import mse
from gpipe_sim.nn.models import mlp
from gpipe_sim.runtime.step import single_device_step

#: widths of the layers, microbatches, samples
STEPS = (([6, 5], 2, 5), ([7, 4, 6, 3], 3, 8), ([4, 8, 5], 4, 9))
OWN = ("W", "b", "dW", "db", "relu")  #: what a stage has from the start


def what_is_wrong_with_halves(first: Callable, second: Callable) -> Reply | None:
    """A reply to the first thing that is wrong on any step, or else to what is kept too long; or None."""
    more = None
    for widths, M, samples in STEPS:
        stages = answers.stages_of(layers := mlp(widths, seed=5))
        rng = np.random.default_rng(samples)
        x, target = rng.normal(size=(samples, widths[0])), rng.normal(size=(samples, widths[-1]))
        where = f"layers of {widths}, {M} microbatches"
        kept = called(_step, first, second, stages, x, target, M, copies=False, where=where)
        if kept and not (isinstance(kept, Reply) and kept.verdict == "almost"):
            return kept if isinstance(kept, Reply) else keep_working(f"{where}: {kept}")
        if said := called(_gradients, stages, layers, x, target, copies=False, where=where):
            return said if isinstance(said, Reply) else keep_working(f"{where}: {said}")
        more = more or kept
    return more


def _step(
    first: Callable, second: Callable, stages: list, x: np.ndarray, target: np.ndarray, M: int
) -> object:
    """All forwards, all I, and then all W, the last microbatch first; what is wrong on the way, or None.

    "Almost" says that a stage keeps more than it has to; that is no reason to stop.
    """
    links = _forwards(stages, x, target, M)
    for m in range(M):
        for s in reversed(range(len(stages))):
            if wrong := _one_i(first, stages[s], s, m, links):
                return wrong
    more = None
    for s, stage in enumerate(stages):
        if wrong := _what_is_missing(stage, s, len(x), M):
            return wrong
        more = more or _too_many(stage, s, len(x), M)
    for m in reversed(range(M)):
        for s, stage in enumerate(stages):
            if wrong := _one_w(second, stage, s, m, links):
                return wrong
    left = [(s, len(_kept(stage))) for s, stage in enumerate(stages) if _kept(stage)]
    if more or not left:
        return more
    return almost(f"after every W stage {left[0][0]} still keeps {left[0][1]} arrays. When may they go?")


def _what_is_missing(stage: dict, s: int, samples: int, M: int) -> str:
    """What W cannot do with the arrays that a stage keeps after all its I, and before any W."""
    arrays, weights = _kept(stage), stage["W"]
    if not arrays:
        return f"after all its I stage {s} keeps no array. What does W read?"
    if any(array.shape == weights.shape for array in arrays):
        return f"I keeps an array as large as W, {weights.shape}. What has W left to do?"
    if sum(array.size for array in arrays) < samples * sum(weights.shape):
        return f"after all its I stage {s} keeps {_arrays(arrays, M)}. What does the W of each of them read?"
    return ""


def _too_many(stage: dict, s: int, samples: int, M: int) -> Reply | None:
    arrays = _kept(stage)
    if sum(array.size for array in arrays) <= samples * sum(stage["W"].shape):
        return None
    return almost(f"after all its I stage {s} keeps {_arrays(arrays, M)}. Which of them does W read?")


def _arrays(arrays: list[np.ndarray], M: int) -> str:
    return f"{len(arrays)} array{'s' * (len(arrays) > 1)} for {M} microbatches"


def _forwards(stages: list, x: np.ndarray, target: np.ndarray, M: int) -> answers.Links:
    links, last = answers.Links(), len(stages) - 1
    for m, (piece, wanted) in enumerate(zip(np.array_split(x, M), np.array_split(target, M), strict=True)):
        links.send(("y", -1, m), piece)
        for s, stage in enumerate(stages):
            mine.forward(stage, s, m, links)
        links.send(("dy", last, m), 2 * (links.receive(("y", last, m)) - wanted) / target.size)
    return links


def _one_i(first: Callable, stage: dict, s: int, m: int, links: answers.Links) -> str | None:
    added, there = (np.array(stage["dW"]), np.array(stage["db"])), set(links.arrays)
    first(stage, s, m, links)
    action, sent = f"{s}I{m}", set(links.arrays) - there
    if ("dy", s, m) in links.arrays:
        return f"after {action} the gradient for stage {s} is still on its way. Who receives it?"
    if s == 0 and sent:
        return f"{action} sends {sent.pop()!r}. Who is there to receive it?"
    if s > 0 and sent != {("dy", s - 1, m)}:
        said = f"sends {sent.pop()!r}" if sent else "sends nothing"
        return f"{action} {said}, and stage {s - 1} waits for {('dy', s - 1, m)!r}. What should it get?"
    if not all(map(np.array_equal, added, (stage["dW"], stage["db"]))):
        return f"{action} already adds to dW or db. Which device waits for those?"
    return None


def _one_w(second: Callable, stage: dict, s: int, m: int, links: answers.Links) -> str | None:
    there = set(links.arrays)
    second(stage, s, m, links)
    if set(links.arrays) - there:
        return f"{s}W{m} sends a message. Who waits for it?"
    return None


def _kept(held: object, own: tuple[str, ...] = OWN) -> list[np.ndarray]:
    """The arrays that a stage keeps for later, each once."""
    if isinstance(held, np.ndarray):
        return [held]
    if isinstance(held, dict):
        held = [value for key, value in held.items() if key not in own]
    if not isinstance(held, list | tuple | set):
        return []
    arrays = [array for value in held for array in _kept(value, ())]
    return list({id(array): array for array in arrays}.values())


def _gradients(stages: list, layers: list, x: np.ndarray, target: np.ndarray) -> str:
    """A question about the last stage with a wrong gradient, or an empty text."""
    wanted = single_device_step(layers, (x, target), mse).gradients
    for s in reversed(range(len(stages))):
        for name in ("W", "b"):
            yours, right = np.asarray(stages[s][f"d{name}"]), wanted[2 * s, name]
            if not np.array_equal(stages[s][name], layers[2 * s].parameters[name]):
                return f"{name} of stage {s} has changed. When are weights updated?"
            if not yours.any():
                return f"d{name} of stage {s} is still 0. Which of the two halves adds to it?"
            if yours.shape != right.shape:
                return f"d{name} of stage {s} has the shape {yours.shape}, and {name} has {right.shape}. Why?"
            if not np.allclose(yours, right, rtol=1e-12, atol=1e-12):
                return _about(s, name, len(stages))
    return ""


def _about(s: int, name: str, S: int) -> str:
    said = f"d{name} of stage {s} is not that of one device"
    if s < S - 1:
        return f"{said}; stage {s + 1} is right. Is it what that stage sends, or what stage {s} makes of it?"
    reads = "the gradient that arrived" + (" and what the forward kept" if name == "W" else "")
    return f"{said}. It is made of {reads}. How, and over how many microbatches?"
