"""A configuration as it was asked for: what each device has to do and to send, however fast it is."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from inspect import signature
from typing import Any, NamedTuple

import numpy as np

from gpipe_sim.core.boundary import apply_layer, first
from gpipe_sim.core.device import Batch
from gpipe_sim.core.layers import Context, Layer, Linear
from gpipe_sim.core.losses import Loss
from gpipe_sim.core.meta_array import MetaArray
from gpipe_sim.core.optimizers import Optimizer, require_optimizer
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.work import Work
from gpipe_sim.errors import got, listed, one_of, require, require_batch, require_flags, whole
from gpipe_sim.pricing.groups import Group
from gpipe_sim.pricing.layer_times import Sums
from gpipe_sim.pricing.tensor_parts import Part, tensor_parts
from gpipe_sim.transformers.blocks import Chain, Checkpoint
from gpipe_sim.transformers.llama import Head
from gpipe_sim.transformers.optimizers import Adam, MixedPrecision
from gpipe_sim.transformers.transformer import Embedding

OWNER = "price"
RECOMPUTE = ("none", "selective", "full")
UNSHARD = ("microbatch", "step")
ADAM, MIXED = Adam(), MixedPrecision(Adam())  #: unless another optimizer is given
LOSS_KERNELS = 5

#: What a factor is measured for: the places, sequences and features of what comes in, and the tensor degree.
Shape = tuple[int, ...]


class Piece(NamedTuple):
    """A layer's work on one device; ``shape`` of a block, and whether it is the uncut head."""

    work: Work
    weights: int
    sums: Sums
    itemsize: int
    shape: Shape | None = None
    vocabulary: bool = False
    end: bool = False


@dataclass(frozen=True, eq=False)
class Layout:
    """A model on a cluster. ``pieces`` are what its layers are, each sort once; ``sorts`` which a layer is.

    ``message`` has the bytes between two stages: each tensor-parallel device sends its part of them, and
    where these are needed whole they are gathered there (arXiv:2104.04473, section 4.1).
    """

    model: tuple[Layer, ...]
    batch: Batch
    loss: Loss
    schedule: Schedule
    tensor: int
    replicas: int
    microbatch: int
    cut: tuple[int, ...]
    recompute: str
    sequence_parallel: bool
    zero: int
    gradient_bytes: int
    unshard: str
    optimizer: Optimizer
    pieces: tuple[Piece, ...] = field(repr=False)
    sorts: tuple[int, ...] = field(repr=False)
    message: int

    @cached_property
    def counts(self) -> np.ndarray:
        """How many of each piece a stage has, (stages, pieces); after all layers comes the loss."""
        *early, _ = self.cut
        stages = np.repeat(np.arange(len(self.cut)), [*early, len(self.sorts) - sum(early)])
        counts = np.zeros((len(self.cut), len(self.pieces)), int)
        np.add.at(counts, (stages, np.array(self.sorts)), 1)
        return counts

    @property
    def tensor_group(self) -> Group:
        """The devices that have a stage of a replica together."""
        return Group(self.tensor, 1, self.replicas * self.schedule.devices)

    @property
    def replica_group(self) -> Group:
        """Those that have the same part of a stage."""
        return Group(self.replicas, self.tensor, self.schedule.devices)

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """Those of its blocks, each once."""
        return tuple(dict.fromkeys(piece.shape for piece in self.pieces if piece.shape))

    @cached_property
    def weights(self) -> list[int]:
        """The weights of each stage, on one device."""
        return [
            sum(int(n) * piece.weights for n, piece in zip(row, self.pieces, strict=True))
            for row in self.counts
        ]

    @cached_property
    def tied(self) -> list[tuple[tuple[int, int], int]]:
        """The stages of embedding and head where they have one weight, and its numbers on one device."""
        stage = np.repeat(np.arange(len(self.cut)), self.cut).tolist()
        found = []
        for i, head in enumerate(self.model):
            if head.tied:
                tokens, features = head.parameters["E"].shape
                alike = [j for j, each in enumerate(self.model) if _embeds(each, (tokens, features))]
                if len(alike) != 1:
                    which = f"one Embedding({tokens}, {features}), which {head!r} is tied to"
                    raise ValueError(f"price needs {which} {got(len(alike))}")
                found.append(((stage[alike[0]], stage[i]), -(-tokens // self.tensor) * features))
        return found


def _embeds(layer: Layer, shape: tuple[int, int]) -> bool:
    return isinstance(layer, Embedding) and layer.parameters["E"].shape == shape


def read_layout(
    model: Sequence[Layer],
    devices: int,
    batch: Batch,
    loss: Loss,
    *,
    tensor: int = 1,
    pipeline: int = 1,
    replicas: int | None = None,
    microbatch: int = 1,
    schedule: type[Schedule],
    stages_per_device: int | None = None,
    cut: Sequence[int] | None = None,
    recompute: str = "none",
    sequence_parallel: bool = False,
    zero: int = 0,
    gradient_bytes: int = 4,
    unshard: str = "microbatch",
    optimizer: Optimizer | None = None,
) -> Layout:
    """TypeError or ValueError for what does not fit the model, the batch or so many devices."""
    layers = listed(OWNER, "a list of layers, such as gpt(...)", model)
    if not layers:
        raise ValueError("price needs at least one layer (got [])")
    for layer in layers:
        require(OWNER, layer, Layer, "a list of layers, such as gpt(...)")
    require_batch(batch)
    require(OWNER, loss, Loss, "a loss, such as cross_entropy")
    tensor, pipeline = whole(OWNER, "tensor", tensor), whole(OWNER, "pipeline", pipeline)
    microbatch = whole(OWNER, "microbatch", microbatch)
    one_of(OWNER, "recompute", recompute, RECOMPUTE)
    require_flags(OWNER, sequence_parallel=sequence_parallel)
    one_of(OWNER, "unshard", unshard, UNSHARD)
    zero, gradient_bytes = (
        whole(OWNER, "zero", zero, 0, 3),
        whole(OWNER, "gradient_bytes", gradient_bytes, 2, 4),
    )
    optimizer = _optimizer(layers, optimizer)
    replicas = _replicas(devices, tensor, pipeline, replicas)
    order = _order(schedule, pipeline, _microbatches(len(batch[0]), replicas, microbatch), stages_per_device)
    found = read_cut(layers, order.stages, cut)
    x = MetaArray((microbatch, *batch[0].shape[1:]), batch[0].dtype)
    pieces, message = _pieces(layers, x, tensor, recompute, sequence_parallel)
    number = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    sorts = tuple(number[piece] for piece in pieces)
    return Layout(
        tuple(layers), batch, loss, order, tensor, replicas, microbatch, found, recompute, sequence_parallel,
        zero, gradient_bytes, unshard, optimizer, tuple(number), sorts, message,
    )  # fmt: skip


def _optimizer(layers: Sequence[Layer], optimizer: Optimizer | None) -> Optimizer:
    """Adam unless another one is given; of weights of 2 bytes, on a float32 copy."""
    if optimizer is not None:
        require_optimizer(OWNER, optimizer)
        return optimizer
    weights = (array for layer in layers for array in layer.parameters.values())
    return MIXED if next((array.dtype.itemsize for array in weights), 4) == 2 else ADAM


def _replicas(devices: int, tensor: int, pipeline: int, replicas: int | None) -> int:
    if devices % (tensor * pipeline):
        raise ValueError(
            f"price needs tensor= x pipeline= to divide the cluster's {devices} devices "
            f"(got {tensor} x {pipeline})"
        )
    found = devices // (tensor * pipeline)
    if replicas is not None and whole(OWNER, "replicas", replicas) != found:
        raise ValueError(
            f"price uses all {devices} devices: tensor {tensor} x pipeline {pipeline} leave {found} replicas "
            f"{got(replicas)}"
        )
    return found


def _microbatches(samples: int, replicas: int, microbatch: int) -> int:
    if not samples or samples % (replicas * microbatch):
        raise ValueError(
            f"price needs a batch of equal microbatches: {samples} samples are not a multiple of "
            f"{replicas} replicas x {microbatch} in a microbatch"
        )
    return samples // (replicas * microbatch)


def _order(family: type[Schedule], devices: int, microbatches: int, several: int | None) -> Schedule:
    such_as = "schedule= to be a family, such as OneFOneB"
    if not (isinstance(family, type) and issubclass(family, Schedule)):
        raise TypeError(f"{OWNER} needs {such_as} {got(family)}")
    if several is not None:
        several = whole(OWNER, "stages_per_device", several)
    return _made(family, devices, microbatches, several)


def of_size(family: Any, devices: int, microbatches: int, several: int | None) -> Schedule:
    """With so many stages per device; ValueError if a family has not as many."""
    if several in (None, family.stages_per_device):
        return family(devices, microbatches)
    if "stages_per_device" not in signature(family).parameters:
        raise ValueError(
            f"price needs stages_per_device={family.stages_per_device} for {family.__name__} {got(several)}; "
            "Interleaved1F1B has as many as one likes"
        )
    return family(devices, microbatches, stages_per_device=several)


_made = lru_cache(maxsize=4096)(of_size)


def read_cut(layers: Sequence[Layer], stages: int, cut: Sequence[int] | None) -> tuple[int, ...]:
    """The layers of each stage. Unless given, blocks are dealt out evenly, and both ends keep the rest."""
    if cut is not None:
        sizes = tuple(
            whole(OWNER, "each of cut=", size) for size in listed(OWNER, "cut= to list layers", cut)
        )
        if len(sizes) != stages or sum(sizes) != len(layers):
            says = f"price needs cut= to share out {len(layers)} layers to {stages} stages"
            raise ValueError(f"{says} {got(list(sizes))}")
        return sizes
    if stages == 1:
        return (len(layers),)
    block, count, row = row_of_blocks(layers)
    if len(row) != count or count % stages:
        raise ValueError(
            f"price cannot deal out {count} x {block} evenly to {stages} stages: give cut=, each one's layers"
        )
    each = [count // stages] * stages
    each[0] += row.start
    each[-1] += len(layers) - row.stop
    return tuple(each)


def row_of_blocks(layers: Sequence[Layer]) -> tuple[str, int, range]:
    """(the most frequent layer, how many there are, the places from the first of them to the last)."""
    names = [repr(layer) for layer in layers]
    [(block, count)] = Counter(names).most_common(1)
    return block, count, range(names.index(block), len(names) - names[::-1].index(block))


def _pieces(
    layers: Sequence[Layer], x: MetaArray, tensor: int, recompute: str, dealt: bool
) -> tuple[list[Piece], int]:
    """What each layer is on one device, and last the loss; the bytes of a message between stages."""
    whole_ones, last, message = tensor_parts(layers, 1), len(layers) - 1, 0
    found: list[Piece] = []
    known: dict[tuple, tuple[Piece, Any]] = {}
    parts = tensor_parts(layers, tensor)
    for i, (part, alone) in enumerate(zip(parts, whole_ones, strict=True)):
        key = id(part.layer), id(alone.layer), x.shape
        if key not in known:
            y, _ = apply_layer(alone.layer, alone.layer.outline, x, Context(layer=i))
            made: Any = first(y)
            known[key] = _piece(part, alone, x, made, recompute, dealt, tensor, i in (0, last)), made
        piece, x = known[key]
        found.append(piece)
        message = max(message, x.nbytes) if i < last else message
    read = -(-2 * x.nbytes // tensor)
    found.append(Piece(Work(moved=read, launches=LOSS_KERNELS), 0, Sums(), x.dtype.itemsize, end=True))
    return found, message


def _piece(
    part: Part, alone: Part, x: MetaArray, y: MetaArray, recompute: str, dealt: bool, tensor: int, end: bool
) -> Piece:
    layer, full = (recomputed(each.layer, recompute) for each in (part, alone))
    work = layer.work(x)
    if dealt:
        work = _dealt(work, full.work(x), tensor)
    block = isinstance(part.layer, Chain)
    sums = Sums(part.forward, part.backward, (y if part.forward and not block else x).nbytes)
    head = end and isinstance(part.layer, Linear | Head) and tensor == 1
    shape = (*x.shape, tensor) if block else None
    return Piece(work, weights_of(part.layer), sums, y.dtype.itemsize, shape, head, end)


def weights_of(layer: Layer) -> int:
    return sum(array.size for array in layer.parameters.values())


def recomputed(layer: Layer, recompute: str) -> Layer:
    """Blocks alone are recomputed: what stands at the ends of a model is not."""
    if recompute == "full" and isinstance(layer, Chain):
        return Checkpoint(layer)
    return (recompute == "selective" and layer.selective()) or layer


def _dealt(work: Work, alone: Work, tensor: int) -> Work:
    """With sequence parallelism all that is no product is dealt out by places: arXiv:2205.05198."""
    again = work.again and alone.again and work.again._replace(moved=alone.again.moved // tensor)
    return work._replace(moved=alone.moved // tensor, again=again)
