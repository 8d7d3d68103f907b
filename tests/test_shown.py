"""What is shown of results is for eyes: times to four digits, no Fraction but in the repr of a plain value.

Exact values are in attributes.
"""

import re
from fractions import Fraction

import pytest

import gpipe_sim as gp
from gpipe_sim.core.training import History

LONG = re.compile(r"\d\.\d{5,}|Fraction\(")
VALUES = {"span", "message", "moment", "inside", "ring", "row", "overlaid"}  #: they say a Fraction as it is
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
        "span": timeline.spans[3],
        "message": timeline.messages[0],
        "moment": step.memory[1].peak_moment,
        "inside": step.memory[1].peak_inside,
        "ring": summed.collectives,
        "row": gp.compare(gp.SCHEDULES, 4, 8, costs)[0],
        "overlaid": gp.overlay(timeline, timeline).makespan,
    }


@pytest.mark.parametrize("third", THIRDS.values(), ids=THIRDS)
def test_texts_are_rounded(third):
    for name, result in shown(third).items():
        for text in (str(result), repr(result)):
            plain = re.sub(r'="[^"]*"', "", text)
            plain = plain.replace("Fraction(", "") if name in VALUES else plain
            assert not LONG.search(plain), f"{name}: {text[:400]}"


REST = ", launch=0, exposed=0, call=0, linear=None, vocabulary=None, microbatch=0, step=0, card=''"


def test_floats_in_a_repr_are_rounded_and_fractions_are_as_they_are():
    """So that a sum such as 0.1 + 0.2 is not shown as 0.30000000000000004; the fields have it."""
    costs = gp.Costs(0.1 + 0.2, [1 / 3, 2], Fraction(1, 3), comm=1e-7 / 3)
    shown = "forward=0.3, input_grad=(0.3333, 2), weight_grad=Fraction(1, 3), recompute=None, update=0"
    assert repr(costs) == f"Costs({shown}, overlap=None, comm=3.333e-08, speed=1, overhead=0)"
    assert (costs.forward, costs.comm) == (0.1 + 0.2, 1e-7 / 3) and eval(repr(gp.Costs(0.3)), vars(gp))
    history = History([7 / 3, 1.5], [2 / 3])
    assert repr(history) == "History(losses=[2.333, 1.5], accuracies=[0.6667])"
    assert repr(gp.Link(0.1 + 0.2, 1e9 / 3)) == "Link(latency=0.3, bandwidth=333333333)"
    assert repr(gp.Accelerator(1e15 / 7)) == f"Accelerator(flops=142857142857143, overhead=0, hbm=inf{REST})"


def test_a_fraction_that_is_refused_is_quoted_as_one_writes_it():
    with pytest.raises(ValueError, match=r"forward to be finite and >= 0 \(got -1/3\)"):
        gp.Costs(Fraction(-1, 3))


def test_exact_values_stay_in_attributes():
    costs = gp.Costs(*[Fraction(1, 3)] * 3)
    timeline = gp.simulate(gp.OneFOneB(4, 8), costs)
    assert timeline.makespan == gp.compare([gp.OneFOneB], 4, 8, costs)[0].makespan == 11
    assert gp.why.why_idle(timeline, 1, 0).end == Fraction(1, 3)
