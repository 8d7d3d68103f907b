"""Lesson 16: what the checks say to right answers and to the usual wrong ones."""

import math
from functools import cache

import numpy as np
import pytest
from replies import assert_each_is_told, each_reply, natural

import gpipe_sim as gp
from gpipe_sim.course import answers, lesson_16
from gpipe_sim.course.attended import MIXES, SHARES
from gpipe_sim.course.mistakes import mistaken
from gpipe_sim.transformers import LlamaBlock, TransformerBlock


def mixing(scale="d", swap=False, axis=-1, positive=np.exp, joined=True, over="places"):
    """Attention in five lines for all heads at once; each argument is a piece that one can get wrong."""

    def answer(q, k, v, heads):
        b, s, h = q.shape
        d = h // heads
        if over == "samples":
            q, k, v = (x.swapaxes(0, 1) for x in (q, k, v))
        q, k, v = (by_head(x, heads) for x in (q, k, v))
        scores = (k @ q.swapaxes(2, 3) if swap else q @ k.swapaxes(2, 3)) / math.sqrt({"d": d, "h": h}[scale])
        shares = positive(scores)
        shares = shares / shares.sum(axis=axis, keepdims=True)
        mix = shares @ v
        mix = mix.swapaxes(1, 2).reshape(mix.shape[0], mix.shape[2], h) if joined else mix
        if over == "samples":
            mix, shares = mix.swapaxes(0, 1), np.resize(shares, (b, heads, s, s))
        return mix, shares

    return answer


def of_the_answer(change):
    return lambda q, k, v, heads: change(*answers.attention(q, k, v, heads))


def by_einsum(q, k, v, heads):
    """Right, in another way, and with large scores in mind."""
    b, s, h = q.shape
    q, k, v = (x.reshape(b, s, heads, -1) for x in (q, k, v))
    scores = np.einsum("bihd,bjhd->bhij", q, k) * (h // heads) ** -0.5
    shares = np.exp(scores - scores.max(axis=3, keepdims=True))
    shares /= shares.sum(axis=3, keepdims=True)
    return np.einsum("bhij,bjhd->bihd", shares, v).reshape(b, s, h), shares


def stacked(q, k, v, heads):
    """The mixes of all heads are stacked along a last axis, and not joined."""
    mix, shares = mixing(joined=False)(q, k, v, heads)
    return mix.transpose(0, 2, 3, 1).reshape(q.shape), shares


def in_place(q, k, v, heads):
    q /= 1.0
    return [*mixing()(q, k, v, heads)]


def into_q(q, k, v, heads):
    """Right, but the mix is written where q was."""
    q[:], shares = answers.attention(q, k, v, heads)
    return q.copy(), shares


def all_into_the_first(q, k, v, heads):
    y, shares = answers.attention(q, k, v, heads)
    shares[0] = shares[-1]
    return y, np.concatenate([shares[:1], np.random.default_rng().random(shares[1:].shape)])


def quarters(q, k, v, heads):
    """Four heads, whatever was asked; what they leave is as np.empty gave it."""
    y, shares = np.random.default_rng().random(q.shape), np.zeros((len(q), heads, q.shape[1], q.shape[1]))
    for i in range(len(q)):
        for a in range(heads):
            own = slice(a * (q.shape[2] // 4), (a + 1) * (q.shape[2] // 4))
            y[i, :, own], shares[i, a] = answers.one_head(q[i, :, own], k[i, :, own], v[i, :, own])
    return y, shares


def by_head(x, heads):
    b, s, h = x.shape
    return x.reshape(b, s, heads, h // heads).swapaxes(1, 2)


def wrong_mix(swaps):
    """The mistake's mix, beside the right shares."""
    other = mistaken(answers.attention, *swaps)
    return lambda *given: (other(*given)[0], answers.attention(*given)[1])


def counting(norm=2, per_place=2, heads=6, tables=5, middle=4, dropout=1, sums=0):
    """A block's bytes; each argument is a piece that one can get wrong."""

    def answer(s, h, a):
        network = 2 * s * h + 2 * 2 * middle * s * h
        attend = (2 + heads + 2) * s * h + tables * a * s * s
        return 2 * (norm * s * h + per_place * s) + attend + network + (2 * dropout + sums) * s * h

    return answer


def llama(norm=2, per_place=2, inputs=4, keys=None, wide=2, product=1, sums=2, tables=0):
    """A Llama block's bytes; each argument is a piece that one can get wrong."""

    def answer(s, h, f, a, g):
        kv = g if keys is None else keys(a, g)
        attend = inputs * s * h + 4 * s * h * kv // a + sums * a * s + tables * a * s * s + 2 * s * h
        return 2 * (norm * s * h + per_place * s) + attend + 2 * s * h + 2 * (wide + product) * s * f

    return answer


@pytest.mark.parametrize("count", [lesson_16.BLOCK, lesson_16.LLAMA], ids=["GPT", "Llama"])
def test_every_mistake_gives_other_bytes_than_the_others(count):
    every = (*count.mistakes, "")
    found = {tuple(count.off_by(mistake, size) for size in count.sizes) for mistake in every}
    assert len(found) == len(every)


def test_a_mistake_is_worth_what_it_says():
    assert lesson_16.BLOCK.off_by("-2sh +3as²", (10, 7, 2)) == -2 * 10 * 7 + 3 * 2 * 10**2
    assert lesson_16.LLAMA.off_by("4sh -4sgh/a", (10, 8, 3, 4, 2)) == 4 * 10 * 8 - 4 * 10 * 2 * 2


@pytest.mark.parametrize("flash", [True, False])
def test_a_llamas_bytes_are_those_of_real_arrays_as_well(flash):
    """Its numbers of 2 bytes become four times as many in float64; tables take the place of sums."""
    s, h, f, a, g = 6, 16, 20, 4, 2
    block = LlamaBlock(h, a, f, kv_heads=g, flash=flash, rng=np.random.default_rng(0))
    _, saved = block.forward(np.ones((1, s, h)), gp.core.Context())
    tables = 0 if flash else 2 * a * s * s - 2 * a * s
    assert sum(x.nbytes for x in gp.core.roots(saved)) == 4 * (answers.llama_bytes(s, h, f, a, g) + tables)


def test_the_bytes_are_those_of_real_arrays_as_well():
    """Two bytes of float16 become eight of float64, and dropout's stay one."""
    s, h, a = 6, 20, 5
    block = TransformerBlock(h, a, dropout=0.1, rng=np.random.default_rng(0))
    _, saved = block.forward(np.ones((1, s, h)), gp.core.Context())
    arrays = list(gp.core.roots(saved))
    assert sum(x.nbytes // (1 if x.dtype == bool else 4) for x in arrays) == lesson_16.saved_bytes(s, h, a)


@cache
def held_in_halves(n):
    """With n blocks on each of the first four devices, and 8 - n on each of the others."""
    return lesson_16.held_by([n] * 4 + [8 - n] * 4)


def with_so_many(n, k):
    """The bytes of device k with n of the 32 blocks, wherever the others are."""
    return held_in_halves(n if k < 4 else 8 - n)[k]


def test_what_a_device_holds_follows_from_its_own_blocks():
    for cut in ([3, 3, 3, 4, 4, 5, 5, 5], [4, 5, 5, 4, 4, 4, 4, 2]):
        assert lesson_16.held_by(cut) == [with_so_many(n, k) for k, n in enumerate(cut)]


def test_no_way_to_deal_out_the_blocks_holds_less_on_the_fullest_device():
    """More blocks are more bytes, so each device takes what it has room for; with less, not all 32 fit."""
    held = [[with_so_many(n, k) for n in range(1, 8)] for k in range(8)]
    assert [sum(size <= lesson_16.LEAST for size in sizes) for sizes in held] == [3, 3, 3, 4, 4, 5, 5, 5]
    assert sum(size < lesson_16.LEAST for sizes in held for size in sizes) < 32
    assert all(sizes == sorted(sizes) for sizes in held)


def test_the_lessons_formulas_are_the_papers_and_the_librarys():
    """The table of the core and the network says what the library frees; of the core it runs one product."""
    s, h, a = 2048, 12_288, 96
    assert lesson_16.saved_bytes(s, h, a) == gp.formulas.block_memory(s, 1, h, a) + 4 * s
    block = TransformerBlock(h, a, dropout=0.1, rng=None, dtype=np.float16)
    text = gp.MetaArray((1, s, h), np.float16)
    halves = gp.profile(gp.split(list(block.layers), stages=1), (text, text), gp.mse)
    core, _, network = gp.memory.freed(halves)
    assert (core.recompute, core.bytes, core.flops) == ("attention", 5 * a * s**2, 2 * s**2 * h)
    assert (network.recompute, network.bytes - 2 * s, network.flops) == ("all", 19 * s * h, 16 * s * h**2)
    assert sum(layer.flops for layer in halves.stages[0]) == 24 * s * h**2 + 4 * s**2 * h


def test_the_natural_wrong_predictions_are_what_they_are_said_to_be():
    s, h, a = 2048, 12_288, 96
    freed, flops = 5 * a * s**2 / (19 * s * h), 16 * s * h**2 / (4 * s**2 * h)
    rate = freed * flops
    assert rate == pytest.approx(20 * a / 19)
    assert list(natural("16", "The core over the network")) == pytest.approx(
        [1 / rate, freed, flops, a, 2 * rate], rel=1e-3
    )
    assert_each_is_told(natural("16", "The core over the network"), round(rate, 1))
    assert_each_is_told(natural("16", "Six times the devices"), 1)


def test_the_natural_wrong_predictions_of_a_llama_are_what_they_are_said_to_be():
    s, h, f, a, g = 4096, 4096, 11_008, 32, 32
    block, kept = 4 * h * h + 3 * h * f + 2 * h, answers.llama_bytes(s, h, f, a, g)
    ends, tables = 32_000 * h, 2 * a * s * s - 2 * a * s
    fullest = lesson_16.held_by([4, 5, 5, 4, 4, 4, 4, 2])
    of_device_0, every = fullest[0], 16 * (32 * block + 2 * ends + h)
    said = natural("16", "The fullest of eight devices")
    assert list(said) == pytest.approx(
        [
            each / 1e9
            for each in (of_device_0, every / 8, 16 * 5 * block, 35 * kept, fullest[1] + 35 * tables)
        ],
        rel=0.004,
    )
    assert_each_is_told(said, round(fullest[1] / 1e9, 1))
    full = natural("16", "Each block made again")
    inputs = 35 * 2 * s * h / 1e9
    assert list(full) == pytest.approx(
        [inputs, inputs + 0.99, 16 * 5 * block / 1e9, fullest[1] / 1e9], rel=0.03
    )
    assert_each_is_told(full, 18.4, within=0.06)

    norm, product = 2 * s * h / kept, 2 * s * f / kept
    percent = [0, norm, 2 * norm, product, norm + product]
    said = natural("16", "Made again without a product")
    assert list(said) == pytest.approx([100 * each for each in percent], abs=0.06)
    assert_each_is_told(said, round(100 * (2 * norm + product), 1))

    said = natural("16", "8 heads of keys and values")
    shares = [1 - 8 / 32, 1 - (1 + 2 * 8 / 32) / 3, 3 * s * h / kept, 1.5 * h * h / block]
    assert sorted(said, reverse=True) == [round(100 * each, 1) for each in shares[:2]] + [12.4, 9.3]
    assert shares[2:] == pytest.approx([0.093, 0.124], abs=0.0005)
    assert_each_is_told(said, 10.7, within=0.1)


ATTENTION = {
    "correct": [(answer, "") for answer in (answers.attention, mixing(), by_einsum, in_place)],
    "keep working": [
        (mixing(scale="h"), "the root of all features. How many has each head?"),
        (mixing(swap=True), "asks with its key"),
        (mixing(axis=2), "in each column make 1"),
        (mixing(axis=(1, 2, 3)), "has shares that add up to"),
        (mixing(positive=lambda x: 1 + x * x), "Which features make that score?"),
        (
            of_the_answer(lambda y, shares: (y, np.where(np.arange(len(y))[:, None, None, None], 0, shares))),
            "in sample 1 and head",
        ),
        (of_the_answer(lambda y, shares: (y, np.float32(shares))), "Which features make that score?"),
        (
            mixing(over="samples"),
            "sample 0 changed when sample 2 left its microbatch. Which axis did your softmax mix?",
        ),
        (all_into_the_first, "sample 0 has the shares of sample 2. Into which place goes each?"),
        (quarters, "Which features make that score?"),
        (mixing(joined=False), "the mix should be 3 x 5 x 12; you give 3 x 4 x 5 x 3"),
        (of_the_answer(lambda y, shares: y), "it gives back one array. Which two arrays"),
        (of_the_answer(lambda y, shares: None), "it gives back nothing"),
        (of_the_answer(lambda y, shares: (shares, y)), "the mix should be 3 x 5 x 12; you give 3 x"),
        (of_the_answer(lambda y, shares: (y, list(shares))), "the shares should be an array"),
        (of_the_answer(lambda y, shares: (y, shares[0])), "should be 3 x 4 x 5 x 5; you give 4 x 5"),
        (
            of_the_answer(lambda y, shares: (y * np.nan, shares)),
            "there is nan in the mix. Which line makes that?",
        ),
        *((mistaken(answers.attention, *swaps), question) for question, swaps in SHARES.items()),
    ],
    "almost": [
        (into_q, "q is not what it was before. Who else may need it?"),
        (
            of_the_answer(lambda y, shares: (np.where(np.arange(12) == 7, 5.0, y), shares)),
            "holds 5 as feature 7. Which head has that feature",
        ),
        (of_the_answer(lambda y, shares: (y + 1, shares)), "the mix of place"),
        (stacked, "take turns in the mix. Which ones should stand side by side?"),
        *((wrong_mix(swaps), question) for question, swaps in MIXES.items()),
    ],
}
BLOCKS = {
    "correct": [
        (answer, "")
        for answer in (
            counting(),
            answers.block_bytes,
            lambda s, h, a: 34 * s * h + 5 * a * s * s + 4.0 * s,
            lambda s, h, a: np.int64(lesson_16.saved_bytes(s, h, a)),
        )
    ],
    "almost": [
        (counting(per_place=0), "4s are missing: what does a LayerNorm keep of each place?"),
        (lambda s, h, a: counting()(s, h, a) / 1000, "Is that in bytes?"),
        (lambda s, h, a: counting()(s, h, a) // 2, "how many 2-byte numbers"),
        (lambda s, h, a: counting()(s, h, a) * 2, "How many bytes does a number take here?"),
        (counting(dropout=2, tables=6), "How many does yes or no take?"),
        (counting(dropout=0, tables=2), "That leaves dropout out."),
        (counting(tables=7), "the scores, or the shares?"),
        (counting(tables=3), "What does the backward of softmax read, and what that of the mix?"),
        (counting(tables=4), "There is dropout on the shares, too."),
        (lambda s, h, a: counting()(s, h, 1), "How many tables of s x s"),
        (counting(middle=1), "How wide is the middle of the network"),
        (counting(middle=2), "8sh too few. GELU and the second Linear"),
        (counting(norm=0), "4sh too few"),
        (counting(sums=2), "2sh too many. Which array did you count"),
        (
            counting(sums=4),
            "4sh too many. Do q, k and v come from one input or three? And what does a sum save?",
        ),
        (counting(dropout=0), "That has 32sh. 2sh are one more array of s x h, or what two Dropouts keep"),
        (
            counting(norm=1),
            "has each LayerNorm, each Linear and each Dropout of both chains a line in your sum?",
        ),
        (lambda s, h, a: counting()(s, h, a) - 2 * s * h, "That has 32sh."),
    ],
    "keep working": [
        (lambda s, h, a: 0, "Which arrays have a row for each place, and which one for each pair"),
        (counting(heads=2, tables=4), "That is 4sh too few and 1as² too few. Which arrays"),
        (lambda s, h, a: 12 * h * h, "Which arrays have a row for each place"),
        (lambda s, h, a: 1e300, "Which arrays have a row for each place"),
        (lambda s, h, a: float("nan"), "you say nan; it should be a number of bytes"),
        (lambda s, h, a: None, "you say None; it should be a number of bytes"),
    ],
}
LLAMA = {
    "correct": [
        (answer, "")
        for answer in (llama(), answers.llama_bytes, lambda *size: float(lesson_16.llama_saved(*size)))
    ],
    "almost": [
        (llama(per_place=0), "4s are missing: what does an RMSNorm keep of each place, beside its input?"),
        (llama(sums=0), "2as are missing. What does flash attention keep of each place and head?"),
        (llama(sums=0, tables=2), "What does flash attention keep in their place?"),
        (llama(tables=2), "Does flash attention ever have a whole one?"),
        (llama(keys=lambda a, g: a), "How many heads have their own?"),
        (
            lambda s, h, f, a, g: llama()(s, h, f, a, g) - 2 * s * h + 2 * s * h * g // a,
            "That has as few queries as keys. How many heads ask?",
        ),
        (llama(norm=0), "4sh too few. What does an RMSNorm keep"),
        (llama(inputs=2), "2sh too few. Which layer of the two chains reads an array that you left out?"),
        (llama(inputs=6), "2sh too many. Which array of s x h did you count twice?"),
        (llama(inputs=8), "4sh too many. What does a sum save?"),
        (llama(wide=1), "2sf too few. How wide is what the first matrix makes? What does the second read?"),
        (llama(product=0), "2sf too few"),
        (llama(wide=0), "4sf too few. Which three arrays f wide does a SwiGLU keep?"),
        (llama(product=2), "2sf too many. A SwiGLU keeps its gate. Does it keep the bent gate as well?"),
        (lambda *size: llama()(*size) // 2, "how many 2-byte numbers"),
    ],
    "keep working": [
        (lambda s, h, f, a, g: answers.block_bytes(s, h, a), "Which arrays have h features for each place"),
        (lambda *size: llama(norm=1)(*size) - 1, "Which arrays have h features for each place"),
        (llama(inputs=3), "That is 1sh too few. Which arrays make that up?"),
        (llama(sums=1, product=2), "That is 2sf too many and 1as too few. Which arrays make that up?"),
        (lambda *size: None, "you say None; it should be a number of bytes"),
        (lambda s, h, a: 0, "How many things is it given, and how many does it take?"),
    ],
}
DEALT = {
    "correct": [
        (
            [3, 3, 3, 4, 4, 5, 5, 5],
            "25.3 GB. No other way has less there. Which device has the most to compute now?",
        ),
        (((3, 3, 3, 4, 4, 5, 5, 5),), "device 0 is the fullest"),
    ],
    "almost": [
        ([3, 3, 4, 4, 4, 4, 5, 5], "device 2 is the fullest, with 26.4 GB. 6 are in flight there."),
        ([2, 3, 3, 4, 4, 5, 5, 6], "Nowhere does a block take fewer bytes. What does it hold beside blocks?"),
    ],
    "keep working": [
        (
            [4] * 8,
            "device 0 is the fullest, with 32.8 GB. 8 are in flight there. On which device does a block",
        ),
        ([4, 5, 5, 4, 4, 4, 4, 2], "device 1 is the fullest, with 35.6 GB."),
        ([5, 5, 5, 4, 4, 3, 3, 3], "device 0 is the fullest, with 40.4 GB"),
        ([5, 5, 5, 4, 4, 4, 4, 4], "those are 35 blocks. There are 32, beside embedding and head"),
        ([0, 4, 4, 4, 5, 5, 5, 5], "device 0 has no block. What would it compute?"),
        ([4, 4, 4, 4], "it should be a list of 8 whole numbers"),
        ([4.0] * 8, "it should be a list of 8 whole numbers"),
        (4, "you give 4; it should be a list of 8 whole numbers"),
    ],
}
test_replies = each_reply(
    lesson_16, attention=ATTENTION, block_bytes=BLOCKS, llama_bytes=LLAMA, deal_out=DEALT
)
