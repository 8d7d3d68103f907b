"""Lesson 16: Transformers and giants, in bytes."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import isfinite, prod
from typing import Any, NamedTuple

import numpy as np

from gpipe_sim.core.layers import Layer
from gpipe_sim.core.losses import mse
from gpipe_sim.core.meta_array import MetaArray
from gpipe_sim.core.split import split
from gpipe_sim.course.attended import mix_and_shares, mixed_samples, wrong_mix, wrong_shares
from gpipe_sim.course.build import build, exercise
from gpipe_sim.course.called import called
from gpipe_sim.course.reply import Reply, almost, apart, correct, is_number, is_whole, keep_working, listed
from gpipe_sim.errors import Real
from gpipe_sim.memory.profile import Size, size_of
from gpipe_sim.memory.shape_inference import profile
from gpipe_sim.pricing.cluster import Cluster
from gpipe_sim.pricing.hardware import A100
from gpipe_sim.pricing.price import price
from gpipe_sim.transformers.blocks import TransformerBlock
from gpipe_sim.transformers.known import known_model
from gpipe_sim.transformers.llama import LlamaBlock

#: samples, places, features, heads: where attention is tried
HIDDEN_SHAPES = ((3, 5, 12, 4), (10, 4, 8, 2), (2, 7, 6, 1))
#: s, h, f, a, g: where a Llama's block is; the last two are of 7B and 70B
SMALL = ((6, 20, 36, 5, 1), (96, 64, 160, 4, 2), (10, 48, 100, 12, 3), (40, 32, 81, 8, 2))
HIDDEN_LLAMAS = (*SMALL, (4096, 4096, 11_008, 32, 32), (8192, 8192, 28_672, 64, 8))


def saved_by(block: Layer, places: int) -> int:
    """The bytes that a block keeps of one sample, its input too where it keeps that."""
    norm = next(iter(block.parameters.values()))  # a number for each feature
    sample = MetaArray((1, places, len(norm)), norm.dtype)
    [[layer]] = profile(split([block], stages=1), (sample, sample), mse).stages
    return sum(size_of(array, {"x": Size(0, sample.nbytes)}).of(1) for array in layer.saved)


@build("attention")
def attention(answer: Callable) -> Reply:
    """Check ``answer(q, k, v, heads)``: the mix of the values, and the shares of every head."""
    for b, s, h, heads in HIDDEN_SHAPES:
        arrays = np.random.default_rng(b).normal(size=(3, b, s, h))
        where = f"with {b} samples, {s} places, {h} features and {heads} head{'s' * (heads > 1)}"
        given = mix_and_shares(answer, arrays, heads, where)
        if wrong := mixed_samples(answer, given, arrays, heads) or wrong_shares(given[1], arrays, heads):
            return keep_working(f"{where}, {wrong}")
        if wrong := wrong_mix(given[0], arrays, heads):
            return almost(f"{where} the shares are right, but {wrong}")
    return correct("the mix and the shares of every head, at three sizes. Which of the two grows with s²?")


class Count(NamedTuple):
    """What a student counts: by which letters, at which sizes, in which units, and the usual mistakes.

    A mistake stands by how much it is off, such as "-2sh -3as²", before the question that it calls for.
    """

    letters: str
    sizes: Sequence[tuple[int, ...]]
    units: str
    measured: Callable[..., int]
    mistakes: Mapping[str, str]
    which: str  #: arrays make that up, where it is another mistake

    def at(self, size: Sequence[int]) -> str:
        return "for " + listed(f"{letter} = {n}" for letter, n in zip(self.letters, size, strict=True))

    def worth(self, unit: str, size: Sequence[int]) -> int:
        """So many bytes is a unit, such as "as²" or "sgh/a"."""
        of = dict(zip(self.letters, size, strict=True))
        above, _, below = unit.replace("s²", "ss").partition("/")
        return prod(of[letter] for letter in above) // prod(of[letter] for letter in below)

    def off_by(self, mistake: str, size: Sequence[int]) -> int:
        """So many bytes."""
        return sum(int(n) * self.worth(unit, size) for n, unit in re.findall(r"([-+]?\d+)(\S+)", mistake))


@cache
def saved_bytes(s: int, h: int, a: int) -> int:
    """What a block of GPT-3's sort in 2-byte numbers saves of one sample, by its profile."""
    return saved_by(TransformerBlock(h, a, dropout=0.1, rng=None, dtype=np.float16), s)


@cache
def llama_saved(s: int, h: int, f: int, a: int, g: int) -> int:
    """What a Llama's block in 2-byte numbers saves of one sample, by its profile."""
    return saved_by(LlamaBlock(h, a, f, kv_heads=g, rng=None, dtype="bfloat16"), s)


BLOCK = Count(
    "sha",
    ((6, 20, 5), (96, 64, 2), (1024, 1600, 25), (10, 48, 12)),
    "sh as² s",
    saved_bytes,
    {
        "-4s": "4s are missing: what does a LayerNorm keep of each place?",
        "2sh +1as²": "That gives what dropout keeps 2 bytes for each entry. How many does yes or no take?",
        "-2sh -3as²": "That leaves dropout out. What does it keep, and which array is another one behind it?",
        "-5as² +5s²": "That is right for one head. How many tables of s x s does each sample have?",
        "2as²": "That has 7as². Which table of s x s does no backward read: the scores, or the shares?",
        "-2as²": "That has 3as². What does the backward of softmax read, and what that of the mix?",
        "-1as²": "That has 4as². There is dropout on the shares, too. What does it keep?",
        "-12sh": "That has 12sh too few. How wide is the middle of the network, which two layers read?",
        "-8sh": "That has 8sh too few. GELU and the second Linear each save an input. Are they the same?",
        "-4sh": "That has 4sh too few. A LayerNorm's weights scale what it saved: is its output the same "
        "array? And how many arrays of s x h go into the core?",
        "-2sh": "That has 32sh. 2sh are one more array of s x h, or what two Dropouts keep: has each "
        "LayerNorm, each Linear and each Dropout of both chains a line in your sum?",
        "2sh": "That has 2sh too many. Which array did you count that no backward reads?",
        "4sh": "That has 4sh too many. Do q, k and v come from one input or three? And what does a sum save?",
    },
    "Which arrays have a row for each place, and which one for each pair of places?",
)
LLAMA = Count(
    "shfag",
    HIDDEN_LLAMAS,
    "sh sf sgh/a as s",
    llama_saved,
    {
        "-4s": "4s are missing: what does an RMSNorm keep of each place, beside its input?",
        "-2as": "2as are missing. What does flash attention keep of each place and head?",
        "2as² -2as": "That has tables of s x s. What does flash attention keep in their place?",
        "2as²": "That has tables of s x s. Does flash attention ever have a whole one?",
        "4sh -4sgh/a": "That has keys and values of all a heads. How many heads have their own?",
        "-2sh +2sgh/a": "That has as few queries as keys. How many heads ask?",
        "-4sh": "That has 4sh too few. What does an RMSNorm keep, what does the layer behind it, and is it "
        "one array?",
        "-2sh": "That has 2sh too few. Which layer of the two chains reads an array that you left out?",
        "2sh": "That has 2sh too many. Which array of s x h did you count twice?",
        "4sh": "That has 4sh too many. What does a sum save?",
        "-2sf": "That has 2sf too few. How wide is what the first matrix makes? What does the second read?",
        "-4sf": "That has 4sf too few. Which three arrays f wide does a SwiGLU keep?",
        "2sf": "That has 2sf too many. A SwiGLU keeps its gate. Does it keep the bent gate as well?",
    },
    "Which arrays have h features for each place, which f, and which one number for each head?",
)


@build("block_bytes")
def block_bytes(answer: Callable) -> Reply:
    """Check ``answer(s, h, a)``: what a TransformerBlock saves of one sample, with dropout, in bytes."""
    return _counted(answer, BLOCK)


@exercise("write llama_bytes in this cell, and run it again")
def llama_bytes(answer: Callable) -> Reply:
    """Check ``answer(s, h, f, a, g)``: what a LlamaBlock saves of one sample, in bytes."""
    return _counted(answer, LLAMA)


def _counted(answer: Callable, count: Count) -> Reply:
    given: list[Real] = []
    for size in count.sizes:
        got = called(answer, *size)
        if not is_number(got) or not isfinite(got):
            return keep_working(f"{count.at(size)} you say {got!r}; it should be a number of bytes")
        given.append(got)
    measured = [count.measured(*size) for size in count.sizes]
    if given == measured:
        return correct(f"as many bytes as the library's block would save, at {len(given)} sizes")
    size, got, right = next(
        each for each in zip(count.sizes, given, measured, strict=True) if each[1] != each[2]
    )
    off = f"{count.at(size)} you say {got:,.10g} bytes, and the library's block saves {right:,}"
    if question := _in_another_unit(given, measured):
        return almost(f"{off}. {question}")
    errors = [(got - right, size) for got, right, size in zip(given, measured, count.sizes, strict=True)]
    for mistake, question in count.mistakes.items():
        if all(apart(error, count.off_by(mistake, size)) < 0.5 for error, size in errors):
            return almost(f"{off}. {question}")
    return keep_working(f"{off}. {_which_part(errors, count)}")


#: How many of another unit a byte is, and the question that it calls for.
UNITS = {
    0.5: "That is how many 2-byte numbers it would be. How many bytes?",
    2: "How many bytes does a number take here?",
    **dict.fromkeys((1 / 1000, 1 / 1024, 1e-6, 1 / 2**20, 1e-9, 1 / 2**30), "Is that in bytes?"),
}


def _in_another_unit(given: Sequence[Real], measured: Sequence[int]) -> str:
    """The question for what is right in another unit; empty if it is not."""
    rates = [got / each for got, each in zip(given, measured, strict=True)]
    near = (says for unit, says in UNITS.items() if all(abs(rate / unit - 1) < 1e-3 for rate in rates))
    return next(near, "")


def _which_part(errors: Sequence[tuple[Real, tuple[int, ...]]], count: Count) -> str:
    """Which one or two units it is that the student has another number of."""
    units = count.units.split()
    terms = np.array([[count.worth(unit, size) for unit in units] for _, size in errors], float)
    off = np.array([float(error) for error, _ in errors])
    found, *_ = np.linalg.lstsq(terms, off, rcond=None)
    pairs = [(n, unit) for n, unit in zip(found, units, strict=True) if abs(n) > 1e-3]
    if len(pairs) > 2 or not np.allclose(terms @ found, off, rtol=1e-6, atol=1e-3):
        return count.which  # all of them would be the answer
    parts = (f"{abs(n):.3g}{unit} too {'many' if n > 0 else 'few'}" for n, unit in pairs)
    return f"That is {' and '.join(parts)}. Which arrays make that up?"


BLOCKS, DEVICES = 32, 8
LEAST = 25_269_501_952  #: bytes of the fullest device, where the blocks are dealt out for that


def held_by(blocks: Sequence[int]) -> list[int]:
    """The bytes on each of eight devices, of Llama 2 7B under 1F1B, with so many of its blocks on each.

    A weight takes 16, and a microbatch is one text of 4,096 places; there are 32 of them.
    """
    texts, cluster = MetaArray((32, 4096), np.int32), Cluster(DEVICES, A100, memory=80e9)
    cut = [blocks[0] + 1, *blocks[1:-1], blocks[-1] + 2]  # embedding; RMSNorm and head
    how: dict[str, Any] = {"pipeline": DEVICES, "gradient_bytes": 2, "cut": cut}
    priced = price(known_model("llama2-7b"), cluster, (texts, texts), **how)
    return [sum(each.values()) for each in priced.memory]


@exercise("write how many blocks each device has, such as [4, 4, 4, 4, 4, 4, 4, 4]")
def deal_out(blocks: object) -> Reply:
    """Check how many of a 7B's blocks each of eight devices has, so that the fullest holds the least."""
    if not isinstance(blocks, list | tuple) or len(blocks) != DEVICES or not all(map(is_whole, blocks)):
        return keep_working(f"you give {blocks!r}; it should be a list of {DEVICES} whole numbers")
    if min(blocks) < 1:
        return keep_working(f"device {blocks.index(min(blocks))} has no block. What would it compute?")
    if (total := sum(blocks)) != BLOCKS:
        return keep_working(f"those are {total} blocks. There are {BLOCKS}, beside embedding and head")
    held = held_by(blocks)
    k = held.index(max(held))
    full = f"device {k} is the fullest, with {held[k] / 1e9:.1f} GB"
    if held[k] == LEAST:
        return correct(f"{full}. No other way has less there. Which device has the most to compute now?")
    says = almost if held[k] < 1.1 * LEAST else keep_working
    if k == DEVICES - 1:
        return says(f"{full}. Nowhere does a block take fewer bytes. What does it hold beside blocks?")
    return says(f"{full}. {DEVICES - k} are in flight there. On which device does a block take fewer bytes?")
