"""The poster of all schedules: each panel shows its own schedule, all on one axis."""

from fractions import Fraction

import pytest
from drawn import boxes_in, bubble, committed

import gpipe_sim as gp
from figures import zoo
from figures._store import read

#: makespan, bubble, microbatches on the fullest device, at 4 devices and 8 microbatches
SHOWN = {
    "Naive": (96, Fraction(3, 4), 1),
    "GPipe": (33, Fraction(3, 11), 8),
    "1F1B": (33, Fraction(3, 11), 4),
    "Eager 1F1B": (33, Fraction(3, 11), 7),
    "Chimera": (30, Fraction(1, 5), 4),
    "Interleaved 1F1B": (28.5, Fraction(3, 19), 5.5),
    "Looped BFS": (28.5, Fraction(3, 19), 8),
    "V-Min": (29.5, Fraction(11, 59), 2),
    "ZB-H1": (27, Fraction(1, 9), 4),
    "ZB-H2": (27, Fraction(1, 9), 7),
    "DualPipeV": (27, Fraction(1, 9), 4.5),
    "V-Half": (26.5, Fraction(5, 53), 3),
    "DualPipe": (26, Fraction(1, 13), 5),
    "ZB-V": (25.5, Fraction(1, 17), 4),
}


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


@pytest.mark.parametrize("name", SHOWN)
def test_a_panel_says_the_numbers_of_its_schedule_and_draws_its_spans_and_a_line_where_all_would_end(
    panels, name
):
    (ax, entry), (makespan, white, holds) = panels[name], SHOWN[name]
    assert len(panels) == len(SHOWN) == len(gp.SCHEDULES)
    assert (entry["makespan"], Fraction(*entry["bubble"]), entry["holds"]) == (makespan, white, holds)
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
    """Its dashed line is another one, and the axis says which."""
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
