"""What a device will hold, in bytes, before anything runs.

Adds to the core: ``profile`` asks every layer which arrays it would make (shape inference), and a ``Profile``
keeps the answers as plain numbers. ``predict_memory`` runs the core's own devices and meter on arrays without
contents. On these stand ``memory_limit=`` (what does not fit is refused, with what would help),
``recompute_plan``, ``freed`` and ``checkpointed`` (which layers to compute again), and ``deepest_model``.

The core reads a profile as plain numbers: the bytes of messages, FLOPs as costs, and whether a limit is kept.
Lessons 06, "What a device holds, and until when", and 14, "Transformers and giants, in bytes".
"""

from gpipe_sim.memory.greedy import greedy
from gpipe_sim.memory.recompute import checkpointed, freed
from gpipe_sim.signatures import readable

__all__ = ["checkpointed", "freed", "greedy"]

readable(__name__)
