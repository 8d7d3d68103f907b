"""Benchmarks, mostly ratios to a plain baseline in the same run. Run as ``python -m benchmarks``.

Matrix products use one thread. The simulated devices take turns anyway, and with several threads, one that
waits for a busy core would slow down whichever side it happens to belong to.
"""

import os

for _library in ("OPENBLAS", "OMP", "MKL", "VECLIB"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
