"""What a step of a given configuration takes and holds, from what its layers do and what a cluster is.

Adds: ``Accelerator`` (what a device computes, and what holds it up), ``Cluster``, and ``price``, which lays a
model out on a cluster: tensor parallelism, pipelines and replicas. Lesson 18, "Plan a real model".
"""

from gpipe_sim import signatures
from gpipe_sim.pricing.hardware import A100, costs_from_flops

__all__ = ["A100", "costs_from_flops"]

signatures.readable(__name__)
