"""The site's first screen: the library's own page, which has asked its first question already."""

from pathlib import Path

import gpipe_sim as gp
from gpipe_sim.viewer.view import as_html

DEVICES, MICROBATCHES = 4, 6  #: not eight, which a lesson asks about
WELCOME = {
    "sentence": "Four devices, and a third of their time nobody works. Move M.",
    "ways": [
        {"words": "Lesson 01: why split a model?", "to": "lessons/01_why_split.html"},
        {"words": "Draw your own", "to": "#board"},
    ],
    "site": [
        {"words": "gpipe_sim", "to": "contents.html"},
        {"words": "Lessons", "to": "lessons/index.html"},
        {"words": "How to", "to": "howto/index.html"},
        {"words": "Gallery", "to": "gallery/index.html"},
        {"words": "API", "to": "api/index.html"},
    ],
}


def write(path: Path) -> None:
    """GPipe above 1F1B, asked why device 0 waits in the middle of its step."""
    families = gp.GPipe(DEVICES, MICROBATCHES), gp.OneFOneB(DEVICES, MICROBATCHES)
    start, end = gp.why.idle_spans(gp.simulate(families[0]), 0)[0]
    path.write_text(as_html(*families, ask=(0, 0, (start + end) / 2), welcome=WELCOME), encoding="utf-8")
