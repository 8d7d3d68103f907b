"""The points of ``plans`` without their names: what lesson 18 begins with."""

from matplotlib.figure import Figure

from figures._page import claim, page
from figures.plans import DEVICES, GB, data, style
from gpipe_sim.drawing.palette import CURVES, PAPER

__all__ = ["data", "draw"]


def draw(data: dict) -> Figure:
    figure, ax = page(3.9)
    plans = data["plans"]
    ax.plot(
        [each["bytes"] / GB for each in plans],
        [each["time"] for each in plans],
        "o",
        color=CURVES[0],
        mfc=PAPER,
    )
    style(ax, data)
    times = [each["time"] for each in plans]
    longer = f"{max(times) / min(times):.1f}"
    words = f"{len(plans)} plans for the same model and devices: one takes {longer} times as long as another"
    claim(ax, words, f"Llama 70B, {DEVICES} devices; each point is a plan")
    return figure
