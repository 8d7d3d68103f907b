"""Unequal devices get unequal shares of the batch, and copying overlaps with computing."""

from fractions import Fraction
from itertools import product

import pytest
from cases import every_schedule, over
from numeric import furthest_apart

import gpipe_sim as gp
from gpipe_sim import Link
from gpipe_sim.core.step import StepResult
from gpipe_sim.replicas import shares, side_by_side


def test_a_device_of_twice_the_speed_gets_twice_the_samples():
    assert shares(24, [2, 1]) == (16, 8)
    assert shares(10, [1, 1, 1]) == (4, 3, 3)
    assert shares(7, [1.5, 1]) == (4, 3)
    assert shares(3, [100, 1]) == (3, 0), "for a device so slow that it is better left out"
    assert shares(0, [1, 2]) == (0, 0)
    assert sum(shares(10**12 + 1, [3, 1, 2])) == 10**12 + 1, "at once"


@pytest.mark.parametrize("speeds", [(2, 1), (3, 2), (1, 1, 1), (5, 3, 1), (Fraction(7, 3), 1, 0.5)])
def test_no_other_shares_end_sooner(speeds):
    for samples in range(14):
        found = shares(samples, speeds)
        assert sum(found) == samples
        every = (
            counts for counts in product(range(samples + 1), repeat=len(speeds)) if sum(counts) == samples
        )
        best = min(max(Fraction(n) / Fraction(s) for n, s in zip(c, speeds, strict=True)) for c in every)
        assert max(Fraction(n) / Fraction(s) for n, s in zip(found, speeds, strict=True)) == best


def step(schedule: gp.core.Schedule) -> tuple[StepResult, StepResult]:
    data = gp.digits()
    batch = data.x[: schedule.microbatches + 3], data.y[: schedule.microbatches + 3]
    layers = gp.mlp([64] + [8] * schedule.stages + [10], seed=1)
    found = gp.train_step(gp.split(layers, stages=schedule.stages), schedule, batch, gp.cross_entropy)
    return found, gp.single_device_step(layers, batch, gp.cross_entropy)


@over(every_schedule([(1, 2), (2, 4), (4, 5)]))
def test_replicas_with_unequal_shares_have_the_gradients_of_one_device(schedule):
    other = gp.GPipe(schedule.stages, 1)
    both = side_by_side([schedule, other])
    gp.check(both)
    assert both.devices == schedule.devices + other.devices
    assert both.microbatches == schedule.microbatches + 1
    found, alone = step(both)
    assert furthest_apart(found.gradients, alone.gradients) < 1e-12


def test_shares_by_speed_make_unequal_devices_end_together():
    """Of 12 microbatches on devices of speed 2 and 1: 24 long where each gets 8 and 4, and 36 for 6 and 6."""
    costs, ends = gp.Costs(speed=[2, 1]), {}
    for counts in ((8, 4), (6, 6)):
        timeline = gp.simulate(side_by_side([gp.GPipe(1, m) for m in counts]), costs)
        summed = gp.all_reduce(timeline, 4, links=Link(1, 1))
        ends[counts] = [timeline.on(0)[-1].end, timeline.on(1)[-1].end, summed.makespan]
    assert shares(12, [2, 1]) == (8, 4)
    assert ends == {(8, 4): [12, 12, 18], (6, 6): [9, 18, 24]}


def test_side_by_side_of_the_same_is_what_replicate_makes():
    inner = gp.OneFOneB(2, 3)
    both, plain = side_by_side([inner, inner]), gp.replicate(inner, 2)
    assert both.actions == plain.actions and both.placement == plain.placement
    assert repr(both) == repr(plain) == "replicate(OneFOneB(devices=2, microbatches=3), 2)"


def copy_and_compute_time(pieces, copy, compute):
    """(copy + compute)/n + (n-1)/n max(copy, compute): n pieces, each computed while the next is copied."""
    return Fraction(copy + compute + (pieces - 1) * max(copy, compute)) / pieces


@pytest.mark.parametrize(("copy", "compute"), [(12, 24), (24, 12), (12, 12), (0, 6), (7, 5)])
@pytest.mark.parametrize("pieces", [1, 2, 6])
def test_copying_while_computing_takes_what_the_formula_says(pieces, copy, compute):
    """A host sends pieces of a batch over a link to a device that computes each as it comes."""
    host_and_device = gp.GPipe(2, pieces)
    costs = gp.Costs([0, Fraction(compute, pieces)], 0, 0)
    link = Link(bandwidth=Fraction(pieces, copy)) if copy else Link()
    timeline = gp.simulate(host_and_device, costs, links={(0, 1): link, (1, 0): Link()}, message_bytes=1)
    assert timeline.makespan == copy_and_compute_time(pieces, copy, compute)
    assert timeline.makespan >= max(copy, compute), "the bound of any overlap"
    assert timeline.makespan <= copy + compute


def test_235_of_copying_are_never_hidden_in_177():
    """A guide prints 1.77 s for the two together, but 2.35 s for the copy alone."""
    together = [copy_and_compute_time(n, Fraction(235, 100), Fraction(1)) for n in (1, 10, 1000)]
    assert together == [Fraction(335, 100), Fraction(245, 100), Fraction(2351, 1000)]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: shares(-1, [1]), ValueError, "shares needs samples >= 0"),
        (lambda: shares(1.5, [1]), TypeError, "shares needs samples to be a whole number"),
        (lambda: shares(5, []), ValueError, "shares needs at least one speed"),
        (lambda: shares(5, [1, 0]), ValueError, r"every speed to be finite and > 0 \(got 0\)"),
        (lambda: shares(5, [1, float("inf")]), ValueError, "every speed to be finite"),
        (lambda: shares(5, [1, float("nan")]), ValueError, "every speed to be finite"),
        (lambda: shares(5, ["1"]), TypeError, "each speed to be a number"),
        (lambda: side_by_side([]), ValueError, "side_by_side needs schedules"),
        (lambda: side_by_side([3]), TypeError, "side_by_side needs a schedule"),
        (
            lambda: side_by_side([gp.GPipe(2, 2), gp.GPipe(3, 2)]),
            ValueError,
            r"side_by_side needs the same stages in all \(got \[2, 3\]\)",
        ),
    ],
)
def test_what_cannot_be_shared_is_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()
