"""The columns that a schedule is lowered to, and the levels in which its devices get through them."""

import pickle
from copy import deepcopy
from itertools import pairwise

import numpy as np
import pytest
from cases import over_every_order, overlapped

import gpipe_sim as gp
from gpipe_sim.core import lowering
from gpipe_sim.core.program import CODE, KINDS, Program
from gpipe_sim.core.rules import HOLDS, HOLDS_RECOMPUTED, NEEDS, in_flight
from gpipe_sim.export.spans import from_spans

PAIR = gp.Explicit(["0F0 (0F1;0B0)OVERLAP_F_B 0B1", "1F0 1B0 1F1 1B1"])


def test_the_columns_of_two_devices_and_a_pair():
    program = PAIR.program
    assert (program.devices, program.stages, program.microbatches) == (2, 2, 2)
    assert program.size == 7 and program.paired
    assert program.rows.tolist() == [0, 3, 7]
    assert program.parts.tolist() == [0, 1, 3, 4, 5, 6, 7, 8]
    assert "".join(KINDS[code] for code in program.kind) == "FFBBFBFB"
    assert program.stage.tolist() == [0] * 4 + [1] * 4
    assert program.microbatch.tolist() == [0, 1, 0, 1, 0, 0, 1, 1]
    assert program.device.tolist() == [0] * 4 + [1] * 4
    assert program.position.tolist() == [0, 1, 1, 2, 0, 1, 2, 3]
    assert program.entry.tolist() == [0, 1, 1, 2, 3, 4, 5, 6]
    needs = [[str(program.action_of(need)) for need in run] for run in needed(program)]
    assert needs == [[], ["0F0", "1B0"], ["0F1", "1B1"], ["0F0"], ["1F0"], ["0F1"], ["1F1"]]
    assert program.crosses.tolist() == [False, True, False, True, True, False, True, False]


def needed(program: Program) -> list:
    """The parts that each entry needs."""
    return np.split(program.needs, program.needs_from[1:-1])


@over_every_order([(1, 1), (3, 2), (4, 4)])
def test_columns_and_objects_say_the_same(schedule):
    program = schedule.program
    entries = [(k, i, entry) for k, row in enumerate(schedule.actions) for i, entry in enumerate(row)]
    parts = [(k, i, part) for k, i, entry in entries for part in entry.parts]
    assert [program.entry_of(entry) for entry in range(program.size)] == [entry for *_, entry in entries]
    assert [program.action_of(part) for part in range(len(program.kind))] == [part for *_, part in parts]
    assert list(zip(program.device.tolist(), program.position.tolist(), strict=True)) == [
        p[:2] for p in parts
    ]
    for (device, _, entry), run in zip(entries, needed(program), strict=True):
        found = [program.action_of(part) for part in run]
        assert found == list(gp.needs(entry, schedule))
        assert {schedule.device_of(need) for need in found} <= set(range(schedule.devices))
        assert [schedule.device_of(need) != device for need in found] == program.crosses[
            program.needs_from[program.entry[program.part_of(entry.parts[0])]] :
        ][: len(found)].tolist()
    for kind in gp.Kind:
        homes = program.homes(kind)
        there = {(part.stage, part.microbatch): device for device, _, part in parts if part.kind is kind}
        assert {place: int(homes[place]) for place in np.ndindex(homes.shape) if homes[place] >= 0} == there


def test_nothing_in_a_program_or_a_timeline_can_be_written_to():
    program = PAIR.program
    columns = {name: value for name, value in vars(program).items() if isinstance(value, np.ndarray)}
    assert len(columns) == 11
    for column in [*columns.values(), *program.where.values()]:
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1
    with pytest.raises(AttributeError):
        program.stages = 3
    timeline = gp.simulate(gp.OneFOneB(2, 2))
    for column in (timeline.start, timeline.end, timeline.sent, timeline.arrived):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 5


def test_an_order_is_read_once_and_not_kept_as_objects():
    asked = []

    class Counted(gp.OneFOneB):
        def order(self, device):
            asked.append(device)
            return super().order(device)

    schedule = Counted(3, 4)
    gp.simulate(schedule)
    gp.simulate(schedule, gp.Costs(comm=1))
    assert gp.problems(schedule, sends="blocking")
    assert gp.peak_in_flight(schedule) == (3, 2, 1)
    assert asked == [0, 1, 2]
    assert "actions" not in vars(schedule.program)
    assert set(vars(schedule)) == {"devices", "microbatches", "program"}, "nothing else is kept on a schedule"


def test_copies_of_a_schedule_lower_it_again():
    schedule = gp.OneFOneB(2, 3)
    assert schedule.program.size == 12
    for copy in (pickle.loads(pickle.dumps(schedule)), deepcopy(schedule)):
        assert copy == schedule and hash(copy) == hash(schedule)
        assert "program" not in vars(copy)
        assert copy.actions == schedule.actions


@pytest.mark.parametrize("label", [2**31, 2**63 - 1, -(2**63)])
def test_a_label_that_is_far_out_is_a_problem_like_another(label):
    class Odd(gp.GPipe):
        def order(self, device):
            yield from super().order(device)
            yield gp.F(0, label)

    (problem,) = gp.problems(Odd(1, 1))
    assert problem.sentence == f"0F{label} is out of range: stages are 0 to 0, microbatches 0 to 0"


def test_labels_and_places_are_pythons_own_numbers_though_columns_hold_numpys():
    stuck = gp.Explicit(["0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"]).program
    labels = [label for part in range(8) for label in stuck.action_of(part)[::2]]
    assert stuck.levels.stuck == {0: 1, 1: 4}
    assert {type(n) for n in (*labels, *stuck.levels.stuck, *stuck.levels.stuck.values())} == {int}


def test_an_order_without_an_action_lacks_every_one():
    class Empty(gp.GPipe):
        def order(self, device):
            return ()

    assert [problem.sentence for problem in gp.problems(Empty(1, 1))] == ["0F0 is missing", "0B0 is missing"]


@pytest.mark.parametrize("piece", [1, 5, 12, 24])
def test_in_pieces_of_any_size_an_order_reads_the_same(piece, monkeypatch):
    """12 actions of each device, of which a piece may end with one, or with the order itself."""
    monkeypatch.setattr(lowering, "CHUNK", piece)
    for schedule in (gp.GPipe(2, 6), overlapped(2, 6)):
        rows = lowering.lower(schedule).actions
        assert rows == schedule.actions


@pytest.mark.parametrize(("label", "digits"), [(10**30, 31), (2**63, 19), (-(2**63) - 1, 19)])
def test_a_label_that_no_column_holds_is_refused(label, digits):
    class Odd(gp.GPipe):
        def order(self, device):
            yield gp.F(0, label)

    says = rf"^GPipe\(devices=1, microbatches=1\) has a label of about {digits} digits"
    with pytest.raises(ValueError, match=says):
        gp.check(Odd(1, 1))


# Levels


@over_every_order([(1, 3), (3, 2), (4, 4)])
def test_every_entry_has_a_level_above_those_that_it_needs_and_one_per_device(schedule):
    program = schedule.program
    order, bounds, rank, _, stuck = program.levels
    assert sorted(order.tolist()) == list(range(program.size)) and not stuck
    level = np.searchsorted(bounds, rank, side="right")
    for entry, run in enumerate(needed(program)):
        assert all(level[program.entry[need]] < level[entry] for need in run)
    for low, high in pairwise(bounds):
        devices = program.device[program.first][order[low:high]]
        assert len(set(devices.tolist())) == high - low


def test_levels_end_where_nobody_can_go_on():
    knot = gp.Explicit.parse("0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0").program
    assert [str(knot.entry_of(entry)) for entry in knot.levels.order] == ["0F0"]
    assert {k: str(knot.entry_of(entry)) for k, entry in knot.levels.stuck.items()} == {0: "0B0", 1: "1F1"}


# The two tables


def test_what_an_action_makes_another_frees():
    """Plain, split, or recomputed: at the end of its life nothing of a microbatch is held."""
    for life in ("FB", "FIW", "FRB", "FRIW"):
        held: dict[str, int] = {}
        for letter in life:
            kind = gp.Kind(letter)
            change = HOLDS_RECOMPUTED if "R" in life and letter == "F" else HOLDS[kind]
            for category, by in change.items():
                held[category] = held.get(category, 0) + by
                assert held[category] in (0, 1)
            assert sum(held.values()) == (letter not in "BW"), "one thing at a time, until B or W"
        assert [in_flight(gp.Kind(letter)) for letter in life if letter != "R"] == [
            1,
            *[0] * ("I" in life),
            -1,
        ]


def test_every_kind_has_its_lines_in_both_tables():
    assert set(NEEDS) == set(HOLDS) == set(gp.Kind) == set(CODE)


# A timeline of what was measured


def test_a_timeline_is_made_of_spans_in_any_order():
    whole = gp.simulate(overlapped(3, 4), gp.Costs(0.5, 1, 2))
    again = from_spans(whole.schedule, reversed(whole.spans))
    assert again.spans == whole.spans and again.rows == whole.rows and again.ends == whole.ends
    assert (again.messages, len(whole.messages)) == ((), 2 * 2 * 4)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda spans: spans[:-1], "0B1 of OneFOneB(devices=2, microbatches=2) was not measured"),
        (lambda spans: [*spans, spans[0]], "0F0 is measured twice"),
        (
            lambda spans: [spans[0]._replace(device=1), *spans[1:]],
            "0F0 is measured on device 1, but OneFOneB(",
        ),
        (lambda spans: [spans[0]._replace(action=gp.I(0, 0)), *spans[1:]], "0I0 is not in OneFOneB"),
        (lambda spans: [spans[0]._replace(action=gp.F(9, 0)), *spans[1:]], "9F0 is not in OneFOneB"),
    ],
)
def test_spans_that_are_no_step_of_the_schedule_are_refused(change, says):
    timeline = gp.simulate(gp.OneFOneB(2, 2))
    with pytest.raises(ValueError) as refused:
        from_spans(timeline.schedule, change(list(timeline.spans)))
    assert says in str(refused.value)


def test_spans_that_contradict_the_order_are_refused():
    schedule = gp.Explicit(["0F0 0R0 0F1 0B0 0B1"])
    times = {"0F0": (0, 1), "0F1": (1, 2), "0R0": (2, 3), "0B0": (3, 5), "0B1": (5, 7)}
    spans = [gp.Span(gp.Action.parse(text), 0, *map(float, when)) for text, when in times.items()]
    with pytest.raises(
        ValueError, match=r"0F1 is measured before 0R0, but Explicit\(.*\) has it after: give"
    ):
        from_spans(schedule, spans)
    ran = gp.Explicit([[span.action for span in spans]])
    assert gp.idle_spans(from_spans(ran, spans), 0) == []


@pytest.mark.parametrize("times", [(2.0, 1.0), (float("nan"), 1.0), (0.0, float("inf"))])
def test_spans_without_a_length_are_refused(times):
    timeline = gp.simulate(gp.Naive(1))
    spans = [timeline.spans[0]._replace(start=times[0], end=times[1]), timeline.spans[1]]
    with pytest.raises(
        ValueError, match=r"0F0 is (measured from 2.0 to 1.0|none: it needs (start|end) to be finite)"
    ):
        from_spans(timeline.schedule, spans)
