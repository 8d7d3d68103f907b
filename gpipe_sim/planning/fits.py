"""What would make a model fit that fits nowhere: the plan that holds least, and how many devices would do."""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from gpipe_sim.families import OneFOneB
from gpipe_sim.planning.candidates import Candidate
from gpipe_sim.planning.cluster import Mesh
from gpipe_sim.planning.layer_table import LayerTable
from gpipe_sim.planning.least_bytes import least_bytes, static_bytes
from gpipe_sim.planning.search import laid_out, peak_of, stages_of


def smallest(table: LayerTable, looked_at: Iterable[Candidate]) -> tuple[int, Candidate]:
    """(bytes, the plan whose fullest device holds the fewest of them): bounds first, as in the search."""
    queue = [
        (static_bytes(each.schedule, stages_of(table, each)).max(), number, 0, each)
        for number, each in enumerate(looked_at)
    ]
    heapify(queue)
    while True:
        size, number, known, each = heappop(queue)
        if known == 2:
            return int(size), each
        size = _at_least(table, each) if known == 0 else peak_of(table, each)[0]
        heappush(queue, (size, number, known + 1, each))


def fewest_devices(table: LayerTable) -> int | None:
    """The shortest pipeline that fits if it recomputes and each microbatch is one sample; None if none does.

    It is that of 1F1B, cut so that the slowest stage is as fast as can be.
    """
    limit = table.cluster.memory
    for devices in range(1, table.count + 1):
        schedule = OneFOneB(devices, table.profile.samples)
        each = Candidate(schedule, Mesh(devices, 1), table.cut(devices, "early", True), True)
        if static_bytes(schedule, stages_of(table, each)).max() > limit:
            continue
        if _at_least(table, each) <= limit and peak_of(table, each)[0] <= limit:
            return devices
    return None


def _at_least(table: LayerTable, each: Candidate) -> float:
    return least_bytes(laid_out(each.schedule).program, stages_of(table, each), each.recompute).max()
