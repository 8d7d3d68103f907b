"""The API by chapter, from the package's own list of chapters: a page for each, with every public name.

The torch backend needs torch, which building a site should not: its page is read from its source.
"""

import ast
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
    def names(self) -> list[str]:
        """In full."""
        return [full(prefix, name) for prefix, names in self.groups.items() for name in names]

    @property
    def things(self) -> list[object]:
        return [public()[name] for name in self.names]


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
    if isinstance(thing, dict):  # which has no words of its own: autodoc would show those of dict
        module, _, own = name.rpartition(".")
        return f".. py:data:: {own}\n   :module: {module}\n"
    kind = "function" if callable(thing) else "data"
    return f".. auto{kind}:: {name}\n" + ("   :no-value:\n" if kind == "data" else "")


def heading(words: str, line: str) -> str:
    return f"{words}\n{line * len(words)}\n"


def written(each: Chapter, known: set[int]) -> str:
    """The page of a chapter, for Sphinx."""
    page = [heading(f"{each.name}: {each.title}", "="), f".. automodule:: {each.module}\n"]
    for prefix, names in each.groups.items():
        page.append(heading("Directly in gp" if prefix == "gp" else f"In {prefix}", "-"))
        page += [entry(full(prefix, name), public()[full(prefix, name)]) for name in names]
    if made := list(results(each.things, known)):
        page.append(heading(RESULTS, "-"))
        page += [entry(f"{result.__module__}.{result.__qualname__}", result) for result in made]
    return "\n".join(page)


def write(folder: Path) -> None:
    known = {id(thing) for thing in public().values()}
    for each in chapters():
        (folder / f"{each.name}.rst").write_text(written(each, known), encoding="utf-8")
    (folder / "torch_backend.rst").write_text(torch_page(), encoding="utf-8")


def torch_page() -> str:
    """As ``written``, of a chapter that may not be there to import."""
    home = Path(gp.__file__).parent / "torch_backend"
    tree = ast.parse((home / "__init__.py").read_text(encoding="utf-8"))
    page = [heading("torch_backend: the same schedules on PyTorch", "="), as_rst(ast.get_docstring(tree))]
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module.startswith("gpipe_sim.torch_backend."):
            source = (home / f"{node.module.split('.')[-1]}.py").read_text(encoding="utf-8")
            defined = {each.name: each for each in ast.parse(source).body if hasattr(each, "name")}
            page += [from_source(alias.name, defined.get(alias.name)) for alias in node.names]
    return "\n\n".join(page)


def from_source(name: str, node: ast.AST | None) -> str:
    """The directive of a function or class as it is written; of a value, its name."""
    full_name = f"gpipe_sim.torch_backend.{name}"
    if node is None:
        return f".. py:data:: {full_name}"
    body = {each.name: each for each in getattr(node, "body", ()) if isinstance(each, ast.FunctionDef)}
    function = node if isinstance(node, ast.FunctionDef) else body.get("__init__")
    arguments = ast.unparse(function.args).removeprefix("self, ") if function else ""
    kind = "function" if isinstance(node, ast.FunctionDef) else "class"
    words = as_rst(ast.get_docstring(node) or "").replace("\n", "\n   ")
    return f".. py:{kind}:: {full_name}({arguments})\n\n   {words}"


def as_rst(words: str) -> str:
    """A docstring in which what is indented is code."""
    return "\n".join(with_code(words.splitlines()))


def with_code(lines: list[str]) -> Iterator[str]:
    """Two colons above each indented block, which make it code; a session of ``>>>`` is that without them."""
    above, before = "", "x"  # the last line that has words, and the last line
    for line in lines:
        begins = line.startswith("    ") and not before and not above.startswith(" ")
        if begins and above and not line.strip().startswith(">>>"):
            yield from ("::", "")
        above, before = line or above, line
        yield line


def linked(app, what: str, name: str, thing: object, options, lines: list[str]) -> None:
    """A docstring for Sphinx: what is indented is code, and a name leads to its place."""
    lines[:] = with_code(lines)
    arguments = set(inspect.signature(thing).parameters) if inspect.isfunction(thing) else set()
    places = {short(each): target(each) for each in public() if short(each) not in arguments}
    pattern = re.compile(r"``(?:gp\.)?(" + "|".join(map(re.escape, places)) + r")(\(\))?``")
    for at, line in enumerate(lines):
        if line[:4] != "    ":
            lines[at] = pattern.sub(lambda found: f":py:obj:`{found[1]} <{places[found[1]]}>`", line)


def short(name: str) -> str:
    return name.removeprefix("gpipe_sim.")


def target(name: str) -> str:
    """Under what name it is documented: a module under that of its file."""
    thing = public()[name]
    return thing.__name__ if inspect.ismodule(thing) else name


def shortened(app, what: str, name: str, thing: object, options, signature: str, returns: str) -> tuple:
    """A signature in which NumPy's type of a dtype is one word again."""
    dtype = r"~?type\[~?typing\.Any\] \| .*?_DTypeDict \| str"
    return re.sub(dtype, "DTypeLike", signature) if signature else None, returns
