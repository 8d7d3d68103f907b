"""Rebuild the figures, all or by name; or check that the committed numbers still come out.

python -m figures                      every NAME.png and NAME.json, and view.html
python -m figures gantt_1f1b dial      these
python -m figures --check              compare with the committed JSON, write nothing

A file is written only if it would say something new, so rebuilding on another processor changes nothing. The
numbers are written if one differs from the number on disk by more than its figure tolerates; for schedules,
nothing is tolerated. An image is written if it is missing, or if drawing the numbers on disk gives other
pixels; so a change of the drawing code shows even if no number changed. A release of matplotlib other than
the one in constraints.txt shapes letters differently, and then every image is written.
"""

import argparse
import io
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.image import imread

from figures import _view
from figures._store import NAMES, differences, file, module, read, write

DPI = 150
LEVELS = 2  #: how much a pixel's colour may differ, out of 255: rounding, which nobody sees
AT_MOST = 10  #: differences shown per figure


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0 if all went well, 1 if ``--check`` found other numbers."""
    parser = argparse.ArgumentParser(prog="python -m figures", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"out of {', '.join(NAMES)}")
    parser.add_argument(
        "--check", action="store_true", help="compare with the committed numbers, write nothing"
    )
    chosen = parser.parse_args(arguments)
    if unknown := [name for name in chosen.names if name not in NAMES]:
        parser.error(f"no figure {', '.join(unknown)}; there are {', '.join(NAMES)}")
    names = chosen.names or NAMES
    if chosen.check:
        wrong = [name for name in names if not check(name)]
        return 1 if wrong else 0
    matplotlib.use("Agg")
    for name in names:
        build(name)
    if not chosen.names:
        _view.build()
    return 0


def build(name: str) -> None:
    """Compute one figure's numbers, write them if they are new, then draw those on disk likewise."""
    print(name, flush=True)
    start, new = time.perf_counter(), []
    fresh = module(name).data()
    if differences(fresh, read(name)):
        write(name, fresh)
        new.append(f"{name}.json")
    image = drawn(name)
    if not looks_like(image, file(name, "png")):
        file(name, "png").write_bytes(image)
        new.append(f"{name}.png")
    says = f"wrote {' and '.join(new)}" if new else "nothing new"
    print(f"  {time.perf_counter() - start:.1f} s, {says}", flush=True)


def drawn(name: str) -> bytes:
    """The image, as PNG, drawn from the numbers on disk."""
    image = io.BytesIO()
    module(name).draw(read(name)).savefig(image, format="png", dpi=DPI, metadata={"Software": None})
    return image.getvalue()


def looks_like(image: bytes, path: Path) -> bool:
    """Whether a file has the same pixels as this PNG, up to rounding, however either is compressed."""
    if not path.exists():
        return False
    here, there = imread(io.BytesIO(image), format="png"), imread(path)
    return here.shape == there.shape and bool(np.abs(here - there).max() * 255 < LEVELS + 0.5)


def check(name: str) -> bool:
    """Whether one figure's numbers come out as committed; prints those that do not."""
    print(name, flush=True)
    found = differences(module(name).data(), read(name))
    for line in found[:AT_MOST]:
        print(f"  DIFFERS {line}")
    if len(found) > AT_MOST:
        print(f"  ... and {len(found) - AT_MOST} more")
    print("  differs from" if found else "  as in", f"figures/{name}.json", flush=True)
    return not found


if __name__ == "__main__":
    sys.exit(main())
