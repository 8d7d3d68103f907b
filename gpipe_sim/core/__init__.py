"""The design card: what a schedule means, its clock, and a training step on simulated devices."""

from gpipe_sim import lazy

__getattr__, __dir__ = lazy.from_stub(__name__, {})
