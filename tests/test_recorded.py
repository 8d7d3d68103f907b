"""The recorded steps that lesson 20 shows: each is a timeline that a machine could have had."""

import json
import re

import pytest

import gpipe_sim as gp
from gpipe_sim.export import recorded_run
from gpipe_sim.export.recorded import FILE

STORED = json.loads(FILE.read_text())
NAMES = list(STORED["runs"])

each_run = pytest.mark.parametrize("name", NAMES)


def test_which_runs_there_are():
    assert NAMES == ["1f1b", "zbh1", "gpipe16", "narrow", "narrow_alone", "wide", "wide_alone"]
    assert [repr(recorded_run(name).schedule) for name in NAMES] == [
        "OneFOneB(devices=4, microbatches=8)",
        "ZBH1(devices=4, microbatches=8)",
        "GPipe(devices=4, microbatches=16)",
        "OneFOneB(devices=2, microbatches=8)",
        "OneFOneB(devices=1, microbatches=8)",
        "OneFOneB(devices=2, microbatches=8)",
        "OneFOneB(devices=1, microbatches=8)",
    ]


def test_where_they_were_recorded_is_said():
    assert re.fullmatch(
        r"CPU processes on a machine with \d+ cores, torch \d+\.\d+\.\d+, \d{4}-\d\d-\d\d",
        gp.export.recorded_where(),
    )


@each_run
def test_every_action_runs_once_in_the_order_of_its_schedule(name):
    timeline = recorded_run(name)
    assert [tuple(span.action for span in row) for row in timeline.rows] == list(timeline.schedule.actions)
    assert len(timeline.spans) == len(STORED["runs"][name]["spans"])


@each_run
def test_no_action_starts_before_what_it_needs_or_before_its_device_is_free(name):
    timeline = recorded_run(name)
    assert min(span.start for span in timeline.spans) == 0
    for row in timeline.rows:
        free = 0
        for span in row:
            assert free <= span.start <= span.end
            assert all(
                timeline.ends[need] <= span.start for need in gp.core.needs(span.action, timeline.schedule)
            )
            free = span.end


@each_run
def test_spans_stand_in_an_order_in_which_they_could_be_executed(name):
    ends = [span.end for span in recorded_run(name).spans]
    assert ends == sorted(ends)


@pytest.mark.parametrize("name", ["1f1b", "zbh1", "gpipe16"])
def test_a_sleeping_stage_is_within_five_percent_of_its_simulation(name):
    """The engine and the messages come on top of what the stages slept."""
    timeline = recorded_run(name)
    simulated = gp.simulate(timeline.schedule, gp.Costs(20, 20, 20)).makespan
    assert 1 < timeline.makespan / simulated < 1.05


def test_the_costs_of_the_sleeping_stages_are_what_they_slept():
    costs = gp.fit_costs(recorded_run())
    halves = costs.input_grad[1:] + costs.weight_grad[1:]
    assert all(19.5 < ms < 21 for ms in costs.forward + halves)
    assert costs.input_grad[0] == 0 and 39 < costs.weight_grad[0] < 42, "as torch splits it, see zbh1"
    assert 0 < costs.comm < 1 and all(0.2 < ms < 0.6 for ms in costs.overhead)


@pytest.mark.parametrize("name", NAMES)
def test_the_fit_explains_each_recorded_step_to_three_percent(name):
    assert abs(gp.fit_costs(recorded_run(name)).error) < 0.03


def test_stage_0_does_its_whole_backward_in_w():
    costs = gp.fit_costs(recorded_run("zbh1"))
    assert costs.input_grad[0] < 0.1 and 39 < costs.weight_grad[0] < 42
    assert all(19.5 < ms < 21 for ms in costs.input_grad[1:] + costs.weight_grad[1:])


def test_two_processes_pay_for_the_wide_model_only():
    spans = {name: recorded_run(name).makespan for name in NAMES}
    assert spans["narrow"] > spans["narrow_alone"]
    assert spans["wide_alone"] / spans["wide"] > 1.3


def test_times_are_milliseconds_with_three_decimals():
    times = [time for run in STORED["runs"].values() for span in run["spans"].values() for time in span]
    assert all(time == round(time, 3) for time in times)


def test_an_unknown_run_is_told_which_there_are():
    with pytest.raises(ValueError, match=r"one of \('1f1b', 'zbh1', 'gpipe16', .* \(got '1F1B'\)"):
        recorded_run("1F1B")
