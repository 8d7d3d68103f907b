"""Rematerialisation: keep only a stage's boundary input, and compute the other activations again.

The R actions of a schedule say what is recomputed, and when; there is no other setting. Each R stands right
before the backward that reads what it restores. R itself reads only the saved boundary input. It need not
wait for the gradient, and so it can start while the device would otherwise be idle (GPipe, section 2.3).

Several stages on a device, each recomputed, are a checkpoint every so many layers (Chen et al. 2016,
arXiv:1604.06174). To recompute parts of a stage, see ``memory.recompute``.
"""

from collections.abc import Collection, Iterator, Set
from dataclasses import dataclass

from gpipe_sim.core.actions import Action, Kind, OverlapFB, R
from gpipe_sim.core.rows import read_row
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.errors import got, listed, one_of, whole

MODES = ("always", "except_last", "never")


@dataclass(frozen=True, repr=False)
class Remat(Schedule):
    """Another schedule with an R before each backward that needs one. Made by ``remat``."""

    inner: Schedule
    mode: str
    only: frozenset[int] | None = None  # stages; None is all of them

    @property
    def name(self) -> str:
        return f"{self.inner.name} with recompute"

    @property
    def weights(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.inner.weights

    @property
    def stages_per_device(self) -> int:  # type: ignore[override]
        return self.inner.stages_per_device

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        return self.inner.placement

    def order(self, device: int) -> Iterator[Action | OverlapFB]:
        kept = self._kept()
        for action in read_row(f"{self.inner!r}.order({device})", self.inner.order(device)):
            for part in action.parts:
                chosen = self.only is None or part.stage in self.only
                if chosen and part.kind in (Kind.B, Kind.I) and part.microbatch not in kept:
                    yield R(part.stage, part.microbatch)
            yield action

    def _kept(self) -> set[int]:
        """The microbatches that are not recomputed: under "except_last", the last one of each direction."""
        if self.mode == "always":
            return set()
        enters_at = self.inner.program.homes(Kind.F)[0].tolist()  # the device of stage 0, per microbatch
        return set({device: m for m, device in enumerate(enters_at)}.values())

    def __repr__(self) -> str:
        stages = "" if self.only is None else f", stages={sorted(self.only)}"
        return f"remat({self.inner!r}, {self.mode!r}{stages})"


def remat(schedule: Schedule, mode: str, stages: Collection[int] | None = None) -> Schedule:
    """The same order, with an R before each backward whose activations are to be recomputed.

    >>> print(gp.remat(gp.GPipe(2, 3), "except_last"))
    device 0: 0F0 0F1 0F2 0B2 0R1 0B1 0R0 0B0
    device 1: 1F0 1F1 1F2 1B2 1R1 1B1 1R0 1B0

    ``"always"`` recomputes every microbatch, ``"never"`` none. ``"except_last"`` recomputes all but the last
    microbatch, whose backward comes first in GPipe's reversed drain; of a schedule in which microbatches go
    in two directions, all but the last of each. The modes are torchgpipe's, Kim et al. 2020,
    arXiv:2004.09910. With ``stages``, only these recompute. ValueError for another mode, a stage that there
    is not, or a schedule that recomputes already.
    """
    require_schedule("remat", schedule)
    one_of("remat", "mode", mode, MODES)
    if Kind.R in schedule.program.where:
        raise ValueError(f"{schedule!r} recomputes already")
    only = None if stages is None else _read_stages(stages, schedule)
    if mode == "never" or only == frozenset():
        return schedule
    return Remat(schedule.devices, schedule.microbatches, schedule, mode, only)


def _read_stages(stages: Collection[int], schedule: Schedule) -> frozenset[int]:
    such_as = "stages to be a list of stages, such as [0, 1]"
    given = listed("remat", such_as, list(stages) if isinstance(stages, Set) else stages)
    read = frozenset(whole("remat", "a stage", stage, low=0) for stage in given)
    if too_high := [stage for stage in read if stage >= schedule.stages]:
        raise ValueError(f"{schedule!r} has stages 0 to {schedule.stages - 1} {got(max(too_high))}")
    return read
