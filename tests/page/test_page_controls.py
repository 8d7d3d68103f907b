"""What a reader sets is what runs: any controls give the library's schedules, costs and refusals."""

import re
from random import Random

import pytest
from drawn_cases import FAMILIES
from driver import Opened
from law import Case, first_apart, shown

import gpipe_sim as gp
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
