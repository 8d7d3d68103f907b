"""The site's first page: what it says is true, and its ways on lead there."""

import json
import re

import pytest
from pages import FIRST, SITE

import gpipe_sim as gp

TEXT = FIRST.read_text(encoding="utf-8")
SHOWN = json.loads(re.search(r'id="shown">(.*?)</script>', TEXT, re.DOTALL)[1])


def test_it_shows_gpipe_above_1f1b_at_another_size_than_a_lesson_asks_about():
    sizes = {"devices": 4, "microbatches": 6}
    found = [chart["schedule"] for chart in SHOWN["charts"]]
    assert [each["family"] for each in found] == ["GPipe", "OneFOneB"]
    assert all(each["options"].items() >= sizes.items() for each in found)


def test_its_sentence_is_true():
    assert SHOWN["welcome"]["sentence"].startswith("Four devices, and a third of their time nobody works.")
    assert gp.bubble_fraction(gp.simulate(gp.GPipe(4, 6))) == pytest.approx(1 / 3)


def test_it_has_asked_why_device_0_waits():
    chart, device, time = SHOWN["ask"]
    assert (chart, device) == (0, 0)
    assert gp.why.why_idle(gp.simulate(gp.GPipe(4, 6)), 0, time).sentence.startswith("device 0 waits")


def test_its_ways_on_lead_there():
    ways = [each["href"] for name in ("ways", "more") for each in SHOWN["welcome"][name]]
    assert ways[0].startswith("lessons/01_") and ways[1].startswith("#board=")
    assert [way for way in ways if not way.startswith("#") and not (SITE / way).is_file()] == []


def test_nothing_in_it_is_fetched():
    assert re.findall(r"<(?:link|img|iframe)\b|<script[^>]*\bsrc=|url\(|@import|fetch\(|XMLHttp", TEXT) == []
