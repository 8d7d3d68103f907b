"""What a layer does with a microbatch, counted before anybody asks how fast: products, bytes, kernels."""

from typing import NamedTuple


class Product(NamedTuple):
    """``times`` matrix products of (m, k) with (k, n); ``weight`` says whether one factor is a weight.

    Of a product ``inside`` a larger kernel nothing is read or written: what its kernel does is in ``moved``.
    """

    times: int
    m: int
    n: int
    k: int
    weight: bool = True
    inside: bool = False


class Work(NamedTuple):
    """What a forward does. A full backward does twice as much, as each product has two gradients.

    ``moved`` are the bytes that all but matrix products read and write, ``launches`` the kernels that are
    started. ``again`` is what the backward does a second time before it begins.
    """

    products: tuple[Product, ...] = ()
    moved: int = 0
    launches: int = 1
    again: "Work | None" = None

    @property
    def flops(self) -> int:
        """Two for each multiplication of matrix products, as arXiv:2104.04473 counts (appendix)."""
        return 2 * sum(each.times * each.m * each.n * each.k for each in self.products)

    @property
    def weight_flops(self) -> int:
        """How much of the backward's are weight gradients: one of each product with weights."""
        return Work(tuple(each for each in self.products if each.weight)).flops

    @classmethod
    def total(cls, *works: "Work") -> "Work":
        """Of layers one after another."""
        again = [each.again for each in works if each.again]
        return cls(
            tuple(product for each in works for product in each.products),
            sum(each.moved for each in works),
            sum(each.launches for each in works),
            cls.total(*again) if again else None,
        )
