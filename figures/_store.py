"""Where the figures and their numbers are stored, and how two sets of numbers are compared."""

import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

folder = Path(__file__).parent
NAMES = tuple(sorted(path.stem for path in folder.glob("[!_]*.py")))


def module(name: str) -> ModuleType:
    """The figure's module, with its ``data`` and ``draw``."""
    return import_module(f"figures.{name}")


def read(name: str) -> Any:
    """The committed numbers of a figure; None if there are none yet."""
    path = file(name, "json")
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def write(name: str, numbers: Any) -> None:
    file(name, "json").write_text(to_text(numbers), encoding="utf-8", newline="\n")


def file(name: str, kind: str) -> Path:
    return folder / f"{name}.{kind}"


def to_text(numbers: Any) -> str:
    """JSON with each list of plain values on one line, so that a change gives a short diff."""
    text = json.dumps(numbers, indent=1, sort_keys=True, allow_nan=False)
    return re.sub(r"\[\n([^\[\]{}]*)\n\s*\]", _on_one_line, text) + "\n"


def _on_one_line(found: re.Match) -> str:
    return "[" + " ".join(line.strip() for line in found[1].splitlines()) + "]"


def differences(fresh: Any, committed: Any) -> list[str]:
    """Where two sets of numbers differ, in words; empty if they agree.

    Numbers must be equal, unless a dict allows a difference: its key "tolerance" maps some of its other keys
    to how far apart the numbers below them may be. Figures use this only for sums of floating-point numbers,
    whose last digits depend on the processor.
    """
    plain = json.loads(to_text(fresh))  # as a reader of the file would find it: no tuples, keys are text
    return list(_differences(plain, committed, "", 0))


def _differences(fresh: Any, committed: Any, where: str, tolerance: float) -> Iterator[str]:
    if isinstance(fresh, dict) and isinstance(committed, dict):
        for key in sorted(fresh.keys() | committed.keys()):
            path, allowed = f"{where}.{key}".lstrip("."), fresh.get("tolerance", {}).get(key, tolerance)
            if key in fresh and key in committed:
                yield from _differences(fresh[key], committed[key], path, allowed)
            else:
                yield f"{path}: only in the {'fresh' if key in fresh else 'committed'} numbers"
    elif isinstance(fresh, list) and isinstance(committed, list) and len(fresh) == len(committed):
        for i, (new, old) in enumerate(zip(fresh, committed, strict=True)):
            yield from _differences(new, old, f"{where}[{i}]", tolerance)
    elif not _same(fresh, committed, tolerance):
        yield f"{where}: {fresh!r}, committed {committed!r}" + (
            f", tolerance {tolerance}" if tolerance else ""
        )


def _same(fresh: Any, committed: Any, tolerance: float) -> bool:
    if tolerance and isinstance(fresh, float) and isinstance(committed, float):
        return abs(fresh - committed) <= tolerance
    return type(fresh) is type(committed) and fresh == committed
