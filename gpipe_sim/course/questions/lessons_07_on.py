"""Questions to be answered on paper, from lesson 07 on, in the order of the lessons that meet them."""

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import pairwise
from math import ceil, isqrt
from random import Random

from gpipe_sim.core.bubbles import busy_time
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.gpipe import GPipe
from gpipe_sim.core.interleaved import Interleaved1F1B
from gpipe_sim.core.one_f_one_b import OneFOneB
from gpipe_sim.core.remat import remat
from gpipe_sim.core.simulate import simulate
from gpipe_sim.course.questions.asked import Asked, length, peaks, question, stale
from gpipe_sim.course.reply import apart
from gpipe_sim.errors import Real
from gpipe_sim.export import cuts
from gpipe_sim.papers.formulas import (
    gpipe_makespan,
    remat_activation_units,
    ring_all_reduce_time,
)


@question("07")
def in_flight(rng: Random) -> Asked:
    K = rng.randint(4, 10)
    k, M = rng.randint(1, K - 2), rng.randint(K + 2, 24)
    return Asked(
        f"1F1B on {K} devices with {M} microbatches. How many microbatches has device {k}, counted from 0, "
        "at most in flight?",
        peaks(OneFOneB, K, M)[k],
        (
            (K - k + 1, "There a forward comes before the backward that makes room. Which comes first?"),
            (M, "That is GPipe, which lets all of them in. What does 1F1B wait for?"),
            (K, "That is the first device. How many devices come after this one?"),
            (K - k - 1, "Those are sent ahead in the warm-up. And the first round's own?"),
        ),
        "microbatches",
    )


@question("07")
def rounds(rng: Random) -> Asked:
    K = rng.randint(4, 8)
    k, M = rng.randint(1, K - 2), rng.randint(K + 2, 20)
    row = ["F" in str(each) for each in OneFOneB(K, M).actions[k]]
    return Asked(
        f"1F1B on {K} devices with {M} microbatches. Between warm-up and drain, how many rounds of one "
        f"forward and one backward does device {k} do, counted from 0?",
        sum(pair == (True, False) for pair in pairwise(row)),
        (
            (M - K + 1, "That is the first device, which sends most ahead. How many does this one?"),
            (M, "Then it would send none ahead. Is it the last device?"),
            (M - K + k, "That takes one too many for its warm-up. How many devices come after it?"),
            (K - k - 1, "That is its warm-up. How many forwards are left then?"),
        ),
        "rounds",
    )


@question("07")
def smaller(rng: Random) -> Asked:
    K = rng.randint(3, 8)
    M = rng.choice((rng.randint(2, K), rng.randint(K + 1, 3 * K)))
    less = {
        "time": length(OneFOneB, K, M) < length(GPipe, K, M),
        "memory": peaks(OneFOneB, K, M)[0] < peaks(GPipe, K, M)[0],
    }
    found = [name for name in less if less[name]]
    says = {
        "time": "Count the waiting at both ends of a row. Is there less of it in 1F1B?",
        "memory": "How many microbatches may the first device have in flight, in each?",
        "both": "Count the waiting of the first device in each. Is there less of it in one?",
        "neither": "How many microbatches has the first device in flight, in each?",
    }
    answer = "both" if len(found) == 2 else found[0] if found else "neither"
    return Asked(
        f"{K} equal stages on {K} devices, {M} microbatches, and messages that take no time. 1F1B takes the "
        'place of GPipe. What becomes smaller on device 0: "time", "memory", "both" or "neither"?',
        answer,
        tuple((word, text) for word, text in says.items() if word != answer),
    )


@question("08")
def working_set(rng: Random) -> Asked:
    count, size, M = rng.randint(3, 6), rng.choice((5, 10, 20)), rng.choice((4, 9, 16))
    return Asked(
        f"A device has {count} layers, and each keeps its input of a microbatch: {size} MB. GPipe has {M} "
        "microbatches, and an R before each B. How many MB of activations does the device hold at most?",
        remat_activation_units(M - 1, size, count * size),
        (
            (M * size, "Those are the boundary inputs. What must be there when the first B reads?"),
            ((M + count) * size, "That has one boundary input twice. Which layer's input is it?"),
            (M * count * size, "That is without R. What does a forward leave behind now?"),
            (count * size, "That is one microbatch. What is kept of the others meanwhile?"),
            (
                isqrt(M) * count * size,
                "A root is about layers on one device. What is kept of each microbatch?",
            ),
        ),
        "MB",
    )


@question("08")
def recomputed(rng: Random) -> Asked:
    times = rng.choice((Fraction(3, 2), Fraction(5, 2), Fraction(4), Fraction(5)))
    costs = Costs(Fraction(1), times / 2, times / 2)
    plain, again = (busy_time(simulate(each, costs)) for each in (GPipe(1, 1), remat(GPipe(1, 1), "always")))
    return Asked(
        f"A backward takes {times} times as long as a forward, and an R as long as a forward. Each B has "
        "its R before it. (work of all R) / (work of all F and B) = ?",
        Fraction(again - plain) / plain,
        (
            (
                Fraction(1, 3),
                "That is so if a backward takes twice as long as a forward. How long is it here?",
            ),
            (1 / times, "That is over the backwards alone. What else is work?"),
            (1 / (2 + times), "That is over the new work, with all R. What is asked for?"),
        ),
    )


@question("08")
def except_last(rng: Random) -> Asked:
    K, M = rng.randint(3, 6), rng.randint(3, 9)
    rows = remat(GPipe(K, M), "except_last").actions
    return Asked(
        f"GPipe has {K} stages on {K} devices and {M} microbatches, and recomputes as torchgpipe's "
        'checkpoint mode "except_last" does. How many R has a step?',
        sum("R" in str(each) for row in rows for each in row),
        (
            (K * M, "That is one before each B. Which of them would come right after its own F?"),
            (
                (K - 1) * M,
                "That spares the last stage. Is it the last stage that goes back at once, or what?",
            ),
            ((K - 1) * (M - 1), "That spares two things. Which of them goes back right after its forward?"),
            (M - 1, "That is one device. How many are there?"),
        ),
        "R",
    )


@question("09")
def backwards_begin(rng: Random) -> Asked:
    K, V = rng.randint(3, 6), rng.randint(2, 4)
    k = rng.randint(0, K - 2)
    row = Interleaved1F1B(devices=K, microbatches=2 * K, stages_per_device=V).actions[k]
    return Asked(
        f"Interleaved 1F1B has {K} devices and {V} stages on each: stage s is on device s mod {K}. Which "
        f"stage's backward is the first that device {k} does?",
        next(int(str(each).partition("B")[0]) for each in row if "B" in str(each)),
        (
            (k, "That is its first forward. Which end of the model does a backward come from?"),
            (K * V - 1, "That one stands on another device. Which of the stages here is nearest to it?"),
            (V - 1, "That is how many rounds come before it. Which stage is that?"),
            (K * (V - 1) - 1, "On which device is that one? Take the remainder."),
        ),
    )


@question("10")
def pieces(rng: Random) -> Asked:
    K, S, start = rng.choice((2, 4, 8)), rng.choice((64, 128, 256, 512)), rng.choice((1, 2, 4, 8, 16))
    of = {M: gpipe_makespan(K, M, start + S // M, 0) for M in (2**n for n in range(S.bit_length()))}
    best, second = sorted(of.values())[:2]
    tied = ((min(of, key=lambda M: of[M]), ""),) * (best == second)  # which draws again
    return Asked(
        f"{S} samples go through {K} equal stages under GPipe. A piece of n samples takes {start} + n on a "
        f"stage, there and back: {start} is its start-up. Of M = 1, 2, 4, ..., {S} pieces, which M is the "
        "fastest?",
        min(of, key=lambda M: of[M]),
        (
            (4 * K, "That is a rule of thumb, 4K. What does it know of the start-up and of the batch?"),
            (S, "Then a piece is one sample. How long does a device spend on starting?"),
            (1, "Nothing is cut. How many devices work at once?"),
            *tied,
        ),
        "pieces",
    )


@cache
def _cut(sizes: tuple[int, ...], M: int) -> Real:
    """How long GPipe takes with so many layers in each stage."""
    return simulate(GPipe(len(sizes), M), Costs(sizes, sizes, sizes)).makespan


@question("11")
def heavy_last(rng: Random) -> Asked:
    K, M = rng.randint(3, 6), rng.randint(4, 10)
    L = K * rng.randint(2, 4) + rng.randint(2, K - 1)
    each = L // K
    sizes = [each] * (K - 1) + [L - (K - 1) * each]
    even = (each + 1,) * (L % K) + (each,) * (K - L % K)

    return Asked(
        f"{L} equal layers, each with F = 1 and B = 2, are cut into {K} stages: {each} layers each, and the "
        f"rest goes to the last stage too. How long is a step of GPipe with {M} microbatches?",
        _cut(tuple(sizes), M),
        (
            (
                _cut(even, M),
                "That is an even cut. How many layers has the last stage here?",
            ),
            (
                3 * (M + K - 1) * Fraction(L, K),
                "That spreads the layers over all devices. Who sets the beat here?",
            ),
            (
                3 * (M + K - 1) * sizes[-1],
                "That has all stages as slow as the last. How long is the way through?",
            ),
            (3 * M * sizes[-1], "That is how long the last device works. What comes before and after that?"),
        ),
        "units",
    )


@question("11")
def lost_layers(rng: Random) -> Asked:
    K, L = rng.randint(3, 8), rng.randint(10, 40)
    stages: list[int] = []
    here = 0
    for _ in range(L):
        here += 1
        if here * K >= L:
            stages, here = [*stages, here], 0
    return Asked(
        f"A program cuts {L} equal layers for {K} devices. It gives a stage layers until it has at least "
        f"{L}/{K} of them, and goes on to the next stage. What is not full at the end it forgets. How many "
        "layers are lost?",
        L - sum(stages),
        (
            (0, "Then the last stage would be full. How many layers fill a stage?"),
            (L % K, "That is what is left if each stage gets its whole part. How many layers fill a stage?"),
            (ceil(Fraction(L, K)), "That is a full stage. How many of these can be filled?"),
        ),
        "layers",
    )


@question("12")
def both_at_once(rng: Random) -> Asked:
    compute, copy = (Fraction(rng.randint(11, 39), 10) for _ in range(2))
    return Asked(
        f"Computing takes {float(compute)} s in all and copying {float(copy)} s. Both go piece by piece, "
        "and a link copies one piece while its device computes the next. How many seconds does it take at "
        "least, however small the pieces are?",
        max(compute, copy),
        (
            (min(compute, copy), "In so little time one of the two is not done. Which?"),
            (compute + copy, "That is one after the other. What can go on at the same time?"),
            (apart(compute, copy), "That is a difference. In so little time, is either of the two done?"),
            ((compute + copy) / 2, "That is the mean. Can one of the two do part of the other's work?"),
        ),
        "s",
    )


@question("13")
def buffers(rng: Random) -> Asked:
    K = rng.randint(4, 9)
    k, M = rng.randint(1, K - 3), rng.randint(K + 2, 24)
    return Asked(
        f"Device {k} of {K}, counted from 0, runs 1F1B with {M} microbatches. It receives the next "
        "activation right after a backward, as late as it can, and takes its buffers in turn. How many "
        "must there be for right gradients?",
        peaks(OneFOneB, K, M)[k],
        (
            (1, "The next one comes in before the backward of the one before. What does that read then?"),
            (K - k - 1, "Those come in during the warm-up. Is one of them back when the next comes in?"),
            (K - k + 1, "Which microbatch's backward has just made room when the next comes in?"),
            (M, "That is one for each microbatch. When may one be used again?"),
        ),
        "buffers",
    )


@question("16")
def by_rate(rng: Random) -> Asked:
    most, flops = rng.randint(50, 90), rng.randint(40, 60)
    cheap, good = rng.randint(2, 4), rng.randint(25, 40)
    rows = [(most, flops), (rng.randint(1, 3), cheap), (good, cheap + rng.randint(2, 6))]
    rng.shuffle(rows)
    table = dict(zip("ABC", rows, strict=True))

    def best(of: Callable[[int, int], Real]) -> str:
        return max(table, key=lambda name: of(*table[name]))

    kept = "; ".join(f"{name} frees {mb} MB for {gflop} GFLOP" for name, (mb, gflop) in table.items())
    return Asked(
        f"Three layers can be computed again in place of being kept. {kept}. Which of them first, if each "
        'GFLOP is to free as much as possible? "A", "B" or "C"',
        best(lambda mb, gflop: Fraction(mb, gflop)),
        (
            (best(lambda mb, _: mb), "That frees the most. What does each of its MB cost?"),
            (best(lambda _, gflop: -gflop), "That costs the least. What does it free for that?"),
        ),
    )


@question("16")
def next_token(rng: Random) -> Asked:
    n = rng.randint(12, 60)
    tokens = list(range(n))
    return Asked(
        "A language model has a causal mask: each place sees itself and the places before it. It trains on "
        f"a text of {n} tokens. For how many of its places can the loss ask which token comes next?",
        len(tokens[1:]),
        (
            (
                n,
                "What comes after the last token? If each place is asked for its own token, what is there "
                "to learn?",
            ),
            (1, "That is the last place alone. What may the places before it see?"),
            (n * (n - 1) // 2, "That is pairs of places. How often is each place asked?"),
        ),
        "places",
    )


@question("17")
def through_one(rng: Random) -> Asked:
    n = rng.choice((4, 6, 8, 12, 16, 32, 64))
    ring = ring_all_reduce_time(n, 1, 0, 1)
    return Asked(
        f"{n} copies sum their gradients. In one way all send theirs to device 0, which sends the sum back "
        "to each, as nn.DataParallel and a parameter server do. In the other they form a ring. (bytes that "
        "device 0 sends) / (bytes that a device sends in the ring) = ?",
        (n - 1) / Fraction(ring),
        (
            (1, "As many sums are made. But how many devices does the one in the middle send to?"),
            (n, "That is one half of the ring's rounds. What goes round after the sums are made?"),
            (n - 1, "That is how many sums device 0 sends. How much does a device in a ring send?"),
            (2 * (n - 1), "Those are the rounds of a ring. How large is what goes in each of them?"),
        ),
        "times",
    )


@question("19")
def versions(rng: Random) -> Asked:
    K = rng.randint(4, 9)
    k, M = rng.randint(1, K - 3), 2 * K + rng.randint(0, 2)
    return Asked(
        f"PipeDream with weight stashing has {K} devices and updates after each of {M} microbatches. How "
        f"many versions of its weights does device {k}, counted from 0, keep at most?",
        stale(K, M).held[k],
        (
            (K, "That is the first device. How many microbatches are in flight on this one?"),
            (K - k - 1, "That is how old its weights are at a forward. Which version is missing?"),
            (M, "That keeps all of them. When is a version no longer needed?"),
            (1, "That is the newest alone. Which weights does a backward read then?"),
        ),
        "versions",
    )


#: What a paper or a library says, what is asked of it, and what is wrong.
SOURCES = (
    (
        'The paper on GPT-3 says: "we use a mixture of model parallelism within each matrix multiply and '
        'model parallelism across the layers of the network" (Brown et al. 2020). Which order of '
        'microbatches does that name: "GPipe", "1F1B" or "none"?',
        "none",
        (
            ("GPipe", "It cuts across layers. Does it say who does what when?"),
            ("1F1B", "It cuts across layers. Does it say when a backward follows a forward?"),
        ),
    ),
    (
        "Megatron-LM of 2019 splits the matrices of each block over devices, and has no stages (Shoeybi et "
        'al. 2019). What is that: "pipeline", "tensor" or "data" parallelism?',
        "tensor",
        (
            (
                "pipeline",
                "That came to it two years later. What is split here: the list of layers, or each layer?",
            ),
            ("data", "There each device has a whole copy. What has each of these?"),
        ),
    ),
    (
        "`balance=[2, 2, 3]` says how many layers each partition gets. To which library does `gp.export` "
        'write such a balance: "torch" or "torchgpipe"?',
        next(name[3:-8] for name in dir(cuts) if name.endswith("_balance")),
        (
            (
                "torch",
                "That one is told where to split, by the names of layers. Look at the names in gp.export.",
            ),
        ),
    ),
)


@question("B")
def sources(rng: Random) -> Asked:
    return Asked(*rng.choice(SOURCES))
