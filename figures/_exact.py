"""Fractions as JSON: [numerator, denominator], and times as numbers."""

from collections.abc import Mapping
from fractions import Fraction
from numbers import Real

from gpipe_sim.core import Timeline, idle_time

Table = Mapping[int, Mapping[int, Fraction]]


def bubble(timeline: Timeline) -> Fraction:
    """The bubble fraction of a timeline whose times are exact, as a Fraction."""
    return Fraction(idle_time(timeline), timeline.schedule.devices * timeline.makespan)


def pair(value: Fraction) -> list[int]:
    return [value.numerator, value.denominator]


def plain(time: Real) -> int | float:
    """A time as a JSON number. Halves are exact as floats; ValueError for a time that is not, such as 1/3."""
    found = int(time) if time == int(time) else float(time)
    if found != time:
        raise ValueError(f"a figure's times are to be exact in JSON (got {time})")
    return found


def table(rows: list[int], columns: list[int], pairs: list[list[list[int]]]) -> Table:
    """The numbers as ``plots`` takes them: {row: {column: value}}."""
    return {
        row: {column: Fraction(*pair) for column, pair in zip(columns, line, strict=True)}
        for row, line in zip(rows, pairs, strict=True)
    }
