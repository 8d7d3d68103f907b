"""Several copies of a pipeline: the gradients are those of one device, and the copies share nothing."""

import pytest
from cases import every_schedule, over
from numeric import furthest_apart

import gpipe_sim as gp
from gpipe_sim import replicate
from gpipe_sim.core.step import StepResult

SIZES = [(1, 2), (2, 3), (4, 8)]


def step(schedule: gp.core.Schedule, **options) -> tuple[StepResult, StepResult]:
    """The step of a schedule, and that of one device."""
    data = gp.digits()
    layers = gp.mlp([64] + [8] * schedule.stages + [10], seed=1)
    batch = data.x[: schedule.microbatches + 5], data.y[: schedule.microbatches + 5]
    partitions = gp.split(layers, stages=schedule.stages)
    found = gp.train_step(partitions, schedule, batch, gp.cross_entropy, **options)
    return found, gp.single_device_step(layers, batch, gp.cross_entropy)


@over(every_schedule([(1, 2), (2, 4), (4, 5)]))
def test_the_gradients_of_all_replicas_are_those_of_one_device(schedule):
    found, alone = step(replicate(schedule, 3), meter=False)
    assert furthest_apart(found.gradients, alone.gradients) < 1e-12
    assert found.loss == pytest.approx(alone.loss, rel=1e-12)


@pytest.mark.parametrize("adjacent", ["stages", "replicas"])
@over(every_schedule(SIZES))
def test_each_replica_does_what_the_schedule_does_at_the_same_times(schedule, adjacent):
    both = replicate(schedule, 2, adjacent=adjacent)
    gp.check(both)
    plain, found = (gp.simulate(each, gp.Costs(2, 3, 1, comm=1)) for each in (schedule, both))
    for device in range(both.devices):
        replica, copied = both.places[device]
        shift = replica * schedule.microbatches
        assert both.placement[device] == schedule.placement[copied]
        assert [
            (part.stage, part.kind, part.microbatch - shift, span.start, span.end)
            for span in found.on(device)
            for part in span.action.parts
        ] == [(*part[:3], span.start, span.end) for span in plain.on(copied) for part in span.action.parts]
    pairs = {(each.source, each.target) for each in found.messages}
    assert all(both.places[a][0] == both.places[b][0] for a, b in pairs), "and nothing crosses between them"


def test_how_devices_are_numbered():
    assert str(replicate(gp.OneFOneB(2, 1), 2)) == "\n".join(
        (
            "device 0, stage 0: 0F0 0B0",
            "device 1, stage 1: 1F0 1B0",
            "device 2, stage 0: 0F1 0B1",
            "device 3, stage 1: 1F1 1B1",
        )
    )
    assert str(replicate(gp.OneFOneB(2, 1), 2, adjacent="replicas")) == "\n".join(
        (
            "device 0, stage 0: 0F0 0B0",
            "device 1, stage 0: 0F1 0B1",
            "device 2, stage 1: 1F0 1B0",
            "device 3, stage 1: 1F1 1B1",
        )
    )


def test_many_replicas_of_few_stages_are_not_too_many():
    """4 stages and 8,192 microbatches are few; 2,048 devices times 8,192 would not be."""
    both = replicate(gp.OneFOneB(4, 16), 512)
    assert gp.simulate(both).makespan == gp.simulate(gp.OneFOneB(4, 16)).makespan


def test_a_replica_of_replicas_and_with_recompute():
    nested = replicate(gp.remat(replicate(gp.OneFOneB(2, 3), 2), "except_last"), 2)
    kept = {
        part.microbatch
        for row in nested.actions
        for part in row
        if part.kind is gp.core.Kind.F and nested.program.find(gp.core.R(part.stage, part.microbatch)) < 0
    }
    assert kept == {2, 5, 8, 11}, "the last microbatch of each replica"
    found, alone = step(nested, meter=False)
    assert furthest_apart(found.gradients, alone.gradients) < 1e-12


@pytest.mark.parametrize("schedule", [gp.OneFOneB(2, 3), gp.families.DualPipe(2, 4), gp.ZBV(2, 3)], ids=repr)
def test_its_bytes_are_predicted_and_are_those_of_one_replica(schedule):
    both = replicate(schedule, 2)
    found, _ = step(both)
    layers, data = gp.mlp([64] + [8] * schedule.stages + [10], seed=1), gp.digits()
    batch = data.x[: both.microbatches + 5], data.y[: both.microbatches + 5]
    profile = gp.profile(gp.split(layers, stages=schedule.stages), batch, gp.cross_entropy)
    assert gp.predict_memory(both, profile) == found.memory


def test_what_cannot_be_copied_is_refused():
    with pytest.raises(ValueError, match="replicate needs at most 10,000,000 pairs"):
        replicate(gp.GPipe(2, 2), 10**9)
    with pytest.raises(ValueError, match=r"adjacent to be one of \('stages', 'replicas'\) \(got 'devices'\)"):
        replicate(gp.GPipe(2, 2), 2, adjacent="devices")


def test_copies_that_update_within_the_schedule_sum_their_gradients_once():
    both = replicate(gp.OneFOneB(2, 3), 2)
    updates = [gp.core.U(stage, m) for m in (2, 5) for stage in (0, 1)]
    rows = [[*row, update] for row, update in zip(both.actions, updates, strict=True)]
    updating = gp.Explicit(rows, placement=both.placement)
    (found, _), (plain, alone) = step(updating, optimizer=gp.SGD(0.1)), step(both)
    assert furthest_apart(found.gradients, alone.gradients) < 1e-12
    assert found.ring_bytes == plain.ring_bytes and sum(found.ring_bytes) > 0
