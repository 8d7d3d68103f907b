"""Generate and simulate, against a plain loop that makes as many actions and spans and checks nothing."""

import sys
import time
from fractions import Fraction
from subprocess import run as run_process

from benchmarks.timing import medians, report
from gpipe_sim import ZBV, Costs, Interleaved1F1B, Link, OneFOneB, simulate, simulate_many
from gpipe_sim.core import Schedule, Span
from gpipe_sim.core.actions import Action, B, F, I, W

DEVICES, MICROBATCHES = 64, 1024
TINY = 10.4  #: target at 4 x 8: twice the ratio of the first simulator, which made an object of everything
WHOLE, SPLIT = ((F, 1), (B, 2)), ((F, 1), (I, 1), (W, 1))


def baseline(
    devices: int, microbatches: int, stages: int, kinds: tuple
) -> tuple[tuple[tuple[Action, ...], ...], tuple[Span, ...]]:
    """Rows of as many actions, and their spans; each device works without a break, whatever they need."""
    rows, spans = [], []
    for device in range(devices):
        row, clock = [], device
        for stage in range(device, devices * stages, devices):
            for m in range(microbatches):
                for kind, duration in kinds:
                    action = kind(stage, m)
                    row.append(action)
                    spans.append(Span(action, device, clock, clock + duration))
                    clock += duration
        rows.append(tuple(row))
    return tuple(rows), tuple(spans)


def compared(name: str, schedule: Schedule, kinds: tuple, target: float, rounds: int = 7) -> bool:
    """Report the time to generate and simulate an order, as a ratio to the baseline's."""
    devices, microbatches = schedule.devices, schedule.microbatches
    again = type(schedule), (devices, microbatches)
    ours, plain = medians(
        lambda: simulate(again[0](*again[1])),
        lambda: baseline(devices, microbatches, schedule.stages // devices, kinds),
        rounds=rounds,
    )
    return report(
        f"{name}: generate + simulate {schedule.program.size:,} actions / baseline", ours / plain, "x", target
    )


def once_more(schedule: Schedule) -> bool:
    """Report the time to simulate a lowered program with other costs, as a ratio to doing it from nothing."""
    costs = Costs(2, 1, 1)
    again, first = medians(
        lambda: simulate(schedule, costs),
        lambda: simulate(type(schedule)(schedule.devices, schedule.microbatches)),
        rounds=51,
    )
    return report(f"{schedule!r}: other costs / from nothing", again / first, "x", 0.5)


def on_links(schedule: Schedule) -> bool:
    """Report the time to simulate on links, as a ratio to constant delays: with room, and crowded."""
    met, costs = True, Costs(2, 2, 2, comm=1)
    for words, link, target in (
        ("with room", Link(1, 1), 1.6),
        ("that are crowded", Link(1, Fraction(1, 4)), 1.6),
    ):
        linked, plain = medians(
            lambda link=link: simulate(schedule, Costs(2, 2, 2), links=link, message_bytes=1),
            lambda: simulate(schedule, costs),
            rounds=21,
        )
        met &= report(f"{schedule!r}: links {words} / constant delays", linked / plain, "x", target)
    return met


def with_noise(schedule: Schedule, runs: int = 1000) -> bool:
    """Report the time of a run among many, as a ratio to simulating once more."""
    costs = Costs(1.0, 1.0, 1.0)
    many, once = medians(
        lambda: simulate_many(schedule, costs, noise=0.1, runs=runs),
        lambda: simulate(schedule, costs),
        rounds=11,
    )
    return report(f"{schedule!r}: one of {runs:,} runs with noise / simulate", many / runs / once, "x", 0.1)


def imported(module: str, rounds: int = 9) -> float:
    """Seconds to import a module in a fresh process, without Python's own start; the fastest of each."""

    def start(code: str) -> float:
        began = time.perf_counter()
        run_process([sys.executable, "-c", code], check=True)
        return time.perf_counter() - began

    times = [(start(f"import {module}"), start("pass")) for _ in range(rounds)]
    return min(a for a, _ in times) - min(b for _, b in times)


def run() -> bool:
    size = DEVICES, MICROBATCHES
    met = compared("1F1B", OneFOneB(*size), WHOLE, 1.2)
    met &= compared("interleaved", Interleaved1F1B(*size), WHOLE, 1.2)
    met &= compared("ZB-V", ZBV(*size), SPLIT, 1.2)
    met &= compared("1F1B, 4 x 8", OneFOneB(4, 8), WHOLE, TINY, rounds=201)
    met &= once_more(OneFOneB(4, 8))
    met &= with_noise(OneFOneB(4, 8))
    met &= on_links(OneFOneB(*size))
    ratio = imported("numpy, gpipe_sim") / imported("numpy")
    met &= report("import gpipe_sim, NumPy included / import numpy", ratio, "x", 1.5)
    ratio = imported("gpipe_sim.core.simulate") / imported("numpy")
    return met & report("... and what a first simulate loads", ratio, "x", 2)


if __name__ == "__main__":
    run()
