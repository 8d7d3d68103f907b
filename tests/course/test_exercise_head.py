"""A heavy head: what the check says to right answers and to the usual wrong ones."""

import pytest
from replies import changed_text, each_reply

import gpipe_sim as gp
from gpipe_sim.course.answers import best_cut
from gpipe_sim.course.exercises import head

RIGHT = """
from itertools import combinations, pairwise

def cut(layers, K, room):
    best = None
    for ends in combinations(range(1, len(layers)), K - 1):
        places = list(pairwise((0, *ends, len(layers))))
        held, takes = [], []
        for k, (a, b) in enumerate(places):
            held.append(sum(weights + (K - k) * saved for _, weights, saved in layers[a:b]))
            takes.append(sum(time for time, _, _ in layers[a:b]))
        if max(held) <= room and (best is None or max(takes) < best[0]):
            best = max(takes), [b - a for a, b in places]
    return best and best[1]
"""


def from_the_back(layers, K, room):
    """The same small question again: the best cut of what is left into one stage less."""
    if K == 0:
        return [] if not layers else None
    found = []
    for n in range(1, len(layers) - K + 2):
        own = layers[:n]
        rest = from_the_back(layers[n:], K - 1, room)
        if rest is not None and sum(weights + K * saved for _, weights, saved in own) <= room:
            sizes, at, slowest = [n, *rest], n, sum(layer[0] for layer in own)
            for size in rest:
                slowest = max(slowest, sum(layer[0] for layer in layers[at : at + size]))
                at += size
            found.append((slowest, sizes))
    return tuple(min(found)[1]) if found else None


def but(*swaps):
    return changed_text(RIGHT, *swaps)


def even(layers, K, room):
    return [len(layers) // K + (k < len(layers) % K) for k in range(K)]


IN_FLIGHT = "How many microbatches are in flight on it?"
test_replies = each_reply(
    head,
    check={
        "correct": [(but(), "the best cut that fits, for 12 models"), (from_the_back, "the best cut")],
        "almost": [(lambda layers, K, room: layers.pop() and [1], "layers is not what it was before")],
        "keep working": [
            (lambda layers, K, room: best_cut([time for time, *_ in layers], K), IN_FLIGHT),
            (even, IN_FLIGHT),
            (but(("(K - k) * saved", "saved")), IN_FLIGHT),
            (but(("(K - k) * saved", "(K - k - 1) * saved")), IN_FLIGHT),
            (but(("weights + ", "")), IN_FLIGHT),
            (but(("(K - k) * saved", "(k + 1) * saved")), IN_FLIGHT),
            (but(("(K - k) * saved", "K * saved")), "How many microbatches has the last device in flight?"),
            (
                but(("max(takes) < best[0]", "max(takes) > best[0]")),
                "and stages take 0, 5, 20, 26; a cut fits",
            ),
            (but(("max(takes)", "sum(takes)")), "Which layer would you move, and who has room for it?"),
            (
                but(("max(takes)", "max(held)")),
                "and stages take 6, 12, 19; a cut fits in which none takes over 15.",
            ),
            (but(("[b - a for a, b in places]", "[b for a, b in places]")), "and all together?"),
            (but(("[b - a for a, b in places]", "takes")), "and all together?"),
            (but(("return best and best[1]", "return best")), "and all together?"),
            (but(("best and best[1]", "best[1]")), "TypeError: 'NoneType'"),
        ],
    },
)


@pytest.mark.parametrize("seed", range(4))
def test_what_devices_hold_and_how_long_a_step_is_are_the_simulators(seed):
    model = head.task(seed)
    in_flight = gp.peak_in_flight(gp.OneFOneB(model.K, 20))
    for sizes in model.cuts()[::7]:
        stages = zip(in_flight, model.stages(sizes), strict=True)
        assert model.held(sizes) == [sum(w + m * saved for _, w, saved in stage) for m, stage in stages]


def test_the_limit_is_in_the_way():
    for seed in range(40):
        model = head.task(seed)
        assert len(model.layers) <= 13 and model.fitting()
        assert model.slowest() > model._replace(room=10**9).slowest()
