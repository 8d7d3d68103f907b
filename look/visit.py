"""A visit to one lesson in JupyterLab: seen in each view, then run. page.js is what it asks of the page."""

import re
from pathlib import Path

from playwright.sync_api import Browser, ConsoleMessage, Error

from look.findings import NARROW, WIDE, in_outputs, in_page
from look.lessons import can_run, number

VIEWS = (("light", WIDE), ("light", NARROW), ("dark", WIDE), ("dark", NARROW))
HEIGHT = 900  #: pixels of a window, before it is made as high as the notebook
RUN_SECONDS = 600

#: Errors in the console that tell nothing new: an image that did not load, which `in_page` names, and
#: JupyterLab's debugger, whose first question to the kernel a restart cuts short.
NOISE = re.compile(
    r"^Failed to load resource: .* (http://[^/]+/files/|data:image/)"
    r"|^Could not restore the debugger state: Canceled"
)


class Visit:
    """What a lesson showed: how many `images`, how many cells `ran`, and in sentences what is `wrong`."""

    def __init__(self, browser: Browser, address: str, lesson: Path, pictures: Path):
        self.images, self.ran, self.wrong = 0, 0, []
        self.lesson, self.pictures = lesson, pictures
        for old in pictures.glob(f"{number(lesson)}_*.png"):
            old.unlink()
        self.page = browser.new_page()
        self.page.on("pageerror", lambda error: self.wrong.append(f"the page failed: {error}"))
        self.page.on("console", self.hear)
        try:
            self.tour(address)
        except Error as error:  # most likely JupyterLab took too long
            self.wrong.append(f"the visit ended early: {error}")
        finally:
            self.page.close()
        self.wrong = list(dict.fromkeys(self.wrong))  # what is wrong in every view is said once

    def hear(self, message: ConsoleMessage) -> None:
        said = f"{message.text} {message.location['url']}"
        if message.type == "error" and not NOISE.search(said):
            self.wrong.append(f"the browser's console has an error: {said}")

    def tour(self, address: str) -> None:
        self.open(address)
        for theme, width in VIEWS:
            self.see(theme, width, f"{theme}_{width}")
        if can_run(self.lesson):
            self.run()
            self.see("light", WIDE, "run")
        self.page.evaluate("look.endKernel()")

    def open(self, address: str) -> None:
        self.page.add_init_script(path=Path(__file__).parent / "page.js")
        self.page.goto(f"{address}/lab/tree/notebooks/{self.lesson.name}?reset")
        self.page.wait_for_function("look.isOpen()")
        self.page.evaluate("look.prepare()")

    def see(self, theme: str, width: int, name: str) -> None:
        """Store a picture of the whole notebook, and look for what is wrong in it."""
        self.page.evaluate("theme => look.setTheme(theme)", f"JupyterLab {theme.title()}")
        self.resize(width, height := HEIGHT)
        while below := self.page.evaluate("look.below()"):
            self.resize(width, height := height + below)
        self.page.screenshot(path=self.pictures / f"{number(self.lesson)}_{name}.png")
        cells = self.page.evaluate("look.cells()")
        self.images = sum(len(cell["images"]) for cell in cells)
        self.wrong += in_page(cells, width)

    def resize(self, width: int, height: int) -> None:
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.wait_for_function("look.isLaidOut()")

    def run(self) -> None:
        """Restart the kernel and run all cells."""
        self.page.evaluate("look.run()")
        self.page.wait_for_function("look.hasRun()", timeout=1000 * RUN_SECONDS)
        cells = self.page.evaluate("look.notebook()")["cells"]
        self.ran = sum(cell.get("execution_count") is not None for cell in cells)
        self.wrong += in_outputs(cells)
