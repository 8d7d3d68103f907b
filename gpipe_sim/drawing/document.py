"""An SVG document: what a notebook gets of it, what a file holds, and how words are written in it."""

import re
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from html import escape
from os import PathLike, fspath
from typing import NamedTuple

from gpipe_sim.drawing.marks import LETTER
from gpipe_sim.drawing.palette import DARK, INK, PAPER
from gpipe_sim.errors import got, require, require_in

SHOWN = 1.25  #: how much larger a notebook shows it: its words are as large as those of a figure, 15 pixels
SHRUNK = 0.68  #: in a window that shows less of its width a page shrinks, and words grow where they have room


class Font(NamedTuple):
    """The size of letters in pixels, what they grow to in a narrow window, and the class of those that do."""

    size: int
    large: int
    grows: str
    wide: float = 1.0  #: how much wider bold letters are


WORDS, HEADLINE = Font(12, 18, "n"), Font(14, 21, "t", 1.08)
FONT, LARGE, GROWS, _ = WORDS
UNWRITABLE = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  #: what no XML may hold
DARKER = "".join(
    f'[{what}="{light}"]{{{what}:{dark}}}' for light, dark in DARK.items() for what in ("fill", "stroke")
)


class Svg:
    """A drawing: a notebook shows it, ``str`` gives the SVG text, ``save`` writes that to a file.

    A notebook gets it as an image with the words that it ``says``. That is shown in a fresh clone, too, where
    JupyterLab trusts no stored output, and shows an SVG of its own as text. An image has no hover and knows
    no theme, so it leaves out both; a saved SVG has them.

    It is drawn ``scale`` times as large as its parts say, at 96 pixels to the inch. Without one, it is as
    large as they say, or larger in a notebook, and its words grow in a narrow window.
    """

    def __init__(
        self,
        parts: Callable[[bool], Iterator[str]],
        size: tuple[float, float],
        says: str,
        more: str = "",
        scale: float | None = None,
        dark: bool = True,
    ):
        self._parts, self.size, self.says, self.more, self.scale = parts, size, says, more, scale
        self._dark = dark  #: whether a saved file is dark for who prefers dark pages

    def __str__(self) -> str:
        """The file: with words under the mouse and for screen readers, dark for who prefers dark pages."""
        style = f"<style>@media(prefers-color-scheme:dark){{{DARKER}}}</style>" if self._dark else ""
        more = f"<desc>{escape(self.more)}</desc>" if self.more else ""
        return self._written([f"<title>{escape(self.says)}</title>{more}", style], hover=True)

    def _written(self, head: Sequence[str], hover: bool, shown: float = 1) -> str:
        width, height = (px(side * (self.scale or shown)) for side in self.size)
        grown = "".join(f".{font.grows}{{font-size:{font.large}px}}" for font in (WORDS, HEADLINE))
        style = f"<style>@media(max-width:{px(SHRUNK * self.size[0])}px){{{grown}}}</style>"
        style = style if self.scale is None else ""
        ground = f'<rect width="100%" height="100%" rx="6" fill="{PAPER}"/>'
        body = "\n".join([*head, style, ground, *self._parts(hover)])
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {px(self.size[0])} {px(self.size[1])}" style="max-width:100%;height:auto" '
            f'font-family="Helvetica, Arial, sans-serif" font-size="{FONT}" role="img">\n{body}\n</svg>'
        )

    def _repr_html_(self) -> str:
        data = b64encode(self._written([], False, SHOWN).encode()).decode()
        return f'<img alt="{escape(self.says)}" src="data:image/svg+xml;base64,{data}">'

    def __repr__(self) -> str:
        return f"<Svg of {self.says}>"

    def save(self, path: str | PathLike, width: float | None = None) -> None:
        """Write it as the suffix says: ``.svg``, ``.pdf``, or ``.png``, which has 192 pixels to the inch.

        With a ``width``, in pixels, 96 to the inch, it is so wide, and its words are larger or smaller with
        it; ``draw(timeline, width=...)`` keeps the size of words. PDF and PNG are painted by matplotlib, on
        white. ValueError for another suffix, or a width that is none, TypeError for anything but a path and a
        number, ImportError without matplotlib, OSError where nothing can be written.
        """
        if width is not None:
            scale = float(require_in("save", "width", width, 1, 10_001)) / self.size[0]
            return Svg(self._parts, self.size, self.says, self.more, scale, self._dark).save(path)
        such_as = "a path, such as 'timeline.svg'"
        name = require("save", fspath(require("save", path, str | PathLike, such_as)), str, such_as)
        kind = name[-4:].lower()
        if kind == ".svg":
            with open(name, "w", encoding="utf-8") as file:
                file.write(str(self))
        elif kind in (".pdf", ".png"):
            try:
                from gpipe_sim.drawing.printed import save_printed
            except ImportError as error:
                needs = "matplotlib, which is not installed: pip install 'gpipe_sim[plot]'"
                raise ImportError(f"to save {kind} needs {needs}; .svg does not") from error
            save_printed(self._written([], hover=False), name, kind[1:], self.says)
        else:
            raise ValueError(f"save writes what the suffix says: .svg, .pdf or .png {got(name)}")


class Drawn(ABC):
    """What has a ``drawing``; it is saved as that is."""

    @property
    @abstractmethod
    def drawing(self) -> Svg: ...

    def save(self, path: str | PathLike, width: float | None = None) -> None:
        """Write the drawing, as its ``save`` does."""
        self.drawing.save(path, width)


def written(owner: str, words: str, such_as: str) -> str:
    """The words; TypeError unless they are a text, ValueError for what no file can hold, such as NUL."""
    if found := UNWRITABLE.search(require(owner, words, str, such_as)):
        raise ValueError(f"{owner} needs {such_as}; {found[0]!r} cannot be written {got(words)}")
    return words


def words_wide(words: str, font: float = FONT) -> float:
    return len(words) * LETTER * font


def text(
    x: float,
    y: float,
    words: str,
    anchor: str,
    size: int = FONT,
    colour: str = INK,
    bold: bool = False,
    grows: str = "",
) -> str:
    """Words at a place; ``grows`` is their class in a narrow window. The caller escapes <, > and &."""
    look = font_size(size) + (' font-weight="bold"' if bold else "") + css_class(grows)
    return f'<text x="{px(x)}" y="{px(y)}" text-anchor="{anchor}" fill="{colour}"{look}>{words}</text>'


def outline(left: float, top: float, wide: float, high: float) -> str:
    """The path around a rectangle."""
    return f"M{px(left)} {px(top)}h{px(wide)}v{px(high)}h-{px(wide)}z"


def css_class(name: str) -> str:
    return f' class="{name}"' if name else ""


def font_size(size: int) -> str:
    return f' font-size="{size}"' if size != FONT else ""


def px(value: float) -> str:
    """Pixels as text, to a tenth; without the point if they are whole."""
    return f"{value:.1f}".removesuffix(".0")
