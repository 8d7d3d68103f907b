"""What a notebook shows of large timelines: how long the drawing takes to make, and how large it is."""

from benchmarks.timing import medians, report
from gpipe_sim import ZBV, GPipe, OneFOneB, draw, simulate
from gpipe_sim.core import Timeline

LARGE = (
    OneFOneB(16, 90),
    OneFOneB(32, 512),
    ZBV(32, 512),
    GPipe(16, 4096),
)  # the first with a box per action


def shown(timeline: Timeline) -> str:
    """What a notebook gets."""
    return draw(timeline, in_flight=True)._repr_html_()


def run() -> bool:
    met = True
    for schedule in LARGE:
        timeline = simulate(schedule)
        name = f"SVG of {type(schedule).__name__}, {schedule.devices} x {schedule.microbatches}"
        [seconds] = medians(lambda timeline=timeline: shown(timeline), rounds=5)
        met &= report(name, seconds, "s", 0.5)
        met &= report(name, len(shown(timeline)) / 1000, "kB", 300)
    return met


if __name__ == "__main__":
    run()
