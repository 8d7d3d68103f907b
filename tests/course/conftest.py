"""What the tests of the lessons share."""

from pathlib import Path

import pytest

from gpipe_sim.course import mine


@pytest.fixture
def file(tmp_path, monkeypatch) -> Path:
    """Where the student's file may be, as a notebook sees it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTEST_VERSION")
    monkeypatch.setattr(mine, "SECONDS", 0.3)
    return tmp_path / mine.FILE
