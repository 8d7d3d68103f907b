"""Copies: several devices that hold the same stage, or parts of it, and sum what they made.

Lesson 17, "Data parallel, pipeline, both": ``replicate`` and ``side_by_side`` put pipelines beside each
other, ``shares`` says how many samples each should get. A ring sums gradients on real arrays
(``ring_all_reduce``, whose moves are ``ring_moves``), and ``all_reduce`` adds to a timeline what these sums
take on links. In ``data_parallel_round`` everything goes through the first device instead. Lesson B,
"Tensor parallelism": ``TensorParallel`` cuts the matrices of a layer over devices.

A copied pipeline is a ``Schedule`` like any other, and what is summed is added to a finished ``Timeline``.
Two hooks of the core are filled here: ``own_copies`` gives each device partitions of its own, and
``sum_copies`` sums their gradients.
"""

from gpipe_sim.replicas.data_parallel_round import data_parallel_round
from gpipe_sim.replicas.replicate import shares, side_by_side
from gpipe_sim.replicas.ring import ring_all_reduce, ring_moves
from gpipe_sim.replicas.tensor_parallel import TensorParallel
from gpipe_sim.signatures import readable

__all__ = ["TensorParallel", "data_parallel_round", "ring_all_reduce", "ring_moves", "shares", "side_by_side"]

readable(__name__)
