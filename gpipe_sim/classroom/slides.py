"""The pictures of each lesson, as files for slides, out of what its notebook stores."""

import re
from base64 import b64decode
from collections.abc import Iterator, Sequence
from html import escape, unescape
from pathlib import Path

from gpipe_sim.classroom.notebooks import Cell, lessons_home, notebooks, read_cells

CHART = re.compile(r'<img alt="([^"]*)" src="data:image/svg\+xml;base64,([^"]*)"')
LINKED = re.compile(r"!\[([^]]*)\]\(\.\./(figures/\w+\.png)\)")
HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Pictures by lesson</title><style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
figure { margin: 1rem 0 2.5rem; } img { max-width: 100%; } figcaption { color: #555; }
</style><h1>Pictures by lesson</h1>
"""


def slides(folder: Path) -> list[Path]:
    """Write the pictures, and a page that shows them, into a folder that is not there yet."""
    files, shown = {}, []
    for lesson, path in notebooks().items():
        cells = read_cells(path.read_text(encoding="utf-8"))
        if found := [*pictures(cells)]:
            title = cells[0].source.partition("\n")[0].removeprefix("# ")
            shown.append(f"<h2>{escape(title)}</h2>")
        for count, (about, kind, content) in enumerate(found, start=1):
            files[name := f"{lesson}-{count}.{kind}"] = content
            caption = f"<figcaption><code>{name}</code> {escape(about)}</figcaption>"
            shown.append(f'<figure><img src="{name}" alt="{escape(about)}">{caption}</figure>')
    files["index.html"] = f"{HEAD}{''.join(shown)}</html>\n".encode()
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in files]


def pictures(cells: Sequence[Cell]) -> Iterator[tuple[str, str, bytes]]:
    """What each shows, its kind of file and its content, in the lesson's order."""
    for cell in cells:
        if cell.kind == "markdown":
            for about, name in LINKED.findall(cell.source):
                yield about, "png", (lessons_home() / name).read_bytes()
        for output in cell.outputs:
            for about, chart in CHART.findall("".join(output.get("data", {}).get("text/html", ""))):
                yield unescape(about).removeprefix("Chart: "), "svg", b64decode(chart)
