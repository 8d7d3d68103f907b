"""Rebuild the figures, all or by name; or check that the committed numbers still come out.

python -m figures                      every NAME.png and NAME.json
python -m figures gantt_1f1b summary   these
python -m figures --check              compare with the committed JSON, write nothing
"""

import argparse
import sys
import time
from collections.abc import Sequence

import matplotlib

from figures._store import NAMES, differences, file, module, read, write

DPI = 150
AT_MOST = 10  #: differences shown per figure


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if all went well, 1 if a check found other numbers."""
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
    return 0


def build(name: str) -> None:
    """Compute and write one figure's numbers, and its picture drawn from what was written."""
    print(name, flush=True)
    start = time.perf_counter()
    write(name, module(name).data())
    picture = module(name).draw(read(name))
    picture.savefig(file(name, "png"), dpi=DPI, metadata={"Software": None})
    print(f"  {time.perf_counter() - start:.1f} s, figures/{name}.png and .json", flush=True)


def check(name: str) -> bool:
    """Whether one figure's numbers come out as committed; says which do not."""
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
