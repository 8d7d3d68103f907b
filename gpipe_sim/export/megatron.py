"""A cut as Megatron-LM takes it."""

from collections.abc import Sequence
from itertools import groupby

from gpipe_sim.errors import listed, whole

ALIKE = 3  #: stages that follow each other are written once from this many on


def to_megatron_layout(balance: Sequence[int]) -> str:
    """What ``--pipeline-model-parallel-layout`` asks for such a cut: blocks in each stage, first to last.

    >>> gp.export.to_megatron_layout([4, 5, 5, 3])
    'Etttt|ttttt|ttttt|tttL'
    >>> gp.export.to_megatron_layout([1, 2, 2, 2, 2, 1])
    'Et|(tt|)*4tL'

    ``E`` is the embedding, ``t`` a block of the Transformer, ``L`` the head with its loss, and ``|`` begins
    the next stage; ``(tt|)*4`` says it four times. Where devices hold several stages, stage s is on device
    s mod K, as in ``Interleaved1F1B``. Source: Megatron-LM's documentation of its layouts, 2026.

    ValueError for a number of blocks below 0, and for a cut without a stage.
    """
    counts = listed("to_megatron_layout", "the blocks of each stage, such as plan.balance", balance)
    if not counts:
        raise ValueError("to_megatron_layout needs a stage at least (got [])")
    blocks = ["t" * whole("to_megatron_layout", f"balance[{at}]", n, low=0) for at, n in enumerate(counts)]
    blocks[0] = f"E{blocks[0]}"
    blocks[-1] += "L"
    stages = [f"{each}|" for each in blocks[:-1]] + blocks[-1:]
    runs = [(each, len(list(same))) for each, same in groupby(stages)]
    return "".join(f"({each})*{times}" if times >= ALIKE else each * times for each, times in runs)
