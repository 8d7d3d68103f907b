"""The families of schedules, one small file each.

To add one: write a class with an ``order`` in a file of its own, and name it here. Every law in
``tests/`` is then tested over it.
"""

from gpipe_sim.schedules.chimera import Chimera
from gpipe_sim.schedules.controllable import VHalf, VMin
from gpipe_sim.schedules.dualpipe import DualPipe, DualPipeV
from gpipe_sim.schedules.gpipe import GPipe
from gpipe_sim.schedules.interleaved import Interleaved1F1B
from gpipe_sim.schedules.looped_bfs import LoopedBFS
from gpipe_sim.schedules.naive import Naive
from gpipe_sim.schedules.one_f_one_b import Eager1F1B, OneFOneB
from gpipe_sim.schedules.zbv import ZBV
from gpipe_sim.schedules.zero_bubble import ZBH1, ZBH2

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
