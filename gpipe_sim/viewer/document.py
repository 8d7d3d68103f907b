"""One HTML file out of the room's own files: the scripts joined, and what is shown as JSON."""

import json
import re
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from gpipe_sim.viewer.squeeze import squeeze, written_once
from gpipe_sim.viewer.tables import tables

#: In the order in which each may use what stands before it.
SCRIPTS = (
    "clock",
    "families",
    "why",
    "memory",
    "paint",
    "runs",
    "share",
    "loaded",
    "controls",
    "board",
    "page",
)
TITLE = "Pipeline schedules"  #: of a page that is no site's first one
IMPORT = re.compile(r"^import .*?;\n", re.MULTILINE | re.DOTALL)
EXPORT = re.compile(r"^export ", re.MULTILINE)


def page(shown: dict[str, Any]) -> str:
    """The page as one HTML text that needs nothing else; ``shown`` is what it opens with."""
    words, text = script()
    parts = {
        "colours": colours(),
        "style": style(),
        "words": " ".join(words),
        "script": text,
        "shown": as_json(shown),
        "notes": "".join(f"<p>{escape(note)}</p>" for note in shown["notes"]),
        **welcome(shown["welcome"]),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], read("page.html"))


def welcome(words: dict[str, Any] | None) -> dict[str, str]:
    """The sentence on top; on a site's first page also the control that it asks to move, and ways on."""
    if words is None:
        return {"sentence": TITLE, "site": "", "ways": ""}
    says, does = words["sentence"].rsplit(". ", 1)
    more, ways = (
        "".join(f'<a href="{escape(way["href"])}">{escape(way["text"])}</a>' for way in words[name])
        for name in ("more", "ways")
    )
    return {
        "sentence": f"{escape(says)}. <em>{escape(does)}</em>",
        "site": f'<nav id="site" aria-label="the site">{more}</nav>\n',
        "ways": '    <div id="welcome"><div id="move"></div><ul id="numbers"></ul>'
        f'<nav aria-label="ways on">{ways}</nav></div>\n',
    }


def style() -> str:
    """The room's own style, without comments and the white space at both ends of its lines."""
    plain = re.sub(r"/\*.*?\*/", "", read("page.css"), flags=re.DOTALL)
    return re.sub(r"\s*\n\s*", "\n", plain).strip()


def colours() -> str:
    """The tables' colours as variables of CSS, by day and by night."""
    known = tables()
    pairs = {**known["colours"], "over": known["over"], "accent": [known["kinds"]["F"]["colour"]] * 2}
    day, night = ("".join(f"--{name}:{pair[i]};" for name, pair in pairs.items()) for i in (0, 1))
    return f":root{{{day}}}\n@media(prefers-color-scheme:dark){{:root{{{night}}}}}"


@cache
def script() -> tuple[list[str], str]:
    """(words, the script with a sign for each of them): the same in every page."""
    return written_once(f'"use strict";(()=>{{const TABLES={as_json(tables())};\n{squeeze(joined())}}})()')


def joined() -> str:
    """The scripts as one: each is a module of its own, and no two use a name for two things."""
    return "\n".join(EXPORT.sub("", IMPORT.sub("", read(f"{name}.js"))) for name in SCRIPTS)


def as_json(value: Any) -> str:
    """JSON that can stand in a script: nothing in it ends one."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def read(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
