"""Built pages as the tests of the site read them."""

import re
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "docs"
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"}


@dataclass
class Page(HTMLParser):
    path: Path
    ids: set[str] = field(default_factory=set)
    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)  #: text outside folds
    folded: list[str] = field(default_factory=list)  #: text in folds, their summaries left out

    def __post_init__(self):
        super().__init__()
        self.open: list[str] = []
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        attributes = {name: value or "" for name, value in attributes}
        self.tags.append((tag, attributes))
        self.ids |= {attributes[name] for name in ("id", "name") if name in attributes}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            in_fold = "details" in self.open and "summary" not in self.open
            (self.folded if in_fold else self.shown).append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for each, attributes in self.tags if each == tag]


def words(text: str | list[str]) -> str:
    """Text with one space wherever there are any, none at all within code that a page colours."""
    return re.sub(r"\s+", "", "".join(text))


@cache
def page(path: Path) -> Page:
    return Page(path)


FIRST = SITE / "index.html"  #: the page of gp.view, which Sphinx did not make


def paths() -> list[Path]:
    """Those that Sphinx made."""
    every = (path for path in SITE.rglob("*.html") if "_static" not in path.parts)
    return sorted(path for path in every if path != FIRST)


def named(name: str) -> Page:
    """Such as ``gallery/index``."""
    return page(SITE / f"{name}.html")
