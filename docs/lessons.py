"""The lessons as pages: what their notebooks store, never run here."""

import json
from pathlib import Path

HERE = """\
```{{admonition}} A page to read
:class: lesson
To predict, write and be answered, open this lesson in JupyterLab: `python -m gpipe_sim lessons DIR` copies
all of them, or <a href="../notebooks/{name}" download>download this one</a>. Here its answers are folded.
```"""


def write(notebooks: Path, folder: Path) -> None:
    """A page for each lesson, and the notebook itself where the site serves it."""
    served = folder.parent / "served" / "notebooks"
    served.mkdir(parents=True)
    for path in sorted(notebooks.glob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        (served / path.name).write_bytes(path.read_bytes())
        text = json.dumps(page(notebook, path.name), ensure_ascii=False)
        (folder / path.name).write_text(text, encoding="utf-8")


def page(notebook: dict, name: str) -> dict:
    """The notebook with code folded that JupyterLab hides, and with a line that says where to run it.

    The cell that installs the package where it is missing is for those who run it.
    """
    for cell in notebook["cells"]:
        if cell["metadata"].get("jupyter", {}).get("source_hidden"):
            cell["metadata"]["tags"] = [*cell["metadata"].get("tags", ()), "hide-input"]
    first, *rest = (cell for cell in notebook["cells"] if cell["id"] != "colab")
    here = {"cell_type": "markdown", "id": "here", "metadata": {}, "source": HERE.format(name=name)}
    return {**notebook, "cells": [first, here, *rest]}
