"""GPipe with recomputation: 8 longer, not 11, because devices recompute while they wait for a gradient."""

from matplotlib.figure import Figure

from figures._gantt import numbers, picture
from gpipe_sim import GPipe, remat


def data() -> dict:
    return numbers(remat(GPipe(devices=4, microbatches=8), "always"))


def draw(data: dict) -> Figure:
    return picture(data, "GPipe with recompute, 4 devices, 8 microbatches")
