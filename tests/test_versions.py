"""Which version of its weights a stage uses and holds, in numbers and in bytes, is what the rows say."""

from textwrap import dedent

import pytest
from streams import RATE, STREAMS, model, stream, trained

import gpipe_sim as gp
from gpipe_sim import PipeDream
from gpipe_sim.core import Kind, U
from gpipe_sim.core.memory import Memory
from gpipe_sim.core.step import kind_of_step
from gpipe_sim.errors import MemoryLimitError
from gpipe_sim.memory.limit import in_bytes
from gpipe_sim.streams import PipeDream2BW, PipelinedBackprop


@pytest.mark.parametrize(("schedule", "mode"), STREAMS, ids=repr)
def test_versions_and_their_bytes_are_those_that_the_rows_say(schedule, mode):
    step, found = trained(schedule, mode), gp.staleness(schedule, mode)
    for action, version in step.versions.items():
        stage, kind, m = action
        if kind in (Kind.F, Kind.R) and not (kind is Kind.R and mode == "latest"):
            assert version == found.forward[stage][m], action
        elif kind in (Kind.B, Kind.I):
            assert version == found.backward[stage][m], action
    assert len(step.losses) == len(found.mini_batches)
    profile = gp.profile(model(schedule.stages), stream(schedule), gp.cross_entropy, gp.SGD(RATE))
    assert gp.predict_memory(schedule, profile, weights=mode) == step.memory
    for trace, stages in zip(step.memory, schedule.placement, strict=True):
        if len(stages) == 1:
            one = trace.peak("parameters")
            assert trace.peak("parameters", "older weights") == found.held[stages[0]] * one
        assert trace.over_time("older weights")[-1] == 0, "what nobody uses any more is gone"


def test_a_staleness_is_printed_with_both_versions_where_they_differ():
    assert str(gp.staleness(PipelinedBackprop(3, 5))) == dedent("""\
        stage 0:   0 0/1 0/2 1/3 2/4
        stage 1:   0 0/1 1/2 2/3 3/4
        stage 2:   0   1   2   3   4""")


def test_while_an_update_runs_it_holds_what_it_sets_aside():
    step = trained(gp.Explicit(["0F0 0F1 0B0 0U0 0B1 0U1"]), "stashed", costs=gp.Costs(update=1))
    [trace] = step.memory
    before, copy = trace.over_time()[3], trace.peak("older weights")
    inside = {each.action: each.bytes for each in trace.inside}
    assert copy == trace.peak("parameters")
    assert inside[U(0, 0)] == before + copy and inside[U(0, 1)] < before + copy


@pytest.mark.parametrize("mode", ["stashed", "vertical"])
def test_versions_that_are_let_go_are_gone_and_not_just_uncounted(mode):
    schedule = PipeDream(3, 6)
    step = kind_of_step(schedule)("a test", schedule, stream(schedule), gp.cross_entropy, gp.SGD(RATE), mode)
    devices = step.run_devices(model(3), gp.simulate(schedule), Memory)
    assert [device.versions.older for device in devices] == [{}, {}, {}]


def test_a_staleness_is_one_line_with_the_largest_delay():
    assert repr(gp.staleness(PipeDream(3, 4))) == (
        "<staleness of PipeDream(devices=3, microbatches=4, every=1), weights='stashed': "
        "at most 2 updates too old>"
    )
    assert repr(gp.staleness(PipeDream2BW(2, 4))).endswith("at most 1 update too old>")
    assert repr(gp.staleness(gp.OneFOneB(2, 4))).endswith("at most 0 updates too old>")


def test_a_version_that_is_not_there_yet_is_told_of_the_update_on_the_same_device():
    rows = ["0F0 0B0 0U0 0F1 0B1 0U1 0F4 0B4 0U4", "0F2 0F3 0F5 0B2 0U2 0B3 0U3 0B5 0U5"]
    says = r"has 0F5 use version 1 of stage 0, but 0U2, which makes it, stands behind 0F5 on device 1"
    with pytest.raises(ValueError, match=says):
        gp.staleness(gp.Explicit(rows, placement=[[0], [0]]), "double")


def test_what_would_help_is_computed_with_the_versions_that_are_asked_for():
    schedule, peaks = PipeDream(4, 8), {}
    for mode in ("stashed", "latest"):
        with pytest.raises(MemoryLimitError) as refused:
            trained(schedule, mode, memory_limit=1000)
        again = trained(gp.remat(schedule, "always"), mode).memory
        peaks[mode] = max(trace.peak_inside.bytes for trace in again)
        assert f'remat(..., "always"): at most {in_bytes(peaks[mode])} on a device' in str(refused.value)
    assert in_bytes(peaks["stashed"]) != in_bytes(peaks["latest"])


def test_a_limit_is_that_of_the_versions_that_are_asked_for():
    schedule = PipeDream(3, 6)
    limit = [trace.peak_inside.bytes for trace in trained(schedule, "stashed").memory]
    trained(schedule, "stashed", memory_limit=limit)
    with pytest.raises(MemoryLimitError, match=r"device [12] would hold"):
        trained(schedule, "vertical", memory_limit=limit)


def test_a_stream_that_does_not_fit_is_told_of_smaller_microbatches_in_the_same_mini_batches():
    """Half as large, and twice as many for each update: the mini-batches stay."""
    for schedule, says in (
        (PipeDream(4, 8, every=2), "  16 microbatches with every=4: at most "),
        (PipeDream2BW(4, 8), "  16 microbatches with every=8: at most "),
        (gp.remat(PipeDream(4, 8), "always"), "  16 microbatches with every=2: at most "),
    ):
        with pytest.raises(MemoryLimitError) as refused:
            trained(schedule, None, memory_limit=1000)
        assert says in str(refused.value)
    with pytest.raises(MemoryLimitError) as refused:
        trained(PipelinedBackprop(4, 8), None, memory_limit=1000)
    assert "recompute" in str(refused.value) and "16 microbatches" not in str(refused.value)


def test_a_family_that_is_named_after_its_versions_has_no_others():
    with pytest.raises(ValueError, match=r"PipeDream2BW.* is trained with weights='double'.*PipeDream can"):
        gp.staleness(PipeDream2BW(4, 8), "stashed")
    with pytest.raises(ValueError, match=r"PipelinedBackprop.* is trained with weights='latest'"):
        trained(PipelinedBackprop(4, 8), "double")
    with pytest.raises(ValueError, match=r"GPipe.* updates no weights on the way.* takes no weights="):
        trained(gp.GPipe(2, 2), "stashed")
    with pytest.raises(
        ValueError,
        match="0F2 use version 1 of stage 0, but 0U0, which makes it, stands behind 0F2 on device 0",
    ):
        trained(PipeDream(4, 8), "double")
    with pytest.raises(ValueError, match=r"needs every >= devices, here 4.*\(got 3\)"):
        PipeDream2BW(4, 8, every=3)


def test_backwards_are_told_apart_from_what_finishes_them_later():
    """W may stand behind an update that I stood before; only with "latest" does that matter."""
    late = gp.Explicit(["0F0 0I0 0W0 0F1 0I1 0U0 0W1 0U1"])
    assert gp.staleness(late, "latest").backward == ((0, 0),)
    assert trained(late, "latest").versions[gp.core.W(0, 1)] == 1
