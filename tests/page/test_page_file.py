"""The page as a file: how large it is, how long its scripts are, and that it needs nothing else."""

import re

import pytest
from driver import ROOT, Opened

import gpipe_sim as gp

ROOM = ROOT / "gpipe_sim" / "viewer"
MOST_LINES = 2000  #: with code on them: comments and blanks are not counted, as in the rest of the package


def written_out(schedule: gp.core.Schedule) -> gp.Explicit:
    """The same order as one of the reader's own, of which the page has every action."""
    return gp.Explicit(schedule.actions, placement=schedule.placement)


@pytest.mark.parametrize(
    ("devices", "microbatches", "most"), [(4, 8, 100_000), (8, 64, 200_000), (32, 512, 700_000)]
)
def test_a_page_of_two_orders_is_small_and_opens(devices, microbatches, most, browser, tmp_path):
    orders = [written_out(family(devices, microbatches)) for family in (gp.GPipe, gp.OneFOneB)]
    file = gp.view(*orders, path=tmp_path / "page.html").path
    assert file.stat().st_size < most
    with Opened(browser, file) as opened:
        state = opened.state()
        assert state["makespan"] == [gp.simulate(order).makespan for order in orders]
        assert [len(times) for times in state["times"]] == [2 * devices * microbatches] * 2
        assert opened.wrong == []


def test_the_scripts_and_the_style_stay_within_what_one_can_read():
    lines = [
        (f"{path.name}:{number}", line)
        for path in sorted(ROOM.iterdir())
        if path.suffix in (".js", ".css")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    ]
    code = [line for _, line in lines if not re.match(r"\s*(//|/?\*|$)", line)]
    assert len(code) <= MOST_LINES
    assert [(where, len(line)) for where, line in lines if len(line) > 120] == []


def test_a_page_names_no_place_to_fetch_from(file):
    text = file.read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//|@import|\bimport\s*\(|\bfetch\s*\(""", text)
    assert not re.search(r"^(import|export) ", text, re.M)


def test_a_name_that_looks_like_markup_stays_a_name(browser, tmp_path):
    class Nasty(gp.core.Schedule):
        name = "</script><img src=x onerror='window.harmed=1'><!--<script>"

        def order(self, device):
            yield from gp.GPipe(self.devices, self.microbatches).order(device)

    file = gp.view(Nasty(2, 3), path=tmp_path / "page.html").path
    with Opened(browser, file) as opened:
        opened.settled()
        assert opened.state()["charts"][0]["schedule"]["name"] == Nasty.name
        assert opened.page.evaluate("[window.harmed, document.images.length]") == [None, 0]
        assert opened.wrong == []
