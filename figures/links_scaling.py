"""How much faster more devices are, with and without fast links: stages get shorter, messages do not.

32 equal blocks are shared by K devices. A message keeps its link busy for as long as so many forwards of one
block take, whatever K is. With slow links there is a K beyond which more devices are slower.
"""

from fractions import Fraction

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures._exact import pair
from figures._page import claim, page
from gpipe_sim import Costs, GPipe, Link, OneFOneB, simulate
from gpipe_sim.core import Schedule
from gpipe_sim.drawing.palette import CURVES
from gpipe_sim.drawing.plots.curves import name_ends
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish

BLOCKS, MICROBATCHES = 32, 32
DEVICES = (1, 2, 4, 8, 16, 32)
MESSAGES = (0, 1, 4)  #: in forwards of one block
FAMILIES = {"GPipe": GPipe, "1F1B": OneFOneB}
LINES = {"GPipe": ("-", "o"), "1F1B": ("--", "s")}


def data() -> dict:
    """speedup[family][i][j]: over one device, with messages[i] and devices[j]."""
    return {
        "blocks": BLOCKS,
        "microbatches": MICROBATCHES,
        "devices": list(DEVICES),
        "messages": list(MESSAGES),
        "speedup": {
            name: [[pair(_speedup(family(k, MICROBATCHES), each)) for k in DEVICES] for each in MESSAGES]
            for name, family in FAMILIES.items()
        },
    }


def _speedup(schedule: Schedule, message: int) -> Fraction:
    """Of a block F takes 1 and B 2."""
    work = Fraction(BLOCKS, schedule.devices)
    links = Link(bandwidth=Fraction(1, message)) if message else Link()
    makespan = simulate(schedule, Costs(work, work, work), links=links, message_bytes=1).makespan
    return Fraction(3 * BLOCKS * schedule.microbatches) / makespan


def draw(data: dict) -> Figure:
    figure, ax = page(4.6)
    ends = [end for name in data["speedup"] for end in _curves(ax, data, name)]
    ax.set_xscale("log", base=2)
    ax.set_xticks(data["devices"], [str(k) for k in data["devices"]])
    ax.minorticks_off()
    ax.set_xlabel("devices K", fontsize=LABEL_SIZE)
    ax.set_ylabel("times as fast as one device", fontsize=LABEL_SIZE)
    ax.set(ylim=(0, 18))
    finish(ax)
    name_ends(ax, ends[1:])  # without messages, both are alike
    claim(ax, _words(data), f"{_sizes(data)}; solid: GPipe, dashed: 1F1B")
    return figure


def _words(data: dict) -> str:
    fast, *_, slow = ([float(Fraction(*each)) for each in line] for line in data["speedup"]["GPipe"])
    best, last = max(zip(slow, data["devices"], strict=True)), data["devices"][-1]
    return (
        f"GPipe on slow links: {best[1]} devices are {best[0]:.1f} times as fast as one, {last} only "
        f"{slow[-1]:.1f} times; on fast ones {fast[-1]:.1f}"
    )


def _sizes(data: dict) -> str:
    *few, most = map(str, data["messages"])
    busy = f"a message keeps its link busy for {', '.join(few)} or {most} forwards of a block"
    return f"{data['blocks']} blocks, M = {data['microbatches']}; {busy}"


def _curves(ax: Axes, data: dict, name: str) -> list[tuple[str, float, float]]:
    """A curve for each length of a message; (words, x, y) of their ends."""
    style, marker = LINES[name]
    ends = []
    for i, (message, pairs) in enumerate(zip(data["messages"], data["speedup"][name], strict=True)):
        values = [float(Fraction(*each)) for each in pairs]
        look = {"color": CURVES[2 * i], "ls": style, "marker": marker, "ms": 4.5, "lw": 1.2}
        ax.plot(data["devices"], values, label=f"{name}, {message}", **look)
        words = f"{name}, messages of {message}" if message else "messages take no time"
        ends.append((words, data["devices"][-1], values[-1]))
    return ends
