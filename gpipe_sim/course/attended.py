"""What is wrong with a student's attention: the natural mistakes, each with its question."""

from collections.abc import Sequence

import numpy as np

from gpipe_sim.course import answers
from gpipe_sim.course.called import called
from gpipe_sim.course.one_device import is_array
from gpipe_sim.course.reply import Reply, keep_working

Array = np.ndarray
CLOSE = 1e-9


def mix_and_shares(answer: object, arrays: Array, heads: int, where: str) -> tuple[Array, Array]:
    """The two arrays that a student's attention gives; raises a Reply if they are not of the right shapes."""
    given, (_, b, s, h) = called(answer, *arrays, heads, where=where), arrays.shape
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
    """A sentence if a sample changes when the last one leaves its microbatch."""
    last = arrays.shape[1] - 1
    try:
        fewer = mix_and_shares(answer, arrays[:, :last], heads, "with fewer samples")
    except Reply:
        return ""
    if all(np.allclose(many[:last], few) for many, few in zip(given, fewer, strict=True)):
        return ""
    return f"sample 0 changed when sample {last} left its microbatch. Which axis did your softmax mix?"


def wrong_shares(found: Array, arrays: Array, heads: int) -> str:
    """A sentence on shares that are not those of the answer; empty if they are."""
    q, k, v = arrays
    _, right = answers.attention(q, k, v, heads)
    if _same(found, right):
        return ""
    for question, other in mistaken_shares(q, k, heads).items():
        if not np.allclose(other, right) and _same(found, other):
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
    right, shares = answers.attention(q, k, v, heads)
    if _same(found, right):
        return ""
    for question, other in mistaken_mixes(shares, q, k, v).items():
        if not np.allclose(other, right) and _same(found, other):
            return question
    i, place, feature = np.unravel_index(abs(found - right).argmax(), right.shape)
    at = f"the mix of place {place} in sample {i} holds {found[i, place, feature]:.3g}"
    return f"{at} as feature {feature}. Which head has that feature, and which values does it mix?"


def _same(found: Array, right: Array) -> bool:
    return np.allclose(found, right, rtol=0, atol=CLOSE)


def by_head(x: Array, heads: int) -> Array:
    """(batch, heads, places, features of a head), which stand side by side in x."""
    b, s, h = x.shape
    return x.reshape(b, s, heads, h // heads).swapaxes(1, 2)


def _every_nth(x: Array, heads: int) -> Array:
    """Head 0 has features 0, heads, 2 heads and so on."""
    b, s, h = x.shape
    return x.reshape(b, s, h // heads, heads).transpose(0, 3, 1, 2)


def _by_places(x: Array, heads: int) -> Array:
    """As if the features of all places in a row were dealt out: head 0 has the first places."""
    b, s, h = x.shape
    return x.reshape(b, heads, s, h // heads)


def _scores(q: Array, k: Array, power: float = 0.5) -> Array:
    return q @ k.swapaxes(2, 3) / q.shape[3] ** power


def _to_one(positive: Array, axis: int = 3) -> Array:
    return positive / positive.sum(axis=axis, keepdims=True)


def _shared(scores: Array) -> Array:
    return _to_one(np.exp(scores))


def mistaken_shares(q: Array, k: Array, heads: int) -> dict[str, Array]:
    """What mistakes make of q and k, by the question that each calls for."""
    Q, K = by_head(q, heads), by_head(k, heads)
    scores = _scores(Q, K)
    return {
        "the scores are products as they are. What does one head divide them by?": _shared(_scores(Q, K, 0)),
        "the scores are divided by the root of all features. How many has each head?": (
            _shared(scores / heads**0.5)
        ),
        "the scores are divided by the features of a head. Which function of these does one head take?": (
            _shared(_scores(Q, K, 1))
        ),
        "place i asks with its key, and is asked by queries. Which of the two should ask?": (
            _shared(_scores(K, Q))
        ),
        "the shares in each column make 1. Along which axis should they?": _to_one(np.exp(scores), axis=2),
        "no place looks at later ones. Does the head above leave them out?": (
            _to_one(np.exp(scores) * np.tri(q.shape[1]))
        ),
        "the first head has features 0, 2, 4 or so. Which ones stand side by side?": (
            _shared(_scores(_every_nth(q, heads), _every_nth(k, heads)))
        ),
        "your reshape deals out places, not features. Which axis should be cut?": (
            _shared(_scores(_by_places(q, heads), _by_places(k, heads)))
        ),
        "every head has the shares of the first. What does head 1 read that head 0 does not?": (
            np.repeat(_shared(scores)[:, :1], heads, axis=1)
        ),
        "those are the scores. What makes positive shares of them that add up to 1?": scores,
        "those are exponentials. What should the shares of a place add up to?": np.exp(scores),
    }


def _joined(mix: Array) -> Array:
    b, heads, s, d = mix.shape
    return mix.swapaxes(1, 2).reshape(b, s, heads * d)


def mistaken_mixes(shares: Array, q: Array, k: Array, v: Array) -> dict[str, Array]:
    """What mistakes make of the shares and the values, by the question that each calls for."""
    q, k, values = (by_head(x, shares.shape[1]) for x in (q, k, v))
    return {
        "the mix is of keys. What should be mixed?": _joined(shares @ k),
        "the mix is of queries. What should be mixed?": _joined(shares @ q),
        "each place is mixed by the others' shares of it. Which axis of the shares is summed over?": (
            _joined(shares.swapaxes(2, 3) @ values)
        ),
        "places and heads have changed places. Which axis comes right before a head's features?": (
            (shares @ values).reshape(v.shape)
        ),
        "the mix is the values as they came in. Which shares are taken of them?": v,
    }
