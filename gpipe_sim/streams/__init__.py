"""Pipelines without a flush."""

from gpipe_sim.streams.pipedream import PipeDream2BW, PipelinedBackprop

__all__ = ["PipeDream2BW", "PipelinedBackprop"]
