"""Fractions as JSON: [numerator, denominator]."""

from collections.abc import Mapping
from fractions import Fraction

from gpipe_sim import Timeline, idle_time

Table = Mapping[int, Mapping[int, Fraction]]


def bubble(timeline: Timeline) -> Fraction:
    """The bubble fraction of a timeline of whole numbers, exact."""
    return Fraction(idle_time(timeline), timeline.schedule.devices * timeline.makespan)


def pair(value: Fraction) -> list[int]:
    return [value.numerator, value.denominator]


def table(rows: list[int], columns: list[int], pairs: list[list[list[int]]]) -> Table:
    """What ``plots`` takes: {row: {column: value}}."""
    return {
        row: {column: Fraction(*pair) for column, pair in zip(columns, line, strict=True)}
        for row, line in zip(rows, pairs, strict=True)
    }
