"""The families of schedules, one small file each.

To add one: write a class with an ``order`` in a file of its own, and name it here. Every law in ``tests/`` is
then tested on it too.
"""

from gpipe_sim.families.chimera import Chimera
from gpipe_sim.families.controllable import VHalf, VMin
from gpipe_sim.families.dualpipe import DualPipe, DualPipeV
from gpipe_sim.families.gpipe import GPipe
from gpipe_sim.families.interleaved import Interleaved1F1B
from gpipe_sim.families.looped_bfs import LoopedBFS
from gpipe_sim.families.naive import Naive
from gpipe_sim.families.one_f_one_b import Eager1F1B, OneFOneB
from gpipe_sim.families.zbv import ZBV
from gpipe_sim.families.zero_bubble import ZBH1, ZBH2

SCHEDULES = (
    Naive,
    GPipe,
    OneFOneB,
    Eager1F1B,
    Interleaved1F1B,
    LoopedBFS,
    ZBH1,
    ZBH2,
    ZBV,
    VHalf,
    VMin,
    DualPipe,
    DualPipeV,
    Chimera,
)

__all__ = ["SCHEDULES", *(family.__name__ for family in SCHEDULES)]
