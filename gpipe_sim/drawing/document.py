"""An SVG document: what a notebook gets of it, what a file holds, and how words are written in it."""

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from html import escape
from os import PathLike
from typing import NamedTuple

from gpipe_sim.drawing.marks import LETTER
from gpipe_sim.drawing.palette import DARK, INK, PAPER
from gpipe_sim.errors import require

SHRUNK = 0.68  #: in a window that shows less of its width a page shrinks, and words grow where they have room


class Font(NamedTuple):
    """The size of letters in pixels, what they grow to in a narrow window, and the class of those that do."""

    size: int
    large: int
    grows: str
    wide: float = 1.0  #: how much wider bold letters are


WORDS, HEADLINE = Font(12, 17, "n"), Font(14, 20, "t", 1.08)
FONT, LARGE, GROWS, _ = WORDS
DARKER = "".join(
    f'[{what}="{light}"]{{{what}:{dark}}}' for light, dark in DARK.items() for what in ("fill", "stroke")
)


class Svg:
    """A drawing: a notebook shows it, ``str`` gives the SVG text, ``save`` writes that to a file.

    A notebook gets it as an image with the words that it ``says``. That is shown in a fresh clone, too, where
    JupyterLab trusts no stored output, and shows an SVG of its own as text. An image has no hover and knows
    no theme, so it leaves out both; a saved file has them.
    """

    def __init__(
        self, parts: Callable[[bool], Iterator[str]], size: tuple[float, float], says: str, more: str = ""
    ):
        self._parts, self.size, self.says, self.more = parts, size, says, more

    def __str__(self) -> str:
        """The file: with words under the mouse and for screen readers, dark for who prefers dark pages."""
        style = f"<style>@media(prefers-color-scheme:dark){{{DARKER}}}</style>"
        more = f"<desc>{escape(self.more)}</desc>" if self.more else ""
        return self._written([f"<title>{escape(self.says)}</title>{more}", style], hover=True)

    def _written(self, head: Sequence[str], hover: bool) -> str:
        width, height = map(px, self.size)
        grown = "".join(f".{font.grows}{{font-size:{font.large}px}}" for font in (WORDS, HEADLINE))
        style = f"<style>@media(max-width:{px(SHRUNK * self.size[0])}px){{{grown}}}</style>"
        ground = f'<rect width="100%" height="100%" rx="6" fill="{PAPER}"/>'
        body = "\n".join([*head, style, ground, *self._parts(hover)])
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" style="max-width:100%;height:auto" '
            f'font-family="Helvetica, Arial, sans-serif" font-size="{FONT}" role="img">\n{body}\n</svg>'
        )

    def _repr_html_(self) -> str:
        data = b64encode(self._written([], hover=False).encode()).decode()
        return f'<img alt="{escape(self.says)}" src="data:image/svg+xml;base64,{data}">'

    def __repr__(self) -> str:
        return f"<Svg of {self.says}>"

    def save(self, path: str | PathLike) -> None:
        """Write the file. TypeError for anything but a path; OSError where none can be written."""
        require("save", path, str | PathLike, "a path, such as 'timeline.svg'")
        with open(path, "w", encoding="utf-8") as file:
            file.write(str(self))


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
