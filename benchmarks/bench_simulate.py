"""Generate and simulate, against a loop that makes the same objects and checks nothing."""

from benchmarks.timing import medians, report
from gpipe_sim.families import Interleaved1F1B, OneFOneB
from gpipe_sim.schedule.actions import Action, B, F
from gpipe_sim.simulation.simulate import simulate
from gpipe_sim.simulation.timeline import Span

DEVICES, MICROBATCHES = 64, 1024


def baseline(stages_per_device: int) -> tuple[tuple[tuple[Action, ...], ...], tuple[Span, ...]]:
    """Rows of actions and their spans for as many actions, each device back to back, no dependencies."""
    rows, spans = [], []
    for device in range(DEVICES):
        row, clock = [], device
        for stage in range(device, DEVICES * stages_per_device, DEVICES):
            for m in range(MICROBATCHES):
                for action, duration in ((F(stage, m), 1), (B(stage, m), 2)):
                    row.append(action)
                    spans.append(Span(action, device, clock, clock + duration))
                    clock += duration
        rows.append(tuple(row))
    return tuple(rows), tuple(spans)


def run() -> bool:
    met = True
    for name, schedule, stages in (
        ("1F1B", lambda: OneFOneB(DEVICES, MICROBATCHES), 1),
        ("interleaved, 2 stages per device", lambda: Interleaved1F1B(DEVICES, MICROBATCHES, 2), 2),
    ):
        size = sum(map(len, schedule().actions))
        ours, plain = medians(lambda make=schedule: simulate(make()), lambda n=stages: baseline(n), rounds=7)
        met &= report(f"{name}: generate + simulate {size:,} actions / baseline", ours / plain, "x", 3)
        met &= report(f"{name}: generate + simulate", ours, "s", 1)
    return met


if __name__ == "__main__":
    run()
