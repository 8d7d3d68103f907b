"""K and M under a limit: what the check says to right answers and to the usual wrong ones."""

import pytest
from replies import changed_text, each_reply

import gpipe_sim as gp
from gpipe_sim.course.exercises import choose

RIGHT = """
def choose(layers, samples, startup, weights, devices, room):
    found = []
    for K in range(1, devices + 1):
        for M in range(1, samples + 1):
            if layers % K or samples % M:
                continue
            own, piece = layers // K, samples // M
            if own * (weights + min(K, M) * piece) <= room:
                found.append((3 * (M + K - 1) * (startup + own * piece), K, M))
    return min(found)[1:] if found else None
"""


def best_so_far(layers, samples, startup, weights, devices, room):
    best = None
    for M in (m for m in range(samples, 0, -1) if samples % m == 0):
        for K in (k for k in range(devices, 0, -1) if layers % k == 0):
            held = layers / K * weights + min(K, M) * layers / K * samples / M
            length = (M + K - 1) * (startup + layers // K * samples // M)
            if held <= room and (best is None or (length, K) < best[:2]):
                best = length, K, M
    return None if best is None else list(best[1:])


def but(*swaps):
    return changed_text(RIGHT, *swaps)


test_replies = each_reply(
    choose,
    check={
        "correct": [(but(), "the shortest that fits, for 12 models"), (best_so_far, "the shortest")],
        "almost": [
            (
                but(
                    ("startup + own * piece), K", "startup + own * piece), -K"),
                    ("min(found)[1:]", "(-min(found)[1], min(found)[2])"),
                ),
                "needed for that?",
            ),
            (
                but(("range(1, devices + 1)", "range(1, devices)")),
                "takes 2883; 2511 is possible. With this K",
            ),
        ],
        "keep working": [
            (
                but(("if layers % K or", "if K < devices or layers % K or")),
                "you give None, and 18 choices fit.",
            ),
            (but((" <= room", " > 0")), "How many pieces are in flight on it?"),
            (but(("min(K, M) * piece", "piece")), "How many pieces are in flight on it?"),
            (but(("min(K, M) * piece", "(K - 1) * piece")), "How many pieces are in flight on it?"),
            (but(("min(K, M) * piece", "M * piece")), "How many pieces does device 0 hold at once in 1F1B?"),
            (but(("weights + ", "")), "How many pieces are in flight on it?"),
            (but(("min(found)[1:]", "min(found)[:0:-1]")), "and are all stages equal then"),
            (but(("min(found)[1:]", "max(found)[1:]")), "What do K and M do to each of the two?"),
            (but(("min(found)[1:]", "min(found)")), "Which two whole numbers are K and M?"),
            (but(("if layers % K or samples % M", "if samples % M")), "are all stages equal then"),
            (but(("startup + own", "own")), "With this M nothing is better. Is it so with another M?"),
            (but(("(M + K - 1)", "M")), "(6, 1). It fits and takes 2736; 1512 is possible. With this M"),
            (but(("if layers % K or", "if K not in (1, 2, 4, 6) or layers % K or")), "With this K nothing"),
            (but((" if found else None", "")), "ValueError: min() "),
            (but(("range(1, devices + 1)", "range(1, layers + 1)")), "On how many devices"),
        ],
    },
)


@pytest.mark.parametrize("seed", range(8))
def test_lengths_and_pieces_in_flight_are_the_simulators(seed):
    model = choose.task(seed)
    for K, M in model.fits()[:2]:
        own, piece = model.layers // K, model.samples // M
        each = model.startup + own * piece
        schedule = gp.OneFOneB(K, M)
        assert gp.simulate(schedule, gp.Costs(each, each, each)).makespan == model.takes(K, M)
        held = own * (model.weights + gp.peak_in_flight(schedule)[0] * piece)
        assert held == model.held(K, M) <= model.room


def test_the_limit_is_in_the_way_and_there_is_a_choice():
    for seed in range(40):
        model = choose.task(seed)
        free = model._replace(room=10**9).fits()[0]
        assert len(model.fits()) >= 3 and model.fits()[0] != free
