"""The example on the page about PyTorch's engine."""

from pathlib import Path

import pytest
from typed import blocks

pytest.importorskip("torch")

PAGE = (Path(__file__).parents[1] / "docs" / "torch.md").read_text()


def test_the_example_runs_and_equals_one_device(capsys):
    exec(next(code for _, code in blocks(PAGE, "python") if "torch_backend" in code), {})
    assert capsys.readouterr().out == "True\n96 actions, timed\n"
