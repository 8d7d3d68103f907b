"""The page of ``gp.view`` in a real browser: how large it is, and how soon it answers.

Run as ``python -m benchmarks page`` (`make bench-page`). It needs playwright, which the extra ``look`` has,
and a Chromium. A frame's work is what the page's own thread does for it: scripts, layout, painting.
"""

from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

import gpipe_sim as gp
from benchmarks.timing import report

try:
    from playwright.sync_api import Page, sync_playwright

    from look.__main__ import browser_in
except ModuleNotFoundError as error:
    raise SystemExit(f"This needs {error.name}: make bench-page, or pip install -e .[look]") from None

FRAME = 16.7  #: milliseconds
SIZES = ((4, 8, 100), (8, 64, 200), (32, 512, 700))  #: devices, microbatches, at most so many kB
FRAMES, CHANGES = 300, 21
FROZEN = 500  #: milliseconds without a frame, after which a page seems to hang

#: Of one frame in which an input gets a value: [when it began, how long scripts, layout and painting took].
TIMED = """() => { window.timed = (input, value) => new Promise(done => {
    requestAnimationFrame(stamp => {
        const start = performance.now(), channel = new MessageChannel();
        channel.port1.onmessage = () => done([stamp, handled + performance.now() - start]);
        channel.port2.postMessage(0); // which comes when the frame is painted
    });
    const start = performance.now();
    input.value = value;
    input.dispatchEvent(new Event("input", {bubbles: true}));
    const handled = performance.now() - start;
}); }"""
SCRUB = """async frames => {
    const head = document.getElementById("head"), found = [];
    for (let i = 1; i <= frames; i++) found.push(await timed(head, Number(head.max) * i / frames));
    return found;
}"""
SLIDE = """async ([name, values]) => {
    const slider = document.getElementById(name), found = [];
    for (const value of values) {
        found.push((await timed(slider, value))[1]);
        await new Promise(done => setTimeout(done, 100));
    }
    return found;
}"""
#: From frame to frame while a slider is dragged, a step in each.
DRAG = """async ([name, values]) => {
    const slider = document.getElementById(name), found = [await new Promise(requestAnimationFrame)];
    for (const value of values) {
        slider.value = value;
        slider.dispatchEvent(new Event("input", {bubbles: true}));
        found.push(await new Promise(requestAnimationFrame));
    }
    return found;
}"""
SLIDERS = {"M": [40 + i for i in range(CHANGES)], "F": [0.5 + i / 8 for i in range(CHANGES)]}


def written_out(schedule: gp.core.Schedule) -> gp.Explicit:
    """As an order of one's own, whose every action is in the file."""
    return gp.Explicit(schedule.actions, placement=schedule.placement)


def sizes(folder: Path) -> bool:
    met = True
    for devices, microbatches, most in SIZES:
        both = gp.GPipe(devices, microbatches), gp.OneFOneB(devices, microbatches)
        for what, shown in (("families", both), ("orders", [written_out(each) for each in both])):
            file = gp.view(*shown, path=folder / f"{what}_{devices}_{microbatches}.html").path
            name = f"page of two {what}, {devices} x {microbatches}"
            met &= report(name, file.stat().st_size / 1000, "kB", most)
    return met


def scrubbing(page: Page, file: Path) -> bool:
    page.goto(file.as_uri())
    page.evaluate(TIMED)
    page.evaluate(SCRUB, 30)  # what runs first is compiled
    found = page.evaluate(SCRUB, FRAMES)
    took = [each for _, each in found]
    apart = [after - before for (before, _), (after, _) in pairwise(found)]
    met = report("scrubbing at 32 x 512, a frame's work, median", median(took), "ms", FRAME)
    met &= report("  95th percentile", quantiles(took, n=20)[-1], "ms", FRAME)
    met &= report("  from frame to frame, median", median(apart), "ms", FRAME + 0.1)
    return met & report("  95th percentile", quantiles(apart, n=20)[-1], "ms", FRAME + 0.1)


def sliding(page: Page, small: Path, large: Path) -> bool:
    met = True
    page.goto(small.as_uri())
    page.evaluate(TIMED)
    for name, values in SLIDERS.items():
        page.evaluate(SLIDE, [name, values[:5]])
        took = page.evaluate(SLIDE, [name, values])
        met &= report(f"slider {name} at 8 x 64, until it is painted, median", median(took), "ms", 50)
        met &= report("  95th percentile", quantiles(took, n=20)[-1], "ms", 50)
    page.goto(large.as_uri())
    stamps = page.evaluate(DRAG, ["F", SLIDERS["F"]])
    longest = max(after - before for before, after in pairwise(stamps))
    return met & report("dragging F at 32 x 512, longest time between two frames", longest, "ms", FROZEN)


def run() -> bool:
    with TemporaryDirectory() as name, sync_playwright() as playwright, browser_in(playwright) as browser:
        folder = Path(name)
        met, page = sizes(folder), browser.new_page()
        met &= scrubbing(page, folder / "families_32_512.html")
        return met & sliding(page, folder / "families_8_64.html", folder / "families_32_512.html")


if __name__ == "__main__":
    run()
