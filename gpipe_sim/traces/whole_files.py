"""A file is written as a whole or not at all."""

import os
from os import PathLike
from pathlib import Path

from gpipe_sim.errors import got, require


def file_to_write(owner: str, path: str | PathLike, endings: tuple[str, ...]) -> Path:
    """The path, before anything is made for it.

    TypeError unless it is one, ValueError unless it ends in one of these, FileNotFoundError where its folder
    is not there, IsADirectoryError where it is a folder itself.
    """
    such_as = f"a path, such as 'trace{endings[0]}'"
    name = require(owner, os.fspath(require(owner, path, str | PathLike, such_as)), str, such_as)
    if not name.lower().endswith(endings) or "\0" in name:
        raise ValueError(f"{owner} needs a path that ends in {' or '.join(endings)} {got(name)}")
    file = Path(name)
    if not file.parent.is_dir():
        raise FileNotFoundError(f"{owner} cannot write {file}: there is no folder {file.parent}")
    if file.is_dir():
        raise IsADirectoryError(f"{owner} cannot write {file}: it is a folder; name a file in it")
    return file


def write_whole(file: Path, data: bytes) -> None:
    """Write it beside its place first: where that fails, what was there before stays as it was."""
    beside = file.with_name(f"{file.name}.part")
    try:
        beside.write_bytes(data)
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)
