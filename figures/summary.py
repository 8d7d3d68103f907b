"""Four charts on one page: that it learns, what bubbles cost, what remat saves, what more devices bring."""

from matplotlib.figure import Figure

from figures import bubble_curves, efficiency, remat_memory, training_loss
from figures._page import page
from gpipe_sim.drawing.plots import plot_losses
from gpipe_sim.drawing.plots.style import TITLE_SIZE


def data() -> dict:
    """The numbers of the four figures, under their names."""
    parts = (training_loss, bubble_curves, remat_memory, efficiency)
    return {part.__name__.removeprefix("figures."): part.data() for part in parts}


def draw(data: dict) -> Figure:
    figure, ((loss, bubble), (memory, share)) = page(6.8, 2, 2)
    plot_losses(training_loss.losses(data["training_loss"]), loss)
    bubble_curves.draw_on(bubble, data["bubble_curves"])
    remat_memory.draw_on(memory, data["remat_memory"])
    efficiency.draw_on(share, data["efficiency"])
    accuracy = min(data["training_loss"]["accuracy"].values())
    titles = {
        loss: f"Loss; {accuracy:.1%} right on held-out digits",
        bubble: "The bubble of GPipe, measured on (K-1)/(K-1+M)",
        memory: "Activations of the fullest device, M = 8",
        share: "The efficiency of GPipe, measured on M/(K-1+M)",
    }
    for ax, title in titles.items():
        ax.set_title(title, loc="left", fontsize=TITLE_SIZE)
    for value in list(bubble.texts):  # beside the rings there is no room here
        value.remove()
    for ax, place in ((loss, "upper right"), (bubble, "upper right"), (share, "lower left")):
        ax.get_legend().set_bbox_to_anchor((0, 0, 1, 1), ax.transAxes)
        ax.get_legend().set_loc(place)
        ax.get_legend().borderaxespad = 0.6
    return figure
