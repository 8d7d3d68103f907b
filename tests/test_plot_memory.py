"""The memory panel draws the categories it is asked for, and no other."""

import matplotlib.pyplot as plt
import pytest

import gpipe_sim as gp
from gpipe_sim.runtime.memory import BOUNDARY, CATEGORIES, SAVED, MemoryTrace

TRACE = MemoryTrace((0, 1, 2), dict.fromkeys(CATEGORIES, (0, 10, 20)))


@pytest.mark.parametrize(("categories", "top"), [(CATEGORIES, 100), ((BOUNDARY, SAVED), 40)])
def test_what_is_named_is_stacked(categories, top):
    ax = gp.plots.plot_memory(TRACE, categories=categories)
    assert [area.get_label() for area in ax.collections] == list(categories)
    assert max(y for area in ax.collections for path in area.get_paths() for _, y in path.vertices) == top
    plt.close(ax.figure)


def test_an_unknown_category_is_refused():
    with pytest.raises(ValueError, match="needs category to be one of"):
        gp.plots.plot_memory(TRACE, categories=["activations"])
    plt.close("all")
