"""What the processes under torchrun tell each other after a step, in one message of one size."""

from zlib import crc32

import torch
import torch.distributed as dist
from torch import Tensor

from gpipe_sim.schedule.actions import Action, Kind
from gpipe_sim.torch_backend.engine import Part
from gpipe_sim.torch_backend.gradients import as_array

_KINDS = tuple(Kind)


def require_same(x: Tensor, targets: Tensor, device: torch.device) -> None:
    """ValueError on every process unless all were given the same batch: one takes inputs, one targets."""
    own = torch.tensor([_checksum(x), _checksum(targets)], dtype=torch.float64, device=device)
    all_of_them = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(all_of_them, own)
    for rank, other in enumerate(all_of_them):
        if not torch.equal(other, all_of_them[0]):
            raise ValueError(
                f"process {rank} was given another batch than process 0: every process passes the same one, "
                "of which the pipeline takes what it needs (data parallelism would take other batches)"
            )


def _checksum(tensor: Tensor) -> int:
    array = as_array(tensor)
    return crc32(array.tobytes(), crc32(f"{array.dtype} {array.shape}".encode()))


def gathered(own: Part, most: int, device: torch.device) -> list[Part]:
    """This process's part, and the losses and spans of the others. ``most``: how many spans any can have."""
    table = _packed(own, most).to(device)
    tables = [torch.empty_like(table) for _ in range(dist.get_world_size())]
    dist.all_gather(tables, table)
    return [own if rank == dist.get_rank() else _unpacked(table) for rank, table in enumerate(tables)]


def _packed(part: Part, most: int) -> Tensor:
    """Whether there is a loss, and the loss; then a row per span, with stage -1 where there is none."""
    rows = [[part.loss is not None, part.loss or 0, 0, 0, 0]]
    rows += [[a.stage, _KINDS.index(a.kind), a.microbatch, start, end] for a, start, end in part.spans]
    rows += [[-1, 0, 0, 0, 0]] * (most + 1 - len(rows))
    return torch.tensor(rows, dtype=torch.float64)


def _unpacked(table: Tensor) -> Part:
    (known, loss, *_), *rows = table.tolist()
    spans = [
        (Action(int(stage), _KINDS[int(kind)], int(microbatch)), start, end)
        for stage, kind, microbatch, start, end in rows
        if stage >= 0
    ]
    return Part(loss if known else None, None, {}, spans)
