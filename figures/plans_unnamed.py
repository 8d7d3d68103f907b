"""Twenty measured steps, each a plan without its name: what lesson 18 begins with.

The same model, batch and eight A100s; vTrain's rows. The bytes are computed, all blocks are recomputed.
"""

from matplotlib.figure import Figure

import gpipe_sim as gp
from figures._page import claim, page
from gpipe_sim.drawing.palette import CURVES, FAINT, PAPER
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish

TASK = {"gpus": "8", "global_batch": "32", "hidden": "2048", "layers": "20"}
CLUSTER = gp.Cluster(8, gp.pricing.A100, memory=80e9)


def data() -> dict:
    """Of each plan: milliseconds, as measured, and the bytes that its fullest device needs."""
    rows = [row for row in gp.pricing.measured_rows("one-node") if TASK.items() <= row.given.items()]
    rows.sort(key=lambda row: row.seconds)
    return {
        "plans": [{"time": round(1000 * row.seconds, 3), "bytes": row.priced(CLUSTER).peak} for row in rows]
    }


def draw(data: dict) -> Figure:
    figure, ax = page(3.9)
    times = [each["time"] for each in data["plans"]]
    ax.plot([each["bytes"] / 1e9 for each in data["plans"]], times, "o", color=CURVES[0], mfc=PAPER)
    ax.set_xlim(0, 11)
    ax.set_ylim(0, 1.06 * max(times))
    ax.set_xlabel("bytes on the fullest device (GB, computed)", fontsize=LABEL_SIZE, color=FAINT)
    ax.set_ylabel("length of the step (ms, measured)", fontsize=LABEL_SIZE, color=FAINT)
    finish(ax)
    words = f"{len(times)} measured plans: one takes {max(times) / min(times):.1f} times as long as another"
    claim(ax, words, "GPT of 20 blocks, batch 32, eight A100s; each point is a plan")
    return figure
