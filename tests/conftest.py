"""Drawings are made without a screen, and none outlives its test."""

import gc
import os
import sys

import matplotlib
import pytest
from hypothesis import settings

from gpipe_sim.core import step as step_module
from gpipe_sim.core.memory import roots

matplotlib.use("Agg")
gc.set_threshold(50_000, 20, 20)  # most of what is made stays; looking through it took a tenth of the time
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # what is tested on CPUs is, whatever else a machine has

# The same examples in every run: a run fails only for what was changed since the last one. `make test-random`
# draws new ones, and many more; of a failure it prints what to put above the test to see it again.
# derandomize is spelled out there because hypothesis turns it on by itself on a CI server.
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None, max_examples=50)
settings.register_profile("random", derandomize=False, deadline=None, max_examples=1000, print_blob=True)
settings.register_profile("few", settings.get_profile("repeatable"), max_examples=10)  # of the core by itself
settings.load_profile("repeatable")


def pytest_collection_finish():
    """All that is there before the first test stays, and nobody looks through it again."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_figure_stays_open():
    yield
    if plt := sys.modules.get("matplotlib.pyplot"):  # which takes half a second to load
        plt.close("all")


@pytest.fixture
def devices(monkeypatch):
    """Every simulated device of the steps that follow; after each action no two hold the same bytes."""
    made = []

    class Watched(step_module.Device):
        def __init__(self, *args):
            super().__init__(*args)
            made.append(self)

        def perform(self, span):
            super().perform(span)
            held = [{id(root) for root in roots(list(device.memory.held.values()))} for device in made]
            assert sum(map(len, held)) == len(set().union(*held)), f"shared after {span.action}"

    monkeypatch.setattr(step_module.Step, "device", Watched)
    return made
