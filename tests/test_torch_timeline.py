"""The timeline of a step on PyTorch's engine: measured, and in every other way a timeline as any other."""

import time
from itertools import pairwise

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from cases import parts  # noqa: E402
from engine_cases import batch_for, legal_orders, model, over_every_runnable, over_explicit  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import gpipe_sim as gp  # noqa: E402
from gpipe_sim import B, F, I, Kind, R, W, mse, needs, plots, remat  # noqa: E402
from gpipe_sim.core import bubbles as metrics  # noqa: E402
from gpipe_sim.torch_backend import Pipeline, Sleep, to_torch, train_step  # noqa: E402
from gpipe_sim.torch_backend.sleep import MOST_LATE  # noqa: E402
from gpipe_sim.torch_backend.timeline import measured  # noqa: E402


def timed(schedule: gp.Schedule) -> gp.Timeline:
    modules = to_torch(gp.split(model(), stages=schedule.stages))
    return train_step(modules, schedule, batch_for(schedule.microbatches), gp.cross_entropy).timeline


def worked(row, without_r: bool = False) -> list[gp.Action]:
    """The plain actions of a row or of a device's spans."""
    actions = (part for one in row for part in getattr(one, "action", one).parts)
    return [action for action in actions if not (without_r and action.kind is Kind.R)]


def assert_a_timeline_of(timeline: gp.Timeline, schedule: gp.Schedule) -> None:
    """Every action once and where it belongs, one at a time, in order, after what it needs, from 0 on."""
    assert sorted(worked(timeline.spans)) == sorted(parts(schedule))
    assert all(len(span.action.parts) == 1 for span in timeline.spans)
    assert min(span.start for span in timeline.spans) == 0
    assert all(span.device == schedule.device_of(span.action) for span in timeline.spans)
    for k, row in enumerate(schedule.actions):
        spans = timeline.on(k)
        assert worked(spans, without_r=True) == worked(row, without_r=True)
        assert all(span.start <= span.end for span in spans)
        assert all(earlier.end <= later.start for earlier, later in pairwise(spans))
        for span, later in pairwise(spans):
            if span.action.kind is Kind.R:
                assert later.action[::2] == span.action[::2] and later.action.kind in (Kind.B, Kind.I)
                assert later.start == span.end
    for span in timeline.spans:
        for need in needs(span.action, timeline.schedule):
            assert timeline.ends[need] <= span.start


@pytest.mark.parametrize("mode", ["never", "always"])
@over_every_runnable([(1, 3), (3, 2), (4, 8)])
def test_every_action_is_there_once_in_its_place_and_in_order(schedule, mode):
    schedule = remat(schedule, mode)
    assert_a_timeline_of(timed(schedule), schedule)


@pytest.mark.parametrize("mode", ["never", "except_last"])
@over_explicit
def test_so_it_is_for_orders_written_out(schedule, mode):
    schedule = remat(schedule, mode)
    assert_a_timeline_of(timed(schedule), schedule)


@settings(max_examples=40)
@given(legal_orders())
def test_so_it_is_for_any_legal_order(schedule):
    assert_a_timeline_of(timed(schedule), schedule)


@pytest.mark.parametrize("mode", ["never", "always"])
def test_without_pairs_the_rows_are_the_schedules_with_each_recompute_before_its_backward(mode):
    for family in (gp.GPipe, gp.OneFOneB, gp.ZBH1, gp.ZBV):
        schedule = remat(family(3, 4), mode)
        timeline = timed(schedule)
        assert timeline.schedule == schedule
        assert [tuple(worked(timeline.on(k))) for k in range(3)] == list(schedule.actions)


def test_a_pair_is_two_actions_the_forward_first():
    schedule = gp.DualPipeV(2, 4)
    timeline = timed(schedule)
    pair = next(action for action in schedule.actions[0] if len(action.parts) == 2)
    row = worked(timeline.on(0))
    assert row[row.index(pair.forward) + 1] == pair.backward
    assert not timeline.schedule.program.paired


def test_a_later_step_starts_at_0_again_and_is_a_timeline_of_its_own():
    modules = to_torch(gp.split(model(), stages=2))
    pipeline = Pipeline(modules, gp.OneFOneB(2, 4), gp.cross_entropy)
    first, second = (pipeline.step(batch_for(4)).timeline for _ in range(2))
    for timeline in (first, second):
        assert_a_timeline_of(timeline, gp.OneFOneB(2, 4))
    assert [span.end for span in first.spans] != [span.end for span in second.spans]


# How long things take


def sleeping(schedule: gp.Schedule, **times: float) -> gp.Timeline:
    batch = (np.zeros((2 * schedule.microbatches, 3)),) * 2
    return train_step([Sleep(**times) for _ in range(schedule.stages)], schedule, batch, mse).timeline


def durations(timeline: gp.Timeline, kind: Kind, stage: int) -> list[float]:
    spans = (span for span in timeline.spans if span.action.kind is kind and span.action.stage == stage)
    return [span.end - span.start for span in spans]


#: long enough that what a busy machine adds to the quickest of several is no half of it
SLEEP = {"forward": 50, "input_grad": 30, "weight_grad": 40}


def assert_lasts(found: list[float], *sleeps: float) -> None:
    """None much shorter than its sleeps; and the quickest not much longer, on however busy a machine."""
    assert min(found) >= sum(sleeps) - len(sleeps) * 1000 * MOST_LATE
    assert min(found) < 1.5 * sum(sleeps)


def test_times_are_in_milliseconds_and_those_of_the_kind_and_the_stage():
    timeline = sleeping(gp.ZBH1(3, 4), **SLEEP)
    for stage in (1, 2):
        assert_lasts(durations(timeline, Kind.F, stage), 50)
        assert_lasts(durations(timeline, Kind.I, stage), 30)
        assert_lasts(durations(timeline, Kind.W, stage), 40)
    whole = sleeping(gp.OneFOneB(2, 4), **SLEEP)
    for stage in (0, 1):
        assert_lasts(durations(whole, Kind.F, stage), 50)
        assert_lasts(durations(whole, Kind.B, stage), 30, 40)


def test_stage_0_leaves_its_whole_backward_to_w():
    timeline = sleeping(gp.ZBH1(2, 4), **SLEEP)
    assert min(durations(timeline, Kind.I, 0)) < 15
    assert_lasts(durations(timeline, Kind.W, 0), 30, 40)


def test_a_recompute_takes_a_forward_more_and_is_told_from_its_backward():
    timeline = sleeping(remat(gp.OneFOneB(2, 4), "except_last"), **SLEEP)
    for stage in (0, 1):
        assert len(durations(timeline, Kind.R, stage)) == 3
        assert_lasts(durations(timeline, Kind.R, stage), 50)
        assert_lasts(durations(timeline, Kind.B, stage), 30, 40)


def test_stage_0_recomputes_within_w_where_its_backward_is():
    timeline = sleeping(remat(gp.ZBH1(2, 2), "always"), **SLEEP)
    assert durations(timeline, Kind.R, 0) == [0, 0]
    assert_lasts(durations(timeline, Kind.W, 0), 50, 30, 40)
    assert_lasts(durations(timeline, Kind.R, 1), 50)
    assert_lasts(durations(timeline, Kind.I, 1), 30)


def test_a_stage_that_saves_nothing_is_recomputed_in_no_time():
    batch = (np.zeros((8, 3)),) * 2
    schedule = remat(gp.OneFOneB(2, 4), "always")
    timeline = train_step([nn.Linear(3, 3).double(), nn.Identity()], schedule, batch, mse).timeline
    assert_a_timeline_of(timeline, schedule)
    assert durations(timeline, Kind.R, 1) == [0] * 4


def test_the_loss_is_part_of_the_last_forward():
    def slow_loss(outputs, targets):
        time.sleep(0.05)
        return functional.mse_loss(outputs, targets)

    batch, modules = (np.zeros((8, 3)),) * 2, [nn.Linear(3, 3).double() for _ in range(2)]
    timeline = train_step(modules, gp.OneFOneB(2, 4), batch, slow_loss).timeline
    assert min(durations(timeline, Kind.F, 1)) >= 50
    assert min(durations(timeline, Kind.F, 0) + durations(timeline, Kind.B, 1)) < 50


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


@pytest.fixture(scope="module", params=["1F1B", "remat", "ZB-H1", "V", "pairs", "K=1"])
def timeline(request) -> gp.Timeline:
    return timed(
        {
            "1F1B": gp.OneFOneB(4, 8),
            "remat": remat(gp.GPipe(3, 4), "always"),
            "ZB-H1": remat(gp.ZBH1(3, 4), "except_last"),
            "V": gp.ZBV(2, 4),
            "pairs": gp.DualPipeV(2, 4),
            "K=1": gp.GPipe(1, 3),
        }[request.param]
    )


def test_every_metric_works_on_it(timeline):
    devices, until = timeline.schedule.devices, timeline.makespan
    assert 0 < metrics.useful_time(timeline) <= metrics.busy_time(timeline) <= devices * until
    assert metrics.idle_time(timeline) == pytest.approx(devices * until - metrics.busy_time(timeline))
    assert 0 <= metrics.bubble_fraction(timeline) < 1
    assert metrics.utilization(timeline) == pytest.approx(1 - metrics.bubble_fraction(timeline))
    assert metrics.bubble_overhead(timeline) > 0 and metrics.span_bubble(timeline) < 1
    assert 0 < metrics.speedup(timeline) <= devices
    for device in range(devices):
        idle = sum(end - start for start, end in metrics.idle_spans(timeline, device))
        busy = sum(span.end - span.start for span in timeline.on(device))
        assert idle + busy == pytest.approx(until)
        held = [count for _, count in metrics.in_flight(timeline, device)]
        assert max(held) == gp.peak_in_flight(timeline.schedule)[device] and held[-1] == 0
        warm, drain = metrics.phases(timeline, device)
        assert 0 <= warm <= drain <= until


def test_it_is_explained_fitted_and_simulated_again(timeline):
    chain = gp.critical_path(timeline)
    assert chain[0].start == 0 and chain[-1].end == timeline.makespan
    for device in range(timeline.schedule.devices):
        assert gp.why_idle(timeline, device, timeline.makespan / 2).sentence
    again = gp.simulate(timeline.schedule, gp.fit_costs(timeline))
    assert again.makespan > 0
    assert gp.overlay(again, timeline).makespan.measured == timeline.makespan


def test_it_is_printed_and_drawn(timeline):
    assert str(timeline).startswith("device 0: ")
    drawn = str(gp.draw(timeline, in_flight=True, messages=True, critical_path=True))
    assert drawn.startswith("<svg") and all(str(span.action) in drawn for span in timeline.spans)
    assert timeline.messages == (), "nobody measured when they came"
    assert timeline._repr_html_()
    assert plots.plot_timeline(timeline).collections
    assert plots.plot_timeline(timeline, in_flight=True) and plots.plot_pushed(timeline)
