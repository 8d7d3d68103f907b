"""A page that is open in a browser: what it is given, what it says of itself, and what went wrong in it."""

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Error

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build" / "page"
Json = Any

LOAD = """texts => JSON.stringify(texts.map(text => {
    try { window.pipeline.load(text); } catch (error) { return {refused: error.message}; }
    return window.pipeline.state();
}))"""


TWO_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


class Opened:
    """A file in a tab of its own. ``wrong`` has what its console and its scripts complain of."""

    def __init__(self, browser: Browser, file: Path, fragment: str = "", **how: Any):
        self.wrong: list[str] = []
        self.context = browser.new_context(**how)
        self.page = self.context.new_page()
        self.page.set_default_timeout(10_000)
        self.page.on("pageerror", lambda error: self.wrong.append(f"a script failed: {error}"))
        self.page.on("console", self._hear)
        self.page.on("request", self._see)
        self.address = file.resolve().as_uri()
        self.go(fragment)

    def go(self, fragment: str = "") -> None:
        """Open the file anew, with this fragment."""
        self.page.goto("about:blank")
        self.page.goto(self.address + fragment)
        if not self.page.evaluate("!!window.pipeline"):
            raise AssertionError(f"the page does not start: {self.wrong}")

    def __enter__(self) -> "Opened":
        return self

    def __exit__(self, *_) -> None:
        self.context.close()

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"the console says: {message.text}")

    def _see(self, request) -> None:
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.wrong.append(f"the page asks for {request.url}")

    def states(self, things: list[Json]) -> list[Json]:
        """The page's state after each of these is loaded, or {"refused": the sentence}."""
        texts = [thing if isinstance(thing, str) else json.dumps(thing) for thing in things]
        return _read(self.page.evaluate(LOAD, texts))

    def load(self, thing: Json) -> Json:
        [state] = self.states([thing])
        return state

    def state(self) -> Json:
        return _read(self.page.evaluate("JSON.stringify(window.pipeline.state())"))

    def settled(self) -> None:
        """Wait until what was asked for is painted."""
        self.page.evaluate(TWO_FRAMES)


def _read(text: str) -> Json:
    """All numbers of JavaScript are doubles; the digits of a large one are not those of a whole number."""
    return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < 16 else float(digits))


__all__ = ["BUILT", "ROOT", "Error", "Json", "Opened"]
