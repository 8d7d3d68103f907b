"""Packages that load a name when it is first used.

``import gpipe_sim`` should cost next to nothing, yet type checkers and editors should see every name. So the
names stand in a stub, ``__init__.pyi``, as ordinary imports, which is what such tools read. At run time the
same file says where to find a name, so the two cannot differ.

A package cannot have a name that is also the name of one of its files: importing the file would put the
module in the name's place. A test holds that.

Whoever asks for help reads signatures, so a name that is loaded here shows types as its source calls them:
``links: Link | Nodes``, without the module that each stands in.
"""

import re
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache, partial
from importlib import import_module
from inspect import Parameter, Signature, formatannotation, signature
from types import BuiltinFunctionType, FunctionType, ModuleType

#: What a name needs beside NumPy: (package, the extra of gpipe_sim that installs it).
Extras = Mapping[str, tuple[str, str]]
CALLED = ("__new__", "__init__", "__call__")  #: what runs where a class, or one of it, is called


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
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            found = _loaded(homes()[name], name)
        except ImportError as error:
            missing = _what_is_missing(error, extras.get(name))
            if not missing:
                raise
            raise AttributeError(f"{package}.{name} {missing}") from error
        _show(found)
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


# Signatures as help shows them


class _Words(str):
    """An annotation that is shown as it is, without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


class _Named(partial):
    """A function that is there by default, shown by its name."""

    def __repr__(self) -> str:
        return str(self.func.__name__)


def readable(package: str) -> None:
    """Let ``help`` show types as the source calls them, in the signatures of a package's public names."""
    _show(sys.modules[package])


def _show(found: object) -> None:
    """Of a function, of what a reader sees of a class, or of both among a module's public names."""
    if isinstance(found, FunctionType):
        _show_words(found)
    elif isinstance(found, ModuleType):
        own = [name for name, each in vars(found).items() if _home(each) == found.__name__]
        for name in getattr(found, "__all__", own):
            _show(getattr(found, name))
    elif not isinstance(found, type):
        _show(type(found))  # of a loss, which is called
    elif issubclass(found, Enum):
        value = Parameter("value", Parameter.POSITIONAL_OR_KEYWORD)
        found.__signature__ = Signature([value])  # type: ignore[attr-defined]
    else:
        for base in found.__mro__:
            if _home(base).startswith("gpipe_sim."):
                _show_methods(base)


def _home(found: object) -> str:
    return str(getattr(found, "__module__", None))


def _show_methods(found: type) -> None:
    for name, each in vars(found).items():
        method = getattr(each, "__func__", each)  # of a class method, and of __new__
        if isinstance(method, FunctionType) and (name in CALLED or not name.startswith("_")):
            _show_words(method)
    if {"__new__", "__init__"} <= set(vars(found)):  # which looks at what __init__ takes, and lets it through
        vars(found.__new__)["__signature__"] = signature(vars(found)["__init__"])


def _show_words(function: FunctionType) -> None:
    """Give it a signature whose types are in words; its annotations stay as they are."""
    if "__signature__" not in vars(function):
        told = signature(function)
        shown = [
            each.replace(annotation=_words(each.annotation), default=_named(each.default))
            for each in told.parameters.values()
        ]
        returned = _words(told.return_annotation)
        vars(function)["__signature__"] = told.replace(parameters=shown, return_annotation=returned)


def _named(default: object) -> object:
    return _Named(default) if isinstance(default, FunctionType | BuiltinFunctionType) else default


def _words(annotation: object) -> object:
    """``Link | Nodes`` of ``gpipe_sim.links.links.Link | gpipe_sim.links.links.Nodes``, or of a string."""
    if annotation is Parameter.empty:
        return annotation
    text = annotation if isinstance(annotation, str) else formatannotation(annotation)
    text = re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)|'", "", text)
    return _Words(text.replace("int | float | Fraction", "Real"))
