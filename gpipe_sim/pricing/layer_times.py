"""How long a layer takes one device: its products, all other bytes, its sums, and the host that starts it.

device  [ products ][ other bytes ][ sums ]      a product takes as long as its FLOPs or its bytes,
host    [ launches       ]                       whichever is longer
both    [ the longer one, and a share of the shorter ]
"""

from collections.abc import Callable
from typing import NamedTuple

from gpipe_sim.core.work import Product, Work
from gpipe_sim.pricing.hardware import Accelerator

GRADIENT = 8  #: bytes read and written to add to the gradient of a weight: it is kept in float32


class Sums(NamedTuple):
    """How many arrays a forward and a backward sum over tensor-parallel devices, and their bytes."""

    forward: int = 0
    backward: int = 0
    size: int = 0


class Doing(NamedTuple):
    """What an action does in a layer: the device's time, its sums, and the kernels that the host starts."""

    device: float
    sums: float
    launches: float

    def __add__(self, other: "Doing") -> "Doing":  # type: ignore[override]
        return Doing(*(a + b for a, b in zip(self, other, strict=True)))

    def takes(self, accelerator: Accelerator) -> float:
        """The longer of device and host, and what is exposed of the shorter."""
        device, host = self.device + self.sums, self.launches * accelerator.launch
        return max(device, host) + accelerator.exposed * min(device, host)


class LayerTime(NamedTuple):
    """A layer's forward; the input gradient, with what is computed again before; and the weight gradient."""

    forward: Doing
    input_grad: Doing
    weight_grad: Doing


def layer_time(
    work: Work,
    weights: int,
    sums: Sums,
    accelerator: Accelerator,
    ring: Callable[[int], float],
    itemsize: int,
    flops: float,
    linear: float,
) -> LayerTime:
    """``ring`` says how long a sum takes, ``itemsize`` are the bytes of a number.

    ``linear`` is the rate of products with weights, ``flops`` that of all others.
    """

    def products(some: tuple[Product, ...]) -> float:
        hbm = float(accelerator.hbm)
        return sum((_product(each, itemsize, linear if each.weight else flops, hbm) for each in some), 0.0)

    def summed(times: int) -> float:
        return times * ring(sums.size) if times else 0.0

    def forward(of: Work, times: int) -> Doing:
        return Doing(products(of.products) + of.moved / accelerator.hbm, summed(times), of.launches)

    with_weights = tuple(each for each in work.products if each.weight)
    both, weight = 2 * products(work.products), products(with_weights)
    moved = 2 * work.moved / accelerator.hbm
    share = len(with_weights) / (2 * len(work.products) or 1)  # of the backward's kernels
    kernels = 2 * work.launches
    back = Doing(both - weight + moved, summed(sums.backward), kernels * (1 - share))
    if work.again:
        again_sums = sums.forward if work.again.products[-len(work.products) :] == work.products else 0
        back += forward(work.again, again_sums)
    added = Doing(weight + GRADIENT * weights / accelerator.hbm, 0.0, kernels * share)
    return LayerTime(forward(work, sums.forward), back, added)


def _product(product: Product, itemsize: int, flops: float, hbm: float) -> float:
    times, m, n, k, _, inside = product
    numbers = 0 if inside else m * k + k * n + m * n
    return times * max(2 * m * n * k / flops, itemsize * numbers / hbm)
