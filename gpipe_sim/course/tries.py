"""How many answers a student tried at a check until one was correct: ``my_tries.json``, beside what passed.

It tells a student, and who teaches, which checks are hard. It is a plain file, which anybody can edit.
"""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from gpipe_sim.course import kept, mine
from gpipe_sim.course.reply import Reply

FILE = "my_tries.json"
MOST = 1_000_000  #: bytes


def note(check: Callable, reply: Reply) -> None:
    """Count an answer in a notebook: not what is run again as it was, nor anything after the correct one."""
    name = named(check)
    if mine.in_a_test() or not name or not (cell := kept.running_cell()):
        return
    file, now = mine.place().with_name(FILE), crc32(cell.encode())
    record = _record(file)
    before = record.get(name, {})
    if before.get("passed") or before.get("last") == now:
        return
    tries, passed = _count(before) + 1, reply.verdict == "correct"
    record[name] = {"tries": tries, "passed": passed, "last": now}
    with suppress(OSError):  # a lesson goes on where nothing can be written
        file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def named(check: Callable) -> str:
    """``05.clock`` of a lesson, or ``exercise.gate``; empty for what is of neither."""
    module = getattr(check, "__module__", "")
    if exercise := re.fullmatch(r"gpipe_sim\.course\.exercises\.(\w+)", module):
        return f"exercise.{exercise[1]}"
    lesson = re.fullmatch(r"gpipe_sim\.course\.lesson_(\w+)", module)
    return f"{lesson[1]}.{check.__name__}" if lesson else ""


def tries(folder: Path) -> dict[str, int]:
    """The tries that are recorded in a folder, by check, such as ``05.clock``: see ``named``."""
    return {name: count for name, each in _record(folder / FILE).items() if (count := _count(each))}


def _record(file: Path) -> dict[str, dict[str, Any]]:
    """What is in the file; nothing where it is not what a lesson writes."""
    with suppress(OSError, ValueError, RecursionError):
        if file.is_file() and not file.is_symlink() and file.stat().st_size < MOST:
            found = json.loads(file.read_text(encoding="utf-8"))
            if isinstance(found, dict):
                return {name: each for name, each in found.items() if isinstance(each, dict)}
    return {}


def _count(entry: dict[str, Any]) -> int:
    count = entry.get("tries")
    return count if type(count) is int and 0 < count < 10_000 else 0
