"""Printed lines as a notebook shows them on a page of any width: none is broken inside a word."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from html import escape
from io import StringIO

ROWS = 'style="white-space: pre; overflow-x: auto"'  #: or a narrow page breaks a printed row inside a word


@contextmanager
def wide() -> Iterator[None]:
    """What is printed meanwhile has lines that no page breaks inside a word: on a narrow one they scroll."""
    with redirect_stdout(StringIO()) as printed:
        yield
    show = sys.modules["IPython"].display.display if "IPython" in sys.modules else print
    show(Printed(printed.getvalue()))


@dataclass(frozen=True, repr=False)
class Printed:
    """Lines of text, which a notebook shows as they are."""

    text: str

    def __repr__(self) -> str:
        return self.text.rstrip("\n")

    def _repr_html_(self) -> str:
        return unbroken(repr(self))


def unbroken(text: str) -> str:
    """Lines as HTML that stay whole."""
    return f"<pre {ROWS}><code {ROWS}>{escape(text)}</code></pre>"
