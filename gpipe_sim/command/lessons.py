"""the lessons and exercises, copied into a folder

Nothing is overwritten. Say the same folder again after an upgrade: lessons that are new are added, and those
that differ from the package's, such as the ones that you have worked in, are left as they are and listed.

examples:
  gpipe-sim lessons my-lessons
  gpipe-sim lessons .
"""

import shlex
import sys
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from gpipe_sim.classroom.notebooks import FIRST, folder_of, lessons_home, notebooks
from gpipe_sim.command.answer import Answer


def add(parser: ArgumentParser) -> None:
    parser.add_argument(
        "dir", metavar="DIR", help="made if it is not there, with DIR/exercises and DIR/figures"
    )


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


def lesson_files(home: Path) -> dict[str, bytes]:
    """What is copied, by its place in the folder: lessons, exercises, solutions, pictures that they show."""
    own = {path.relative_to(home / "notebooks"): path.read_bytes() for path in notebooks().values()}
    return {path.as_posix(): content for path, content in folder_of(own).items()}


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
