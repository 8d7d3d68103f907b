"""The two halves of a backward, tried on steps of several sizes: what each reads, sends, adds and keeps."""

from collections.abc import Callable
from typing import cast

import numpy as np

from gpipe_sim.course import answers, mine
from gpipe_sim.course.called import called
from gpipe_sim.course.one_device import Trial, kept_arrays
from gpipe_sim.course.reply import Reply, almost, keep_working

#: widths of the layers, microbatches, samples
STEPS = (([6, 5], 2, 5), ([7, 4, 6, 3], 3, 8), ([4, 8, 5], 4, 9))
SUMMED = "Of what is it made, and over how many microbatches?"


def what_is_wrong_with_halves(*halves: Callable) -> None:
    """Raise a reply to the first thing that is wrong on any step, or else to what is kept too long."""
    too_much: list[Reply] = []
    for widths, M, samples in STEPS:
        trial = Trial.of(widths, samples)
        where = f"layers of {widths}, {M} microbatches"
        called(_step, *halves, trial, M, f"{where}:", too_much, copies=False, where=where)
        trial.wrong_gradients(f"{where}:", SUMMED)
        one, other = (
            cast(dict, called(_added, *halves, Trial.of(widths, samples), order, where=where))
            for order in (range(M), range(M)[::-1])
        )
        if wrong := [key for key in one if not np.allclose(one[key], other[key])]:
            says = "{}W{} adds one thing to dW if the first W come first, and another if they come last"
            raise keep_working(f"{where}: {says.format(*wrong[0])}. Whose arrays does it take?")
    if too_much:
        raise too_much[0]


def _added(first: Callable, second: Callable, trial: Trial, order: range) -> dict:
    """All forwards, all I, and then the W in this order: what each adds to dW, by (stage, microbatch)."""
    links, added = _forwards(trial, len(order)), {}
    for m in range(len(order)):
        for s in reversed(range(len(trial.stages))):
            first(trial.stages[s], s, m, links)
    for m in order:
        for s, stage in enumerate(trial.stages):
            before = np.array(stage["dW"])
            second(stage, s, m, links)
            added[s, m] = stage["dW"] - before
    return added


def _step(first: Callable, second: Callable, trial: Trial, M: int, where: str, too_much: list[Reply]) -> None:
    """All forwards, all I, and then all W, the last microbatch first; raises what is wrong on the way.

    That a stage keeps more than it has to is no reason to stop, so that is added to ``too_much``.
    """
    stages, links = trial.stages, _forwards(trial, M)
    for m in range(M):
        for s in reversed(range(len(stages))):
            _one_i(where, first, stages[s], s, m, links)
    for s, stage in enumerate(stages):
        arrays, weights = kept_arrays(stage), stage["W"]
        if not arrays:
            keeps = f"after all its I stage {s} keeps no array, nor a list or dict of them"
            raise keep_working(f"{where} {keeps}. What does W read?")
        if any(array.shape == weights.shape for array in arrays):
            keeps = f"{where} I keeps an array as large as W, {weights.shape}"
            raise keep_working(f"{keeps}. What has W left to do?")
        size, due = sum(array.size for array in arrays), len(trial.x) * sum(weights.shape)
        count = f"{len(arrays)} array{'s' * (len(arrays) > 1)} for {M} microbatches"
        keeps = f"after all its I stage {s} keeps {count}"
        if size < due:
            raise keep_working(f"{where} {keeps}. What does the W of each of them read?")
        if size > due:
            too_much.append(almost(f"{keeps}. Which of them does W read?"))
    for m in reversed(range(M)):
        for s, stage in enumerate(stages):
            there = set(links.arrays)
            second(stage, s, m, links)
            if set(links.arrays) - there:
                raise keep_working(f"{where} {s}W{m} sends a message. Who waits for it?")
    for s, stage in enumerate(stages):
        if left := kept_arrays(stage):
            too_much.append(
                almost(f"after every W stage {s} still keeps {len(left)} arrays. When may they go?")
            )


def _forwards(trial: Trial, M: int) -> answers.Links:
    links, last = answers.Links(), len(trial.stages) - 1
    pieces = (np.array_split(each, M) for each in (trial.x, trial.target))
    for m, (piece, wanted) in enumerate(zip(*pieces, strict=True)):
        links.send(("y", -1, m), piece)
        for s, stage in enumerate(trial.stages):
            mine.forward(stage, s, m, links)
        links.send(("dy", last, m), 2 * (links.receive(("y", last, m)) - wanted) / trial.target.size)
    return links


def _one_i(where: str, first: Callable, stage: dict, s: int, m: int, links: answers.Links) -> None:
    """Do one I; raises what is wrong with what it received, sent or added."""
    added, there = (np.array(stage["dW"]), np.array(stage["db"])), set(links.arrays)
    first(stage, s, m, links)
    action, sent, due = f"{s}I{m}", set(links.arrays) - there, ("dy", s - 1, m)
    if ("dy", s, m) in links.arrays:
        says = f"after {action} the gradient for stage {s} is still on its way"
        raise keep_working(f"{where} {says}. Who receives it?")
    if s == 0 and sent:
        raise keep_working(f"{where} {action} sends {sent.pop()!r}. Who is there to receive it?")
    if s > 0 and sent != {due}:
        says = (
            f"{action} sends {repr(sent.pop()) if sent else 'nothing'}, and stage {s - 1} waits for {due!r}"
        )
        raise keep_working(f"{where} {says}. What should it get?")
    if not all(map(np.array_equal, added, (stage["dW"], stage["db"]))):
        raise keep_working(f"{where} {action} already adds to dW or db. Which device waits for those?")
