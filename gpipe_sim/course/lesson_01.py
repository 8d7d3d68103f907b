"""Lesson 01: why split a model."""

from collections.abc import Callable

import numpy as np

from gpipe_sim.core.layers import Layer, mlp
from gpipe_sim.core.partition import Partition
from gpipe_sim.core.split import split
from gpipe_sim.course.build import exercise
from gpipe_sim.course.called import called
from gpipe_sim.course.reply import Reply, almost, correct, is_number, keep_working

#: Widths of layers. Of those that narrow to one feature and widen again, biases are a third of the bytes.
#: With one wide place in the middle, the fullest of 3 stages has more than the fuller of 2.
HIDDEN = (
    ([64, 300, 300, 10], np.float64),
    ([64, 10], np.float64),
    ([64, 40, 500, 40, 40, 10], np.float64),
    ([32, 200, 200, 200, 200, 200, 10], np.float64),
    ([1, 90] * 5, np.float64),
    ([16, 16, 16, 300, 16, 16, 16], np.float64),
    ([64, 300, 300, 10], np.float32),
)
ARRAYS_PER_WEIGHT = 4  # weight, gradient, and Adam's two averages


@exercise("write a function devices_needed(layers, capacity) and pass it in")
def devices_needed(answer: Callable | None) -> Reply:
    """Check ``answer(layers, capacity)``: the fewest stages such that each fits into ``capacity`` bytes."""
    for sizes, dtype in HIDDEN:
        layers, of = mlp(sizes, dtype=dtype), ", dtype=np.float32" * (dtype is np.float32)
        for capacity in _capacities(layers):
            where = f"for mlp({sizes}{of}) and {capacity:,} bytes per device"
            got = called(answer, layers, capacity, where=where)
            _what_is_wrong(f"{where} you say {got!r}", layers, capacity, got)
    return correct("every stage fits on every model tried, and no fewer devices would do")


def training_bytes(partition: Partition, names: str = "Wb") -> int:
    """The bytes of one partition's weights, gradients and Adam's state."""
    return ARRAYS_PER_WEIGHT * sum(
        array.nbytes for (_, name), array in partition.parameters.items() if name in names
    )


def _largest(layers: list[Layer], stages: int) -> int:
    """The bytes of the largest stage of an even cut."""
    return max(map(training_bytes, split(layers, stages=stages)))


def _capacities(layers: list[Layer]) -> list[int]:
    """Into how many bytes even cuts of this model just fit, or not by 8, or with 8 to spare."""
    largest = [_largest(layers, stages) for stages in range(1, len(layers) + 1)]
    sizes = {size + spare for size in largest for spare in (-8, 0, 8) if size + spare >= min(largest)}
    return [largest[0], *sorted(sizes)]  # for the first one, who asks for room to spare finds an answer too


def _what_is_wrong(said: str, layers: list[Layer], capacity: int, got: object) -> None:
    if not is_number(got) or not 1 <= got <= len(layers) or got % 1 != 0:
        question = "What is it, and what is inside it?"
        if got is None:
            question = "Which return does it reach?"
        elif is_number(got):
            question = f"How many stages can {len(layers)} layer{'s' * (len(layers) > 1)} make?"
        raise keep_working(f"{said}; it should be a whole number of devices. {question}")
    got, wanted = int(got), next(s for s in range(1, len(layers) + 1) if _largest(layers, s) <= capacity)
    parts = split(layers, stages=got)
    largest, together = max(map(training_bytes, parts)), training_bytes(Partition(layers))
    if got * capacity < together:
        room = f"devices that hold {got * capacity:,} bytes together, for {together:,}"
        raise almost(f"{said}: {room}. Which stage does not fit, with all that training keeps?")
    if got < wanted:
        hint = "do all stages have the same number of weights?"
        if max(training_bytes(part, "W") for part in parts) <= capacity:
            hint = "which layers does gp.split put into it, and which arrays have those?"
        raise almost(f"{said}, but then the largest stage has {largest:,} bytes: {hint}")
    if all(_largest(layers, stages) == capacity for stages in range(wanted, got)) and got > wanted:
        raise almost(f"{said}. With {wanted}, the largest stage has {capacity:,} bytes. Does that fit?")
    if got > wanted and (fewer := _largest(layers, got - 1)) > capacity:
        hump = f"With {got - 1}, the largest stage has {fewer:,} bytes, and with {got} only {largest:,}"
        raise almost(f"{said}. {hump}. Does it always go that way?")
    if got > wanted:
        raise almost(f"{said}; each stage fits, at most {largest:,} bytes. Would one device fewer do too?")
