"""Ten questions that take a few lines of code, in the order of the lessons that meet them."""

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial
from random import Random

from gpipe_sim.balance.colocate import colocate
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.gpipe import GPipe
from gpipe_sim.core.meta_array import MetaArray
from gpipe_sim.core.one_f_one_b import Eager1F1B, OneFOneB
from gpipe_sim.core.simulate import simulate
from gpipe_sim.course.questions.asked import Asked, length, question, stale
from gpipe_sim.errors import Real
from gpipe_sim.families.controllable import VHalf, VMin
from gpipe_sim.families.derived import repeat
from gpipe_sim.families.zbv import ZBV
from gpipe_sim.families.zero_bubble import ZBH1, ZBH2
from gpipe_sim.links.links import Link
from gpipe_sim.papers.formulas import message_bytes, tensor_parallel_bytes
from gpipe_sim.pricing.cluster import Cluster
from gpipe_sim.pricing.hardware import A100
from gpipe_sim.pricing.price import price
from gpipe_sim.transformers.known import bert_large, gpt3_175b, known_model
from gpipe_sim.why.causes import where_time_goes


@question("12")
def late(rng: Random) -> Asked:
    K, M, comm = rng.randint(3, 6), rng.choice((8, 10, 12, 16)), rng.randint(1, 3)
    return Asked(
        f"1F1B has {K} devices and {M} microbatches. F, I and W take 1 each, and a message is on its way "
        f"for {comm}. How long is a step?",
        length(OneFOneB, K, M, comm),
        (
            (length(OneFOneB, K, M), "That is messages that take no time. What do gp.Costs call them?"),
            (
                length(GPipe, K, M, comm),
                "That is GPipe, which waits at both ends only. Who waits in between here?",
            ),
            (
                length(OneFOneB, K, M) + 2 * (K - 1) * M * comm,
                "That has every message wait for the one before. Which are on their way at once?",
            ),
        ),
        "units",
    )


@cache
def _stream(K: int, M: int, times: int) -> Real:
    return simulate(repeat(ZBH2(K, M), times)).makespan


@question("14")
def without_a_stop(rng: Random) -> Asked:
    K, times = rng.randint(3, 5), rng.randint(3, 6)
    M = 2 * K + rng.randint(0, 2)
    alone = length(ZBH2, K, M)
    return Asked(
        f"{times} steps of ZB-H2 follow on each other with no stop between them, on {K} devices, with {M} "
        "microbatches in each. F, I and W take 1 each. How long are they in all?",
        _stream(K, M, times),
        (
            (times * alone, "That has a stop after each. Which device is done first, and what may it begin?"),
            (
                3 * times * M,
                "That is without any waiting. What does the last device do before its first forward?",
            ),
            (times * length(OneFOneB, K, M), "That is 1F1B. What fills its bubble here?"),
            (alone, "That is one step. How many are there?"),
        ),
        "units",
    )


@question("15")
def v_min(rng: Random) -> Asked:
    K, M = rng.choice((4, 6)), rng.choice((8, 9, 12))
    least, half, most = (length(family, K, M, each=Fraction(1, 2)) for family in (VMin, VHalf, ZBV))
    return Asked(
        f"V-Min has {K} devices and {M} microbatches. Each device has two thin stages, and F, I and W take "
        "1/2 on each of them. How long is a step?",
        least,
        (
            (half, "That is V-Half, which holds more. Which of the two is asked for?"),
            (most, "That is ZB-V, which holds as much as 1F1B. What does V-Min give for less memory?"),
            (
                length(OneFOneB, K, M),
                "That is 1F1B, whose stages are whole. What do two thin stages change?",
            ),
            (2 * least, "There each thin stage takes as long as a whole one. What are the costs?"),
        ),
        "units",
    )


MODELS: dict[str, Callable] = {
    "gp.bert_large()": bert_large,
    "gp.gpt3_175b()": gpt3_175b,
    'gp.known_model("llama2-7b")': partial(known_model, "llama2-7b"),
    'gp.known_model("llama3-8b")': partial(known_model, "llama3-8b"),
}


@cache
def _weights(name: str) -> tuple[int, dict[str, int]]:
    """How many blocks a model has, and the weights of its layers, by what they are."""
    found, count = Counter[str](), 0
    for layer in MODELS[name]():
        kind = "block" if (is_block := "Block" in type(layer).__name__) else type(layer).__name__
        found[kind] += sum(array.size for array in layer.parameters.values())
        count += is_block
    return count, dict(found)


@question("16")
def left_out(rng: Random) -> Asked:
    name, K = rng.choice(list(MODELS)), rng.choice((4, 8))
    count, weights = _weights(name)
    found = {what: Fraction(size, 10**6) for what, size in weights.items()}
    blocks = found.pop("block")
    rest = sum(found.values())
    return Asked(
        f"A table says that balance = [{count // K}] * {K} cuts {name}. That is as many layers as it has "
        "blocks. How many million weights has the model beside its blocks, which are then in no stage?",
        rest,
        (
            (0, "Then a model would be its blocks. What stands before the first, and after the last?"),
            (found["Embedding"], "That is the embedding alone. What stands after the last block?"),
            (blocks, "Those are the blocks. What else is in the list of layers?"),
            (rest * 2, "That counts them twice. Or did you count bytes?"),
        ),
        "million",
    )


LAYOUTS = {"1 x 1 x 8": (1, 1), "8 x 1 x 1": (8, 1), "1 x 8 x 1": (1, 8), "2 x 2 x 2": (2, 2)}


@cache
def _priced(bandwidth: float) -> dict[str, Real]:
    link, tokens = Link(5e-6, bandwidth), MetaArray((64, 512), "i8")
    cluster = Cluster(8, A100, memory=80e9, links=link)
    return {
        name: price(bert_large(), cluster, (tokens, tokens), tensor=t, pipeline=K).time
        for name, (t, K) in LAYOUTS.items()
    }


@question("18")
def layout(rng: Random) -> Asked:
    bandwidth = rng.choice(("200e9", "25e9", "5e9", "2e9"))
    of = _priced(float(bandwidth))
    says = {
        "1 x 1 x 8": "Eight copies wait for nobody. How long do they sum, over such a link?",
        "8 x 1 x 1": "Eight devices share each block. How many sums is that for one microbatch?",
        "1 x 8 x 1": "It sends little, and waits. What does the link cost the other layouts?",
        "2 x 2 x 2": "It does a bit of everything. What is there to win from each?",
    }
    best = min(of, key=lambda name: of[name])
    return Asked(
        "Price gp.bert_large() on gp.Cluster(8, gp.pricing.A100, memory=80e9, links=gp.Link(5e-6, "
        f'{bandwidth})), with a batch of tokens = gp.MetaArray((64, 512), "i8") for inputs and targets. '
        f"Which layout has the shortest step, tensor x pipeline x replicas: {', '.join(of)}?",
        best,
        tuple((name, text) for name, text in says.items() if name != best),
    )


@question("19")
def vertical(rng: Random) -> Asked:
    K = rng.randint(4, 7)
    k, m = rng.randint(1, K - 2), rng.randint(K + 1, 12)
    ways = [stale(K, m + 3, way).forward[k][m] for way in ("vertical", "stashed")]
    return Asked(
        f"PipeDream with vertical sync has {K} devices and {m + 3} microbatches. Which version of its "
        f"weights does device {k} use in the forward of microbatch {m}? Both are counted from 0.",
        ways[0],
        (
            (ways[1], "That is the newest that it has. What travels along with the activations?"),
            (m, "That is on one device alone. How many updates come too late for device 0?"),
            (0, "That is the version at the start. Has device 0 made no update by then?"),
            (m - K, "That is one update older than need be. Which is the newest one on device 0?"),
        ),
    )


@question("20")
def shared(rng: Random) -> Asked:
    K, M = rng.choice((4, 6)), rng.randint(4, 12)
    names = ["a", "b"] * (K // 2)
    listed = ", ".join(f'"{name}"' for name in names)
    return Asked(
        f'gp.balance.colocate puts the {K} partitions of GPipe on two devices. Two names, "a" and "b", are '
        f"too few for it, so it gets {listed}. There are {M} microbatches, and F, I and W take 1 each. How "
        "long is a step?",
        simulate(colocate(GPipe(K, M), names)).makespan,
        (
            (
                length(GPipe, K, M),
                "That has a device for each partition. What do two do that are on the same one?",
            ),
            (3 * K * M, "That is one device for all. How many names are different?"),
            (3 * K * M // 2, "Then neither would ever wait. What does b do at the start?"),
            (length(GPipe, 2, M), "That is two partitions. How much has each device to do here?"),
        ),
        "units",
    )


@cache
def _slowed(K: int, M: int, k: int, slow: int) -> tuple[Real, dict[str, Real]]:
    """How long the step is, and its causes."""
    takes = [slow if stage == k else 1 for stage in range(K)]
    step = simulate(OneFOneB(K, M), Costs(takes, takes, takes))
    return step.makespan, {cause.name: cause.time for cause in where_time_goes(step).terms}


@question("21")
def slow_stage(rng: Random) -> Asked:
    K, M, slow = rng.randint(4, 6), rng.choice((8, 9, 10)), rng.randint(2, 4)
    k = rng.randint(1, K - 2)
    step, of = _slowed(K, M, k, slow)
    return Asked(
        f"1F1B has {K} devices and {M} microbatches. F, I and W take {slow} each on stage {k}, counted from "
        "0, and 1 on the others. How many units of the step does gp.where_time_goes put down to unequal "
        "stages?",
        of["unequal stages"],
        (
            (step, "That is all of the step. Which of its terms is asked for?"),
            (
                of["the order's own bubble"],
                "That is the waiting that equal stages have too. What comes on top?",
            ),
            (3 * (slow - 1) * M, "That is how much more the slow device works. Did it never wait before?"),
            (step - 3 * M, "That is all but the work of an equal stage. What else is in it?"),
        ),
        "units",
    )


ORDERS = {
    "GPipe": GPipe,
    "1F1B": OneFOneB,
    "Eager 1F1B": Eager1F1B,
    "ZB-H1": ZBH1,
    "ZB-H2": ZBH2,
}


@question("A")
def shortest(rng: Random) -> Asked:
    K, M, comm = rng.randint(4, 6), rng.choice((8, 10, 12)), rng.randint(1, 4)
    of = {name: length(family, K, M, comm) for name, family in ORDERS.items()}
    says = {
        "GPipe": "It has all microbatches on their way. Does its bubble cost more than waiting for messages?",
        "1F1B": "It lets few in. What does device 0 work on while a message travels?",
        "Eager 1F1B": "It lets more in than 1F1B. Who fills the rest of its waiting?",
        "ZB-H1": "It fills its bubble, and holds little. What waits while a message travels?",
        "ZB-H2": "It lets some more in than 1F1B. Is that enough for messages that take so long?",
    }
    best, second = sorted(of, key=lambda name: of[name])[:2]
    tied = ((best, ""),) * (of[best] == of[second])  # which draws again
    return Asked(
        f"{K} devices have {M} microbatches. F, I and W take 1 each, and a message {comm}. Which of these "
        f"has the shortest step: {', '.join(of)}?",
        best,
        (*((name, text) for name, text in says.items() if name != best), *tied),
    )


@question("B")
def in_every_block(rng: Random) -> Asked:
    t, blocks, s, h = rng.choice((2, 4, 8, 16)), rng.choice((24, 32, 48, 80)), 2048, rng.choice((4096, 8192))
    sums = blocks * tensor_parallel_bytes(s, 1, h, t)
    hop = 2 * message_bytes(s, 1, h)
    return Asked(
        f"A model has {blocks} blocks, {h} wide, and a microbatch is one text of {s} places. What one of "
        f"{t} devices sends with tensor parallelism, divided by what a device in the middle of a pipeline "
        "sends = ? (gp.formulas has tensor_parallel_bytes, of a block, and message_bytes, of one message.)",
        sums / hop,
        (
            (
                sums / hop / t,
                "That is a stage's share of the blocks. Of which blocks has a device a part here?",
            ),
            (sums / hop / blocks, "That is one block. How many are there?"),
            (2 * sums / hop, "That counts one message of the pipeline. What comes back?"),
            (hop / sums, "That is the other way round. Which sends more?"),
        ),
        "times",
    )
