"""Profile steps of stock ``torch.distributed.pipelining`` for lesson 21: a Kineto file per rank. Needs torch.

``python -m benchmarks.record_trace FOLDER`` runs four processes, one after the other for each cut below.
"""

import gzip
import json
import os
import sys
import time
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, schedules
from torch.profiler import ProfilerActivity, profile, schedule

from gpipe_sim.torch_backend import Sleep

LAYERS = [2] * 8 + [4] * 4 + [2] * 4  #: ms that each layer sleeps in F, in I and in W
CUTS = {"before": [4, 4, 4, 4], "after": [6, 3, 2, 5]}
SLOW, LATE = {1, 2}, 0.010  #: the devices whose link is slow, and seconds that a message on it takes
MICROBATCHES, WAIT, WARMUP = 8, 1, 2
REMOVED = ("traceName", "trace_id", "host_name")


class Late:
    """A message that leaves later, from a thread of its own; nobody waits until it has left."""

    queue: SimpleQueue = SimpleQueue()

    def __init__(self, op: dist.P2POp):
        self.queue.put((time.perf_counter() + LATE, op.op, op.tensor, op.peer))

    def wait(self) -> None:
        pass

    @classmethod
    def send_all(cls) -> None:
        while True:
            due, send, tensor, peer = cls.queue.get()
            time.sleep(max(0, due - time.perf_counter()))
            send(tensor, peer).wait()


def slowed(plain):
    """``_batch_p2p`` with the messages of the slow link sent late."""

    def batch(ops, desc=None):
        late = [op for op in ops if op.op is dist.isend and {dist.get_rank(), op.peer} == SLOW]
        return [*plain([op for op in ops if op not in late], desc), *map(Late, late)]

    return batch


def run(rank: int, folder: Path, cut: list[int]) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29731"}
    dist.init_process_group("gloo", rank=rank, world_size=len(cut))
    torch.set_num_threads(1)
    first = sum(cut[:rank])
    stage = nn.Sequential(*(Sleep(ms, ms, ms) for ms in LAYERS[first : first + cut[rank]]))
    schedules._batch_p2p = slowed(schedules._batch_p2p)
    Thread(target=Late.send_all, daemon=True).start()
    pipeline = Schedule1F1B(
        PipelineStage(stage, rank, len(cut), torch.device("cpu")), MICROBATCHES, loss_fn=nn.MSELoss()
    )
    optimizer = torch.optim.SGD(stage.parameters(), 0.1)
    x = torch.zeros(MICROBATCHES, 1)
    given, target = ([x] if rank == 0 else []), ({"target": x} if rank == len(cut) - 1 else {})
    path = folder / f"rank{rank}.json"
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=WAIT, warmup=WARMUP, active=1),
        on_trace_ready=lambda found: found.export_chrome_trace(str(path)),
    ) as profiler:
        for _ in range(WAIT + WARMUP + 1):
            dist.barrier()
            pipeline.step(*given, **target)
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    dist.barrier()
    plain(path)
    dist.destroy_process_group()


def plain(path: Path) -> None:
    """Without paths and names of machines, packed."""
    trace = json.loads(path.read_text())
    kept = {name: value for name, value in trace.items() if name not in REMOVED}
    with gzip.GzipFile(f"{path}.gz", "w", mtime=0) as file:
        file.write(json.dumps(kept, separators=(",", ":")).encode())
    path.unlink()


if __name__ == "__main__":
    for name, cut in CUTS.items():
        folder = Path(sys.argv[1]) / name
        folder.mkdir(parents=True, exist_ok=True)
        processes.spawn(run, (folder, cut), nprocs=len(cut))
