"""Updates of a stage with several copies: each applies the sum, and waits for it."""

import numpy as np
import pytest
from cases import every_schedule, over

import gpipe_sim as gp
from gpipe_sim import Explicit, Link, all_reduce, replicate, with_updates
from gpipe_sim.core import B, Kind, Partition, needs
from gpipe_sim.errors import ScheduleError
from gpipe_sim.families import Chimera
from gpipe_sim.links.collective import Collective
from gpipe_sim.replicas import side_by_side

SLOW = Link(1, 1)
COPIES = [
    Chimera(2, 4),
    Chimera(4, 6),
    gp.families.DualPipe(4, 8),
    *(replicate(schedule, 3) for schedule in every_schedule([(2, 4)])),
]


@over(COPIES)
def test_an_update_starts_when_the_last_gradient_of_each_copy_is_there(schedule):
    """Whatever times it, and when these are summed over links, it waits for the sum."""
    both, costs = with_updates(schedule), gp.Costs(2, 3, 1, comm=1, update=1)
    timeline = gp.simulate(both, costs)
    assert gp.links.simulate_shared(both, Link(), costs).spans == timeline.spans
    assert gp.simulate_many(both, costs, noise=0, runs=2).tolist() == [timeline.makespan] * 2
    assert gp.fit_costs(timeline).comm == (1 if timeline.messages else 0), "nor is the wait a message"
    summed = all_reduce(timeline, 4, links=SLOW)
    sums = {(each.stage, device): each.end for each in summed.collectives for device in each.devices}
    made = {}
    for span in timeline.spans:
        for part in span.action.parts:
            if part.kind in (Kind.B, Kind.W):
                made.setdefault(part.stage, {})[span.device] = span.end
    for row, moved in zip(timeline.rows, summed.rows, strict=True):
        free = until = 0
        for span, later in zip(row, moved, strict=True):
            stage, kind, _ = span.action.parts[0]
            if kind is Kind.U:
                assert span.start == max(free, *made[stage].values())
                assert later.start == max(until, span.start, sums[stage, span.device])
                assert later.end - later.start == 1
            else:
                assert span == later, "nothing else moves"
            free, until = span.end, later.end
    assert summed.makespan == max(span.end for span in summed.spans) > timeline.makespan
    path = gp.why.critical_path(summed)
    assert path[-1].end == summed.makespan and any(isinstance(each, Collective) for each in path)


@over(COPIES)
def test_the_bytes_of_a_step_with_updates_are_predicted(schedule):
    data = gp.digits()
    batch = data.x[: schedule.microbatches + 1], data.y[: schedule.microbatches + 1]
    layers = gp.split(gp.mlp([64] + [6] * schedule.stages + [10]), stages=schedule.stages)
    profile = gp.profile(layers, batch, gp.cross_entropy, gp.Adam(0.1))
    both = with_updates(schedule)
    step = gp.train_step(layers, both, batch, gp.cross_entropy, optimizer=gp.Adam(0.1))
    assert gp.predict_memory(both, profile) == step.memory


@pytest.mark.parametrize(
    "rule", [gp.Adam, gp.transformers.AdamW, gp.transformers.RMSProp, lambda r: gp.MixedPrecision(gp.Adam(r))]
)
def test_each_copy_keeps_a_state_of_its_own_over_several_steps(rule):
    """With one state for both, momentum would have moved twice at every step."""
    data, weights = gp.digits(), []
    for schedule in (with_updates(replicate(gp.OneFOneB(2, 2), 2)), gp.OneFOneB(2, 4)):
        layers = gp.mlp([64, 12, 10], seed=3)
        how = {"loss": gp.cross_entropy, "optimizer": rule(0.01), "epochs": 2, "batch_size": 256}
        history = gp.train(gp.split(layers, stages=2), schedule, data[:2], **how, report=None)
        weights.append(Partition(layers).parameters)
    assert len(history.losses) > 4
    for key, array in weights[0].items():
        np.testing.assert_allclose(array, weights[1][key], rtol=1e-9, atol=1e-12)


def test_the_partition_itself_is_updated_though_the_first_that_holds_it_runs_nothing():
    """Device 0 holds stage 1, but device 1 runs it: the weights given were left as they were."""
    schedule = Explicit(["0F0 0B0 0U0", "1F0 1B0 1U0"], placement=[[0, 1], [1, 0]])
    data, layers = gp.digits(), gp.mlp([64, 12, 10])
    before = {key: array.copy() for key, array in Partition(layers).parameters.items()}
    partitions, batch = gp.split(layers, stages=2), (data.x[:4], data.y[:4])
    gp.train_step(partitions, schedule, batch, gp.cross_entropy, optimizer=gp.SGD(0.1))
    assert all((array != before[key]).any() for key, array in Partition(layers).parameters.items())


def test_what_an_update_needs():
    both = with_updates(replicate(gp.OneFOneB(2, 2), 2))
    assert both.actions[2][-1] == gp.core.U(0, 3)
    assert needs("0U3", both) == (B(0, 3), B(0, 1))
    assert needs("0U1", with_updates(gp.GPipe(2, 2))) == (B(0, 1),)
    sent = {message.action.kind for message in gp.simulate(both).messages}
    assert sent == {Kind.F, Kind.B}, "and nothing is sent for it"
    assert {message.target for message in gp.simulate(both).messages} == {0, 1, 2, 3}


def test_a_copy_that_is_stuck_keeps_the_other_from_its_update():
    rows = ["0F0 0B0 0U0 2F0 2B0 2U0", "1F0 1B0 1U0", "0F1 2F1 2B1 0B1 2U1 0U1", "1F1 1B1 1U1"]
    order = Explicit(rows, placement=[[0, 2], [1], [0, 2], [1]])
    with pytest.raises(gp.errors.DeadlockError, match="device 0 is stuck at 0B0"):
        gp.check(order)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (["0F0 0B0 0U0", "0F1 0B1", "0F2 0B2 0U2"], "0U0 is update 0 .* device 1 has only 0"),
        (
            ["0F0 0B0 0U0 0F2 0B2 0U2", "0F1 0B1 0U1"],
            "0U2 is update 1 of stage 0 on device 0, but its copy on device 1 has only 1, counted from 0",
        ),
        (["0F0 0U0 0B0", "0F1 0B1 0U1"], "device 0 is stuck at 0U0: it needs 0B0"),
        (["0F0 0B0 0U0 0F2 0B2", "0F1 0B1 0U1"], "0B2 is behind the last update of stage 0 on device 0"),
        (["0F0 0B0 0U0", "0F1 0B1 0U0"], "0U0 stands 2 times"),
    ],
)
def test_what_would_part_the_copies_is_refused(rows, says):
    with pytest.raises(ScheduleError, match=says):
        gp.simulate(Explicit(rows, placement=[[0]] * len(rows)))


@over(
    [
        with_updates(Chimera(2, 4)),
        gp.repeat(with_updates(Chimera(4, 4)), 2),
        replicate(gp.PipeDream(2, 4), 2),
    ]
)
def test_copies_that_come_to_share_a_device_are_one_and_train_as_before(schedule):
    data, found = gp.digits(), []
    batch, stages = (data.x[:16], data.y[:16]), schedule.stages
    for order in (
        schedule,
        *(gp.balance.colocate(schedule, list(names)) for names in ("aaaa", "abab", "aabb", "abba")),
    ):
        gp.check(order)
        layers = gp.mlp([64] + [6] * stages + [10])
        step = gp.train_step(
            gp.split(layers, stages=stages), order, batch, gp.cross_entropy, optimizer=gp.SGD(0.1)
        )
        found.append((step.losses, Partition(layers).parameters))
    for losses, weights in found[1:]:
        np.testing.assert_allclose(losses, found[0][0], rtol=1e-12)
        for key, array in weights.items():
            np.testing.assert_allclose(array, found[0][1][key], rtol=1e-9, atol=1e-13)


def test_streams_side_by_side_update_equally_often():
    """Device 2 would have been left with the weights of update 3, and the partition with them."""
    uneven = side_by_side([gp.PipeDream(2, 6), gp.PipeDream(2, 4)])
    with pytest.raises(ScheduleError, match="0U4 is update 4 of stage 0 on device 0, but its copy on"):
        gp.check(uneven)
    gp.check(side_by_side([gp.PipeDream(2, 6, every=3), gp.PipeDream(2, 4, every=2)]))
