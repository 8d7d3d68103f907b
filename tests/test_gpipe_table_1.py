"""GPipe's table 1, Transformer rows: parameters and their memory, and a depth that grows with the devices.

Huang et al. 2019, arXiv:1811.06965. Ours on paper learns its positions, 2.1 million weights; without them it
has every count that the paper prints, to the last digit. So the paper's has biases, LayerNorms, and a head
with weights of its own, as ours does.
"""

import pytest
from closed_forms import transformer_parameters

import gpipe_sim as gp

COLUMNS = gp.papers.published.GPIPE_DEPTHS
H, TOKENS, PLACES, GIB = 2_048, 32_000, 1_024, 2**30
EACH = pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)


def parameters(blocks: int) -> int:
    layers = gp.gpt(blocks, H, 32, tokens=TOKENS, sequence=PLACES)
    return sum(weight.size for layer in layers for weight in layer.parameters.values())


@EACH
def test_our_model_on_paper_has_the_printed_parameters_within_1_percent(column):
    found = parameters(column.blocks)
    assert found == pytest.approx(column.parameters, rel=0.01)
    head = H * TOKENS + TOKENS
    assert found == transformer_parameters(column.blocks, H, TOKENS, PLACES) + head + 2 * H


@EACH
def test_12_bytes_for_each_of_them_are_the_printed_gib_within_1_percent(column):
    assert 12 * parameters(column.blocks) / GIB == pytest.approx(column.parameter_memory, rel=0.01)
    assert 12 * column.parameters / GIB == pytest.approx(column.parameter_memory, rel=0.01)


@EACH
def test_without_learned_positions_each_count_is_printed_as_ours_to_the_last_digit(column):
    found, unit = parameters(column.blocks) - PLACES * H, 1e6 if column.parameters < 1e9 else 1e9
    assert round(found / unit, 1) == round(column.parameters / unit, 1)


def test_only_with_the_two_memory_cells_of_naive_1_exchanged_do_they_fit_its_parameters():
    """Printed are 11.7G for parameters and 3.15G for activations; 282.2 million of 12 bytes are 3.15 GiB."""
    naive, pipelined = COLUMNS[:2]
    assert round(12 * naive.parameters / GIB, 2) == naive.parameter_memory == 3.15
    assert naive.activation_memory > pipelined.activation_memory, "13 recomputed blocks hold less than 3"
