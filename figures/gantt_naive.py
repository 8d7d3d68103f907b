"""Model parallelism without a pipeline: down the diagonal and back, three quarters of it waiting."""

from matplotlib.figure import Figure

from figures._gantt import fraction, numbers, picture
from gpipe_sim import Naive


def data() -> dict:
    return numbers(Naive(devices=4, microbatches=1))


def draw(data: dict) -> Figure:
    return picture(data, f"Without a pipeline, {fraction(data)} of the device time is waiting")
