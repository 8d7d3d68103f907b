"""What is wrong with a lesson, in sentences. Cells are counted from 1, as in JupyterLab's status bar."""

from collections.abc import Iterator
from math import inf

WIDE, NARROW, FIRST_SCREEN = 1300, 600, 900  #: pixels

#: What JupyterLab and nbconvert write where nobody described an image.
PLACEHOLDERS = ("", "Image", "No description has been provided for this image")


def in_page(cells: list[dict], width: int) -> Iterator[str]:
    """What is wrong in a window of this width; a cell is what `cells` in page.js tells of it."""
    for n, cell in enumerate(cells, 1):
        for image in cell["images"]:
            yield from (f"cell {n}: {wrong}" for wrong in in_image(**image))
        if cell["wide"]:
            yield f"cell {n}: what it shows is wider than its place, in a window of {width} pixels"
        if cell["markup"]:
            yield f"cell {n}: the text <svg is shown instead of a chart"
        if cell["bare_folds"]:
            yield f"cell {n}: a fold has no frame"
        if cell["broken"]:
            yield f"cell {n}: the printed word {cell['broken']} is broken, in a window of {width} pixels"
    open_at = [image["top"] for cell in cells for image in cell["images"] if image["top"] is not None]
    if width == WIDE and min(open_at, default=inf) > FIRST_SCREEN:
        yield f"no open picture in the first {FIRST_SCREEN} pixels: {first_of(open_at)}"


def first_of(tops: list[float]) -> str:
    return f"the first is {min(tops):.0f} down" if tops else "there is none"


def in_image(source: str, alt: str, loaded: bool, bare: bool, top: float | None) -> Iterator[str]:
    if not loaded:
        yield f"the image {source} did not load"
    if alt.strip() in PLACEHOLDERS:
        yield f"{'a bare output' if bare else 'an image'}, {source}, has no alt text"


def in_outputs(cells: list[dict]) -> Iterator[str]:
    """What is wrong with a notebook's cells, in its file format, after all of them were to run."""
    if left_out := [str(n) for n, cell in enumerate(cells, 1) if was_left_out(cell)]:
        yield f"not run: cell {', '.join(left_out)}"
    for n, cell in enumerate(cells, 1):
        may_fail = "raises-exception" in cell["metadata"].get("tags", ())
        for output in cell.get("outputs", ()):
            if output.get("name") == "stderr":
                yield f"cell {n} wrote to stderr: {''.join(output['text']).splitlines()[0]}"
            if output["output_type"] == "error" and not may_fail:
                yield f"cell {n} ended in {output['ename']}: {output['evalue']}"


def was_left_out(cell: dict) -> bool:
    """A code cell without a number; an empty one never gets one."""
    code = "".join(cell["source"]) if cell["cell_type"] == "code" else ""
    return code.strip() != "" and cell["execution_count"] is None
