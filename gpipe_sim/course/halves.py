"""The two halves of a backward, tried on steps of several sizes: what each reads, sends, adds and keeps."""

from collections.abc import Callable

import numpy as np

from gpipe_sim.course import answers, mine
from gpipe_sim.course.called import called
from gpipe_sim.course.one_device import Trial, kept_arrays
from gpipe_sim.course.reply import Reply, almost, keep_working

#: widths of the layers, microbatches, samples
STEPS = (([6, 5], 2, 5), ([7, 4, 6, 3], 3, 8), ([4, 8, 5], 4, 9))
SUMMED = "Of what is it made, and over how many microbatches?"


def what_is_wrong_with_halves(first: Callable, second: Callable) -> None:
    """Raise a reply to the first thing that is wrong on any step, or else to what is kept too long."""
    more = None
    for widths, M, samples in STEPS:
        trial = Trial.of(widths, samples)
        where = f"layers of {widths}, {M} microbatches"
        kept = called(_step, first, second, trial, M, copies=False, where=where)
        if isinstance(kept, str):
            raise keep_working(f"{where}: {kept}")
        trial.wrong_gradients(f"{where}:", SUMMED)
        more = more or kept
    if more:
        raise more


def _step(first: Callable, second: Callable, trial: Trial, M: int) -> object:
    """All forwards, all I, and then all W, the last microbatch first; what is wrong on the way, or None.

    "Almost" says that a stage keeps more than it has to; that is no reason to stop.
    """
    stages, samples, links = trial.stages, len(trial.x), _forwards(trial, M)
    for m in range(M):
        for s in reversed(range(len(stages))):
            if wrong := _one_i(first, stages[s], s, m, links):
                return wrong
    more = None
    for s, stage in enumerate(stages):
        if wrong := _what_is_missing(stage, s, samples, M):
            return wrong
        more = more or _too_many(stage, s, samples, M)
    for m in reversed(range(M)):
        for s, stage in enumerate(stages):
            if wrong := _one_w(second, stage, s, m, links):
                return wrong
    left = [(s, len(kept_arrays(stage))) for s, stage in enumerate(stages) if kept_arrays(stage)]
    if more or not left:
        return more
    return almost(f"after every W stage {left[0][0]} still keeps {left[0][1]} arrays. When may they go?")


def _what_is_missing(stage: dict, s: int, samples: int, M: int) -> str:
    """What W cannot do with the arrays that a stage keeps after all its I, and before any W."""
    arrays, weights = kept_arrays(stage), stage["W"]
    if not arrays:
        return f"after all its I stage {s} keeps no array. What does W read?"
    if any(array.shape == weights.shape for array in arrays):
        return f"I keeps an array as large as W, {weights.shape}. What has W left to do?"
    if sum(array.size for array in arrays) < samples * sum(weights.shape):
        return f"after all its I stage {s} keeps {_arrays(arrays, M)}. What does the W of each of them read?"
    return ""


def _too_many(stage: dict, s: int, samples: int, M: int) -> Reply | None:
    arrays = kept_arrays(stage)
    if sum(array.size for array in arrays) <= samples * sum(stage["W"].shape):
        return None
    return almost(f"after all its I stage {s} keeps {_arrays(arrays, M)}. Which of them does W read?")


def _arrays(arrays: list[np.ndarray], M: int) -> str:
    return f"{len(arrays)} array{'s' * (len(arrays) > 1)} for {M} microbatches"


def _forwards(trial: Trial, M: int) -> answers.Links:
    links, last = answers.Links(), len(trial.stages) - 1
    pieces = (np.array_split(each, M) for each in (trial.x, trial.target))
    for m, (piece, wanted) in enumerate(zip(*pieces, strict=True)):
        links.send(("y", -1, m), piece)
        for s, stage in enumerate(trial.stages):
            mine.forward(stage, s, m, links)
        links.send(("dy", last, m), 2 * (links.receive(("y", last, m)) - wanted) / trial.target.size)
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
