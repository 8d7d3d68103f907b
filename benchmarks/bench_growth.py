"""Generate, simulate and check from about a thousand to half a million actions: the time grows with them."""

from benchmarks.timing import medians, report
from gpipe_sim import Interleaved1F1B, OneFOneB, Schedule, problems, simulate

SIZES = ((8, 64), (16, 256), (32, 512), (64, 1024), (128, 2048))  #: 1,024 to 524,288 actions
LARGE = (64, 1024, 2)


def per_action(devices: int, microbatches: int) -> float:
    """Nanoseconds per action of 1F1B to generate and simulate."""
    actions = sum(map(len, OneFOneB(devices, microbatches).actions))
    rounds = max(3, 40_000 // actions)
    [seconds] = medians(lambda: simulate(OneFOneB(devices, microbatches)), rounds=rounds)
    print(f"      1F1B {devices:>3} x {microbatches:<5} {actions:>8,} actions {seconds:9.4f} s")
    return seconds / actions * 1e9


def checked(schedule: Schedule) -> None:
    """As a user does who wants to know everything that is wrong before the timeline."""
    assert problems(schedule) == []
    simulate(schedule)


def run() -> bool:
    times = [per_action(*size) for size in SIZES]
    met = report("per action, 524,288 actions / 1,024", times[-1] / times[0], "x", 3)
    size = sum(map(len, Interleaved1F1B(*LARGE).actions))
    plain, full = medians(
        lambda: simulate(Interleaved1F1B(*LARGE)), lambda: checked(Interleaved1F1B(*LARGE)), rounds=5
    )
    name = f"64 x 1024, 2 stages per device, {size:,} actions"
    met &= report(f"{name}: simulate", plain, "s", 1.5)
    return met & report(f"{name}: check, too", full, "s", 3)


if __name__ == "__main__":
    run()
