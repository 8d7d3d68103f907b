"""Look at every lesson, or only at those that are named; exit with 1 if anything is wrong."""

import shutil
import signal
import sys
import time
from pathlib import Path

from playwright.sync_api import Browser, Playwright, sync_playwright

from look.lessons import ROOT, can_run, chosen, number
from look.server import jupyterlab
from look.visit import Visit

PICTURES = ROOT / "build" / "look"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge")


def browser_in(playwright: Playwright) -> Browser:
    """The machine's own Chromium, or the one that playwright installed."""
    own = (path for path in map(shutil.which, BROWSERS) if path)
    path = next(own, playwright.chromium.executable_path)
    if not Path(path).exists():
        raise SystemExit(
            "There is no Chromium: apt install chromium, or .venv/bin/playwright install chromium"
        )
    return playwright.chromium.launch(executable_path=path)


def report(lesson: Path, visit: Visit, seconds: float) -> None:
    images = "1 image" if visit.images == 1 else f"{visit.images} images"
    ran = f"{visit.ran} cells run" if can_run(lesson) else "only opened (it runs with torch)"
    print(f"{number(lesson):>2}  {images}, {ran}, {seconds:.0f} s", flush=True)
    for sentence in visit.wrong:
        print(f"    {sentence}", flush=True)


def main(numbers: list[str]) -> bool:
    """Look at the lessons of these numbers, and return whether all is well."""
    lessons = chosen(numbers)
    well = True
    with sync_playwright() as playwright, browser_in(playwright) as browser, jupyterlab() as address:
        for lesson in lessons:
            start = time.monotonic()
            visit = Visit(browser, address, lesson, PICTURES)
            report(lesson, visit, time.monotonic() - start)
            well = well and not visit.wrong
    print(f"The screenshots are in {PICTURES.relative_to(ROOT)}/")
    return well


if __name__ == "__main__":
    for name in {"SIGTERM", "SIGHUP"} & set(dir(signal)):  # Windows has no SIGHUP
        signal.signal(getattr(signal, name), lambda number, _: sys.exit(128 + number))  # end JupyterLab first
    sys.exit(0 if main(sys.argv[1:]) else 1)
