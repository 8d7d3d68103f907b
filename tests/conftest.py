"""Drawings are made without a screen, and none outlives its test."""

import os

import matplotlib
import matplotlib.pyplot as plt
import pytest

matplotlib.use("Agg")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # what is tested on CPUs is, whatever else a machine has


@pytest.fixture(autouse=True)
def _no_figure_stays_open():
    yield
    plt.close("all")
