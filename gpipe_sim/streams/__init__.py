"""Pipelines without a flush: weights are updated on the way, and a microbatch may use older ones.

It adds the families PipeDream, PipeDream-2BW and pipelined backpropagation; ``weights=`` of ``train_step``,
which says what version of its weights a stage uses; and ``staleness``, how old these are. It fills three
hooks of the core: another kind of step, what an update needs, and what can be wrong with updates. The lesson
is "Without a flush".
"""

from gpipe_sim.signatures import readable
from gpipe_sim.streams.pipedream import PipeDream2BW, PipelinedBackprop

__all__ = ["PipeDream2BW", "PipelinedBackprop"]

readable(__name__)
