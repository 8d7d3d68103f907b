"""Costs as columns to calculate with, and times back as the kind of number that the costs were.

Whole numbers stay whole and fractions stay exact: fractions become whole numbers of 1/(their common
denominator). Whole numbers are stored in 64 bits if no time can be too large for that; otherwise as Python's
own numbers, which are slower.
"""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import lcm
from numbers import Rational
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from gpipe_sim.errors import Real

Column = np.ndarray
LEAST = 5e-324  #: the smallest float above 0


def quotient(a: Real, b: Real) -> Real:
    """a / b for b > 0: exact where both are, and then an int if it comes out whole."""
    if not (isinstance(a, Rational) and isinstance(b, Rational)):
        return a / (float(b) or LEAST)
    exact = Fraction(a) / Fraction(b)
    return int(exact) if exact.denominator == 1 else exact


InUnits = Callable[[Column], Column]  #: sums of a column's numbers as times again


class CostColumn(NamedTuple):
    """What each of many entries or messages costs: number i costs ``values[index[i]]``."""

    values: Sequence[Real]
    index: Column  # type: ignore[assignment]


def as_columns(*prices: CostColumn) -> tuple[list[Column], InUnits]:
    """A column for each, all of one type, and a function that turns sums of their numbers back into times."""
    paid = [bill for price in prices for bill in _bill(price)]
    types = {type(value) for value, _ in paid}
    if types <= {int, Fraction}:
        unit = lcm(*(value.denominator for value, _ in paid if not isinstance(value, float)))
        fits = sum(int(value * unit) * count for value, count in paid) < 1 << 63
        columns = [_filled(price, np.int64 if fits else object, unit) for price in prices]
        return columns, (lambda times: _in_fractions(times, unit)) if Fraction in types else _same
    whole = sum(value * count for value, count in paid if type(value) is int)
    as_floats = types <= {int, float} and whole < 1 << 53
    return [_filled(price, np.float64 if as_floats else object) for price in prices], _same


def _bill(price: CostColumn) -> Iterator[tuple[Real, int]]:
    """(value, how often it is paid), for the values that are. No time exceeds the sum of all that is paid."""
    counts = np.bincount(price.index, minlength=len(price.values)).tolist()
    return ((value, count) for value, count in zip(price.values, counts, strict=True) if count)


def _filled(price: CostColumn, dtype: DTypeLike, unit: int = 1) -> Column:
    """What each thing costs. A price that nothing pays may be of any size, and is left out."""
    found: Column = np.zeros(len(price.values), dtype)
    for i in np.flatnonzero(np.bincount(price.index)).tolist():
        found[i] = int(price.values[i] * unit) if unit > 1 else price.values[i]
    return found[price.index]


def _in_fractions(times: Column, unit: int) -> Column:
    found = np.empty(len(times), object)
    found[:] = [Fraction(time, unit) for time in times.tolist()]
    return found


def _same(times: Column) -> Column:
    return times
