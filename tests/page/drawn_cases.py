"""What the page is compared over: every family and any legal order; any costs, links, bytes and recompute.

All of it is drawn from a seed, so a run meets the same cases as the last one.
"""

from collections.abc import Iterator
from dataclasses import fields
from fractions import Fraction
from random import Random

import numpy as np
from cases import overlapped
from engine_cases import legal_order, legal_stream
from law import Case
from measured import measured

import gpipe_sim as gp
from gpipe_sim.core import Kind, Schedule
from gpipe_sim.families import SCHEDULES, WITHOUT_FLUSH

FAMILIES = (*SCHEDULES, *WITHOUT_FLUSH)
#: Options of families, beside their sizes.
OPTIONS = {"stages_per_device": (1, 2, 3, 4), "drain": ("reversed", "in_order"), "every": (1, 2, 5)}
#: A few that are large: many levels, many stages, both directions, split and overlapped.
LARGE = (
    gp.OneFOneB(8, 64),
    gp.Interleaved1F1B(8, 32, stages_per_device=4),
    gp.ZBV(8, 40),
    gp.families.VHalf(6, 40),
    gp.families.VMin(7, 30),
    gp.families.DualPipe(8, 32),
    gp.families.Chimera(8, 24),
    gp.PipeDream(8, 40),
    gp.GPipe(32, 64),
)
MEASURED = (
    gp.OneFOneB(4, 6),
    gp.ZBH1(3, 5),
    gp.families.DualPipe(4, 8),
    gp.ZBV(3, 6),
    gp.PipeDream(3, 6),
)


def drawn_cases(seed: int, orders: int, of_each_family: int) -> Iterator[Case]:
    """So many random orders, so many sizes of each family, and timelines that have their times already."""
    random = Random(seed)
    for family in FAMILIES:
        for _ in range(of_each_family):
            yield drawn(random, remat(random, of_some_size(random, family)))
    for _ in range(orders):
        yield drawn(random, remat(random, any_order(random)))
    for schedule in MEASURED:
        yield Case(measured(schedule, seed=random.randrange(1000)))
    for _ in range(8):
        yield Case(summed(random))


def large_cases(seed: int) -> Iterator[Case]:
    random = Random(seed)
    for schedule in LARGE:
        yield drawn(random, schedule, with_profile=False)


def drawn(random: Random, schedule: Schedule, with_profile: bool = True) -> Case:
    costs, links = drawn_costs(random, schedule), drawn_links(random, schedule.devices)
    if with_profile and random.random() < 0.3 and schedule.stages <= 8:
        return Case(schedule, costs, links, profile=drawn_profile(random, schedule))
    sizes = any_of(random, [amount(random) for _ in range(schedule.stages - 1)], amount(random))
    return Case(schedule, costs, links, message_bytes=sizes if links else None)


def any_of(random: Random, *values):
    return random.choice(values)


# Orders


def of_some_size(random: Random, family: type[Schedule]) -> Schedule:
    """A size that the family takes, and options of it."""
    names = {field.name for field in fields(family)} & OPTIONS.keys()
    while True:
        options = {name: random.choice(OPTIONS[name]) for name in sorted(names) if random.random() < 0.6}
        try:
            return family(random.randint(1, 6), random.randint(1, 14), **options)
        except ValueError:
            continue


def remat(random: Random, schedule: Schedule) -> Schedule:
    if random.random() < 0.7 or Kind.R in schedule.program.where:
        return schedule
    some = [stage for stage in range(schedule.stages) if random.random() < 0.5]
    return gp.remat(schedule, random.choice(["always", "except_last"]), random.choice([None, None, some]))


def any_order(random: Random) -> Schedule:
    """Any legal order over any placement; some with updates, copies of stages, pairs, or several steps."""
    devices, microbatches = random.randint(1, 5), random.randint(2, 6)
    what = random.random()
    if what < 0.1:
        return overlapped(devices, microbatches)
    if what < 0.2:
        inner = random.choice([gp.OneFOneB, gp.ZBH1, gp.GPipe])(devices, microbatches)
        return (
            gp.repeat(gp.with_updates(inner), 2)
            if random.random() < 0.5
            else gp.replicate(gp.with_updates(inner), 2)
        )
    stages = random.randint(devices, devices + 3)
    order = legal_order(random, devices, microbatches, stages, copies=what < 0.4)
    return legal_stream(order, random) if 0.4 <= what < 0.6 else order


def summed(random: Random) -> gp.core.Timeline:
    """Copies of a pipeline that sum their gradients; with their messages and all-reduces."""
    inner = random.choice([gp.OneFOneB, gp.GPipe, gp.ZBH1])(random.randint(1, 3), random.randint(2, 5))
    timeline = gp.simulate(
        gp.replicate(gp.with_updates(inner), 2), gp.Costs(1.5, 2.0, 1.25, update=0.5, comm=0.25)
    )
    sizes = [amount(random) + 1 for _ in range(inner.stages)]
    return gp.all_reduce(timeline, sizes, links=gp.Link(0.5, 3.0), buckets=random.randint(1, 3))


# Numbers


def amount(random: Random) -> int | float | Fraction:
    """Whole numbers, fractions and floats: ties are as frequent as sums that round."""
    whole, part = random.randint(0, 4), Fraction(random.randint(0, 20), random.choice([2, 3, 7, 10]))
    return any_of(random, whole, whole, part, random.uniform(0, 3), random.choice([0.1, 0.2, 0.3, 1e-3]))


def drawn_costs(random: Random, schedule: Schedule) -> gp.Costs:
    if random.random() < 0.15:
        return gp.Costs(comm=random.randint(0, 1))
    listed = random.random() < 0.5

    def per_stage():
        return [amount(random) for _ in range(schedule.stages)] if listed else amount(random)

    def per_device(draw):
        return any_of(random, draw(), [draw() for _ in range(schedule.devices)])

    more = {
        "recompute": per_stage,
        "update": per_stage,
        "overlap": per_stage,
        "comm": lambda: amount(random),
        "speed": lambda: per_device(lambda: any_of(random, 1, 1, 0.5, 3, random.uniform(0.1, 2))),
        "overhead": lambda: per_device(lambda: amount(random)),
    }
    said = {name: draw() for name, draw in more.items() if random.random() < 0.4}
    return gp.Costs(per_stage(), per_stage(), per_stage(), **said)


def drawn_links(random: Random, devices: int) -> gp.Link | gp.Nodes | dict | None:
    def link() -> gp.Link:
        fast = random.random() < 0.3
        return gp.Link(amount(random)) if fast else gp.Link(amount(random), amount(random) + Fraction(1, 4))

    pairs = [(a, b) for a in range(devices) for b in range(devices) if a != b]
    nodes = gp.Nodes(random.randint(1, 3), link(), link())
    return any_of(random, None, None, link(), link(), nodes, {pair: link() for pair in pairs})


def drawn_profile(random: Random, schedule: Schedule) -> gp.memory.profile.Profile:
    """Of a small model, cut into as many stages, with microbatches of one size or of two."""
    widths = [random.randint(2, 9) for _ in range(schedule.stages + random.randint(1, schedule.stages + 1))]
    layers = gp.mlp([*widths, 4], activation=random.choice(["relu", "tanh"]), seed=1)
    samples = schedule.microbatches * 2 + random.randrange(schedule.microbatches)
    batch = np.zeros((samples, widths[0])), np.zeros(samples, int)
    optimizer = random.choice([None, gp.Adam(0.1)])
    return gp.profile(gp.split(layers, stages=schedule.stages), batch, gp.cross_entropy, optimizer)
