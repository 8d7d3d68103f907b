"""A cut as Megatron-LM takes it, read back by Megatron's own rules."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpipe_sim.export import to_megatron_layout


def stages(layout: str) -> list[str]:
    """Megatron-LM's ``PipelineParallelLayerLayout``, by its documentation: no commas, products, then "|"."""
    layout = layout.replace(",", "")
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        layout = re.sub(pattern, lambda found: found[1] * int(found[2]), layout)
    return layout.split("|")


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40))
def test_each_stage_has_its_blocks_the_first_the_embedding_and_the_last_the_head(balance):
    read = stages(to_megatron_layout(balance))
    assert [stage.count("t") for stage in read] == balance
    assert re.fullmatch("Et*L", "".join(read)) and read[0][0] == "E" and read[-1][-1] == "L"


def test_a_long_layout_is_short():
    assert to_megatron_layout([1] + [2] * 38 + [3]) == "Et|(tt|)*38tttL"
    assert to_megatron_layout([1, 2, 2, 2, 1]) == "Et|(tt|)*3tL"
    assert to_megatron_layout([1, 2, 2, 1]) == "Et|tt|tt|tL"
    assert to_megatron_layout([32]) == f"E{'t' * 32}L"


@pytest.mark.parametrize("balance", [[], [1, -1], "12", [1.5]])
def test_what_is_no_cut_is_refused(balance):
    with pytest.raises((ValueError, TypeError), match="to_megatron_layout needs"):
        to_megatron_layout(balance)
