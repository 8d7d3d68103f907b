"""The timeline of a step on PyTorch's engine: measured, and in every other way a timeline as any other."""

import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from engine_cases import assert_a_timeline_of, batch_for, model, worked  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import gpipe_sim as gp  # noqa: E402
from gpipe_sim import mse, plots, remat  # noqa: E402
from gpipe_sim.core import (  # noqa: E402
    B,
    F,
    I,
    Kind,
    R,
    Timeline,
    W,
)
from gpipe_sim.core import bubbles as metrics  # noqa: E402
from gpipe_sim.torch_backend import Sleep, to_torch, train_step  # noqa: E402
from gpipe_sim.torch_backend.sleep import MOST_LATE  # noqa: E402
from gpipe_sim.torch_backend.timeline import measured  # noqa: E402


def timed(schedule: gp.core.Schedule) -> Timeline:
    modules = to_torch(gp.split(model(), stages=schedule.stages))
    return train_step(modules, schedule, batch_for(schedule.microbatches), gp.cross_entropy).timeline


@pytest.mark.parametrize("mode", ["never", "always"])
def test_without_pairs_the_rows_are_the_schedules_with_each_recompute_before_its_backward(mode):
    for family in (gp.GPipe, gp.OneFOneB, gp.ZBH1, gp.ZBV):
        schedule = remat(family(3, 4), mode)
        timeline = timed(schedule)
        assert timeline.schedule == schedule
        assert [tuple(worked(timeline.on(k))) for k in range(3)] == list(schedule.actions)


# How long things take


#: long enough that what a busy machine adds to the quickest of several is no half of it
SLEEPS = {"f": 50, "i": 30, "w": 40}


def lasted(timeline: Timeline, kind: Kind, stage: int) -> list[float]:
    spans = (span for span in timeline.spans if span.action[:2] == (stage, kind))
    return [span.end - span.start for span in spans]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (gp.OneFOneB(2, 4), {"0F": "f", "0B": "iw", "1F": "f", "1B": "iw"}),
        # stage 0 leaves its whole backward to W
        (
            gp.ZBH1(3, 4),
            {"0F": "f", "0I": "", "0W": "iw", "1F": "f", "1I": "i", "1W": "w", "2I": "i", "2W": "w"},
        ),
        # a recompute takes a forward more, and is told from its backward
        (remat(gp.OneFOneB(2, 4), "except_last"), {"0R": "f", "0B": "iw", "1R": "f", "1B": "iw"}),
        # on stage 0 within W, where its backward is
        (remat(gp.ZBH1(2, 2), "always"), {"0R": "", "0W": "fiw", "1R": "f", "1I": "i"}),
    ],
    ids=repr,
)
def test_times_are_in_milliseconds_and_those_of_the_kind_and_the_stage(schedule, expected):
    """None much shorter than its sleeps; and the quickest not much longer, on however busy a machine."""
    batch = (np.zeros((2 * schedule.microbatches, 3)),) * 2
    timeline = train_step(
        [Sleep(*SLEEPS.values()) for _ in range(schedule.stages)], schedule, batch, mse
    ).timeline
    for (stage, kind), sleeps in expected.items():
        found = lasted(timeline, Kind(kind), int(stage))
        slept = [SLEEPS[one] for one in sleeps]
        assert min(found) >= sum(slept) - len(slept) * 1000 * MOST_LATE
        assert min(found) < max(15, 1.5 * sum(slept))
        if kind == "R":
            recomputed = [action for action in schedule.actions[int(stage)] if action.kind is Kind.R]
            assert len(found) == len(recomputed)
            assert sleeps or found == [0] * len(recomputed)


def test_a_stage_that_saves_nothing_is_recomputed_in_no_time():
    batch = (np.zeros((8, 3)),) * 2
    schedule = remat(gp.OneFOneB(2, 4), "always")
    timeline = train_step([nn.Linear(3, 3).double(), nn.Identity()], schedule, batch, mse).timeline
    assert_a_timeline_of(timeline, schedule)
    assert lasted(timeline, Kind.R, 1) == [0] * 4


def test_the_loss_is_part_of_the_last_forward():
    def slow_loss(outputs, targets):
        time.sleep(0.05)
        return functional.mse_loss(outputs, targets)

    batch, modules = (np.zeros((8, 3)),) * 2, [nn.Linear(3, 3).double() for _ in range(2)]
    timeline = train_step(modules, gp.OneFOneB(2, 4), batch, slow_loss).timeline
    assert min(lasted(timeline, Kind.F, 1)) >= 50
    assert min(lasted(timeline, Kind.F, 0) + lasted(timeline, Kind.B, 1)) < 50


def test_sleep_is_the_identity_with_the_gradients_of_two_added_numbers():
    stage, x = Sleep(0, 0, 0).double(), torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    y, upstream = stage(x), torch.randn(4, 3, dtype=torch.float64)
    assert (y == x).all()
    y.backward(upstream)
    assert (x.grad == upstream).all()
    assert stage.weight.grad.item() == stage.shift.grad.item() == pytest.approx(upstream.sum().item())
    assert "forward=0, input_grad=0, weight_grad=0" in repr(stage)


# From notes to spans


def test_notes_in_seconds_become_milliseconds_from_the_first():
    schedule = gp.GPipe(2, 1)
    noted = [(F(1, 0), 7.5, 7.6), (B(1, 0), 7.7, 7.9), (F(0, 0), 7.25, 7.5), (B(0, 0), 8.0, 8.25)]
    timeline = measured(schedule, noted)
    assert [str(span.action) for span in timeline.spans] == ["0F0", "1F0", "1B0", "0B0"]
    assert [span.device for span in timeline.spans] == [0, 1, 1, 0]
    assert timeline.spans[-1][2:] == pytest.approx((750, 1000))
    assert timeline.makespan == pytest.approx(1000)


def test_a_recompute_is_taken_out_of_the_backward_that_it_ran_in():
    """It lasts from the start of the backward; a split backward's second recompute is not noted."""
    noted = [(F(0, 0), 0, 1), (R(0, 0), 2.25, 3), (B(0, 0), 2, 5)]
    timeline = measured(remat(gp.GPipe(1, 1), "always"), noted)
    assert timeline.ends == {F(0, 0): 1000, R(0, 0): 3000, B(0, 0): 5000}
    assert [span.start for span in timeline.spans] == [0, 2000, 3000]


def test_a_recompute_within_w_leaves_an_instant_before_i():
    noted = [(F(0, 0), 0, 1), (I(0, 0), 2, 2.5), (R(0, 0), 3.25, 4), (W(0, 0), 3, 5)]
    timeline = measured(remat(gp.Explicit(["0F0 0I0 0W0"]), "always"), noted)
    assert [(str(span.action), span.start, span.end) for span in timeline.spans] == [
        ("0F0", 0, 1000),
        ("0R0", 2000, 2000),
        ("0I0", 2000, 2500),
        ("0W0", 3000, 5000),
    ]


# A timeline as any other


@pytest.mark.parametrize(
    "schedule", [remat(gp.ZBH1(3, 4), "except_last"), gp.families.DualPipeV(2, 4), gp.GPipe(1, 3)], ids=repr
)
def test_it_is_explained_fitted_simulated_again_printed_and_drawn(schedule):
    timeline = timed(schedule)
    devices, until = schedule.devices, timeline.makespan
    assert metrics.idle_time(timeline) == pytest.approx(devices * until - metrics.busy_time(timeline))
    assert 0 < gp.why.speedup(timeline) <= devices
    chain = gp.why.critical_path(timeline)
    assert chain[0].start == 0 and chain[-1].end == until
    for device in range(devices):
        assert gp.why.why_idle(timeline, device, until / 2).sentence
        assert (
            max(count for _, count in gp.why.in_flight(timeline, device))
            == gp.peak_in_flight(schedule)[device]
        )
    again = gp.simulate(timeline.schedule, gp.fit_costs(timeline))
    assert gp.overlay(again, timeline).makespan.measured == until
    assert str(timeline).startswith("device 0: ") and timeline._repr_html_()
    drawn = str(gp.draw(timeline, in_flight=True, messages=True, critical_path=True))
    assert drawn.startswith("<svg") and all(str(span.action) in drawn for span in timeline.spans)
    assert timeline.messages == (), "nobody measured when they came"
    assert plots.plot_timeline(timeline, in_flight=True).collections and plots.plot_pushed(timeline)
