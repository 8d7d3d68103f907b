"""GPipe: every forward, then every backward; in between, each device holds all eight microbatches."""

from matplotlib.figure import Figure

from figures._gantt import fraction, numbers, picture
from gpipe_sim import GPipe


def data() -> dict:
    return numbers(GPipe(devices=4, microbatches=8))


def draw(data: dict) -> Figure:
    return picture(data, f"GPipe leaves {fraction(data)} of the device time unused")
