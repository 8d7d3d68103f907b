"""What is shown of results is for eyes: times to four digits, no Fraction; exact values are in attributes."""

import re
from fractions import Fraction

import pytest

import gpipe_sim as gp

LONG = re.compile(r"\d\.\d{5,}|Fraction\(")
THIRDS = {"fractions": Fraction(1, 3), "floats": 1 / 3}


def shown(third) -> dict:
    """Results whose times are thirds and sevenths."""
    layers = gp.Costs.from_forward([third * layer for layer in (1, 2, 1, 3, 2, 1)])
    schedule, costs = gp.OneFOneB(4, 8), gp.Costs(third, third, third, comm=third * 3 / 7)
    timeline = gp.simulate(schedule, costs)
    partitions, (x, y, *_) = gp.split(gp.mlp([8, 8, 8, 8, 8]), stages=4), gp.digits()
    batch = x[:16, :8], y[:16] % 8
    step = gp.train_step(partitions, schedule, batch, gp.cross_entropy, costs=costs)
    profile, copies = gp.profile(partitions, batch, gp.cross_entropy), gp.replicate(gp.OneFOneB(2, 4), 2)
    summed = gp.all_reduce(gp.simulate(copies, costs), 4 * third, links=gp.Link(bandwidth=third))
    with pytest.raises(ValueError, match="recompute_plan cannot keep 3 bytes or fewer") as refused:
        gp.recompute_plan(profile, 10 * third)
    return {
        "timeline": timeline,
        "overlay": gp.overlay(timeline, gp.simulate(schedule)),
        "drawing": gp.draw(timeline, gp.simulate(gp.ZBV(4, 8)), messages=True),
        "comparison": gp.compare(gp.SCHEDULES, 4, 8, costs),
        "html": gp.compare(gp.SCHEDULES, 4, 8, costs)._repr_html_(),
        "why": gp.why.why_idle(timeline, 1, timeline.makespan / 40),
        "cut": gp.balance_by_makespan(schedule, layers),
        "memory": step.memory[1],
        "collective": str(summed.collectives[0]),
        "summed": summed,
        "refused": refused.value,
        "profile": profile,
    }


@pytest.mark.parametrize("third", THIRDS.values(), ids=THIRDS)
def test_texts_are_rounded(third):
    for name, result in shown(third).items():
        for text in (str(result), repr(result)):
            assert not LONG.search(re.sub(r'="[^"]*"', "", text)), f"{name}: {text[:400]}"


def test_a_fraction_that_is_refused_is_quoted_as_one_writes_it():
    with pytest.raises(ValueError, match=r"forward to be finite and >= 0 \(got -1/3\)"):
        gp.Costs(Fraction(-1, 3))


def test_exact_values_stay_in_attributes():
    costs = gp.Costs(*[Fraction(1, 3)] * 3)
    timeline = gp.simulate(gp.OneFOneB(4, 8), costs)
    assert timeline.makespan == gp.compare([gp.OneFOneB], 4, 8, costs)[0].makespan == 11
    assert gp.why.why_idle(timeline, 1, 0).end == Fraction(1, 3)
