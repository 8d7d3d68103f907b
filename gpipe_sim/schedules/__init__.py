"""The families of schedules, one small file each.

To add one: write a class with an ``order`` in a file of its own, and name it here. Every law in
``tests/`` is then tested over it.
"""

from gpipe_sim.schedules.gpipe import GPipe
from gpipe_sim.schedules.interleaved import Interleaved1F1B
from gpipe_sim.schedules.naive import Naive
from gpipe_sim.schedules.one_f_one_b import OneFOneB

SCHEDULES = (Naive, GPipe, OneFOneB, Interleaved1F1B)

__all__ = ["SCHEDULES", *(family.__name__ for family in SCHEDULES)]
