"""Sizes of the instructor's own: while a check runs, it also tries some that a seed draws.

So a file that has the sizes of the package's checks, and what is right for each, does not pass.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from importlib import import_module
from typing import Any
from unittest.mock import patch

import numpy as np

from gpipe_sim.classroom.notebooks import is_exercise

MORE = 2  #: sizes that are drawn for a check
Draw = Callable[[random.Random], Any]


@contextmanager
def seeded(name: str, lesson: str, seed: int) -> Iterator[None]:
    """Meanwhile the check of this name tries more sizes."""
    with ExitStack() as until:
        for place, draw in (SEEDS if is_exercise(lesson) else DRAWN.get(name, {})).items():
            module, _, sizes = place.rpartition(".")
            names = vars(import_module(f"gpipe_sim.course.{module or f'lesson_{lesson}'}"))
            rng = random.Random(f"{seed} {name} {place}")
            drawn = tuple(draw(rng) for _ in range(MORE))
            until.enter_context(patch.dict(names, {sizes: (*names[sizes], *drawn)}))
        yield


def few(rng: random.Random, least: int = 2, most: int = 7) -> int:
    return rng.randint(least, most)


def wide(rng: random.Random) -> tuple[int, ...]:
    """No width so small that a ReLU passes nothing, and none as large as a microbatch of 10."""
    return tuple(few(rng, 4, 9) for _ in range(few(rng, 3, 5)))


def pipeline(rng: random.Random) -> tuple[int, int]:
    """Devices and microbatches."""
    return few(rng), few(rng, 2, 11)


def times(rng: random.Random, count: int) -> tuple[int, ...]:
    return tuple(few(rng, 1, 9) for _ in range(count))


def model(rng: random.Random) -> list[int]:
    return [64, *(few(rng, 5, 90) for _ in range(few(rng, 2, 4))), 10]


def clocked(rng: random.Random) -> tuple:
    from gpipe_sim.course import answers

    return answers.gpipe_rows(*pipeline(rng)), answers.NEEDS, dict(zip("FB", times(rng, 2), strict=True))


def cut(rng: random.Random) -> tuple[int, ...]:
    devices, each, thick = few(rng), few(rng, 1, 4), few(rng, 1, 3)
    return devices * each * thick, devices, each, rng.randrange(devices)


def with_links(rng: random.Random) -> list:
    from gpipe_sim.course import answers

    return answers.gpipe_rows(*pipeline(rng))


def span(rng: random.Random) -> tuple[int, ...]:
    devices, forward = few(rng, 2, 5), few(rng, 3, 9)
    return devices, few(rng, 2 * devices - 1, 4 * devices), forward, few(rng, 3, 9), few(rng, 0, 2)


def heads(rng: random.Random) -> tuple[int, ...]:
    count = few(rng, 2, 4)
    return few(rng), few(rng), count * few(rng, 1, 4), count


def llama(rng: random.Random) -> tuple[int, ...]:
    groups = few(rng, 1, 3)
    count = groups * few(rng, 2, 4)
    return few(rng, 5, 60), count * few(rng, 2, 9), few(rng, 20, 99), count, groups


def planned(rng: random.Random) -> Any:
    from gpipe_sim.course.lesson_18 import Plan

    devices = few(rng, 2, 6)
    sizes = few(rng), devices, few(rng), few(rng, 2, 9), few(rng, 1, 4), devices * few(rng), few(rng, 9, 40)
    return Plan(*sizes, few(rng, 9, 40), few(rng, 999, 9999), float(few(rng, 10**5, 10**6)), float(10**5))


def plans(rng: random.Random) -> tuple:
    return tuple((few(rng, 1, 9), few(rng, 1, 9), name) for name in "abcdefg"[: few(rng, 3, 7)])


def named(of: str, draw: Callable[[random.Random], tuple]) -> Draw:
    """What is drawn, as the lesson's own kind of tuple."""
    lesson, _, kind = of.partition(".")
    return lambda rng: getattr(import_module(f"gpipe_sim.course.{lesson}"), kind)(*draw(rng))


def split(rng: random.Random) -> tuple[int, ...]:
    devices = few(rng, 2, 4)
    return few(rng), few(rng), devices * few(rng), devices


#: What exercises draw their numbers by.
SEEDS: dict[str, Draw] = {"exercises.seeded.HIDDEN": lambda rng: f"of a class, {rng.random()}"}
#: By the name of a check: where it lists sizes, in its lesson or in another module, and how one is drawn.
DRAWN: dict[str, dict[str, Draw]] = {
    "devices_needed": {"HIDDEN": lambda rng: (model(rng), np.float64)},
    "message_bytes": {"HIDDEN": lambda rng: (model(rng), few(rng, 5, 60), np.float64)},
    "forward_and_backward": {"STAGES": lambda rng: (wide(rng), few(rng))},
    "step": {"STEPS": lambda rng: (wide(rng), few(rng, 3, 9))},
    "run": {"RUNS": lambda rng: (wide(rng), few(rng, 6, 13), few(rng, 2, 6))},
    "accumulate": {"SIZES": lambda rng: (few(rng, 8, 20), few(rng, 2, 7))},
    "gpipe_rows": {"ROWS": pipeline},
    "fewest": {"SHARES": lambda rng: (few(rng), Fraction(1, few(rng, 3, 60)))},
    "clock": {"CLOCKED": clocked},
    "smallest_caps": {"SIZES": pipeline},
    "light_forward_and_recompute": {
        "HIDDEN_STAGES": lambda rng: (wide(rng), few(rng, 8, 12), few(rng, 2, 3))
    },
    "remat_time": {"HIDDEN_TIMES": lambda rng: (*pipeline(rng), *times(rng, 3))},
    "most_microbatches": {
        "HIDDEN_LIMITS": lambda rng: (few(rng, 99, 4999), few(rng, 5, 40), few(rng, 50, 99))
    },
    "interleaved_rows": {
        "HIDDEN_ROWS": lambda rng: (devices := few(rng), devices * few(rng, 1, 4), few(rng, 2, 4)),
    },
    "held_layers": {"HIDDEN_CUTS": cut},
    "quickest": {
        "HIDDEN_BATCHES": named(
            "lesson_10.Batch", lambda rng: (few(rng), 12 * few(rng, 2, 40), few(rng, 0, 20))
        ),
    },
    "best_cut": {"HIDDEN_MODELS": lambda rng: (times(rng, few(rng, 7, 12)), few(rng, 2, 5))},
    "on_links": {"HIDDEN_ROWS": with_links},
    "gpipe_on_links": {"SETTINGS": lambda rng: (*pipeline(rng), *times(rng, 4))},
    "program": {"HIDDEN_PROGRAMS": pipeline},
    "receive_buffers": {"PIPELINES": pipeline},
    "two_halves": {"halves.STEPS": lambda rng: ([*wide(rng)], M := few(rng, 2, 4), few(rng, 10, 13) * M)},
    "putting_off": {"HIDDEN_DELAYS": lambda rng: ([few(rng, 0, 5) for _ in range(few(rng))], few(rng, 1, 9))},
    "small_weight_times": {"SETTINGS": span},
    "v_strand": {"HIDDEN_STRANDS": lambda rng: (few(rng, 2, 9), few(rng, 0, 6))},
    "attention": {"HIDDEN_SHAPES": heads},
    "llama_bytes": {"HIDDEN_LLAMAS": llama},
    "ring_sum": {"HIDDEN_RINGS": lambda rng: (few(rng), few(rng, 5, 30))},
    "zero_1": {"HIDDEN_UPDATES": lambda rng: (few(rng), few(rng, 9, 30))},
    "four_terms": {"HIDDEN": planned},
    "unbeaten": {"HIDDEN_PLANS": plans},
    "stream": {"HIDDEN_STREAMS": pipeline},
    "network": {"HIDDEN": named("lesson_B.Size", split)},
    "partial_gradients": {"HIDDEN": named("lesson_B.Size", split)},
}
