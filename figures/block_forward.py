"""The first half of ``four_sums``: a block's forward, in one machine."""

from matplotlib.figure import Figure

from figures import four_sums
from figures._page import claim, page


def data() -> dict:
    return {"forward": four_sums.data()["in one machine"][:4]}


def draw(data: dict) -> Figure:
    figure, ax = page(3.3)
    row = data["forward"]
    four_sums.lanes(ax, row)
    four_sums.explain(ax, ("F", "sum"))
    words = "Eight devices share each layer: each computes its part, then all wait for a sum"
    claim(ax, words, "the forward of a block of GPT-3, one text; a device sends 300 GB/s")
    return figure
