"""The site's first screen: the library's own page, which has asked its first question already."""

from pathlib import Path

import gpipe_sim as gp
from gpipe_sim.viewer.view import as_html

DEVICES, MICROBATCHES = 4, 6  #: not eight, which a lesson asks about
WELCOME = {
    "sentence": "Four devices, and a third of their time nobody works. Move M.",
    "ways": [
        {"text": "Lesson 01: why split a model?", "href": "lessons/01_why_split.html"},
        {"text": "Draw your own", "href": "#board=own"},
    ],
    "more": [
        {"text": "Contents", "href": "contents.html"},
        {"text": "Lessons", "href": "lessons/index.html"},
        {"text": "How to", "href": "howto/index.html"},
        {"text": "Gallery", "href": "gallery/index.html"},
        {"text": "API", "href": "api/index.html"},
    ],
}


def write(path: Path) -> None:
    """GPipe above 1F1B, asked why device 0 waits in the middle of its step."""
    families = gp.GPipe(DEVICES, MICROBATCHES), gp.OneFOneB(DEVICES, MICROBATCHES)
    start, end = gp.why.idle_spans(gp.simulate(families[0]), 0)[0]
    path.write_text(as_html(*families, ask=(0, 0, (start + end) / 2), welcome=WELCOME), encoding="utf-8")
