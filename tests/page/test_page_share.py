"""A link to share: the fragment restores what was shown; a broken or hostile one is refused in words."""

import json
import re
from random import Random
from urllib.parse import quote, unquote

import pytest
from drawn_cases import FAMILIES
from driver import ROOT, Opened
from engine_cases import legal_order
from law import Case, shown
from measured import measured

import gpipe_sim as gp

SCRIPT = "<script>window.harmed=1</script>"
IMAGE = "<img src=x onerror='window.harmed=1'>"
#: What the page must do nothing of. Each begins as a link of its own does, and then goes wrong.
HOSTILE = {
    "a script": SCRIPT,
    "an image": f"a={IMAGE}",
    "an image, quoted": f"a=GPipe&K=4&M=6&name={quote(IMAGE)}",
    "an address that runs": "javascript:window.harmed=1",
    "a family that is none": "a=Object&K=4&M=6",
    "a name of every object": "a=constructor&K=4&M=6",
    "a prototype": "__proto__=GPipe&a=__proto__&K=4&M=6",
    "an unknown field": "a=GPipe&K=4&M=6&harm=1",
    "one field twice": "a=GPipe&a=OneFOneB&K=4&M=6",
    "no number": "a=GPipe&K=four&M=6",
    "a number below": "a=GPipe&K=-4&M=6",
    "a fraction of a device": "a=GPipe&K=4.5&M=6",
    "no devices": "a=GPipe&K=0&M=6",
    "more than any page shows": "a=GPipe&K=100000&M=100000",
    "more digits than a number has": f"a=GPipe&K={'9' * 400}&M=6",
    "infinite": "a=GPipe&K=4&M=6&F=Infinity",
    "hexadecimal": "a=GPipe&K=0x4&M=6",
    "a size that its family refuses": "a=DualPipe&K=3&M=6",
    "half a percent sign": "a=GPipe&K=4&M=%E0%A4%A",
    "a null byte": "a=GPipe%00&K=4&M=6",
    "another direction of writing": "a=%E2%80%AEGPipe&K=4&M=6",
    "longer than a link can be": "a=GPipe&K=4&M=6&x=" + "x" * 100_000,
    "a million ampersands": "&" * 100_000,
    "a board that is none": "board=none",
    "a board that is markup": f"board={IMAGE}",
    "picks that cannot go": "board=fill-the-wait&picks=0B0__",
}


OPENED = ("a script", "an image", "half a percent sign", "another direction of writing")  #: others in place


@pytest.fixture(scope="module")
def again(browser, file):
    """A page to be opened with fragment after fragment; its state and its text without one."""
    with Opened(browser, file) as opened:
        opened.settled()
        yield opened, opened.state(), opened.page.inner_text("body")


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_link_is_refused_in_words_and_the_page_is_what_it_was(what, again):
    opened, state, text = again
    if what in OPENED:
        opened.go("#" + HOSTILE[what])
    else:
        opened.page.evaluate("hash => { location.hash = hash; }", HOSTILE[what])
    opened.settled()
    found = opened.state()
    [says] = (line for line in opened.page.inner_text("body").splitlines() if line not in text)
    assert says.startswith("This link shows nothing: ") and 35 < len(says) < 200
    assert found["sentence"].casefold() == says.casefold()
    assert found | {"sentence": state["sentence"]} == state
    assert opened.page.evaluate("[window.harmed, document.images.length]") == [None, 0]
    assert opened.wrong == []


# There and back


def shared(opened: Opened) -> str:
    """The fragment that the page's button makes of what it shows."""
    opened.page.get_by_role("button", name="Copy a link").click()
    opened.page.wait_for_function("document.getElementById('copied').textContent")
    return opened.page.evaluate("location.hash")


SHARED = {
    "families": [Case(gp.GPipe(4, 8)), Case(gp.OneFOneB(4, 8))],
    "options": [Case(gp.GPipe(4, 8, drain="in_order")), Case(gp.Interleaved1F1B(4, 8, stages_per_device=3))],
    "costs": [Case(gp.ZBV(4, 8), gp.Costs([1, 2, 0.1, 0] * 2, 1.5, 1e-7, comm=1 / 3, speed=[1, 0.5, 1, 1]))],
    "links": [
        Case(gp.OneFOneB(4, 8), links=gp.Link(0.1, 3.5), message_bytes=[1, 2.5, 3]),
        Case(gp.OneFOneB(4, 8), links=gp.Nodes(2, gp.Link(), gp.Link(1, 2)), message_bytes=1),
    ],
    "recomputed": [Case(gp.remat(gp.OneFOneB(4, 8), "always")), Case(gp.PipeDream(4, 8, every=2))],
    "pairs": [Case(gp.families.DualPipeV(4, 8))],
    "rows": [Case(legal_order(Random(7), 4, 8, 5)), Case(gp.Explicit(gp.ZBH1(4, 8).actions))],
}  # fmt: skip


@pytest.mark.parametrize("what", SHARED)
def test_a_link_restores_what_was_shown(what, again):
    opened, *_ = again
    opened.go()
    charts = [case.record for case in SHARED[what]]
    state = opened.load({"charts": charts, "at": 2.5, "ask": [0, 3, 1.25]})
    link = shared(opened)
    assert 10 < len(opened.address + link) <= 2000
    assert not set(unquote(link)) & set("<>\"'`")
    opened.go(link)
    found = opened.state()
    for name in ("at", "ask", "times", "messages", "makespan", "peak", "sentence"):
        assert found[name] == state[name], name
    assert opened.wrong == []


def test_a_measured_timeline_is_no_link_and_the_page_says_so(browser, file):
    with Opened(browser, file) as opened:
        opened.load({"charts": [Case(measured(gp.GPipe(2, 3))).record], "at": 0, "ask": None})
        assert shared(opened) == "" and "file" in opened.page.inner_text("#copied")


def test_another_link_in_the_same_page_is_followed(browser, file):
    with Opened(browser, file, "#a=ZBH1&K=3&M=4") as opened:
        assert opened.state()["charts"][0]["schedule"]["family"] == "ZBH1"
        opened.page.evaluate("location.hash = '#a=GPipe&K=2&M=2'")
        opened.page.wait_for_function("window.pipeline.state().makespan[0] === 9")
        opened.page.evaluate("location.hash = '#a=none'")
        opened.page.wait_for_function("window.pipeline.state().sentence.includes('link')")
        assert opened.state()["makespan"] == [9] and opened.wrong == []


def lesson_links() -> list[tuple[str, str]]:
    """Each link of a lesson into the page: its text in the lesson, and its fragment."""
    found = []
    for file in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        found += [(file.stem, each) for each in re.findall(r"figures/view\.html(#[^)\s]+)", text)]
    return found


def named(fragment: str) -> list[Case]:
    """The schedules that a fragment names, made in Python from its words."""
    words = dict(each.split("=") for each in fragment[1:].split("&"))
    cases = []
    for chart in (each for each in "ab" if each in words):
        own = {key: words.get(f"{chart}.{key}", words.get(key)) for key in "KMFIW"}
        costs = [float(own[key] or 1) for key in "FIW"]
        family = next(each for each in FAMILIES if each.__name__ == words[chart])
        cases.append(Case(family(int(own["K"]), int(own["M"])), gp.Costs(*costs)))
    return cases


@pytest.mark.parametrize(("lesson", "fragment"), lesson_links())
def test_the_link_of_a_lesson_shows_what_it_names(lesson, fragment, browser, file):
    with Opened(browser, file, fragment) as opened:
        state = opened.state()
        for chart, case in enumerate(named(fragment)):
            found = shown(state, chart)
            assert {name: found[name] for name in case.facts} == case.facts
        board = re.search(r"\bboard=([\w-]+)", fragment)
        if board:
            assert state["board"]["puzzle"] == board[1]
        assert board or len(state["charts"]) == len(named(fragment))
        assert opened.wrong == []


def test_lessons_link_to_the_page():
    assert {"01", "04", "07", "09"} <= {lesson[:2] for lesson, _ in lesson_links()}
