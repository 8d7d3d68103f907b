"""A torch that does something else is found out before the first step, whatever it is that it does."""

import pytest

torch = pytest.importorskip("torch")

from torch_changes import CHANGES, MESSAGES, said  # noqa: E402

from gpipe_sim.torch_backend import LocalProcesses, canary  # noqa: E402


@pytest.fixture(scope="module")
def pair():
    with LocalProcesses(2) as processes:
        yield processes


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_engine_is_refused_by_every_process(change, pair):
    found = pair.run(said, change)
    print(found)
    assert all("in a small step before the first" in text for text in found)


@pytest.mark.parametrize("change", CHANGES.keys() - MESSAGES)
def test_and_in_one_process(change, monkeypatch):
    monkeypatch.setattr(canary, "_FLEW", set())
    print(said(change))
    assert "in a small step before the first" in said(change)
