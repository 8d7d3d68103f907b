"""The lessons as pages: what their notebooks store, never run here."""

import json
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

HERE = """\
```{{admonition}} A page to read
:class: lesson
To predict, write and be answered, open this lesson in JupyterLab: `python -m gpipe_sim lessons DIR` copies
all of them. Or download <a href="{up}{ALL}" download>all with their pictures</a>, or
<a href="{up}notebooks/{name}" download>this notebook alone</a>{without}.{folded}
```"""
FOLDED = " Here its answers are folded."
WITHOUT = ", without its pictures"
INDEX = """\
```{{admonition}} To work in
:class: lesson
`python -m gpipe_sim lessons DIR` copies the notebooks and says how to open them. Or download
<a href="../{ALL}" download>all with their pictures</a>, unpack them, and open `notebooks`.
```"""
PAGES = """
```{toctree}
:hidden:
:glob:
*
exercises/*
```
"""
ALL = "lessons.zip"
TO_PLAY = re.compile(r"\[([^]]*)\]\(\.\./figures/view\.html(#[^)]*)?\)")  #: which is the site's first page


def write(notebooks: Path, folder: Path) -> None:
    """A page for each notebook, and their map; what the site serves; all with pictures."""
    served = folder.parent / "served" / "notebooks"
    files = [*sorted(notebooks.glob("*.ipynb")), *sorted(notebooks.glob("exercises/*.ipynb"))]
    for path in files:
        name = path.relative_to(notebooks)
        for place in (served / name, folder / name):
            place.parent.mkdir(parents=True, exist_ok=True)
        (served / name).write_bytes(path.read_bytes())
        notebook = json.loads(path.read_text(encoding="utf-8"))
        text = json.dumps(page(notebook, name.as_posix()), ensure_ascii=False)
        (folder / name).write_text(text, encoding="utf-8")
    packed(notebooks, files, served.with_name(ALL))
    title, _, rest = (notebooks / "README.md").read_text(encoding="utf-8").partition("\n")
    rest = rest.replace("](../docs/", "](../")
    words = f"{title}\n\n{INDEX.format(ALL=ALL)}\n{rest}{PAGES}"
    (folder / "index.md").write_text(words, encoding="utf-8")


def packed(notebooks: Path, files: Sequence[Path], target: Path) -> None:
    """Notebooks, map and pictures in the folders that their links expect; the same bytes on each day."""
    root = notebooks.parent
    figures = root / "figures"
    packs = [*files, notebooks / "README.md", *sorted(figures.glob("*.png")), figures / "view.html"]
    with zipfile.ZipFile(target, "w") as archive:
        for path in packs:
            name = zipfile.ZipInfo(f"gpipe_sim_lessons/{path.relative_to(root).as_posix()}")
            archive.writestr(name, path.read_bytes(), zipfile.ZIP_DEFLATED)


def page(notebook: dict, name: str) -> dict:
    """The notebook with code folded that JupyterLab hides, and with a line that says where to run it.

    The cell that installs the package where it is missing is for those who run it.
    """
    for cell in notebook["cells"]:
        if cell["metadata"].get("jupyter", {}).get("source_hidden"):
            cell["metadata"]["tags"] = [*cell["metadata"].get("tags", ()), "hide-input"]
    first, *rest = (cell for cell in notebook["cells"] if cell["id"] != "colab")
    without = WITHOUT if any("../figures/" in "".join(cell["source"]) for cell in (first, *rest)) else ""
    for cell in notebook["cells"]:
        cell["source"] = TO_PLAY.sub(r'<a href="../index.html\2">\1</a>', "".join(cell["source"]))
    up = "../" * (name.count("/") + 1)
    folded = FOLDED if any("answer" in cell["metadata"].get("tags", ()) for cell in rest) else ""
    words = HERE.format(up=up, ALL=ALL, name=name, without=without, folded=folded)
    here = {"cell_type": "markdown", "id": "here", "metadata": {}, "source": words}
    return {**notebook, "cells": [first, here, *rest]}
