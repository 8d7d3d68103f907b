"""Which files are meant, and what is in them, within limits that are looked at before anything is read."""

import gzip
import json
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpipe_sim.errors import got, listed, short

Json = Any
MOST_FILES = 4096
MOST_BYTES = (
    256 << 20
)  #: of one file, also once it is unpacked: more would take gigabytes as Python's objects
GZIP = b"\x1f\x8b"
NAMES = (".json", ".json.gz", ".csv", ".csv.gz", ".gz", ".log", ".txt")  #: what is looked at in a folder
SUCH_AS = "a folder, a file or a list of files, such as ['rank0.json.gz', 'rank1.json.gz']"
LESS = "record fewer steps (schedule(..., active=2)), without with_stack and profile_memory"


def which(paths: str | os.PathLike | Sequence[str | os.PathLike]) -> tuple[list[Path], bool]:
    """The files that are meant, and whether they were found in a folder, where others may lie beside them.

    TypeError for anything but paths; ValueError for a file twice, or a folder without any.
    """
    if isinstance(paths, str | os.PathLike):
        folder = _path(paths)
        if not _there(folder, Path.is_dir):
            return [folder], False
        found = sorted(each for each in folder.iterdir() if each.name.lower().endswith(NAMES))
        if not found:
            raise ValueError(
                f"read_trace found no file in {short(str(folder))} that ends in .json, .gz or .csv"
            )
        return _few(found), True
    files = _few([_path(each) for each in listed("read_trace", SUCH_AS, paths)])
    if not files:
        raise ValueError(f"read_trace needs {SUCH_AS} {got(paths)}")
    known: set[Path] = set()
    for each in files:
        if (there := each.resolve()) in known:
            raise ValueError(f"read_trace got {short(str(each))} twice: give each rank's file once")
        known.add(there)
    return files, False


def _path(given: object) -> Path:
    if not isinstance(given, str | os.PathLike):
        raise TypeError(f"read_trace needs {SUCH_AS} {got(given)}")
    return Path(os.fsdecode(given))


def _there(path: Path, is_such: Callable[[Path], bool]) -> bool:
    try:
        return is_such(path)
    except (OSError, ValueError):  # of a name that no file can have
        return False


def _few(files: list[Path]) -> list[Path]:
    if len(files) > MOST_FILES:
        raise ValueError(f"read_trace reads at most {MOST_FILES:,} files (got {len(files):,})")
    return files


def text_of(path: Path) -> str:
    """What stands in a file, unpacked if it is gzip, whatever its name says; ValueError in words if not."""
    try:
        if not _there(path, Path.is_file):
            raise ValueError("there is no such file")
        if (size := path.stat().st_size) > MOST_BYTES:
            raise ValueError(f"it has {size >> 20:,} MB, and at most {MOST_BYTES >> 20} are read: {LESS}")
        with path.open("rb") as file:
            packed = file.read(2) == GZIP
            file.seek(0)
            data = gzip.GzipFile(fileobj=file).read(MOST_BYTES + 1) if packed else file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ValueError(f"unpacked it has more than {MOST_BYTES >> 20} MB: {LESS}")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _cannot(path, "it is no text and no gzip") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _cannot(path, f"its gzip is broken or cut off ({error}): copy or record it again") from None
    except (ValueError, OSError) as error:
        raise _cannot(path, error) from None


def json_of(path: Path, text: str) -> Json:
    """The text as JSON, of which nothing is run; ValueError for what is cut off, too deep or no JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        what = f"its JSON is broken or cut off: {error}. Let the profiler finish, and copy the whole file"
        raise _cannot(path, what) from None
    except RecursionError:
        raise _cannot(path, "its JSON is nested too deeply for a trace") from None
    except ValueError as error:  # of a number with thousands of digits
        raise _cannot(path, error) from None


def _cannot(path: Path, why: object) -> ValueError:
    return ValueError(f"read_trace cannot read {short(path.name)}: {why}")
