"""The bytes of GPT-3's shape below each device's lane: predicted, because no such device exists.

96 blocks in 2-byte numbers on 8 devices, with Adam in 4-byte numbers; 16 microbatches of one sequence of
2,048 places. Brown et al. 2020, arXiv:2005.14165.
"""

from matplotlib.figure import Figure

import gpipe_sim as gp
from figures._gantt import of_timeline, timeline_of
from figures._page import page
from gpipe_sim.core.memory import MemoryTrace
from gpipe_sim.drawing.plots import plot_timeline

DEVICES, MICROBATCHES, PLACES = 8, 16, 2_048
BALANCE = (2 + 12, *[12] * 6, 12 + 2)  #: embedding and positions first, the last norm and the head at the end


def data() -> dict:
    """The step's spans; for each device the times of its samples, and its bytes by category then."""
    text = gp.MetaArray((MICROBATCHES, PLACES), int)
    partitions = gp.split(gp.gpt3_175b(), balance=BALANCE)
    profile = gp.profile(partitions, (text, text), gp.cross_entropy, gp.MixedPrecision(gp.Adam()))
    schedule = gp.OneFOneB(DEVICES, MICROBATCHES)
    memory = [
        {
            "times": list(trace.times),
            "bytes": {name: list(held) for name, held in trace.bytes.items()},
        }
        for trace in gp.predict_memory(schedule, profile)
    ]
    return {"name": schedule.name, "memory": memory, **of_timeline(gp.simulate(schedule))}


def draw(data: dict) -> Figure:
    figure, ax = page(6.0)
    traces = [
        MemoryTrace(tuple(each["times"]), {name: tuple(held) for name, held in each["bytes"].items()})
        for each in data["memory"]
    ]
    first, last = (f"{traces[k].peak() / 10**9:,.0f} GB" for k in (0, -1))
    where = f"GPT-3's shape on {len(traces)} devices under {data['name']}"
    plot_timeline(timeline_of(data), ax, f"{where}: {first} on the first, {last} on the last", memory=traces)
    return figure
