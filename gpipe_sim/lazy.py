"""Packages that load a name when it is first used.

``import gpipe_sim`` should cost next to nothing, yet type checkers and editors should see every name. So the
names stand in a stub, ``__init__.pyi``, as ordinary imports, which is what such tools read. At run time the
same file says where to find a name, so the two cannot differ.

A package cannot have a name that is also the name of one of its files: importing the file would put the
module in the name's place. A test holds that.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module

#: What a name needs beside NumPy: (package, the extra of gpipe_sim that installs it).
Extras = Mapping[str, tuple[str, str]]


def from_stub(package: str, extras: Extras) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` for a package with a stub beside its ``__init__.py``.

    The names in ``extras`` need more than NumPy: ``dir`` leaves them out where that is not installed, and
    ``__all__`` always does. A name that cannot be loaded is an AttributeError, whose sentence says what is
    missing; so ``help``, completion and ``inspect.getmembers`` pass it over.
    """
    module = sys.modules[package]

    @cache
    def homes() -> dict[str, str]:
        return _homes(package, str(module.__file__))

    def load(name: str) -> object:
        if name == "__all__":
            return sorted(each for each, home in homes().items() if each not in extras and home != package)
        if name not in homes():
            elsewhere = () if name.startswith("_") else _elsewhere(package, homes(), extras, name)
            hint = "".join(f"; {chapter} has it" for chapter in elsewhere)
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        try:
            found = _loaded(homes()[name], name)
        except ImportError as error:
            missing = _what_is_missing(error, extras.get(name))
            if not missing:
                raise
            raise AttributeError(f"{package}.{name} {missing}") from error
        import_module("gpipe_sim.signatures").show(found)
        setattr(module, name, found)
        return found

    def names() -> list[str]:
        missing = {name for name, (needed, _) in extras.items() if not _installed(needed)}
        return sorted({name for name in vars(module) if name.startswith("__")} | set(homes()) - missing)

    return load, names


def _homes(package: str, file: str) -> dict[str, str]:
    """name -> the module that the stub imports it from; a chapter's is the package itself."""
    import ast
    from pathlib import Path

    stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def _elsewhere(package: str, homes: Mapping[str, str], extras: Extras, name: str) -> list[str]:
    """The chapters of a package that have a public name; one that is not here has none."""
    chapters = [f"{package}.{each}" for each, home in homes.items() if home == package and each not in extras]
    found = []
    for chapter in chapters:
        with suppress(ImportError):
            if name in getattr(import_module(chapter), "__all__", ()):
                found.append(chapter)
    return found


def _loaded(home: str, name: str) -> object:
    """``name`` of the module ``home``: what it defines, or the module within it that is called so."""
    found = import_module(home)
    if hasattr(found, "__path__") and name not in vars(found):
        return import_module(f"{home}.{name}")
    return getattr(found, name)


def _what_is_missing(error: ImportError, extra: tuple[str, str] | None) -> str:
    """In words; empty if nothing is missing and the error is another one."""
    if extra:
        package, install = extra
        if error.name == package:
            return f"needs {package}, which is not installed: pip install 'gpipe_sim[{install}]'"
        return f"cannot be loaded: {error}"
    if isinstance(error, ModuleNotFoundError) and str(error.name).startswith("gpipe_sim"):
        return f"needs {error.name}, which is not here"
    return ""


def _installed(package: str) -> bool:
    from importlib.util import find_spec

    return find_spec(package) is not None
