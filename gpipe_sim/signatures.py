"""Signatures as ``help`` shows them: types by the names that the source gives them.

Python spells an annotation with the module that each type stands in, writes out what an alias stands for, and
puts quotes around one that is a string: ``plan`` had a signature of 1,245 characters. Here a public name gets
one to read, ``links: Link | Nodes``. What a function's annotations are stays as it is.
"""

import re
import sys
from enum import Enum
from functools import partial
from inspect import Parameter, Signature, formatannotation, signature
from types import BuiltinFunctionType, FunctionType, ModuleType

CALLED = ("__new__", "__init__", "__call__")  #: what runs where a class, or one of it, is called


class _Words(str):
    """An annotation that is shown as it is, without quotes; ``meant`` is the one that it stands for."""

    meant: object
    __repr__ = str.__str__


class _Named(partial):
    """A function that is there by default, shown by its name."""

    def __repr__(self) -> str:
        return str(self.func.__name__)


def readable(package: str) -> None:
    """Let ``help`` show types as the source calls them, in the signatures of a package's public names.

    Completion offers these names alone, without the files that they stand in.
    """
    module = sys.modules[package]
    show(module)
    vars(module)["__dir__"] = lambda: [
        *(name for name in vars(module) if name.startswith("__")),
        *module.__all__,
    ]


def show(found: object) -> None:
    """The same of a function, of what a reader sees of a class, or of both among a module's public names."""
    if isinstance(found, FunctionType):
        _show_words(found)
    elif isinstance(found, ModuleType):
        own = [name for name, each in vars(found).items() if _home(each) == found.__name__]
        for name in getattr(found, "__all__", own):
            show(getattr(found, name))
    elif not isinstance(found, type):
        show(type(found))  # of a loss, which is called
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
    spelled = annotation if isinstance(annotation, str) else formatannotation(annotation)
    text = re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)|'", "", spelled)
    words = _Words(text.replace("int | float | Fraction", "Real"))
    words.meant = annotation
    return annotation if words == spelled and annotation is not spelled else words
