"""The README's example on PyTorch's engine."""

from pathlib import Path

import pytest
from typed import blocks

pytest.importorskip("torch")

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_example_runs_and_equals_one_device(capsys):
    exec(next(code for _, code in blocks(README, "python") if "torch_backend" in code), {})
    assert capsys.readouterr().out == "True\n96 actions, timed\n"
