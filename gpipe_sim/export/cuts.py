"""A cut as PyTorch, DeepSpeed and torchgpipe take it; ``megatron`` has Megatron-LM's."""

from collections.abc import Sequence
from itertools import accumulate

from gpipe_sim.errors import got, listed, whole


def to_torch_split(balance: Sequence[int], layer: str = "layers.{}") -> dict[str, str]:
    """Before which layers ``torch.distributed.pipelining.pipeline`` is to split a model.

    >>> gp.export.to_torch_split([4, 5, 5, 2])
    {'layers.4': 'BEGINNING', 'layers.9': 'BEGINNING', 'layers.14': 'BEGINNING'}

    ``layer`` is how the model names its layers, with ``{}`` where their number stands. What comes before the
    first, such as an embedding, is in the first stage, and what comes after the last in the last. There:
    ``split_spec={name: SplitPoint[point] for name, point in these.items()}``. Source: the documentation of
    ``torch.distributed.pipelining`` 2.13. ValueError for a stage without a layer, or a name without ``{}``.
    """
    counts = _read("to_torch_split", balance)
    if not isinstance(layer, str) or layer.count("{}") != 1:
        raise ValueError(
            f"to_torch_split needs layer= with one {{}} in it, such as 'layers.{{}}' {got(layer)}"
        )
    return {layer.replace("{}", str(end)): "BEGINNING" for end in accumulate(counts[:-1])}


def to_deepspeed_parts(balance: Sequence[int]) -> list[int]:
    """Where the stages of DeepSpeed's ``PipelineModule`` begin and the last one ends, as its ``parts``.

    >>> gp.export.to_deepspeed_parts([4, 5, 5, 2])
    [0, 4, 9, 14, 16]

    Its ``layers=`` are counted, so an embedding and a head are layers of their own there. It takes no such
    list as an argument, and its ``partition_method`` cannot say every cut. A subclass of your own can: its
    ``_partition_layers`` sets ``self.parts`` to these, and for the rank's own stage, which is
    ``self._topo.get_coord(self.global_rank).pipe``, it calls ``self._set_bounds`` with the two of them.

    Source: ``deepspeed/runtime/pipe/module.py``, commit 12e65a6. ValueError for a stage without a layer.
    """
    return [0, *accumulate(_read("to_deepspeed_parts", balance))]


def to_torchgpipe_balance(balance: Sequence[int]) -> list[int]:
    """How many layers of an ``nn.Sequential`` each partition gets: torchgpipe's ``GPipe(model, balance)``.

    >>> gp.export.to_torchgpipe_balance((4, 5, 5, 2))
    [4, 5, 5, 2]

    They have to add up to all of the model's layers, an embedding and a head among them, or torchgpipe
    refuses them. Source: ``torchgpipe/gpipe.py``, commit 03f85d3. ValueError for a stage without a layer.
    """
    return _read("to_torchgpipe_balance", balance)


def _read(owner: str, balance: Sequence[int]) -> list[int]:
    counts = listed(owner, "the layers of each stage, such as plan.balance", balance)
    if not counts:
        raise ValueError(f"{owner} needs a stage at least (got [])")
    return [whole(owner, f"balance[{at}]", count) for at, count in enumerate(counts)]
