"""Two hundred wrong programs: whatever is not refused in words gives the right gradient.

And ``check``, which has no model, says of each what ``run_programs`` does.
"""

import random
import re
from collections import Counter
from dataclasses import replace
from itertools import cycle, islice

import pytest
from numeric import furthest_apart
from test_mutations import change

import gpipe_sim as gp
from gpipe_sim.programs import Recv, Send

X, Y = gp.digits().x[:6], gp.digits().y[:6]
LAYERS = gp.mlp([64, 6, 6, 10])[::2]  # three Linears: each keeps its input, which may be a buffer
EXPECTED = gp.single_device_step(LAYERS, (X, Y), gp.cross_entropy)
SOUND = [
    gp.device_programs(schedule)
    for schedule in (gp.GPipe(3, 2), gp.OneFOneB(3, 3), gp.ZBH1(3, 2), gp.remat(gp.OneFOneB(3, 2), "always"))
]
TRIALS = 200  #: the first 131 meet every rule in every outcome that five hundred do


def mutated(programs, rng: random.Random) -> list[list]:
    """The programs with one to three random changes; some receives go into buffers, or are only posted."""
    rows = [[vary(step, rng) for step in row] for row in programs]
    for _ in range(rng.randint(0, 3)):
        change(rng.choice([row for row in rows if row]), rng, relabelled)
    return rows


def vary(step, rng: random.Random):
    if not isinstance(step, gp.programs.Recv) or rng.random() < 0.5:
        return step
    return replace(step, wait=rng.random() < 0.5, into=rng.choice([None, "a", "b", "c"]))


def relabelled(step, rng: random.Random):
    if isinstance(step, gp.core.Action):
        return step._replace(microbatch=rng.randrange(4))
    if rng.random() < 0.5:
        return replace(step, what=step.what._replace(microbatch=rng.randrange(4)))
    other = rng.randrange(4)
    return replace(step, **({"to": other} if isinstance(step, gp.programs.Send) else {"source": other}))


def one_ended(rows) -> set[str]:
    """Each send that nobody receives, and each receive of what nobody sends."""
    ends = [(k, step) for k, row in enumerate(rows) for step in row if isinstance(step, (Send, Recv))]
    sent = {(step.what, k, step.to) for k, step in ends if isinstance(step, Send)}
    wanted = {(step.what, step.source, k) for k, step in ends if isinstance(step, Recv)}
    lost = {
        f"device {k} sends {what} to device {to}, which never receives it" for what, k, to in sent - wanted
    }
    return lost | {
        f"device {k} receives {what} from device {source}, which never sends it"
        for what, source, k in wanted - sent
    }


def wrong(programs) -> set[str]:
    """What is wrong with the actions, apart from what waits for what."""
    found = gp.problems(programs.schedule)
    return {each.sentence for each in found if each.rule not in ("deadlock", "stuck")}


def outcome(programs: list[list], microbatches: int, sends: str) -> str:
    partitions = gp.split(LAYERS, stages=3)
    options = {"sends": sends, "microbatches": microbatches}
    whole = gp.device_programs(programs, placement=[[0], [1], [2]], microbatches=microbatches)
    try:
        step = gp.run_programs(programs, partitions, (X, Y), gp.cross_entropy, **options)
    except gp.errors.ScheduleError as error:
        with pytest.raises(type(error), match=f"^{re.escape(str(error))}$"):
            gp.check(whole, sends)
        lines = [line.strip() for line in str(error).splitlines()]
        stops, said = lines[1:] or lines, [each.sentence for each in gp.problems(whole, sends)]
        assert said[: len(stops)] == stops and {*said} == {*stops, *one_ended(whole), *wrong(whole)}
        assert len({*said}) == len(said)
        if type(error) is gp.errors.DeadlockError:
            assert "deadlocked" in str(gp.drawing.draw_deadlock(whole, sends))
            return "deadlock"
        return "buffer" if "into buffer" in str(error) else "refused"
    gp.check(whole, sends)
    assert gp.problems(whole, sends) == []
    assert furthest_apart(step.gradients, EXPECTED.gradients) < 1e-12
    assert step.loss == pytest.approx(EXPECTED.loss, rel=1e-13)
    return "right"


def test_two_hundred_mutated_programs_are_right_or_refused():
    rng, seen = random.Random(172668), Counter()
    for programs in islice(cycle(SOUND), TRIALS):
        rows = mutated(programs, rng)
        for sends in ("buffered", "blocking"):
            seen[sends, outcome(rows, programs.microbatches, sends)] += 1
    assert {kind for _, kind in seen} == {"right", "deadlock", "refused", "buffer"}
    assert min(seen.values()) >= TRIALS / 50, seen
    assert seen["blocking", "right"] < seen["buffered", "right"]
