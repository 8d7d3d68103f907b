"""Medians of alternating runs, so that a slow moment of the machine affects both sides alike."""

import gc
import statistics
import time
from collections.abc import Callable


def medians(*candidates: Callable[[], object], rounds: int = 9) -> list[float]:
    """Seconds per call of each candidate: the median over rounds in which all of them run in turn."""
    times = [[] for _ in candidates]
    for _ in range(rounds):
        for candidate, taken in zip(candidates, times, strict=True):
            gc.collect()
            start = time.perf_counter()
            candidate()
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


def report(name: str, value: float, unit: str, target: float) -> bool:
    """Print a measured value beside its target, and return whether the target is met."""
    met = value <= target
    print(f"{'ok  ' if met else 'SLOW'}  {name:<58} {value:9.2f} {unit:<7} (target {target:g})")
    return met
