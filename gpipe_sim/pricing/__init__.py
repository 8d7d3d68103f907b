"""What a step of a given configuration takes and holds, from what its layers do and what a cluster is.

Adds: ``Accelerator`` (what a device computes, and what holds it up), ``Cluster``, of unequal devices
``Mixed``, ``price``, which lays a model out on a cluster (tensor parallelism, pipelines, replicas), and
``calibrate``, which fits a cluster's numbers to steps that were measured. It uses the core, links, replicas
and the work that layers state.
"""

from gpipe_sim.pricing.cluster import OneRail
from gpipe_sim.pricing.hardware import A100, H100
from gpipe_sim.pricing.mixed import Mixed
from gpipe_sim.pricing.rows import measured_rows, read_rows
from gpipe_sim.signatures import readable

__all__ = ["A100", "H100", "Mixed", "OneRail", "measured_rows", "read_rows"]

readable(__name__)
