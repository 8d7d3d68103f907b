"""the lessons, copied into a folder

Nothing is overwritten. Say the same folder again after an upgrade: lessons that are new are added, and those
that differ from the package's, such as the ones that you have worked in, are left as they are and listed.

examples:
  gpipe-sim lessons my-lessons
  gpipe-sim lessons .
"""

import re
import shlex
import sys
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from gpipe_sim.command.answer import Answer

PACKAGE = Path(__file__).parents[1]
FIRST = "01_why_split.ipynb"
#: As a lesson shows a picture of the folder beside it, or leads to the page there, with what that is to show.
PICTURE = re.compile(rb"\]\(\.\./(figures/(?:\w+\.png|view\.html))(#[^)\s]*)?\)")


def add(parser: ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", help="made if it is not there; pictures go in DIR/figures")


def answer(asked: Namespace) -> Answer:
    home, folder = lessons_home(), Path(asked.dir)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is no folder")
    if folder.exists() and folder.samefile(home / "notebooks"):
        raise ValueError(f"{folder} is where the lessons are copied from")
    files = lesson_files(home)
    added = [name for name, content in files.items() if placed(folder / name, content)]
    others = [name for name, content in files.items() if held(folder / name) != content]
    same = len(files) - len(added) - len(others)
    lines = [f"{folder}: {len(added)} files added, {same} there already, {len(others)} that differ"]
    if others:
        lines += ["left as they are; another folder gets the package's:", *map("  {}".format, others)]
    return Answer("\n".join([*lines, *how_to_open(folder)]), 1 if others else 0)


def lessons_home() -> Path:
    """Where the folders of lessons and pictures are: inside an installed package, beside it in a clone."""
    for home in (PACKAGE, PACKAGE.parent):
        if (home / "notebooks" / FIRST).exists():
            return home
    raise FileNotFoundError(f"the lessons are not in {PACKAGE}, where a wheel has them, nor beside it")


def lesson_files(home: Path) -> dict[str, bytes]:
    """What is copied, by its place in the folder: lessons first, then the pictures that they show."""
    lessons = {path.name: path.read_bytes() for path in sorted((home / "notebooks").glob("*.ipynb"))}
    shown = {name.decode() for text in lessons.values() for name, _ in PICTURE.findall(text)}
    near = {name: PICTURE.sub(rb"](\1\2)", text) for name, text in lessons.items()}
    return near | {name: (home / name).read_bytes() for name in sorted(shown)}


def placed(path: Path, content: bytes) -> bool:
    """Write a file, whole or not at all; False if something is there already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        file = path.open("xb")
    except FileExistsError:
        return False
    try:
        with file:
            file.write(content)
    except BaseException:
        path.unlink()
        raise
    return True


def held(path: Path) -> bytes | None:
    """What is there; None if it cannot be read as a file."""
    with suppress(OSError):
        return path.read_bytes()
    return None


def how_to_open(folder: Path) -> list[str]:
    """With this interpreter, because a plain ``python`` may be another."""
    install = [] if find_spec("jupyterlab") else ['first, Jupyter: pip install "gpipe_sim[lessons]"']
    opened = shlex.join([sys.executable, "-m", "jupyterlab", str(folder)])
    return [*install, f"to open them, {FIRST} first:", f"  {opened}"]
