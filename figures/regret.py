"""All measured plans of all tasks, none with its name: what the truth lab begins with.

A task is a number of A100s, a batch and a model; vTrain's rows.
"""

from statistics import mean

import numpy as np
from matplotlib.figure import Figure

from figures._page import claim, page
from gpipe_sim.course.lesson_T import every, took
from gpipe_sim.drawing.palette import CURVES, FAINT, LANE, PAPER
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish

PARTS = {"2 devices": (2, 2), "4 devices": (4, 4), "8 devices": (8, 8), "64 to 512": (64, 512)}


def data() -> dict:
    """For each number of devices its tasks: how many times as long as the fastest each plan took."""
    found: dict[str, list[list[float]]] = {part: [] for part in PARTS}
    for (devices, *_), task in every().items():
        part = next(part for part, (least, most) in PARTS.items() if least <= devices <= most)
        fastest = min(map(took, task))
        found[part].append(sorted(round(took(row) / fastest, 4) for row in task))
    return {part: sorted(tasks, key=max) for part, tasks in found.items()}


def draw(data: dict) -> Figure:
    figure, ax = page(3.9)
    every_task = [task for part in PARTS for task in data[part]]
    start = 0
    for n, part in enumerate(PARTS):
        end = start + len(data[part])
        if n % 2 == 0:
            ax.axvspan(start - 0.5, end - 0.5, color=LANE, alpha=0.6, lw=0)
        ax.text((start + end - 1) / 2, 17.2, part, ha="center", fontsize=LABEL_SIZE, color=FAINT)
        start = end
    points = np.array([(n, times) for n, task in enumerate(every_task) for times in task])
    ax.plot(*points.T, "o", color=CURVES[0], mfc=PAPER, ms=4, mew=0.9, ls="")
    ax.set_yscale("log")
    ax.set_ylim(0.93, 22)
    ax.set_yticks(ticks := [1, 1.5, 2, 3, 5, 10], [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set_xlim(-0.8, len(every_task) - 0.2)
    ax.set_xticks([])
    ax.set_xlabel(f"{len(every_task)} tasks", fontsize=LABEL_SIZE, color=FAINT)
    ax.set_ylabel("times as long as the fastest", fontsize=LABEL_SIZE, color=FAINT)
    finish(ax)
    lot = mean(mean(task) - 1 for task in every_task)
    words = f"A plan drawn by lot takes {lot:.0%} longer than the fastest, on average"
    claim(
        ax,
        words,
        f"{len(points)} measured steps of A100s: each column is a task, each point one of its plans",
    )
    return figure
