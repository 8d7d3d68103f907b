"""What is wrong with a student's attention: the natural mistakes, each with its question."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gpipe_sim.course import answers
from gpipe_sim.course.called import called
from gpipe_sim.course.mistakes import Swap, recognized
from gpipe_sim.course.reply import Reply, is_array, keep_working

Array = np.ndarray
Table = Mapping[str, tuple[Swap, ...]]
CLOSE = 1e-9


def mix_and_shares(answer: object, arrays: Array, heads: int, where: str) -> tuple[Array, Array]:
    """The two arrays that a student's attention gives; raises a Reply if they are not of the right shapes."""
    given, (_, b, s, h) = called(answer, *arrays, heads, where=where, whole=("q", "k", "v")), arrays.shape
    if not isinstance(given, tuple | list) or len(given) != 2:
        gives = f"it gives back {_kind(given)}"
        raise keep_working(f"{where} {gives}. Which two arrays should come after return?")
    for name, array, shape in zip(("mix", "shares"), given, ((b, s, h), (b, heads, s, s)), strict=True):
        if not is_array(array):
            gives = f"the {name} should be an array; you give {_kind(array)}"
            raise keep_working(f"{where} {gives}. What holds all samples?")
        if array.shape != shape:
            gives = f"the {name} should be {_by(shape)}; you give {_by(array.shape)}"
            raise keep_working(f"{where} {gives}. Which axis is which?")
        if not np.isfinite(array).all():
            holds = f"there is {array[~np.isfinite(array)][0]} in the {name}"
            raise keep_working(f"{where} {holds}. Which line makes that?")
    return given[0], given[1]


def _kind(value: object) -> str:
    if isinstance(value, Array):
        return "one array"
    return "nothing" if value is None else f"a {type(value).__name__}"


def _by(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "a single number"


def mixed_samples(answer: object, given: Sequence[Array], arrays: Array, heads: int) -> str:
    """A sentence if a sample has another one's shares, or other ones when the last leaves its microbatch."""
    (q, k, v), last = arrays, arrays.shape[1] - 1
    _, right = answers.attention(q, k, v, heads)
    for i, own in enumerate(given[1]):
        if others := [j for j, each in enumerate(right) if j != i and _same(own, each)]:
            return f"sample {i} has the shares of sample {others[0]}. Into which place goes each?"
    try:
        fewer = mix_and_shares(answer, arrays[:, :last], heads, "with fewer samples")
    except Reply:
        return ""
    if np.allclose(given[1][:last], fewer[1]):
        return ""
    return f"sample 0 changed when sample {last} left its microbatch. Which axis did your softmax mix?"


def wrong_shares(found: Array, arrays: Array, heads: int) -> str:
    """A sentence on shares that are not those of the answer; empty if they are."""
    q, k, v = arrays
    _, right = answers.attention(q, k, v, heads)
    if _same(found, right):
        return ""
    if question := _recognized(arrays, heads, SHARES, 1, found, right):
        return question
    sample, head, place, other = np.unravel_index(abs(found - right).argmax(), right.shape)
    who = f"in sample {sample} and head {head}, place {place}"
    total = found[sample, head, place].sum()
    if abs(total - 1) > CLOSE:
        return f"{who} has shares that add up to {total:.4g}. What should all of them make?"
    took, takes = (array[sample, head, place, other] for array in (found, right))
    return f"{who} takes {took:.3g} of place {other}, not {takes:.3g}. Which features make that score?"


def wrong_mix(found: Array, arrays: Array, heads: int) -> str:
    """A sentence on a mix that is not that of the answer; empty if it is."""
    q, k, v = arrays
    right, _ = answers.attention(q, k, v, heads)
    if _same(found, right):
        return ""
    if question := _recognized(arrays, heads, MIXES, 0, found, right):
        return question
    i, place, feature = np.unravel_index(abs(found - right).argmax(), right.shape)
    at = f"the mix of place {place} in sample {i} holds {found[i, place, feature]:.3g}"
    return f"{at} as feature {feature}. Which head has that feature, and which values does it mix?"


def _same(found: Array, right: Array) -> bool:
    return np.allclose(found, right, rtol=0, atol=CLOSE)


def _recognized(arrays: Array, heads: int, table: Table, part: int, found: Array, right: Array) -> str:
    def same(attention: Callable) -> bool:
        other = attention(*arrays, heads)[part]
        return not np.allclose(other, right) and _same(found, other)

    return recognized(answers.attention, table, same)


Q, K, V = "one_head(q[i, :, own]", "k[i, :, own]", "v[i, :, own])"
ROOT, TO_ONE = "/ np.sqrt(q.shape[1])", "    shares = shares / shares.sum(axis=1, keepdims=True)\n"
MIX = "return shares @ v"
#: What mistakes make of q and k, by the question that each calls for.
SHARES: Table = {
    "the scores are products as they are. What does one head divide them by?": ((ROOT, ""),),
    "the scores are divided by the root of all features. How many has each head?": (
        (Q, f"{Q} / heads**0.5"),
    ),
    "the scores are divided by the features of a head. Which function of these does one head take?": (
        (ROOT, "/ q.shape[1]"),
    ),
    "place i asks with its key, and is asked by queries. Which of the two should ask?": (
        ("q @ k.T", "k @ q.T"),
    ),
    "the shares in each column make 1. Along which axis should they?": (("axis=1", "axis=0"),),
    "no place looks at later ones. Does the head above leave them out?": (
        ("np.exp(scores)", "np.exp(scores) * np.tri(len(q))"),
    ),
    "the first head has features 0, 2, 4 or so. Which ones stand side by side?": (
        ("slice(a * h // heads, (a + 1) * h // heads)", "slice(a, None, heads)"),
    ),
    "your reshape deals out places, not features. Which axis should be cut?": (
        (Q, "one_head(q[i].reshape(heads, s, -1)[a]"),
        (K, "k[i].reshape(heads, s, -1)[a]"),
    ),
    "every head has the shares of the first. What does head 1 read that head 0 does not?": (
        (Q, "one_head(q[i, :, : h // heads]"),
        (K, "k[i, :, : h // heads]"),
    ),
    "those are the scores. What makes positive shares of them that add up to 1?": (
        ("np.exp(scores)", "scores"),
        (TO_ONE, ""),
    ),
    "those are exponentials. What should the shares of a place add up to?": ((TO_ONE, ""),),
}
#: And of the shares and the values.
MIXES: Table = {
    "the mix is of keys. What should be mixed?": ((V, "k[i, :, own])"),),
    "the mix is of queries. What should be mixed?": ((V, "q[i, :, own])"),),
    "each place is mixed by the others' shares of it. Which axis of the shares is summed over?": (
        (MIX, "return shares.T @ v"),
    ),
    "places and heads have changed places. Which axis comes right before a head's features?": (
        ("y[i, :, own]", "y.reshape(b, heads, s, -1)[i, a]"),
    ),
    "the features of all heads take turns in the mix. Which ones should stand side by side?": (
        ("y[i, :, own]", "y[i, :, a::heads]"),
    ),
    "the mix is the values as they came in. Which shares are taken of them?": ((MIX, "return v"),),
}
