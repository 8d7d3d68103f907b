"""``gp.view`` without a browser: what it writes, where, and what it refuses. ``make test-page`` opens it."""

import json
import re
from fractions import Fraction

import pytest

import gpipe_sim as gp
from gpipe_sim.viewer.document import SCRIPTS, joined, read
from gpipe_sim.viewer.shown import FIXED, ROUNDED
from gpipe_sim.viewer.squeeze import SIGNS, squeeze, written_once
from gpipe_sim.viewer.view import NAME


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def shown(page) -> dict:
    """What the page opens with."""
    return json.loads(re.search(r'id="shown">(.*?)</script>', page.path.read_text(encoding="utf-8"))[1])


def test_a_family_is_told_by_its_options_and_any_other_order_by_its_rows():
    explicit = gp.Explicit(["0F0 0B0 0F1 0B1", "1F0 1B0 1F1 1B1"])
    one, other = (chart["schedule"] for chart in shown(gp.view(gp.GPipe(2, 3), explicit))["charts"])
    assert one["family"] == "GPipe" and one["options"]["microbatches"] == 3 and "rows" not in one
    assert other["family"] is None and other["rows"] == ["0F0 0B0 0F1 0B1", "1F0 1B0 1F1 1B1"]


def test_recompute_is_told_beside_its_family_unless_it_is_of_some_stages():
    whole, part = gp.remat(gp.GPipe(2, 3), "always"), gp.remat(gp.GPipe(2, 3), "always", stages=[1])
    one, other = (chart["schedule"] for chart in shown(gp.view(whole, part))["charts"])
    assert (one["family"], one["recompute"]) == ("GPipe", "always")
    assert other["family"] is None and other["rows"] == str(part).replace("device 0: ", "").split(
        "\ndevice 1: "
    )


def test_numbers_are_doubles_and_a_page_says_where_that_rounds_one():
    third = gp.Costs(1, Fraction(1, 3), 2)
    page = shown(gp.view(gp.GPipe(2, 3), costs=third))
    assert page["charts"][0]["costs"]["input_grad"] == float(Fraction(1, 3))
    assert page["notes"] == [ROUNDED]
    assert shown(gp.view(gp.GPipe(2, 3), costs=gp.Costs(1, Fraction(1, 2), 2)))["notes"] == []
    assert shown(gp.view(gp.GPipe(2, 3), links=gp.Link(latency=Fraction(1, 3))))["notes"] == [ROUNDED]


def test_a_timeline_keeps_its_times_and_so_does_a_schedule_under_costs_of_ones_own():
    class Own(gp.core.CostModel):
        def duration(self, action, device):
            return 1 + action.microbatch

    timeline = gp.simulate(gp.OneFOneB(2, 3), Own())
    first, second = shown(gp.view(timeline)), shown(gp.view(gp.OneFOneB(2, 3), costs=Own()))
    assert first["charts"] == second["charts"]
    assert first["charts"][0]["times"]["end"] == timeline.end.tolist()
    assert (first["notes"], second["notes"]) == ([], [FIXED])


def test_links_and_limits_are_told():
    between = gp.Link(latency=1, bandwidth=8)
    page = gp.view(gp.GPipe(4, 3), links=gp.Nodes(2, gp.Link(), between), message_bytes=16)
    chart = shown(page)["charts"][0]
    assert chart["links"]["between"] == {"latency": 1, "bandwidth": 8}
    assert chart["links"]["inside"] == {"latency": 0, "bandwidth": None} and chart["message_bytes"] == 16


def test_a_limit_is_told_for_each_device_and_one_without_end_is_none():
    data = gp.digits()
    batch = data.x[:8], data.y[:8]
    profile = gp.profile(gp.split(gp.mlp([64, 8, 10]), stages=2), batch, gp.cross_entropy)
    page = gp.view(gp.GPipe(2, 2), profile=profile, memory_limit=[20_000, float("inf")])
    assert shown(page)["charts"][0]["limit"] == [20_000, None]
    with pytest.raises(ValueError, match="a number for each of 2 devices"):
        gp.view(gp.GPipe(2, 2), profile=profile, memory_limit=[1, 2, 3])


def test_no_puzzle_tells_its_order():
    assert {puzzle.get("rows") for puzzle in shown(gp.view(gp.GPipe(2, 3)))["puzzles"]} <= {None}


def test_without_a_path_a_page_takes_the_place_of_a_page_and_of_nothing_else(tmp_path):
    assert gp.view(gp.GPipe(2, 3)).path.name == gp.view(gp.GPipe(2, 4)).path.name == NAME
    (tmp_path / NAME).write_text("mine")
    with pytest.raises(FileExistsError, match=r"path='another\.html'"):
        gp.view(gp.GPipe(2, 3))
    assert (tmp_path / NAME).read_text() == "mine"
    assert gp.view(gp.GPipe(2, 3), path="other.html").path.exists()


def test_a_notebook_shows_a_still_chart_a_link_and_what_to_do_where_it_is_not_trusted():
    page = gp.view(gp.GPipe(2, 3), path="a page.html")
    html = page._repr_html_()
    assert html.startswith("<img") and 'href="a%20page.html"' in html and "Trust HTML" in html
    assert "<script" not in html and repr(page) == "<View: open a page.html in a browser>"


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"a": "GPipe"}, TypeError, r"view needs schedules or timelines, such as view\("),
        ({"a": gp.GPipe(2, 2), "b": 3}, TypeError, "view needs schedules or timelines"),
        ({"a": gp.GPipe(2, 2), "path": 3}, TypeError, "view needs a path"),
        ({"a": gp.GPipe(2, 2), "path": "chart.svg"}, ValueError, r"path needs to end in \.html"),
        ({"a": gp.GPipe(2, 2), "costs": 3}, TypeError, "simulate needs costs"),
        ({"a": gp.GPipe(2, 2), "costs": gp.Costs([1], [1], [1])}, ValueError, "Costs lists forward for 1"),
        ({"a": gp.Explicit(["0B0 0F0"])}, gp.errors.ScheduleError, "stuck|before"),
        ({"a": gp.GPipe(2, 2), "memory_limit": 1e9}, TypeError, "view needs a profile to know what"),
    ],
)
def test_what_no_page_can_show_is_refused_and_no_file_is_written(given, error, says, tmp_path):
    with pytest.raises(error, match=says):
        gp.view(**given)
    assert list(tmp_path.iterdir()) == []


def test_squeezing_leaves_texts_and_patterns_whole():
    text = 'const a = "x  // y", b = `p ${q + `r  s`}  t`; // gone\n\n if (a / b > 2) c = a.split(/\\/ +"/g);'
    assert squeeze(text) == 'const a="x  // y",b=`p ${q + `r  s`}  t`;\nif(a/b>2)c=a.split(/\\/ +"/g);'


def test_the_page_has_each_frequent_word_once_and_puts_it_back():
    script = squeeze(joined())
    words, text = written_once(script)
    back = {chr(code): word for word, code in zip(words, SIGNS, strict=False)}
    assert "".join(back.get(each, each) for each in text) == script
    assert len((" ".join(words) + text).encode()) < 0.75 * len(script.encode())


def test_a_script_that_cannot_stand_in_a_page_is_refused():
    for script in ("const a = '\u0101';", "const a = '</script>';"):
        with pytest.raises(ValueError, match="the script has"):
            written_once(script)


def test_the_scripts_are_joined_in_the_order_in_which_they_use_each_other():
    for i, name in enumerate(SCRIPTS):
        used = set(re.findall(r'from "\./(\w+)\.js"', read(f"{name}.js"))) - {"tables"}
        assert used <= set(SCRIPTS[:i]), name
    assert not re.search(r"^(import|export) ", joined(), re.MULTILINE)


def test_no_two_scripts_use_a_name_for_two_things():
    names = re.findall(r"^(?:async )?(?:const|let|class|function\*?) (\w+)", joined(), re.MULTILINE)
    assert len(names) > 100 and len(names) == len(set(names))


def test_what_a_script_imports_is_exported_there():
    for name in SCRIPTS:
        for asked, source in re.findall(
            r'import \{(.*?)\} from "\./(\w+)\.js";', read(f"{name}.js"), re.DOTALL
        ):
            text = read(f"{source}.js") if source != "tables" else "export const TABLES"
            for each in filter(None, (word.strip() for word in asked.split(","))):
                there = rf"^export (?:(?:async )?function\*? |const |class |let ).*\b{each}\b"
                assert re.search(there, text, re.MULTILINE), f"{name} asks {source} for {each}"
