"""GPipe with recomputation: 8 longer, not 11, because devices recompute while they wait for a gradient."""

from matplotlib.figure import Figure

from figures._gantt import numbers, picture
from gpipe_sim import Costs, GPipe, remat, simulate


def data() -> dict:
    """``inside``: how long it takes if a backward begins with its recompute, after the gradient came."""
    gpipe = GPipe(devices=4, microbatches=8)
    lengths = {"plain": simulate(gpipe).makespan, "inside": simulate(gpipe, Costs(input_grad=2)).makespan}
    return numbers(remat(gpipe, "always")) | lengths


def draw(data: dict) -> Figure:
    longer, inside = (end - data["plain"] for end in (data["makespan"], data["inside"]))
    return picture(
        data, f"Recompute makes GPipe {longer} longer, not {inside}: devices recompute while they wait"
    )
