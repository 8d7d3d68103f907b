"""What each layer of a model makes, in bytes and FLOPs: plain numbers. ``shape_inference`` finds them.

A ``Profile`` is all that a prediction or a planner has to know about a model, whether its layers hold weights
or exist on paper only. How large an array is depends on the samples of a microbatch: ``fixed`` bytes and so
many for each sample. Which arrays are one and the same is part of it, because a device counts each once.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.boundary import Boundary, first, rest
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.numbers import CostColumn
from gpipe_sim.core.program import CODE
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.step import kind_of_step
from gpipe_sim.errors import whole


def names_of(name: str, boundary: Boundary) -> dict[str, Any]:
    """The arrays of a boundary by name: x, x1, x2, ..."""
    return {name: first(boundary)} | {f"{name}{i}": each for i, each in enumerate(rest(boundary), 1)}


class Size(NamedTuple):
    """The bytes of an array, for a microbatch of so many samples."""

    fixed: int
    per_sample: int

    def of(self, samples: int) -> int:
        return self.fixed + self.per_sample * samples


#: A saved or pending array that the layer did not make goes by its name: "x" is its input and "y" its output,
#: "dy" and "dx" are the gradients of these, "x1", "x2", ... and "y1", "y2", ... what travels along with them.
Array = Size | str
Sizes = dict[str, Size]  #: of arrays, by their names


def size_of(array: Array, sizes: Sizes) -> Size:
    """Its own size, or that of the array with its name."""
    return array if isinstance(array, Size) else sizes[array]


class Selective(NamedTuple):
    """What a layer would save if it recomputed its attention, and the FLOPs of that, for each sample."""

    saved: tuple[Array, ...]
    recompute_flops: int


@dataclass(frozen=True)
class LayerProfile:
    """What one layer holds and makes. An ``output`` "x" or ``input_gradient`` "dy" is passed on as it is."""

    parameters: dict[str, int]
    flops: int  # of a forward, for each sample
    gradients: dict[str, Size]
    output: Array
    saved: tuple[Array, ...]
    input_gradient: Array
    pending: tuple[Array | int, ...]  # a whole number is the place of an array among the saved ones
    state: int = 0  # what an optimizer keeps for the parameters
    weight_flops: int = 0  # of the weight gradients, for each sample
    recompute_flops: int = 0  # of what the backward computes again, for each sample
    selective: Selective | None = None
    along: tuple[Array, ...] = ()  # what travels along with the output
    #: What exists at times while it runs, beside its input and what it has not made: the most of it.
    forward_inside: tuple[Size, ...] = ()
    backward_inside: tuple[Size, ...] = ()

    @property
    def outputs(self) -> dict[str, Array]:
        """What leaves it, by the names that it has for the next layer: x, and x1, x2, ... along with it."""
        return {"x": self.output} | {f"x{i}": array for i, array in enumerate(self.along, start=1)}

    @property
    def input_flops(self) -> int:
        """Of the input gradient, for each sample, with what is computed again before it."""
        return 2 * self.flops - self.weight_flops + self.recompute_flops


@dataclass(frozen=True)
class LossProfile:
    """What the loss keeps ("x" are the model's outputs, or "target"), and the gradient that it makes."""

    saved: tuple[Array, ...]
    gradient: Size


@dataclass(frozen=True)
class Profile:
    """A model, stage by stage, with the batch that it takes and its loss. All sizes are bytes."""

    samples: int
    input: Size
    target: Size
    stages: tuple[tuple[LayerProfile, ...], ...]
    loss: LossProfile

    @property
    def layers(self) -> tuple[LayerProfile, ...]:
        """All of them, along the model."""
        return tuple(layer for stage in self.stages for layer in stage)

    @property
    def parameters(self) -> int:
        """The bytes of all weights."""
        return sum(sum(layer.parameters.values()) for layer in self.layers)

    @property
    def gradient_bytes(self) -> tuple[int, ...]:
        """Of each stage, the bytes of all its weights' gradients."""
        return tuple(
            sum(size.fixed for layer in stage for size in layer.gradients.values()) for stage in self.stages
        )

    @property
    def boundaries(self) -> tuple[Sizes, ...]:
        """What passes before each layer, and after the last one: x, and x1, x2, ... along with it."""
        found = [{"x": self.input}]
        for layer in self.layers:
            found.append({name: size_of(array, found[-1]) for name, array in layer.outputs.items()})
        return tuple(found)

    @property
    def ends(self) -> list[int]:
        """Of each stage, the number of the layer after its last."""
        return list(accumulate(map(len, self.stages)))

    def require_stages(self, schedule: Schedule) -> None:
        """ValueError if the profile is not for as many stages as the schedule has."""
        if schedule.stages != len(self.stages):
            raise ValueError(
                f"{schedule!r} has {schedule.stages} stages, but the profile has {len(self.stages)}"
            )

    def message_bytes(self, schedule: Schedule) -> CostColumn:
        """The bytes of each message of a schedule, in the order of its program's needs that cross.

        A forward sends the output of its stage, with what travels along; a backward the gradient of its
        input. ValueError if the profile has another number of stages.
        """
        self.require_stages(schedule)
        program = schedule.program
        parts = program.needs[program.crosses]
        forward = program.kind[parts] == CODE[Kind.F]
        samples = [piece.samples for piece in kind_of_step(schedule).cut(program, self.samples)]
        counts = sorted(set(samples))
        (output, gradient), ends = self.passing, self.ends
        sizes = [*(output[end] for end in ends), *(gradient[start] for start in (0, *ends[:-1]))]
        values = [size.of(n) for n in counts for size in sizes]
        which = np.searchsorted(counts, np.array(samples)[program.microbatch[parts]])
        stages = len(self.stages)
        return CostColumn(values, which * 2 * stages + program.stage[parts] + stages * ~forward)

    @property
    def passing(self) -> tuple[list[Size], list[Size]]:
        """Before each layer, and after the last one: the message there, and the gradient that comes back."""
        forward = [Size(*map(sum, zip(*sizes.values(), strict=True))) for sizes in self.boundaries]
        back = [self.loss.gradient]
        for layer in reversed(self.layers):
            back.append(size_of(layer.input_gradient, {"dy": back[-1]}))
        return forward, back[::-1]

    def require_within(self, schedule: Any, limit: Any, costs: Any = None, weights: Any = None) -> None:
        """MemoryLimitError if a step of this schedule would hold more bytes than ``limit`` on a device."""
        from gpipe_sim.memory.limit import require_within  # it reads profiles

        require_within(schedule, self, limit, costs, weights)

    def costs(self, microbatches: int = 1) -> Costs:
        """What F, I and W of each stage compute, in FLOPs of matrix products; B is I and W, R is F.

        They are those of the largest microbatch. The loss counts nothing, and messages take no time.
        ValueError for more microbatches than samples.
        """
        samples = self.largest(microbatches)

        def summed(name: str) -> list[int]:
            return [samples * sum(getattr(layer, name) for layer in stage) for stage in self.stages]

        return Costs(summed("flops"), summed("input_flops"), summed("weight_flops"))

    def largest(self, microbatches: int) -> int:
        """The samples of the largest of so many microbatches."""
        return -(-self.samples // whole("a profile", "microbatches", microbatches, high=self.samples))

    def __repr__(self) -> str:
        return f"<Profile of {len(self.stages)} stages, {self.parameters:,} bytes of parameters>"
