"""A cut as PyTorch, DeepSpeed and torchgpipe take it, read back by their own rules."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpipe_sim.export import to_deepspeed_parts, to_torch_split, to_torchgpipe_balance

CUTS = st.lists(st.integers(1, 6), min_size=1, max_size=24)


def torch_stages(split: dict[str, str], layers: int) -> list[int]:
    """`pipeline(split_spec=...)`: a split before each layer that is named begins the next stage."""
    assert set(split.values()) <= {"BEGINNING"}
    begins = [int(re.fullmatch(r"layers\.(\d+)", name)[1]) for name in split]
    return [end - start for start, end in zip([0, *begins], [*begins, layers], strict=True)]


@given(CUTS)
def test_each_stage_has_its_layers_again(balance):
    assert torch_stages(to_torch_split(balance), sum(balance)) == balance
    parts = to_deepspeed_parts(balance)  # stage s has the layers parts[s] up to parts[s + 1]
    assert [parts[s + 1] - parts[s] for s in range(len(balance))] == balance
    assert to_torchgpipe_balance(balance) == balance and parts[-1] == sum(balance)


def test_layers_have_the_names_that_the_model_gives_them():
    assert to_torch_split([2, 3], "model.blocks.{}.body") == {"model.blocks.2.body": "BEGINNING"}
    assert to_torch_split([32]) == {}


@pytest.mark.parametrize("to", [to_torch_split, to_deepspeed_parts, to_torchgpipe_balance])
@pytest.mark.parametrize("balance", [[], [1, 0], [1, -1], "12", [1.5], {1: 2}])
def test_what_is_no_cut_is_refused_by_name(to, balance):
    with pytest.raises((ValueError, TypeError), match=f"{to.__name__} needs"):
        to(balance)


@pytest.mark.parametrize("layer", ["layers.", "{}.{}", 3, None])
def test_a_name_without_a_place_for_the_number_is_refused(layer):
    with pytest.raises(ValueError, match=r"layer= with one \{\} in it"):
        to_torch_split([1, 2], layer)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch.export, of a package of its own
def test_torch_splits_a_model_there():
    """PyTorch itself cuts a chain of eight layers before the second and the fifth, into 1, 3 and 4."""
    torch = pytest.importorskip("torch")
    from torch.distributed.pipelining import SplitPoint, pipeline

    class Chain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(8))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    points = {name: SplitPoint[point] for name, point in to_torch_split([1, 3, 4]).items()}
    pipe = pipeline(Chain(), (torch.zeros(1, 2),), split_spec=points)
    weights = [len([*pipe.get_stage_module(stage).parameters()]) for stage in range(pipe.num_stages)]
    assert weights == [2, 6, 8]
