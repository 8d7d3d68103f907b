"""mypy over the package and the code in README, how-to pages and lessons: ``python -m tests.typed``.

A document becomes one module, its blocks or cells in their order, in a folder that lasts as long as the run.
Each line keeps its place, and mypy's findings are printed with that. How strict it is says pyproject.toml.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Line(NamedTuple):
    place: str  #: as ruff writes it, such as ``notebooks/A_the_zoo.ipynb:cell 2:1``
    code: str


def blocks(text: str, language: str) -> Iterator[tuple[int, str]]:
    """The code blocks of a Markdown text: the number of the first line, and the code."""
    for found in re.finditer(rf"^```{language}\n(.*?)^```", text, re.M | re.S):
        yield text.count("\n", 0, found.start(1)) + 1, found[1]


def readme() -> list[Line]:
    text = (ROOT / "README.md").read_text()
    return [
        Line(f"README.md:{at}", line)
        for first, code in blocks(text, "python")
        for at, line in enumerate(code.splitlines(), first)
    ]


def lesson(path: Path) -> list[Line]:
    return [
        Line(f"{path.relative_to(ROOT)}:cell {number}:{at}", line)
        for number, cell in enumerate(json.loads(path.read_text())["cells"], 1)
        if cell["cell_type"] == "code"
        for at, line in enumerate("".join(cell["source"]).splitlines(), 1)
    ]


def page(path: Path, language: str = r"\{code-cell\}") -> list[Line]:
    """A page's cells, in which a line such as ``:tags: [hide-input]`` is for Sphinx."""
    return [
        Line(f"{path.relative_to(ROOT)}:{at}", "" if line.startswith(":") else line)
        for first, code in blocks(path.read_text(), language)
        for at, line in enumerate(code.splitlines(), first)
    ]


def documents() -> dict[str, list[Line]]:
    """By the path of the module that each becomes. pyproject.toml names these modules too."""
    lessons = sorted((ROOT / "notebooks").glob("*.ipynb"))
    docs = ROOT / "docs"
    pages = [path for path in sorted(docs.rglob("*.md")) if page(path)]
    return (
        {"documents/readme.py": readme(), "documents/torch.py": page(docs / "torch.md", "python")}
        | {f"documents/pages/{path.stem}.py": page(path) for path in pages}
        | {f"documents/lessons/{path.stem}.py": lesson(path) for path in lessons}
    )


def check(modules: dict[str, list[Line]], *options: str) -> tuple[int, list[str]]:
    """mypy's exit status and its lines, for these modules and for what else the options name."""
    with TemporaryDirectory() as folder:
        for module, lines in modules.items():
            path = Path(folder, module)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{line.code}\n" for line in lines))
        ran = subprocess.run(
            [sys.executable, "-m", "mypy", "-p", "documents", *options],
            cwd=ROOT,
            env=os.environ | {"MYPYPATH": folder},
            capture_output=True,
            text=True,
        )
    return ran.returncode, [placed(line, modules) for line in (ran.stdout + ran.stderr).splitlines()]


def placed(found: str, modules: dict[str, list[Line]]) -> str:
    """A line of mypy's with the place in the document; what it remembers, it says of an earlier folder."""
    return re.sub(r"^\S*(documents/\S+):(\d+)", lambda at: modules[at[1]][int(at[2]) - 1].place, found)


if __name__ == "__main__":
    status, lines = check(documents(), "-p", "gpipe_sim")
    print(*lines, sep="\n")
    sys.exit(status)
