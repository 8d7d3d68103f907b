"""The page in this machine's Chromium, which is started once; each module opens it as it needs."""

from collections.abc import Iterator

import pytest
from driver import BUILT, Opened
from playwright.sync_api import Browser, sync_playwright

import gpipe_sim as gp
from look.__main__ import browser_in


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        try:
            started = browser_in(playwright)
        except SystemExit as none:
            pytest.exit(str(none), returncode=1)
        with started:
            yield started


@pytest.fixture(scope="session")
def file():
    """What ``gp.view`` writes of the two schedules that the site opens with."""
    BUILT.mkdir(parents=True, exist_ok=True)
    return gp.view(gp.GPipe(4, 6), gp.OneFOneB(4, 6), path=BUILT / "page.html").path


@pytest.fixture(scope="session")
def shared(browser, file) -> Iterator[Opened]:
    """One page for all tests that load what they need."""
    with Opened(browser, file, viewport={"width": 500, "height": 400}) as page:  # little to paint
        yield page


@pytest.fixture
def opened(shared) -> Iterator[Opened]:
    """The shared page; whatever its console says is wrong."""
    assert shared.wrong == []
    yield shared
    assert shared.wrong == []
