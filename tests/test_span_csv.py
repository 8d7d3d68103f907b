"""Spans as a table: a line for each action, in exact numbers, that a spreadsheet reads."""

import csv
from fractions import Fraction
from io import StringIO

import pytest
from cases import every_order, over, overlapped
from measured import measured

from gpipe_sim import Costs, Explicit, GPipe, simulate
from gpipe_sim.core import Action, busy_time
from gpipe_sim.export import to_csv


def number(text: str) -> int | float | Fraction:
    """As whoever reads the table would: a number with a point or a power is a float."""
    if "/" in text:
        return Fraction(text)
    return float(text) if {*".e"} & {*text} else int(text)


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text)))


def test_a_table_as_it_is_written():
    order = Explicit(["0F0 0B0", "1F0 1B0"])
    assert to_csv(simulate(order, Costs(0.5, 1, 1e-20, comm=1))) == (
        "stage,kind,microbatch,device,start,end,pair\n"
        "0,F,0,0,0.0,0.5,\n0,B,0,0,4.0,5.0,\n1,F,0,1,1.5,2.0,\n1,B,0,1,2.0,3.0,\n"
    )
    in_thirds = to_csv(simulate(order, Costs(Fraction(1, 3), 1, 10**20)))
    assert in_thirds.splitlines()[1] == "0,F,0,0,0,1/3,"


def test_an_overlapped_pair_is_two_lines_that_name_each_other():
    lines = to_csv(simulate(Explicit(["0F0 (0F1;0B0)OVERLAP_F_B 0B1"]))).splitlines()
    assert lines[2:4] == ["0,F,1,0,1,4,0B0", "0,B,0,0,1,4,0F1"]


@over([*every_order([(1, 3), (2, 4), (4, 8)]), overlapped(3, 6)])
def test_every_action_has_a_line_with_its_exact_times(schedule):
    """Read back by the standard library's reader; of a pair, one line in two counts as busy time."""
    for timeline in (simulate(schedule, Costs(Fraction(1, 3), 1, 10**20, comm=7)), measured(schedule)):
        rows = rows_of(to_csv(timeline))
        actions = [Action.parse(f"{row['stage']}{row['kind']}{row['microbatch']}") for row in rows]
        ends = {action: number(row["end"]) for action, row in zip(actions, rows, strict=True)}
        assert ends == timeline.ends and len(rows) == len(ends)
        devices = [int(row["device"]) for row in rows]
        homes = [span.device for row in timeline.rows for span in row for _ in span.action.parts]
        assert devices == homes == sorted(homes)
        alone = [row for row in rows if row["kind"] != "F" or not row["pair"]]
        took = sum(number(row["end"]) - number(row["start"]) for row in alone)
        assert took == pytest.approx(busy_time(timeline), rel=1e-12)


def test_only_a_timeline_is_written():
    with pytest.raises(TypeError, match="to_csv needs a timeline, such as simulate"):
        to_csv(GPipe(2, 2))
