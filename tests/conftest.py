"""Drawings are made without a screen, and none outlives its test."""

import matplotlib
import matplotlib.pyplot as plt
import pytest

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _no_figure_stays_open():
    yield
    plt.close("all")
