"""Lesson 16: what the checks say to right answers and to the usual wrong ones."""

import math
from itertools import combinations

import numpy as np
import pytest
from replies import assert_each_is_told, each_reply, natural

import gpipe_sim as gp
from gpipe_sim.course import answers, lesson_16
from gpipe_sim.course.attended import MIXES, SHARES
from gpipe_sim.course.mistakes import mistaken
from gpipe_sim.transformers import TransformerBlock


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


def emptied(parts, goal):
    chosen = best(parts, goal)
    parts.clear()
    return chosen


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


def test_every_mistake_gives_other_bytes_than_the_others():
    every = (*lesson_16.MISTAKES, (0, 0, 0, 0))
    found = {tuple(lesson_16.off_by(terms, *shape) for shape in lesson_16.HIDDEN_BLOCKS) for terms in every}
    assert len(found) == len(every)


def test_the_bytes_are_those_of_real_arrays_as_well():
    """Two bytes of float16 become eight of float64, and dropout's stay one."""
    s, h, a = 6, 20, 5
    block = TransformerBlock(h, a, dropout=0.1, rng=np.random.default_rng(0))
    _, saved = block.forward(np.ones((1, s, h)), gp.core.Context())
    arrays = list(gp.core.roots(saved))
    assert sum(x.nbytes // (1 if x.dtype == bool else 4) for x in arrays) == lesson_16.saved_bytes(s, h, a)


def choices(parts, goal):
    every = (chosen for n in range(len(parts) + 1) for chosen in combinations(parts, n))
    return [chosen for chosen in every if sum(part[1] for part in chosen) >= goal]


def best(parts, goal):
    return [part[0] for part in min(choices(parts, goal), key=lambda c: sum(part[2] for part in c))]


def one_by_one(key, enough=0):
    """A rule that takes parts one after the other."""

    def answer(parts, goal):
        taken, left = [], goal + enough
        for part in sorted(parts, key=key):
            if left > 0:
                taken.append(part[0])
                left -= part[1]
        return taken

    return answer


def fewest_parts(parts, goal):
    return [part[0] for part in min(choices(parts, goal), key=len)]


def most_that_stays(parts, goal):
    """The goal read as what may be kept."""
    return best(parts, sum(part[1] for part in parts) - goal)


def test_the_account_of_a_block_is_as_written_in_the_papers_letters():
    s, h, a = 2048, 12_288, 96
    block = TransformerBlock(h, a, dropout=0.1, rng=None, dtype=np.float16)
    text = gp.MetaArray((1, s, h), np.float16)
    [[layer]] = gp.profile(gp.split([block], stages=1), (text, text), gp.mse).stages
    lines = lesson_16.account([array.of(1) for array in layer.saved], s, h, a).splitlines()
    counts = " ".join(line.split()[-1] for line in lines)
    assert counts == "2sh 2s 2sh 6sh 2as² 1as² 2as² 2sh 1sh 2sh 2s 2sh 8sh 8sh 1sh"
    assert lines[4] == "shares             805.3 MB  2as²"


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
    one, core = lesson_16.saved_bytes(s, h, a) / 1e9, 5 * a * s**2 / 1e9
    assert list(natural("16", "A text of 4,096 places")) == [
        round(size, 2) for size in (one, 2 * one, 4 * core, 4 * one)
    ]
    assert_each_is_told(
        natural("16", "A text of 4,096 places"), round(lesson_16.saved_bytes(2 * s, h, a) / 1e9, 2)
    )

    freed, flops = 5 * a * s**2 / (19 * s * h), 16 * s * h**2 / (4 * s**2 * h)
    rate = freed * flops
    assert rate == pytest.approx(20 * a / 19)
    assert list(natural("16", "The core over the network")) == pytest.approx(
        [1 / rate, freed, flops, a, 2 * rate], rel=1e-3
    )
    assert_each_is_told(natural("16", "The core over the network"), round(rate, 1))

    assert_each_is_told(natural("16", "Six times the devices"), 1)
    assert_each_is_told(natural("16", "The fullest of 48 devices"), 75, within=0.02)

    s, h = 2048, 1024
    qkv, core, network = 6 * s * h**2, 4 * s**2 * h, 16 * s * h**2
    assert list(natural("16", "What the rule takes")) == [qkv / core, 1, (qkv + core + network) / core]
    assert_each_is_told(natural("16", "What the rule takes"), (qkv + core) / core)

    assert list(natural("16", "Half of the work")) == [2048, 12_288, 12 * 12_288, 24 * 12_288]
    assert lesson_16.half_the_work(12_288) == 6 * 12_288
    assert lesson_16.core_share(2048, 12_288) == pytest.approx(2048 / (6 * 12_288 + 2048))
    assert_each_is_told(natural("16", "Half of the work"), 6 * 12_288)


def thinned(parts, goal):
    """The best rate first, and what it need not take left out again: it errs once."""
    taken = one_by_one(lambda part: -part[1] / part[2])(parts, goal)
    sizes = {name: frees for name, frees, _ in parts}
    for name in sorted(taken, key=sizes.get):
        if sum(map(sizes.get, taken)) - sizes[name] >= goal:
            taken.remove(name)
    return taken


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
        (counting(middle=2), "8sh too few. The GELU and the second linear layer"),
        (counting(norm=0), "4sh too few"),
        (counting(sums=2), "2sh too many. Which array did you count"),
        (
            counting(sums=4),
            "4sh too many. Do q, k and v come from one input or three? And what does a sum save?",
        ),
        (counting(dropout=0), "2sh too few. Each of two Dropouts"),
        (counting(norm=1), "2sh too few. Each of two Dropouts, and each of two LayerNorms"),
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
CHOICES = {
    "correct": [
        (lambda parts, goal, kind=kind: kind(best(parts, goal)), "") for kind in (list, tuple, set, iter)
    ],
    "almost": [
        (emptied, "parts is not what it was before. Who else may need it?"),
        (thinned, "34 FLOPs, and 25 would do. The best rate first is near."),
    ],
    "keep working": [
        (one_by_one(lambda part: part[2]), "you recompute a, b, c: 9 FLOPs, and 6 would do. What if a"),
        (one_by_one(lambda part: -part[1]), "you recompute b: 90 FLOPs, and 32 would do. Which parts"),
        (one_by_one(lambda part: -part[1] / part[2]), "42 FLOPs, and 32 would do. What if a"),
        (fewest_parts, "you recompute b: 90 FLOPs"),
        (most_that_stays, "which frees 22. What else has to go?"),
        (one_by_one(lambda part: part[2], enough=-1), "9 FLOPs, and 6 would do"),
        (lambda parts, goal: [part[0] for part in parts], "What if a is kept after all?"),
        (lambda parts, goal: [], "you recompute nothing, which frees 0. What else has to go?"),
        (lambda parts, goal: ["c", "c"], "you name c, c. What does the second time free?"),
        (lambda parts, goal: [parts[2]], "('c', 90, 6). Give the names only, such as 'a': which"),
        (lambda parts, goal: ["core"], "you name 'core'. Give the names only"),
        (lambda parts, goal: 6, "you give 6; it should be a list of names"),
        (lambda parts, goal: "c", "you give 'c'; it should be a list of names"),
        (lambda parts, goal: None, "you give nothing; it should be a list of names"),
    ],
}
test_replies = each_reply(lesson_16, attention=ATTENTION, block_bytes=BLOCKS, to_recompute=CHOICES)
