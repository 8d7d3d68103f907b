"""What each device holds of weights while a stream of mini-batches trains: the newest, and older versions.

Four equal stages, really run: weight stashing, one version for all stages (vertical sync), and two versions.
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import gpipe_sim as gp
from figures._gantt import of_timeline, timeline_of
from figures._page import page
from gpipe_sim.core.memory import CATEGORIES, OLDER, PARAMETERS, MemoryTrace
from gpipe_sim.drawing.coarse import Grain
from gpipe_sim.drawing.marks import Name, Panel, Shape
from gpipe_sim.drawing.memory_strips import Strips, bytes_label
from gpipe_sim.drawing.options import Wanted
from gpipe_sim.drawing.panel import panel
from gpipe_sim.drawing.plots.gantt import paint, scale_of
from gpipe_sim.drawing.plots.style import LABEL_SIZE

DEVICES, MICROBATCHES, SAMPLES = 4, 12, 8
STREAM = gp.PipeDream(DEVICES, MICROBATCHES)
RUNS = {"stashed": STREAM, "vertical": STREAM, "double": gp.streams.PipeDream2BW(DEVICES, MICROBATCHES)}


def data() -> dict:
    """By mode, the step's spans, the bytes of weights over time by device, and how many versions that is."""
    return {weights: _trained(schedule, weights) for weights, schedule in RUNS.items()}


def _trained(schedule: gp.core.Schedule, weights: str) -> dict:
    rng, size, digits = np.random.default_rng(0), SAMPLES * MICROBATCHES, gp.digits()
    partitions = gp.split([gp.core.Linear(64, 64, rng=rng) for _ in range(DEVICES)], stages=DEVICES)
    batch = digits.x[:size], digits.y[:size]
    how = {"optimizer": gp.SGD(0.1), "weights": weights}
    step = gp.train_step(partitions, schedule, batch, gp.cross_entropy, **how)
    memory = [
        {"times": list(trace.times), "bytes": {name: list(trace.bytes[name]) for name in (PARAMETERS, OLDER)}}
        for trace in step.memory
    ]
    update = f"an update after {'each' if schedule.every == 1 else f'every {schedule.every}'}"
    found = {
        "run": f"{schedule.name}, {update}",
        "held": list(gp.staleness(schedule, weights).held),
        "memory": memory,
    }
    return found | of_timeline(step.timeline)


def draw(data: dict) -> Figure:
    figure, axes = page(3.9, 1, 3)
    most = max(trace.peak() for weights in RUNS for trace in traces_of(data[weights]))
    for ax, weights in zip(axes, RUNS, strict=True):
        run = data[weights]
        words = f"{weights.title()}: {sum(run['held'])} versions in all"
        paint(ax, timeline_of(run), lanes(ax, run, most), words, run["run"])
        ax.set_xticks(range(0, run["makespan"] + 1, 15))
    handles = axes[0].get_legend().legend_handles
    for ax in axes:
        ax.get_legend().remove()
    for ax in axes[1:]:
        ax.set_yticks([])
    look = {"frameon": False, "fontsize": LABEL_SIZE, "handlelength": 1, "handleheight": 1}
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), **look)
    return figure


def lanes(ax: Axes, run: dict, most: int) -> Panel:
    """The boxes and the bytes without words; beside each device its versions, and what one takes."""
    timeline, traces = timeline_of(run), traces_of(run)
    wanted = Wanted(Strips(most, traces))
    pitch = wanted.strips.rows.pitch
    found = panel(timeline, Grain(), scale_of(ax, timeline, pitch * len(traces)), wanted)
    peaks = [
        Name(peak.y, f"{held} \u00d7 {bytes_label(trace.peak(PARAMETERS))}")
        for peak, held, trace in zip(found.peaks, run["held"], traces, strict=True)
    ]
    return found._replace(marks=[mark for mark in found.marks if isinstance(mark, Shape)], peaks=peaks)


def traces_of(run: dict) -> list[MemoryTrace]:
    """What the numbers say of each device, and nothing of all that is no weight."""
    found = []
    for each in run["memory"]:
        held = dict.fromkeys(CATEGORIES, (0,) * len(each["times"]))
        held |= {name: tuple(count) for name, count in each["bytes"].items()}
        found.append(MemoryTrace(tuple(each["times"]), held))
    return found
