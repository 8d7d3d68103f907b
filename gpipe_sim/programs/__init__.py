"""One device's program: where each device sends and receives, and what happens if sends block.

In the core, messages send themselves: they follow from the rows. Here each device runs a program of its own,
made from a schedule, read from a text such as PyTorch prints, or written as a generator, and a message
crosses when both ends have come to it. Lesson 13, "One device's program".

The hook of the core is ``queues``: what ``check`` and ``problems`` say of programs, and of a schedule whose
sends block, comes from ``queues.ProgramQueues``. ``run_programs`` runs on the core's devices, with messages
that wait to be sent and received.

Names: ``Send``, ``Recv``, ``device_programs``, ``run_programs``.
"""

from gpipe_sim.programs.transfers import Recv, Send
from gpipe_sim.signatures import readable

__all__ = ["Recv", "Send"]

readable(__name__)
