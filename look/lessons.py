"""Which lessons are looked at, and which of them can be run here."""

from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parent.parent
NEEDS_TORCH = "20"


def number(lesson: Path) -> str:
    return lesson.stem.split("_")[0]


def chosen(numbers: list[str]) -> list[Path]:
    """The lessons of these numbers, in the course's order; all of them if none is named."""
    lessons = {number(path): path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
    if unknown := [name for name in numbers if name not in lessons]:
        raise SystemExit(f"There is no lesson {', '.join(unknown)}. There are {', '.join(lessons)}.")
    return [path for name, path in lessons.items() if not numbers or name in numbers]


def can_run(lesson: Path) -> bool:
    return number(lesson) != NEEDS_TORCH or find_spec("torch") is not None
