"""Timelines as text, each small picture spelled out; and what a text leaves out of a huge one."""

from fractions import Fraction
from textwrap import dedent

import pytest

from gpipe_sim import (
    Costs,
    Explicit,
    GPipe,
    Interleaved1F1B,
    Naive,
    OneFOneB,
    PipeDream,
    simulate,
    with_updates,
)
from gpipe_sim.drawing.text import MOST_COLUMNS


def grid(schedule, **costs) -> str:
    return str(simulate(schedule, Costs(**costs)))


def picture(text: str) -> str:
    return dedent(text).strip("\n")


def test_naive_goes_down_the_diagonal_and_back():
    assert grid(Naive(3)) == picture("""
        time      0  1  2  3  4  5  6  7  8
        device 0 F0  ·  ·  ·  ·  ·  · B0 --
        device 1  · F0  ·  ·  · B0 --  ·  ·
        device 2  ·  · F0 B0 --  ·  ·  ·  ·""")


def test_several_stages_per_device_name_the_stage():
    assert grid(Interleaved1F1B(2, 2), input_grad=Fraction(1, 2), weight_grad=Fraction(1, 2)) == picture("""
        time       0   1   2   3   4   5   6   7   8   9
        device 0 0F0 0F1 2F0 2F1   · 2B0   · 2B1 0B0 0B1
        device 1   · 1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1   ·""")


def test_split_backwards_and_an_overlapped_pair_are_spelled():
    split = Explicit.parse("0F0 0I0 0W0")
    assert grid(split) == picture("""
        time      0  1  2
        device 0 F0 I0 W0""")
    pair = Explicit.parse("0F0 0F1 0B0 0B1\n1F0 (1F1;1B0)OVERLAP_F_B 1B1")
    assert grid(pair) == picture("""
        time           0       1       2       3       4       5       6       7       8
        device 0      F0      F1       ·       ·       ·      B0 -------      B1 -------
        device 1       ·      F0 1F1/1B0 ------- -------      B1 -------       ·       ·""")


def test_a_column_is_the_largest_step_that_fits_every_time():
    assert grid(Naive(2), forward=2, input_grad=2, weight_grad=2) == picture("""
        time      0  2  4  6  8 10
        device 0 F0  ·  ·  · B0 --
        device 1  · F0 B0 --  ·  ·""")


def test_the_clock_leaves_out_times_that_a_column_cannot_hold():
    half = {"forward": Fraction(1, 2), "input_grad": Fraction(1, 2), "weight_grad": 0}
    assert grid(Naive(2), **half) == picture("""
        time      0     1
        device 0 F0  ·  · B0
        device 1  · F0 B0  ·""")
    assert grid(Interleaved1F1B(1, 1), **half) == picture("""
        time       0 0.5   1 1.5
        device 0 0F0 1F0 1B0 0B0""")


def test_numbers_of_two_digits_stay_in_their_columns():
    lines = grid(OneFOneB(11, 1)).splitlines()
    assert lines[0].startswith("time       0  1")
    assert lines[1].startswith("device 0  F0  ·")
    assert lines[11].startswith("device 10  ·  ·")
    assert len({len(line) for line in lines[1:]}) == 1


def test_what_fits_no_grid_is_listed():
    assert grid(Naive(2), input_grad=0, weight_grad=0) == picture("""
        device 0: F0 0-1  B0 2-2
        device 1: F0 1-2  B0 2-2""")
    assert grid(Naive(1), forward=0.1, input_grad=0.7, weight_grad=0) == "device 0: F0 0-0.1  B0 0.1-0.8"


def test_updates_have_a_column_or_a_last_line_that_says_they_take_no_time():
    assert grid(PipeDream(2, 3), update=1) == picture("""
        time      0  1  2  3  4  5  6  7  8  9 10 11 12 13 14
        device 0 F0 F1  ·  · B0 -- U0 F2 B1 -- U1  · B2 -- U2
        device 1  · F0 B0 -- U0 F1 B1 -- U1 F2 B2 -- U2  ·  ·""")
    assert grid(PipeDream(2, 3)) == picture("""
        time      0  1  2  3  4  5  6  7  8  9 10 11
        device 0 F0 F1  ·  · B0 -- F2 B1 --  · B2 --
        device 1  · F0 B0 -- F1 B1 -- F2 B2 --  ·  ·
        not shown: 6 updates that take no time""")
    assert grid(with_updates(GPipe(1, 1))).endswith("\nnot shown: 1 update that takes no time")


def test_a_timeline_too_long_for_a_line_is_listed():
    longest = MOST_COLUMNS // 3
    assert grid(OneFOneB(1, longest)).startswith("time")
    assert grid(OneFOneB(1, longest + 1)).startswith("device 0: F0 0-1  B0 1-3  F1 3-4")


def test_the_text_of_a_huge_schedule_or_timeline_is_its_beginning():
    schedule = GPipe(16, 4096)
    first, *_, last = str(schedule).splitlines()
    assert first.startswith("device 0: 0F0 0F1 0F2") and first.endswith(" 0F98 0F99 ... and 8,092 more")
    assert last.startswith("device 15: 15F0") and len(str(schedule)) < 20_000
    listed = str(simulate(schedule)).splitlines()
    assert listed[0].endswith("  F99 99-100  ... and 8,092 more") and len(listed) == 16
    with pytest.raises(ValueError, match=r"'\.\.\.' is not an action"):
        Explicit.parse(str(schedule))
    wide = GPipe(5001, 1)
    assert str(wide).splitlines()[99:] == ["device 99: 99F0 99B0", "... and 4,901 more devices"]
    assert str(simulate(wide)).splitlines()[100] == "... and 4,901 more devices"
