"""The page that the lessons lead to, ``view.html``; what it shows then stands in the link."""

from pathlib import Path

from gpipe_sim import GPipe, OneFOneB
from gpipe_sim.viewer.view import as_html

PAGE = Path(__file__).with_name("view.html")


def text() -> str:
    return as_html(GPipe(4, 6), OneFOneB(4, 6))


def build() -> None:
    """Write the page if it would be another one."""
    if not (PAGE.exists() and PAGE.read_text(encoding="utf-8") == text()):
        PAGE.write_text(text(), encoding="utf-8")
        print("wrote view.html", flush=True)
