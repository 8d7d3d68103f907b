"""Make the exercises and their solutions from one source each, and run them: ``make exercises``.

A source is Markdown. A fence of ``python`` is a cell; the word behind it may be ``seed`` or ``hidden``. Of
the fences ``python stub`` and ``python solution`` the students' notebook gets the first, the other one the
second, in the same cell. Text in a fence ``markdown solution`` goes into the solution alone.

``python -m notebooks.exercises 03 07`` makes these two.
"""

import json
import re
import sys
from pathlib import Path

import nbformat
from nbconvert.preprocessors import ExecutePreprocessor
from nbconvert.preprocessors.coalescestreams import CoalesceStreamsPreprocessor

HERE = Path(__file__).parent
SOURCES = sorted((HERE / "source").glob("*.md"))
FENCE = re.compile(r"^```(python|markdown)(?: (\w+))?\n(.*?)\n```$", re.M | re.S)
METADATA = {"seed": {"tags": ["seed"]}, "hidden": {"jupyter": {"source_hidden": True}}}
SOLVED = "\n\n*This is the exercise with one answer.*"
#: Lesson 01's first code cell installs the package where it is missing.
LESSON = HERE.parent / "01_why_split.ipynb"


def installs() -> dict:
    cells = json.loads(LESSON.read_text(encoding="utf-8"))["cells"]
    return next(cell for cell in cells if cell["id"] == "colab")


def pieces(source: str):
    """(kind, word, text) of each cell that a source has, in its order."""
    end = 0
    for fence in FENCE.finditer(source):
        yield "markdown", None, source[end : fence.start()]
        yield fence[1], fence[2], fence[3]
        end = fence.end()
    yield "markdown", None, source[end:]


def notebook(source: str, solved: bool) -> nbformat.NotebookNode:
    """The students' notebook, or the solution; not run."""
    found = nbformat.v4.new_notebook()
    found.metadata.kernelspec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    left_out = "stub" if solved else "solution"
    for number, (kind, word, text) in enumerate(pieces(source)):
        if word == left_out or not text.strip():
            continue
        new = nbformat.v4.new_code_cell if kind == "python" else nbformat.v4.new_markdown_cell
        cell = new(text.strip(), id=f"cell-{number:02}", metadata=METADATA.get(word, {}))
        found.cells.append(cell)
        if len(found.cells) == 1:
            cell.source += SOLVED * solved
            first = installs()
            text = "".join(first["source"])
            found.cells.append(nbformat.v4.new_code_cell(text, id=first["id"], metadata=first["metadata"]))
    return found


def both(path: Path) -> dict[Path, nbformat.NotebookNode]:
    """The two notebooks that a source makes, by where they stand."""
    name, source = f"{path.stem}.ipynb", path.read_text(encoding="utf-8")
    return {HERE / name: notebook(source, False), HERE / "solutions" / name: notebook(source, True)}


def run(made: nbformat.NotebookNode) -> None:
    """Run the cells and store what they print, as ``make lessons`` does."""
    runner = ExecutePreprocessor(record_timing=False, extra_arguments=["--log-level=ERROR"])
    runner.preprocess(made, {"metadata": {"path": str(HERE)}})
    CoalesceStreamsPreprocessor().preprocess(made, {})


def main(*numbers: str) -> None:
    for path in SOURCES:
        if not numbers or path.stem.split("_")[0] in numbers:
            for target, made in both(path).items():
                run(made)
                nbformat.write(made, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
