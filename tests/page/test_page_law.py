"""The page cannot disagree with the library: its numbers and sentences are Python's, bit for bit."""

import json
import re
from dataclasses import fields

import pytest
from drawn_cases import FAMILIES, OPTIONS, drawn_cases, large_cases
from driver import BUILT, Opened
from law import Case, differences

import gpipe_sim as gp
from gpipe_sim.export import to_json
from gpipe_sim.viewer import document

#: A rule of the page's clock, and what is planted in its place: each is found by the same comparison.
PLANTED = {
    "no latency": ("sent[i] + (busy[i] + late[i])", "sent[i] + busy[i]"),
    "sums of floats in another order": ("sent[i] + (busy[i] + late[i])", "sent[i] + busy[i] + late[i]"),
    "links without queues": ("linkFree.get(link) ?? 0", "0"),
    "a slow device is fast": ("work / speed", "work * speed"),
    "an overhead is nothing": ("count * at(costs.overhead", "0 * at(costs.overhead"),
}


#: What a script says that trips, and nobody who refuses.
FAILED = re.compile(r"reading '|of undefined|is not (a function|iterable|defined)|Cannot ")


def assert_none(found: list[str]) -> None:
    """Fail with the first few, if there are any differences."""
    if found:
        pytest.fail(f"{len(found)} differences\n" + "\n".join(found[:4]), pytrace=False)


def test_every_family_and_any_order_is_as_in_python(opened):
    cases = list(drawn_cases(seed=29, orders=120, of_each_family=18))
    assert len(cases) > 400
    assert_none(list(differences(opened, cases)))


def test_large_ones_are_as_in_python(opened):
    assert_none(list(differences(opened, list(large_cases(seed=30)), asks=2)))


@pytest.fixture(scope="module")
def few() -> list[Case]:
    return list(drawn_cases(seed=31, orders=20, of_each_family=1))


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_fault_is_found(browser, monkeypatch, few, planted):
    old, new = PLANTED[planted]
    text = document.read("clock.js")
    assert text.count(old) == 1
    changed, read = text.replace(old, new), document.read
    monkeypatch.setattr(document, "read", lambda name: changed if name == "clock.js" else read(name))
    monkeypatch.setattr(document, "script", document.script.__wrapped__)  # not the one that was kept
    file = gp.view(gp.GPipe(2, 2), path=BUILT / "planted.html").path
    with Opened(browser, file) as opened:
        found = list(differences(opened, few))
        assert found and not any("is refused" in each for each in found)


def test_sizes_that_a_family_refuses_are_refused_in_the_library_s_words(opened):
    records, wanted = [], []
    for family in FAMILIES:
        names = {field.name for field in fields(family)}
        more = [{"stages_per_device": each} for each in OPTIONS["stages_per_device"]]
        for options in more if "stages_per_device" in names else [{}]:
            for devices, microbatches in [(d, m) for d in range(1, 7) for m in range(1, 10)]:
                options = {"devices": devices, "microbatches": microbatches, **options}
                try:
                    family(**options)
                except ValueError as error:
                    wanted.append(str(error))
                    records.append(refused_record(family.__name__, options))
    states = opened.states([{"charts": [record], "at": 0, "ask": None} for record in records])
    assert len(wanted) > 100
    assert [state.get("refused") for state in states] == wanted


def refused_record(family: str, options: dict) -> dict:
    """The record of another schedule, with this family and these sizes in its place."""
    record = Case(gp.GPipe(options["devices"], options["microbatches"])).record
    schedule = record["schedule"] | {"family": family, "name": family, "options": options}
    return record | {"schedule": schedule}


def test_the_library_s_json_is_read(opened):
    schedule, costs = gp.ZBH1(3, 5), gp.Costs(2, 1.5, 0.1, comm=0.3)
    alone = opened.load(to_json(schedule))
    assert alone["makespan"] == [gp.simulate(schedule, gp.Costs(1.0, 1.0, 1.0)).makespan]
    both = opened.load([json.loads(to_json(each)) for each in (schedule, gp.OneFOneB(3, 5))])
    assert len(both["charts"]) == 2
    dearer = opened.load(to_json(costs))
    wanted = [gp.simulate(each, costs).makespan for each in (schedule, gp.OneFOneB(3, 5))]
    assert dearer["makespan"] == wanted
    timeline = gp.simulate(gp.ZBV(3, 4), costs)
    [times] = opened.load(to_json(timeline))["times"]
    assert sorted(times) == sorted([s.device, str(s.action), s.start, s.end] for s in timeline.spans)


def test_what_the_page_says_of_itself_opens_it_again(opened):
    state = opened.load({"charts": [Case(gp.GPipe(3, 4)).record], "at": 3.5, "ask": [0, 2, 0]})
    assert opened.load(state) == state


NO_STATE = [
    "", "{}", "[]", "null", "7", '"0F0"', "{", '{"charts": []}', '{"format": "gpipe_sim"}',
    {"charts": [{}]}, {"charts": "GPipe"}, {"charts": [None], "at": 0, "ask": None},
    {"format": "gpipe_sim", "version": 99, "kind": "costs", "value": {}},
    to_json(gp.Costs()).replace('"forward": 1', '"forward": -1'),
    to_json(gp.GPipe(2, 2)).replace("0F0", "<b>0F0</b>"),
    to_json(gp.GPipe(2, 2)).replace('"GPipe"', '"OneFOneB"'),
]  # fmt: skip


def test_anything_else_is_refused_in_words_and_changes_nothing(opened):
    before = opened.load({"charts": [Case(gp.GPipe(3, 4)).record], "at": 0, "ask": None})
    for text in NO_STATE:
        after = opened.load(text)
        assert len(after.get("refused", "")) > 10, f"{text} is not refused"
        assert not FAILED.search(after["refused"]), after
        assert opened.state() == before, text
