"""Pipelines without a flush: 1F1B on an endless stream, with updates on the way."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpipe_sim.core.actions import Action, Kind, U
from gpipe_sim.core.one_f_one_b import OneFOneB
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.errors import got, whole


def _stream(schedule: Schedule, device: int, every: int) -> Iterator[Action]:
    """1F1B's row, with an update once every so many gradients are in, and after the last."""
    for action in OneFOneB(schedule.devices, schedule.microbatches).order(device):
        yield action
        done = action.microbatch + 1  # the backwards come in their order
        if action.kind is Kind.B and (done % every == 0 or done == schedule.microbatches):
            yield U(device, action.microbatch)


@dataclass(frozen=True)
class PipeDream(Schedule):
    """1F1B over a stream of mini-batches of ``every`` microbatches, each applied as soon as it is through.

    >>> print(gp.PipeDream(devices=2, microbatches=3))
    device 0: 0F0 0F1 0B0 0U0 0F2 0B1 0U1 0B2 0U2
    device 1: 1F0 1B0 1U0 1F1 1B1 1U1 1F2 1B2 1U2

    No bubble after the warm-up, as nothing waits for an update. So what enters has not seen the last updates:
    with ``every=1`` device k uses weights that are K-k-1 updates old. Weight stashing keeps a mini-batch's
    forward and backward on the same version, K-k of them on device k; ``weights="vertical"`` takes one
    version for all stages, "double" the one of 2BW, and "latest" keeps none. Where ``every`` does not divide
    the microbatches, the last mini-batch has fewer.
    Harlap et al. 2018, arXiv:1806.03377; Narayanan et al. 2019, SOSP.
    """

    every: int = 1

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "every", whole("PipeDream", "every", self.every))

    def order(self, device: int) -> Iterator[Action]:
        return _stream(self, device, self.every)


@dataclass(frozen=True)
class PipeDream2BW(Schedule):
    """PipeDream with two versions of the weights: mini-batch j uses version j - 1, on every stage.

    ``every`` is how many microbatches make a mini-batch: K unless given, and at least K, as in the paper.
    (With fewer than K-1, a stage would begin mini-batch j before version j - 1 is there.) From the second on,
    every gradient is one update old: W(t+1) = W(t) - rate * gradient at W(t-1).
    Narayanan et al. 2021, arXiv:2006.09503.
    """

    name = "PipeDream-2BW"
    weights = ("double",)

    every: int | None = None

    def __post_init__(self):
        super().__post_init__()
        every = self.devices if self.every is None else whole("PipeDream2BW", "every", self.every)
        if every < self.devices:
            raise ValueError(
                f"PipeDream2BW needs every >= devices, here {self.devices}, as in its paper {got(every)}; "
                "PipeDream takes any"
            )
        object.__setattr__(self, "every", every)

    def order(self, device: int) -> Iterator[Action]:
        return _stream(self, device, self.every or self.devices)


@dataclass(frozen=True)
class PipelinedBackprop(Schedule):
    """PipeDream's order without weight stashing: each action uses whatever weights are there.

    A microbatch's backward then meets other weights than its forward did, and what comes out is not the
    gradient of the loss that was computed. It holds one version, and is here as a warning.
    Petrowski, Dreyfus and Girault 1993, IEEE Transactions on Neural Networks 4(6); Kosson et al. 2021,
    arXiv:2003.11666, say what mends it.
    """

    name = "Pipelined backpropagation"
    weights = ("latest",)

    def order(self, device: int) -> Iterator[Action]:
        return _stream(self, device, 1)
