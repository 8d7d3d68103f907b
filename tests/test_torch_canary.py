"""A torch that does something else is found out before the first step, whatever it is that it does."""

from typing import ClassVar

import pytest

torch = pytest.importorskip("torch")

from torch_changes import CHANGES, MESSAGES, said  # noqa: E402

from gpipe_sim.torch_backend import LocalProcesses, UnsupportedTorch  # noqa: E402


class Pair:
    """Two processes, or two others once these have ended."""

    now: ClassVar[list[LocalProcesses]] = []

    @classmethod
    def run(cls, change: str) -> list[str]:
        if not cls.now or "closed" in repr(cls.now[-1]):
            cls.now.append(LocalProcesses(2))
        return cls.now[-1].run(said, change)


def test_torch_as_it_is_passes_with_nothing_said():
    assert (said("nothing"), Pair.run("nothing")) == ("", ["", ""])


@pytest.mark.parametrize("change", [*CHANGES][1:])
def test_a_changed_engine_is_refused_by_every_process_before_a_first_step(change):
    """The first four gave wrong gradients once, and the fifth ended in a bare TypeError."""
    for told in (Pair.run, said) if change not in MESSAGES else (Pair.run,):
        try:
            found = told(change)
        except UnsupportedTorch as error:
            found = str(error)
        for text in [found] if isinstance(found, str) else found:
            assert (
                text.startswith(f"torch {torch.__version__} ") and "in a small step before the first" in text
            )
            assert text.count("its pipeline engine is not the one") == 1
