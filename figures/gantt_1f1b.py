"""1F1B: as long as GPipe, but device k holds at most 4 - k microbatches."""

from matplotlib.figure import Figure

from figures._gantt import numbers, picture
from gpipe_sim import OneFOneB


def data() -> dict:
    return numbers(OneFOneB(devices=4, microbatches=8))


def draw(data: dict) -> Figure:
    return picture(data, "1F1B, 4 devices, 8 microbatches")
