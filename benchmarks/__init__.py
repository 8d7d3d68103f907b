"""Ratios against plain baselines in the same run. Run as ``python -m benchmarks``.

Matrix products use one thread: the simulated devices take turns anyway, and threads that wait for a busy
core would be measured on whichever side they happen to hit.
"""

import os

for _library in ("OPENBLAS", "OMP", "MKL", "VECLIB"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
