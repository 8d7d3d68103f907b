"""The later families of schedules, one small file each, and all of them in two tuples.

A family is a ``Schedule`` with an ``order``: that is the core's only hook. ``SCHEDULES`` are those with a
flush, ``WITHOUT_FLUSH`` those without, and ``recognize`` names the family of any order. The lessons are "Zero
bubble", "A V from one strand" and "The zoo".

To add one: write a class with an ``order`` in a file of its own, and name it here. Every law in ``tests/`` is
then tested on it too; on those without a flush, every law but that of equal gradients.
"""

from gpipe_sim.core.gpipe import GPipe
from gpipe_sim.core.interleaved import Interleaved1F1B
from gpipe_sim.core.naive import Naive
from gpipe_sim.core.one_f_one_b import Eager1F1B, OneFOneB
from gpipe_sim.families.chimera import Chimera
from gpipe_sim.families.controllable import VHalf, VMin
from gpipe_sim.families.dualpipe import DualPipe, DualPipeV
from gpipe_sim.families.looped_bfs import LoopedBFS
from gpipe_sim.families.placements import bidirectional, v_shaped
from gpipe_sim.families.zbv import ZBV
from gpipe_sim.families.zero_bubble import ZBH1, ZBH2
from gpipe_sim.signatures import readable
from gpipe_sim.streams.pipedream import PipeDream, PipeDream2BW, PipelinedBackprop

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

#: Those that update on the way: their gradients are those of older weights, so not one device's.
WITHOUT_FLUSH = (PipeDream, PipeDream2BW, PipelinedBackprop)

__all__ = [
    "SCHEDULES",
    "WITHOUT_FLUSH",
    "ZBH1",
    "ZBH2",
    "ZBV",
    "Chimera",
    "DualPipe",
    "DualPipeV",
    "Eager1F1B",
    "GPipe",
    "Interleaved1F1B",
    "LoopedBFS",
    "Naive",
    "OneFOneB",
    "PipeDream",
    "VHalf",
    "VMin",
    "bidirectional",
    "v_shaped",
]

readable(__name__)
