"""The README's example on PyTorch's engine."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_example_runs_and_equals_one_device(capsys):
    example = next(
        block for block in re.findall(r"```python\n(.*?)```", README, re.S) if "torch_backend" in block
    )
    exec(example, {})
    assert capsys.readouterr().out == "True\n96 actions, timed\n"
