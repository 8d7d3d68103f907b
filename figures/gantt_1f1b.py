"""1F1B: as long as GPipe, but device k holds at most 4 - k microbatches."""

from matplotlib.figure import Figure

from figures._gantt import numbers, picture
from gpipe_sim import GPipe, OneFOneB

SIZE = {"devices": 4, "microbatches": 9}


def data() -> dict:
    return numbers(OneFOneB(**SIZE)) | {"gpipe": numbers(GPipe(**SIZE))}


def draw(data: dict) -> Figure:
    return picture(data, claim(data, data["gpipe"]))


def claim(data: dict, gpipe: dict) -> str:
    """Its length and what it holds at most, beside GPipe's."""
    longer = data["makespan"] - gpipe["makespan"]
    held, all_of_them = max(data["peak_in_flight"]), max(gpipe["peak_in_flight"])
    length = "as long as GPipe" if longer == 0 else f"{longer:+g} beside GPipe"
    return f"1F1B: {length}, and holds {held} microbatches at most instead of {all_of_them}"
