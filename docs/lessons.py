"""The lessons as pages: what their notebooks store, never run here."""

import json
import re
import zipfile
from pathlib import Path

HERE = """\
```{{admonition}} A page to read
:class: lesson
To predict, write and be answered, open this lesson in JupyterLab: `python -m gpipe_sim lessons DIR` copies
all of them. Or download <a href="../{ALL}" download>all with their pictures</a>, or
<a href="../notebooks/{name}" download>this notebook alone</a>{without}. Here its answers are folded.
```"""
WITHOUT = ", without its pictures"
INDEX = """\
```{{admonition}} To work in
:class: lesson
`python -m gpipe_sim lessons DIR` copies the notebooks and says how to open them. Or download
<a href="../{ALL}" download>all with their pictures</a>, unpack them, and open `notebooks`.
```"""
ALL = "lessons.zip"
TO_PLAY = re.compile(r"\[([^]]*)\]\(\.\./figures/view\.html(#[^)]*)?\)")  #: which is the site's first page


def write(notebooks: Path, folder: Path) -> None:
    """A page for each lesson; where the site serves them its notebook, and all with their pictures."""
    served = folder.parent / "served" / "notebooks"
    served.mkdir(parents=True)
    packed(notebooks, served.with_name(ALL))
    index = folder / "index.md"
    title, _, rest = index.read_text(encoding="utf-8").partition("\n")
    index.write_text(f"{title}\n\n{INDEX.format(ALL=ALL)}\n{rest}", encoding="utf-8")
    for path in sorted(notebooks.glob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        (served / path.name).write_bytes(path.read_bytes())
        text = json.dumps(page(notebook, path.name), ensure_ascii=False)
        (folder / path.name).write_text(text, encoding="utf-8")


def packed(notebooks: Path, target: Path) -> None:
    """The lessons and pictures in the two folders that their links expect; the same bytes on each day."""
    figures = notebooks.parent / "figures"
    files = [*sorted(notebooks.glob("*.ipynb")), *sorted(figures.glob("*.png")), figures / "view.html"]
    with zipfile.ZipFile(target, "w") as archive:
        for path in files:
            name = zipfile.ZipInfo(f"gpipe_sim_lessons/{path.parent.name}/{path.name}")
            archive.writestr(name, path.read_bytes(), zipfile.ZIP_DEFLATED)


def page(notebook: dict, name: str) -> dict:
    """The notebook with code folded that JupyterLab hides, and with a line that says where to run it.

    The cell that installs the package where it is missing is for those who run it.
    """
    for cell in notebook["cells"]:
        if cell["metadata"].get("jupyter", {}).get("source_hidden"):
            cell["metadata"]["tags"] = [*cell["metadata"].get("tags", ()), "hide-input"]
    first, *rest = (cell for cell in notebook["cells"] if cell["id"] != "colab")
    without = WITHOUT if any("../figures/" in "".join(cell["source"]) for cell in rest) else ""
    for cell in notebook["cells"]:
        cell["source"] = TO_PLAY.sub(r'<a href="../index.html\2">\1</a>', "".join(cell["source"]))
    words = HERE.format(ALL=ALL, name=name, without=without)
    here = {"cell_type": "markdown", "id": "here", "metadata": {}, "source": words}
    return {**notebook, "cells": [first, here, *rest]}
