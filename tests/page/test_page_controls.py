"""What a reader sets is what runs: any controls give the library's schedules, costs and refusals."""

import re
from random import Random

import pytest
from drawn_cases import FAMILIES
from driver import Opened
from law import Case, first_apart, shown
from playwright.sync_api import Error

import gpipe_sim as gp
from docs import first
from gpipe_sim.core.remat import MODES

#: Sets controls one after the other; the page runs again before the next frame, or when asked for its state.
MOVE = """moves => moves.forEach(([id, value]) => {
    const control = document.getElementById(id);
    control.value = value;
    const set = control.type === "range" ? Number(control.value) === Number(value) : control.value === value;
    if (!set) throw new Error(`${id} takes no ${value}`);
    control.dispatchEvent(new Event("input", {bubbles: true}));
    window.pipeline.state();
})"""
SIZES = {"devices": "K", "microbatches": "M", "stages_per_device": "V"}


def move(opened: Opened, **values: object) -> None:
    opened.page.evaluate(MOVE, [[name, str(value)] for name, value in values.items()])


def made(family: type, sizes: dict[str, int], mode: str) -> gp.core.Schedule | str:
    """Python's schedule, or what it says against it."""
    own = {name: size for name, size in sizes.items() if name in family.__dataclass_fields__}
    try:
        return gp.remat(family(**own), mode)
    except ValueError as error:
        return str(error)


@pytest.fixture
def fresh(browser, file):
    with Opened(browser, file) as page:
        page.page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        yield page
        assert page.wrong == []


def test_any_controls_give_the_library_s_schedule_costs_and_refusals(fresh):
    random, refused = Random(29), 0
    for family in FAMILIES:
        both = [family, random.choice(FAMILIES)]
        sizes = {"devices": random.randint(2, 8), "microbatches": random.randint(1, 16)}
        sizes["stages_per_device"] = random.randint(1, 4)
        mode, times = random.choice(MODES), random.choice([1.25, 2, 3])
        slow = random.randrange(sizes["devices"])
        forward, input_grad, weight_grad, comm = (random.randint(0, 16) / 4 for _ in range(4))
        move(fresh, slow="", family0=both[0].__name__, family1=both[1].__name__)
        move(fresh, **{SIZES[name]: size for name, size in sizes.items()}, recompute=mode)
        move(fresh, F=forward, I=input_grad, W=weight_grad, comm=comm, slow=slow, times=times)
        speed = [1 / times if device == slow else 1 for device in range(sizes["devices"])]
        costs = gp.Costs(forward, input_grad, weight_grad, comm=comm, speed=speed)
        wanted = [made(each, sizes, mode) for each in both]
        state, text = fresh.state(), fresh.page.inner_text("#panels")
        for against in (each for each in wanted if isinstance(each, str)):
            assert against in text
            refused += 1
        for chart, schedule in enumerate(each for each in wanted if not isinstance(each, str)):
            found, case = shown(state, chart), Case(schedule, costs)
            for name, value in case.facts.items():
                assert found[name] == value, f"{name} of {case}: {first_apart(found[name], value)}"
    assert refused > 1


def notes(opened: Opened) -> list[str]:
    return opened.page.locator("#missing p").all_inner_texts()


def test_links_that_do_not_reach_a_device_are_refused_in_words_and_come_back(browser, tmp_path):
    links = {pair: gp.Link(0.5, 4) for pair in [(0, 1), (1, 0), (1, 2), (2, 1)]}
    order = gp.OneFOneB(3, 4)
    file = gp.view(order, links=links, message_bytes=2, path=tmp_path / "page.html").path
    with Opened(browser, file) as opened:
        linked = gp.simulate(order, gp.Costs(1.0, 1.0, 1.0), links=links, message_bytes=2).makespan
        assert opened.state()["makespan"] == [linked]
        move(opened, K=4)
        with pytest.raises(ValueError, match=r"there is no link from device .*; there are links from 0 to 1"):
            gp.simulate(gp.OneFOneB(4, 4), links=links, message_bytes=2)
        refused = r"there is no link from device .*; there are links from 0 to 1, 1 to 0, 1 to 2, 2 to 1"
        assert opened.state()["makespan"] == [] and re.search(refused, opened.page.inner_text("#panels"))
        move(opened, K=3)
        assert opened.state()["makespan"] == [linked]


def test_arrows_that_are_too_many_are_missed_in_words(fresh):
    fresh.page.locator("#messages").check()
    assert notes(fresh) == []
    move(fresh, K=16, M=64)
    says = notes(fresh)
    assert len(says) == 2 and all("shows no arrows" in each and "1920 messages" in each for each in says)
    fresh.page.locator("#messages").uncheck()
    assert notes(fresh) == []


TITLES = {  # after these moves; None is the sentence that the page was written with
    "more microbatches": ({"M": 12}, "GPipe above 1F1B: 4 devices, 12 microbatches"),
    "as it was": ({"M": 6}, None),
    "a slow device, the same sizes": ({"slow": 1}, "GPipe above 1F1B: 4 devices, 6 microbatches"),
    "as fast as it was": ({"slow": ""}, None),
    "another family": ({"family1": "ZBH1"}, "GPipe above ZB-H1: 4 devices, 6 microbatches"),
    "one that refuses its size": ({"family0": "DualPipe", "K": 3}, "ZB-H1: 3 devices, 6 microbatches"),
    "two that do": ({"family1": "DualPipe"}, "No schedule can run like this"),
    "one of each": (
        {"family0": "GPipe", "family1": "OneFOneB", "K": 1, "M": 1},
        "GPipe above 1F1B: 1 device, 1 microbatch",
    ),
    "all as it was": ({"K": 4, "M": 6}, None),
}


def test_the_title_of_the_first_screen_is_true_after_every_move(browser, tmp_path):
    first.write(tmp_path / "index.html")
    with Opened(browser, tmp_path / "index.html") as opened:
        for what, (moves, wanted) in TITLES.items():
            move(opened, **moves)
            assert opened.page.inner_text("h1") == (wanted or first.WELCOME["sentence"]), what
        opened.page.locator("#typed").fill("100")
        assert opened.state()["makespan"] == [gp.simulate(gp.GPipe(4, 100)).makespan] * 2
        assert opened.page.inner_text("h1") == "GPipe above 1F1B: 4 devices, 100 microbatches"
        opened.page.locator("#typed").fill("")  # on the way to another number
        assert opened.state()["makespan"] == [gp.simulate(gp.GPipe(4, 100)).makespan] * 2
        opened.page.locator("#show-board").click()
        assert "microbatches" not in opened.page.inner_text("h1") and opened.wrong == []


def test_a_chart_says_its_time_per_microbatch_and_what_its_family_is(fresh):
    for microbatches in (6, 12):
        move(fresh, M=microbatches)
        texts = fresh.page.locator(".chart").all_inner_texts()
        for text, family in zip(texts, (gp.GPipe, gp.OneFOneB), strict=True):
            makespan = gp.simulate(family(4, microbatches)).makespan
            assert f"{makespan} long\n{makespan / microbatches:.4g} per microbatch" in text
            assert " ".join(family.__doc__.split("\n\n")[0].split()) in text


def test_a_click_asks_and_puts_the_playhead_where_what_was_clicked_begins(fresh):
    box = fresh.page.locator(".panel").first
    wide = box.bounding_box()["width"]
    for x in (0.2, 0.45, 0.7):
        box.click(position={"x": wide * x, "y": 12})
        state, timeline = fresh.state(), gp.simulate(gp.GPipe(4, 6))
        edges = {0, *(span.start for span in timeline.on(0)), *(span.end for span in timeline.on(0))}
        assert state["at"] == state["ask"][2] and state["at"] in edges
        assert state["sentence"].startswith(gp.why.why_idle(timeline, 0, state["at"]).sentence)
        box.click(position={"x": wide * x, "y": 12})
        assert fresh.state()["ask"] is None and fresh.state()["at"] == state["at"]


def test_messages_of_unknown_size_on_a_link_with_a_bandwidth_are_refused(fresh):
    needs = "simulate needs to know how large messages are, because links have a bandwidth"
    with pytest.raises(TypeError, match=needs):
        gp.simulate(gp.GPipe(2, 2), links=gp.Link(0, 8))
    before = fresh.state()
    chart = {**before["charts"][0], "links": {"latency": 0, "bandwidth": 8}, "message_bytes": None}
    with pytest.raises(Error, match=needs):
        fresh.page.evaluate("chart => window.pipeline.load({charts: [chart], at: 0, ask: null})", chart)
    assert fresh.state() == before
