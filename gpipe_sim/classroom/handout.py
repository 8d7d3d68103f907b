"""The lessons and exercises for students, made by nbconvert's own preprocessors.

What is taken out: folded answers and explanations (unless they are to stay), the stored output of each
prediction, which has the result in a fold, and of what another seed has drawn. What is put in: the seed, in
cells that are tagged for it.

The answers are also in the package. A file beside the notebooks, ``handout.json``, has a kernel refuse to
import them (``course/guarded.py``).
"""

import json
from pathlib import Path

from gpipe_sim.classroom.notebooks import SEED, SOLUTION, folder_of, lessons_home, notebooks
from gpipe_sim.course.guarded import MARK

GONE = "the output is not for students"  #: a tag, meanwhile
ANSWERS = ("answer", "explanation")


def handout(folder: Path, *, answers: bool = False, seed: int | None = None) -> list[Path]:
    """Write the notebooks into a folder that is not there yet; the files. FileExistsError if it is there.

    Solutions of exercises are among them if answers are to stay.
    """
    files = {}
    for lesson, path in notebooks().items():
        if answers or not lesson.startswith(SOLUTION):
            inside = path.relative_to(lessons_home() / "notebooks")
            files[inside] = made(path.read_text(encoding="utf-8"), answers=answers, seed=seed).encode()
    folder.mkdir(parents=True)
    about = {"seed": seed, "says": "Lessons without answers: here a kernel does not import them."}
    mark = f"{json.dumps(about, indent=1)}\n".encode()
    marks = {} if answers else {path.parent / MARK: mark for path in files}
    for inside, content in (folder_of(files) | marks).items():
        (folder / inside).parent.mkdir(parents=True, exist_ok=True)
        (folder / inside).write_bytes(content)
    return [folder / inside for inside in files]


def made(text: str, *, answers: bool = False, seed: int | None = None) -> str:
    """One notebook for students."""
    try:
        import nbformat
        from nbconvert.preprocessors import TagRemovePreprocessor
    except ImportError as error:
        needs = 'nbconvert, which is not installed: pip install "gpipe_sim[lessons]"'
        raise ImportError(f"a handout is made by {needs}") from error

    notebook = nbformat.reads(text, as_version=4)
    remove = TagRemovePreprocessor(
        enabled=True,
        remove_cell_tags=() if answers else ANSWERS,
        remove_all_outputs_tags=(GONE,),
    )
    drawn = False  # with another seed than the outputs are of
    for cell in notebook.cells:
        if seed is not None and "seed" in cell.metadata.get("tags", ()):
            source = SEED.sub(f"SEED = {seed}", cell.source)
            drawn, cell.source = source != cell.source, source
        if cell.cell_type == "code" and (drawn or "reveal(" in cell.source):
            cell.metadata.setdefault("tags", []).append(GONE)
    notebook, _ = remove.preprocess(notebook, {})
    for cell in notebook.cells:
        if GONE in cell.metadata.get("tags", ()):
            cell.metadata.tags.remove(GONE)
            if not cell.metadata.tags:
                del cell.metadata["tags"]
    return str(nbformat.writes(notebook)) + "\n"
