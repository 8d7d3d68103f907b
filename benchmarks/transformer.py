"""Train the Transformer of lesson 16, on one device and on four simulated ones, and store both: a minute.

Run ``python -m benchmarks.transformer``, then `make figures lessons`, which draw and print what it stores.
"""

import json
import time
from pathlib import Path

from gpipe_sim.course.trained import ALONE, FILE, PIPELINE, training


def main() -> None:
    found = {}
    for name in (ALONE, PIPELINE):
        start = time.perf_counter()
        history = training(name)
        found[name] = {"losses": history.losses, "accuracies": history.accuracies}
        print(f"{name:<20} {history.accuracies[-1]:.1%} in {time.perf_counter() - start:.0f} s")
    text = ",\n".join(f" {json.dumps(name)}: {json.dumps(training)}" for name, training in found.items())
    Path(str(FILE)).write_text(f"{{\n{text}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
