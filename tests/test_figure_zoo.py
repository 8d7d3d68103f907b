"""The poster of all schedules: each panel shows its own schedule, all on one axis."""

from fractions import Fraction

import pytest
from drawn import boxes_in, bubble, committed

import gpipe_sim as gp
from figures import zoo
from figures._store import read

NAMES = [entry["name"] for column in read("zoo")["columns"] for entry in column]


@pytest.fixture(scope="module")
def panels():
    """{name: (axes, numbers)} of the committed numbers, drawn."""
    data = read("zoo")
    axes = committed("zoo").axes
    columns = axes[0::2], axes[1::2]
    return {
        entry["name"]: (ax, entry)
        for column, entries in zip(columns, data["columns"], strict=True)
        for ax, entry in zip(column, entries, strict=True)
    }


def test_the_longest_comes_first_in_each_column():
    for column in read("zoo")["columns"]:
        lengths = [entry["makespan"] for entry in column]
        assert lengths == sorted(lengths, reverse=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_panel_says_the_numbers_of_its_schedule_and_draws_its_spans_and_a_line_where_all_would_end(
    panels, name
):
    ax, entry = panels[name]
    assert len(panels) == len(gp.SCHEDULES)
    makespan, white, holds = entry["makespan"], Fraction(*entry["bubble"]), entry["holds"]
    cut = " (cut off here)" if makespan > zoo.UNTIL else ""
    assert ax.get_title("left") == name
    assert ax.get_title("right") == f"{makespan} long{cut}, {float(white):.1%} waiting, holds {holds}"
    drawn = boxes_in(ax)
    halves = {(box.device, box.start, box.end) for box in drawn}
    assert halves == {tuple(span[:3]) for span in entry["spans"]}
    assert ax.get_xlim() == (0, zoo.UNTIL)
    assert set(ax.lines[0].get_xdata()) == {entry["waitless"]} == {24}
    if name not in ("DualPipe", "DualPipeV"):  # where two boxes share a row
        assert bubble(drawn) == white


def test_the_posters_legend_leaves_out_what_it_does_not_draw():
    """Its dashed line is another one, and the axis says which; that half boxes are pairs has no room."""
    legend = committed("zoo").legends[0]
    assert [text.get_text() for text in legend.texts] == [
        "F  forward",
        "B  backward, I  input gradient",
        "W  weight gradient",
        "waiting",
        "paler: a later stage",
    ]


def test_the_posters_claim_is_its_longest_and_its_shortest():
    words = committed("zoo").get_suptitle()
    assert words == "The same work in 14 schedules: from 96 units of time down to 25.5"
