"""Cells of a notebook, run in this process, and a build that takes no time to check."""

import linecache
from itertools import count
from unittest.mock import Mock

from IPython.core.inputtransformer2 import TransformerManager

from gpipe_sim.course import kept
from gpipe_sim.course.build import build
from gpipe_sim.course.called import called
from gpipe_sim.course.reply import Reply, correct, keep_working

NUMBERS = count()


@build("twice")
def doubled(twice) -> Reply:
    for x in (2, 5):
        if (said := called(twice, x)) != 2 * x:
            return keep_working(f"{x} gives {said}")
    return correct("twice as much")


def in_a_cell(source: str, monkeypatch, **names: object) -> list[Reply]:
    """What ``check`` replies whenever a cell calls it; the cell is run here, as a kernel would."""
    source = kept.without_magics(source, TransformerManager().transform_cell)
    file, said = f"<cell {next(NUMBERS)}>", []
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    monkeypatch.setattr(kept, "running_cell", lambda: source)
    magic = Mock(run_line_magic=lambda _, code: exec(code, names))
    names |= {"get_ipython": lambda: magic}
    names["check"] = lambda *own, check=names["check"]: said.append(check(*own)) or said[-1]
    exec(compile(source, file, "exec"), names)
    return said
