"""The page for everyone: axe-core finds nothing, the keyboard reaches all, and a table has what charts show.

Screenshots of every view are in build/page, to be looked at.
"""

import pytest
from driver import BUILT, ROOT, Opened

import gpipe_sim as gp

AXE = (ROOT / ".venv/page/node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")
VIEWS = {
    "light": {},
    "dark": {"color_scheme": "dark"},
    "forced": {"forced_colors": "active"},
    "forced_dark": {"forced_colors": "active", "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 375, "height": 812}, "has_touch": True, "reduced_motion": "reduce"},
}
#: What can have the focus, as far as it is seen; of radio buttons only the chosen one.
FOCUSABLE = """() => [...document.querySelectorAll(
    "a[href], button, input, select, textarea, summary, [tabindex]:not([tabindex='-1'])"
)].filter(each => each.checkVisibility() && !each.disabled && !(each.type === "radio" && !each.checked))"""
FOCUSED = """() => {
    const each = document.activeElement, style = getComputedStyle(each);
    const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
    return [window.focusable.indexOf(each), seen, each.outerHTML.slice(0, 100)];
}"""


def violations(opened: Opened) -> list[str]:
    """What axe-core finds, in its words, with the first element of each."""
    opened.page.evaluate(AXE)
    found = opened.page.evaluate("axe.run().then(found => found.violations)")
    return [f"{each['id']}: {each['help']}: {each['nodes'][0]['html']}" for each in found]


def everything_open(opened: Opened) -> None:
    opened.page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    opened.settled()


@pytest.fixture(params=["light", "dark", "forced", "narrow"])
def view(request, browser, file):
    with Opened(browser, file, **VIEWS[request.param]) as opened:
        opened.name = request.param
        yield opened
        assert opened.wrong == []


def test_axe_finds_nothing_and_nothing_is_wider_than_the_window(view):
    state = view.state()
    asked = state | {"ask": [0, 0, 7], "at": 7}
    for name, step in {
        "opened": lambda: None,
        "asked": lambda: view.load(asked),
        "unfolded": lambda: everything_open(view),
        "board": lambda: view.page.locator("#show-board").click(),
    }.items():
        step()
        view.settled()
        view.page.screenshot(path=BUILT / f"{view.name}_{name}.png", full_page=True)
        assert violations(view) == [], name
        wide = view.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert wide <= 0, name


@pytest.fixture
def keyed(browser, file):
    """A page whose first chart has the focus."""
    with Opened(browser, file) as opened:
        opened.page.locator(".panel").first.focus()
        yield opened
        assert opened.wrong == []


def press(opened: Opened, key: str) -> tuple[list | None, str]:
    """What is asked after a key, and what the page says then."""
    opened.page.keyboard.press(key)
    state = opened.state()
    return state["ask"], state["sentence"]


def test_arrows_move_from_box_to_box_and_w_to_the_next_wait(keyed):
    timeline = gp.simulate(gp.GPipe(4, 6))
    for span in timeline.on(0):
        ask, says = press(keyed, "ArrowRight")
        assert ask == [0, 0, span.start] and f"device 0 is busy with {span.action} from" in says
    assert press(keyed, "ArrowLeft")[0] == [0, 0, timeline.on(0)[-2].start]
    at = timeline.on(0)[-2].start
    for device in (1, 2, 3):
        assert press(keyed, "ArrowDown") == ([0, device, at], said(timeline, keyed, device, at))
    for device in (2, 1, 0):
        assert press(keyed, "ArrowUp")[0] == [0, device, at]
    assert press(keyed, "Escape")[0] is None
    waits = [start for start, _ in gp.why.idle_spans(timeline, 0)]
    for start in waits:
        assert press(keyed, "w") == ([0, 0, start], gp.why.why_idle(timeline, 0, start).sentence)


def said(timeline, opened: Opened, device: int, time: float) -> str:
    """What the page says, if that begins as the library's sentence does."""
    says, sentence = opened.state()["sentence"], gp.why.why_idle(timeline, device, time).sentence
    return says if says.startswith(sentence) else sentence


def test_space_plays_and_pauses_and_the_playhead_steps_with_arrows(keyed):
    keyed.page.keyboard.press("Space")
    keyed.page.wait_for_function("window.pipeline.state().at > 0")
    keyed.page.keyboard.press("Space")
    keyed.settled()
    at = keyed.state()["at"]
    keyed.settled()
    assert keyed.state()["at"] == at > 0
    keyed.page.locator("#head").focus()
    keyed.page.keyboard.press("ArrowRight")
    assert keyed.state()["at"] == int(at) + 1
    keyed.page.keyboard.press("ArrowLeft")
    assert keyed.state()["at"] == int(at)


#: Every sentence that a live region is given, and whether it is read aloud.
LISTEN = """() => {
    window.heard = [];
    for (const each of document.querySelectorAll("[aria-live], [role=status], [role=alert], output")) {
        new MutationObserver(() => heard.push([each.ariaLive, each.textContent]))
            .observe(each, {childList: true, characterData: true, subtree: true});
    }
}"""


def test_pointing_is_not_read_aloud_and_a_click_and_a_key_are(keyed):
    keyed.page.evaluate(LISTEN)
    box = keyed.page.locator(".panel").first.bounding_box()
    for i in range(60):
        x, y = 0.2 + i / 100, (i % 7) / 8
        keyed.page.mouse.move(box["x"] + box["width"] * x, box["y"] + box["height"] * y)
        keyed.settled()
    heard = keyed.page.evaluate("heard")
    assert len({words for _, words in heard}) > 10
    assert [words for live, words in heard if live != "off"] == []
    keyed.page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.4)
    keyed.settled()
    for key in ("ArrowRight", "w"):
        keyed.page.keyboard.press(key)
        keyed.settled()
    aloud = [words for live, words in keyed.page.evaluate("heard") if live == "polite"]
    assert 1 <= len(aloud) <= 3


def test_the_table_has_every_action_of_every_device(keyed):
    keyed.page.locator("#list > summary").click()
    keyed.page.locator("#which option").first.wait_for(state="attached")  # it is filled once it is open
    state, rows = keyed.state(), []
    for option in keyed.page.locator("#which option").all():
        keyed.page.locator("#which select").select_option(option.get_attribute("value"))
        rows.append(keyed.page.locator("#table tbody tr").all_inner_texts())
    timelines = [gp.simulate(gp.GPipe(4, 6)), gp.simulate(gp.OneFOneB(4, 6))]
    wanted = [timeline.on(device) for timeline in timelines for device in range(4)]
    assert len(rows) == len(wanted) and state["makespan"] == [27, 27]
    for found, spans in zip(rows, wanted, strict=True):
        read = [row.split("\t") for row in found]
        assert [[action, int(start), int(end)] for action, *_, start, end, _ in read] == [
            [str(span.action), span.start, span.end] for span in spans
        ]
    assert keyed.page.locator("#table thead th").all_inner_texts()[0] == "action"


#: The share of a chart's pixels that are as text, and the buttons whose words are as what is behind them.
SEEN = """() => {
    const [r, g, b] = getComputedStyle(document.body).color.match(/\\d+/g).map(Number);
    const canvas = document.querySelector(".panel canvas"), {width, height} = canvas;
    const {data} = canvas.getContext("2d").getImageData(0, 0, width, height);
    let ink = 0;
    for (let i = 0; i < data.length; i += 4) {
        ink += data[i] === r && data[i + 1] === g && data[i + 2] === b && data[i + 3] > 0;
    }
    const lost = [...document.querySelectorAll("button")].filter(each => {
        const style = getComputedStyle(each), plain = style.forcedColorAdjust === "none";
        const behind = (plain ? style : getComputedStyle(document.body)).backgroundColor;
        return each.checkVisibility() && style.color === behind;
    });
    return [ink / (width * height), lost.map(each => each.textContent)];
}"""


@pytest.mark.parametrize("name", ["forced", "forced_dark"])
def test_with_forced_colours_waiting_is_no_text_and_words_are_not_on_their_own_colour(name, browser, file):
    with Opened(browser, file, **VIEWS[name]) as opened:
        opened.settled()
        ink, lost = opened.page.evaluate(SEEN)
        assert 0 < ink < 0.1 and lost == []


def test_tab_reaches_everything_and_what_has_the_focus_is_seen(browser, file):
    with Opened(browser, file) as opened:
        everything_open(opened)
        there = opened.page.evaluate(
            f"(window.focusable = ({FOCUSABLE})()).map(each => each.outerHTML.slice(0, 100))"
        )
        seen, unseen = set(), []
        for _ in range(len(there) + 3):
            opened.page.keyboard.press("Tab")
            at, visible, html = opened.page.evaluate(FOCUSED)
            seen.add(at)
            if at >= 0 and not visible:
                unseen.append(html)
        assert len(there) > 5
        assert [html for at, html in enumerate(there) if at not in seen] == []
        assert unseen == []
