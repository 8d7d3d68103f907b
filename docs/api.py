"""The API by chapter, from the package's own list of chapters: a page for each, with every public name."""

import inspect
import re
import typing
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import gpipe_sim as gp

SHORT = {"data": "dataset"}  #: chapters whose module is called otherwise
RESULTS = "What these give"


class Chapter(NamedTuple):
    name: str
    title: str
    groups: dict[str, list[str]]  #: by prefix, such as "gp.why": names

    @property
    def module(self) -> str:
        return f"gpipe_sim.{SHORT.get(self.name, self.name)}"

    @property
    def things(self) -> list[object]:
        return [public()[full(prefix, name)] for prefix, names in self.groups.items() for name in names]


def chapters() -> list[Chapter]:
    """As the package's docstring lists them; a test of the package holds that list complete."""
    listed = inspect.getdoc(gp).split("Chapter by chapter:\n\n")[1].split("\n\n")[0]
    return [chapter(*each) for each in re.findall(r"^(\w+): (.*)\n((?: .*\n?)*)", listed, re.M)]


def chapter(name: str, title: str, listed: str) -> Chapter:
    groups = re.findall(r"(gp(?:\.\w+)?)\. (\w+(?:, \w+)*)", " ".join(listed.split()))
    return Chapter(name, title, {prefix: names.split(", ") for prefix, names in groups})


@cache
def public() -> dict[str, object]:
    """Every public name, in full, and what it stands for."""
    found = {}
    for each in chapters():
        for prefix, names in each.groups.items():
            owner = gp if prefix == "gp" else getattr(gp, prefix.removeprefix("gp."))
            found |= {full(prefix, name): getattr(owner, name) for name in names}
    return found


def full(prefix: str, name: str) -> str:
    return f"{prefix}.{name}".replace("gp", "gpipe_sim", 1)


def results(things: Iterable[object], known: set[int]) -> Iterator[type]:
    """The classes of this package, not known yet, that these functions and classes give and nobody makes."""
    for each in (found for thing in things for hint in given(thing) for found in parts(hint)):
        if inspect.isclass(each) and each.__module__.startswith("gpipe_sim.") and id(each) not in known:
            known.add(id(each))
            yield each
            yield from results([each], known)


def given(thing: object) -> Iterator[object]:
    """The types of what a function returns, or of the public attributes of a class."""
    if inspect.isfunction(thing):
        yield typing.get_type_hints(thing).get("return")
    elif inspect.isclass(thing):
        yield from (hint for name, hint in typing.get_type_hints(thing).items() if name[0] != "_")
        for name, each in vars(thing).items():
            function = getattr(each, "fget", None) or getattr(each, "func", each)  # cached_property has func
            if name[0] != "_" and inspect.isfunction(function):
                yield typing.get_type_hints(function).get("return")


def parts(hint: object) -> Iterator[object]:
    """A type and those within it, such as the two in ``tuple[A, B]``."""
    yield hint
    for each in typing.get_args(hint):
        yield from parts(each)


def entry(name: str, thing: object) -> str:
    """The directive that documents it."""
    if inspect.ismodule(thing):
        return f".. automodule:: {thing.__name__}\n   :members:\n"
    if inspect.isclass(thing):
        return f".. autoclass:: {name}\n   :members:\n   :show-inheritance:\n"
    kind = "function" if callable(thing) else "data"
    return f".. auto{kind}:: {name}\n" + ("   :no-value:\n" if kind == "data" else "")


def heading(words: str, line: str) -> str:
    return f"{words}\n{line * len(words)}\n"


def written(each: Chapter, known: set[int]) -> str:
    """The page of a chapter, for Sphinx."""
    page = [heading(f"{each.name}: {each.title}", "="), f".. automodule:: {each.module}\n"]
    for prefix, names in each.groups.items():
        page.append(heading(f"{prefix}.", "-"))
        page += [entry(full(prefix, name), public()[full(prefix, name)]) for name in names]
    if made := list(results(each.things, known)):
        page.append(heading(RESULTS, "-"))
        page += [entry(f"{result.__module__}.{result.__qualname__}", result) for result in made]
    return "\n".join(page)


def write(folder: Path) -> None:
    known = {id(thing) for thing in public().values()}
    for each in chapters():
        (folder / f"{each.name}.rst").write_text(written(each, known), encoding="utf-8")


def linked(app, what: str, name: str, thing: object, options, lines: list[str]) -> None:
    """A docstring as Sphinx reads it: what is indented below a colon is code."""
    for at, line in enumerate(lines[:-2]):
        if re.search(r"[^:]:$", line) and not lines[at + 1] and lines[at + 2].startswith("    "):
            lines[at] = line + ":"
