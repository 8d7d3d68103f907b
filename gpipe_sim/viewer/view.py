"""``gp.view``: the page of one or two schedules, written as one HTML file."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from os import PathLike, fspath
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpipe_sim.core.cost_model import CostModel
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import Limit, simulate
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.drawing.document import Svg
from gpipe_sim.drawing.svg import draw
from gpipe_sim.errors import Real, got, require
from gpipe_sim.links.links import Link, Links, Nodes
from gpipe_sim.memory.limit import read_limits
from gpipe_sim.memory.profile import Profile
from gpipe_sim.viewer.document import page
from gpipe_sim.viewer.puzzles import Puzzle, puzzles
from gpipe_sim.viewer.shown import FIXED, ROUNDED, Record, inexact, of_schedule, of_timeline
from gpipe_sim.viewer.sizes import sizes_of

NAME = "pipeline.html"  #: of the file, unless another path is given
MARK = '<meta name="generator" content="gpipe_sim">'  #: what tells a page from a file of one's own
SUCH_AS = "schedules or timelines, such as view(GPipe(4, 6), OneFOneB(4, 6))"
OPENS = "It opens in a browser and needs no network. If JupyterLab shows it blank, press Trust HTML above it."


@dataclass(frozen=True, repr=False)
class View:
    """A page that has been written to ``path``; a notebook shows its still ``drawing`` and a link to it."""

    path: Path
    drawing: Svg

    def __repr__(self) -> str:
        return f"<View: open {self.path} in a browser>"

    def _repr_html_(self) -> str:
        link = f'<a href="{quote(self.path.as_posix())}" target="_blank">{escape(self.path.name)}</a>'
        return f"{self.drawing._repr_html_()}<p>To play it, ask it and change it: {link}. {OPENS}</p>"


def view(
    a: Schedule | Timeline,
    b: Schedule | Timeline | None = None,
    *,
    costs: CostModel | None = None,
    links: Links | None = None,
    message_bytes: Real | Sequence[Real] | None = None,
    profile: Profile | None = None,
    memory_limit: Limit | None = None,
    path: "str | PathLike | None" = None,
) -> View:
    """Write one HTML file in which one or two schedules are played, asked and changed.

    >>> import tempfile
    >>> page = gp.view(gp.GPipe(4, 6), gp.OneFOneB(4, 6), path=tempfile.mkdtemp() + "/two.html")
    >>> page.path.name
    'two.html'

    Both stand on one time axis, under one playhead. Point at an action, or at waiting, and the page says why
    it is there. Its controls change family, sizes and costs, and everything runs again at once, in the page.
    A timeline, measured or simulated, is shown with the times that it has. On its board one builds an order
    by hand, action after action, with puzzles to solve.

    ``costs``, ``links``, ``message_bytes`` and ``memory_limit`` are those of ``simulate``, for schedules.
    With the ``profile`` of a model the page shows bytes too, and a device beyond the limit in red.

    The file is ``path``; without one it is ``pipeline.html`` in the current folder, where a page that this
    made before is replaced, and any other file is a FileExistsError. It needs no network and no server.

    The page calculates in doubles, as Python's floats: for costs that are floats its times are those of
    ``simulate`` to the last bit. A fraction that is no double is rounded, and the page says so.

    TypeError for anything but schedules and timelines; what ``simulate`` refuses is refused.
    """
    file = _path(path)
    given = [a] if b is None else [a, b]
    for each in given:
        require("view", each, Schedule | Timeline, SUCH_AS)
    run: dict[str, Any] = {"links": links, "profile": profile, "message_bytes": message_bytes}
    timelines = [each if isinstance(each, Timeline) else simulate(each, costs, **run) for each in given]
    text = as_html(*given, costs=costs, memory_limit=memory_limit, **run)
    file.write_text(text, encoding="utf-8")
    return View(file, draw(*timelines))


def as_html(*given: Schedule | Timeline, **how: Any) -> str:
    """The page of what can be simulated; ``how`` are arguments of ``view``, ``ask`` and ``welcome``.

    ``ask`` is (chart, device, time), what it has been asked; ``welcome`` the words of a site's first page.
    """
    shown = {name: how.pop(name, None) for name in ("ask", "welcome")}
    charts = [record(each, **how) for each in given]
    costs = how.get("costs")
    notes = [FIXED] * (costs is not None and type(costs) is not Costs)
    notes += [ROUNDED] * inexact(*_numbers(given, **how))
    boards = [_board(each) for each in puzzles().values()]
    return page(shown | {"charts": charts, "at": 0, "notes": notes, "puzzles": boards})


def _board(puzzle: Puzzle) -> Record:
    """What a page has to know of a puzzle: not its order (that is to be found) nor a cost that is usual."""
    record = {
        name: value for name, value in puzzle.record().items() if value and name not in ("rows", "bound")
    }
    usual = asdict(Costs())
    costs = {name: cost for name, cost in record["costs"].items() if cost != usual[name]}
    return record | {"costs": costs, "facts": puzzle.facts}


def record(
    thing: Schedule | Timeline,
    costs: CostModel | None = None,
    links: Links | None = None,
    message_bytes: Any = None,
    profile: Profile | None = None,
    memory_limit: Limit | None = None,
) -> Record:
    """The record of a schedule or timeline."""
    if isinstance(thing, Timeline):
        return of_timeline(thing)
    if costs is not None and type(costs) is not Costs:
        own = simulate(thing, costs, links=links, profile=profile, message_bytes=message_bytes)
        return of_timeline(own)
    sizes = None if profile is None else sizes_of(profile)
    if memory_limit is not None and profile is None:
        raise TypeError("view needs a profile to know what a device holds: view(..., profile=...)")
    limit = None if memory_limit is None else read_limits(thing.devices, memory_limit)
    return of_schedule(thing, costs, links, message_bytes, sizes, limit)


def _numbers(
    given: Sequence, costs: Any = None, links: Any = None, message_bytes: Any = None, **_: Any
) -> list:
    """Every number that the page calculates with."""
    records = [costs, *(links.values() if isinstance(links, Mapping) else [links])]
    times = [each.end.tolist() for each in given if isinstance(each, Timeline)]
    plain = [asdict(each) for each in records if isinstance(each, Costs | Link | Nodes)]
    return [*plain, message_bytes, times]


def _path(path: "str | PathLike | None") -> Path:
    """Where the page goes: what is no page stays as it is, unless it is named."""
    if path is not None:
        name = require("view", fspath(require("view", path, str | PathLike, "a path")), str, "a path")
        if not name.endswith((".html", ".htm")):
            raise ValueError(f"view writes HTML: path needs to end in .html {got(name)}")
        return Path(name)
    if (found := Path(NAME)).exists() and MARK not in found.read_text(encoding="utf-8", errors="replace"):
        raise FileExistsError(f"{NAME} is there, and no page of view's: view(..., path='another.html')")
    return found
