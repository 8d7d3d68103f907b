"""``plot_parts``: images that add up, read back from the axes."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

import gpipe_sim as gp


@pytest.fixture
def drawn():
    parts = [np.random.default_rng(seed).normal(size=(8, 8)) for seed in range(3)]
    whole = sum(reversed(parts))
    axes = gp.plots.plot_parts(parts, whole)
    yield parts, whole, axes
    plt.close(axes[0].figure)


def test_parts_sum_whole_and_their_difference_are_drawn(drawn):
    parts, whole, axes = drawn
    total = parts[0] + parts[1] + parts[2]
    expected = [*parts, total, whole, total - whole]
    assert all(np.array_equal(ax.images[0].get_array(), e) for ax, e in zip(axes, expected, strict=True))
    assert [ax.get_title() for ax in axes] == ["part 0", "part 1", "part 2", "sum", "whole", "sum − whole"]
    assert "".join(text.get_text() for ax in axes for text in ax.texts) == "++="


def test_all_but_the_difference_share_one_scale(drawn):
    parts, whole, axes = drawn
    most = max(abs(image).max() for image in (*parts, whole))
    assert {ax.images[0].get_clim() for ax in axes[:-1]} == {(-most, most)}
    assert axes[-1].images[0].get_clim()[1] < 1e-14


def test_a_difference_of_exactly_nothing_stays_white():
    part = np.ones((2, 2))
    axes = gp.plots.plot_parts([part], part)
    assert axes[-1].images[0].get_clim() == (-1, 1)
    plt.close(axes[0].figure)
