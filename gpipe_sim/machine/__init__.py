"""One action at a time: the clock for code that chooses what to run next.

The core's ``simulate`` times a complete order at once. A ``Machine`` reads the same program and the same
costs, and is told one action after another; a law holds the two clocks equal. It needs no hook of the core.
The planner of lesson 07, "1F1B", chooses on it (``memory.greedy``), and so do V-Half and V-Min.

Names: ``machine.Machine``, which is for code of this package.
"""
