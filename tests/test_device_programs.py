"""One device's program: what a schedule's is, how it is written, and that it gives one device's numbers."""

from dataclasses import replace
from itertools import repeat
from textwrap import dedent

import numpy as np
import pytest
from cases import BOTH_WAYS, V_SHAPED, over, over_every_order, over_every_schedule, overlapped, zero_bubble
from numeric import apart, furthest_apart
from test_along import model, padded
from test_step import ten_digits

import gpipe_sim as gp
from gpipe_sim.core import B, F, I
from gpipe_sim.core.step import StepResult
from gpipe_sim.programs import Recv, Send
from gpipe_sim.programs.blocking import blocked_cycles

SIZES = [64] + [12] * 6 + [10]
SMALL = ((1, 3), (2, 1), (2, 4), (3, 2), (4, 4))
BEYOND = [
    V_SHAPED, BOTH_WAYS, overlapped(4, 8), zero_bubble(3, 5),
    gp.remat(gp.OneFOneB(3, 4), "always"), gp.remat(gp.Interleaved1F1B(2, 4), "except_last"),
]  # fmt: skip


def run(programs, stages: int, **options) -> StepResult:
    partitions = gp.split(gp.mlp(SIZES), stages=stages)
    return gp.run_programs(programs, partitions, ten_digits(), gp.cross_entropy, **options)


def assert_as_on_one_device(step: StepResult) -> None:
    expected = gp.single_device_step(gp.mlp(SIZES), ten_digits(), gp.cross_entropy)
    assert furthest_apart(step.gradients, expected.gradients) < 1e-12
    assert step.loss == pytest.approx(expected.loss, rel=1e-13)
    assert apart(step.outputs, expected.outputs) < 1e-13


def posted(programs) -> list[list]:
    """The same programs, but nobody waits in a receive."""

    def changed(step):
        return replace(step, wait=False) if isinstance(step, Recv) else step

    return [list(map(changed, row)) for row in programs]


def posted_first(programs) -> list[list]:
    """Every receive is posted before anything else."""
    return [sorted(row, key=lambda step: not isinstance(step, Recv)) for row in posted(programs)]


# What a program is


def test_a_schedules_programs_receive_right_before_and_send_right_after():
    assert str(gp.device_programs(gp.OneFOneB(2, 2))) == dedent("""\
        device 0: 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1
        device 1: 1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1""")
    assert repr(gp.device_programs(gp.OneFOneB(2, 3))) == "DevicePrograms(devices=2, microbatches=3)"
    first = gp.device_programs(gp.OneFOneB(2, 2))[1]
    assert first[:4] == (Recv(F(0, 0), 0), F(1, 0), B(1, 0), Send(B(1, 0), 0))


def test_a_v_names_the_stages_of_each_device_and_what_stays_on_one_is_no_message():
    text = str(gp.device_programs(gp.ZBV(2, 1)))
    assert text.splitlines()[1].startswith("device 1, stages 1 2: 1RECV_F0 1F0 2F0 2SEND_F0 2RECV_B0 2I0")


@over_every_order(SMALL)
def test_a_text_says_what_it_was_written_from(schedule):
    programs = gp.device_programs(schedule)
    assert gp.device_programs(str(programs)) == programs
    assert programs.schedule.actions == schedule.actions
    assert (programs.placement, programs.microbatches) == (schedule.placement, schedule.microbatches)
    assert len(programs) == schedule.devices and list(programs) == list(programs.rows)


def test_receives_that_are_posted_and_buffers_have_a_spelling_too():
    text = "device 0: 0F0 0SEND_F0 0IRECV_B0 0B0\ndevice 1: 1RECV_F0>a 1F0 1B0 1SEND_B0"
    programs = gp.device_programs(text)
    assert str(programs) == text
    assert programs[0][2] == Recv(B(1, 0), source=1, wait=False)
    assert programs[1][0] == Recv("0F0", source=0, into="a")


def test_what_pytorch_prints_besides_is_left_out():
    printed = (
        "[0UNSHARD, 0F0, 0SEND_F0, 0RECV_B0, 0B0, 0WAIT_SEND_F0, 0REDUCE_GRAD, 0WAIT_REDUCE_GRAD, 0RESHARD]"
    )
    other = "[1RECV_F0, 1F0, 1B0, 1SEND_B0, 1WAIT_SEND_B0]"
    assert gp.device_programs(f"{printed}\n{other}") == gp.device_programs(gp.GPipe(2, 1))


def test_a_message_of_a_split_backward_is_what_its_i_made():
    programs = gp.device_programs("0F0 0SEND_F0 0RECV_B0 0I0 0W0\n1RECV_F0 1F0 1I0 1SEND_B0 1W0")
    assert Recv(I(1, 0), 1) in programs[0] and Send(I(1, 0), 0) in programs[1]
    assert_as_on_one_device(run(programs, 2))


def test_the_two_ends_of_a_message_are_not_equal():
    assert Send(F(0, 0), 1) != Recv(F(0, 0), 1)
    assert str(Send("0F1", to=1)) == "Send 0F1 to device 1"
    assert str(Recv("0F1", source=0)) == "Recv 0F1 from device 0"


# What it gives


@over_every_schedule(SMALL)
def test_every_schedules_programs_give_one_devices_gradients_and_the_simulators_times(schedule):
    speed = [1 + device % 3 for device in range(schedule.devices)]
    costs = gp.Costs(3, 1, 2, comm=1, overhead=1, speed=speed)
    step = run(gp.device_programs(schedule), schedule.stages, costs=costs)
    assert_as_on_one_device(step)
    expected = gp.simulate(schedule, costs)
    for name in ("start", "end", "sent", "arrived"):
        assert (getattr(step.timeline, name) == getattr(expected, name)).all(), name
    assert step.timeline.messages == expected.messages


@over(BEYOND)
def test_so_do_pairs_copies_split_and_repeated_forwards(schedule):
    step = run(gp.device_programs(schedule), schedule.stages)
    assert_as_on_one_device(step)
    assert step.timeline.spans == gp.simulate(schedule).spans


@over_every_schedule(SMALL)
def test_with_blocking_sends_it_hangs_where_blocked_cycles_says_and_runs_with_every_swap_made(schedule):
    programs, found = gp.device_programs(schedule), blocked_cycles(schedule)
    if found:
        with pytest.raises(gp.errors.DeadlockError) as error:
            run(programs, schedule.stages, sends="blocking")
        head, sentence = str(error.value).splitlines()
        assert head == f"the programs of {schedule.devices} devices cannot finish with blocking sends:"
        assert sentence.strip() == found[0].sentence
        assert [each.sentence for each in gp.problems(programs, "blocking")] == [found[0].sentence]
    else:
        gp.check(programs, "blocking")
    gp.check(programs)
    rows = [list(row) for row in programs]
    for waits, receiver, early in found:
        rows[receiver].remove(early)
        rows[receiver].insert(rows[receiver].index(waits[receiver].at), early)
    step = run(rows, schedule.stages, placement=schedule.placement, sends="blocking")
    assert_as_on_one_device(step)
    assert step.timeline.makespan >= gp.simulate(schedule).makespan


@over_every_schedule(SMALL)
def test_with_every_receive_posted_first_blocking_sends_hang_nowhere_and_cost_nothing(schedule):
    rows, costs = posted_first(gp.device_programs(schedule)), gp.Costs(2, 1, 3)
    step = run(rows, schedule.stages, placement=schedule.placement, sends="blocking", costs=costs)
    assert_as_on_one_device(step)
    assert step.timeline.spans == gp.simulate(schedule, costs).spans


def test_a_blocking_message_begins_when_both_are_there_and_keeps_both():
    """1B0 takes 2 and its Recv comes after it; 0F1 has been made at 2, and leaves at 6."""
    text = """
        0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1
        1RECV_F0 1F0 1B0 1RECV_F1 1SEND_B0 1F1 1B1 1SEND_B1
    """
    step = run(gp.device_programs(text), 2, sends="blocking", costs=gp.Costs(comm=1))
    spans = {str(span.action): (span.start, span.end) for span in step.timeline.spans}
    assert spans["0F1"] == (2, 3) and spans["1F0"] == (2, 3) and spans["1B0"] == (3, 5)
    crossed = {str(each.action): (each.start, each.end) for each in step.timeline.messages}
    assert crossed["0F1"] == (5, 6) and crossed["1B0"] == (6, 7)
    assert spans["1F1"] == (7, 8) and spans["0B0"] == (7, 9)


# Programs of one's own


def last_of_two(microbatches: int):
    """Device 1 of GPipe on two devices, as a student may write it."""
    for m in range(microbatches):
        yield Recv(F(0, m), source=0)
        yield F(1, m)
    for m in reversed(range(microbatches)):
        yield B(1, m)
        yield Send(B(1, m), to=0)


def first_of_two(microbatches: int):
    for m in range(microbatches):
        yield F(0, m)
        yield Send(F(0, m), to=1)
    for m in reversed(range(microbatches)):
        yield Recv(B(1, m), source=1)
        yield B(0, m)


def test_programs_may_be_arrays_and_generators_are_read_to_their_ends(monkeypatch):
    lists, arrays = [list(first_of_two(3)), list(last_of_two(3))], np.empty(2, object)
    for k, steps in enumerate(lists):
        arrays[k] = np.fromiter(steps, object)
    held = np.array([[0], [1]])
    assert run(arrays, 2, placement=held).loss == run(lists, 2).loss
    whole = gp.device_programs([first_of_two(3), last_of_two(3)], placement=held)
    assert whole == gp.device_programs(arrays) and whole.microbatches == 3
    gp.check([first_of_two(3), last_of_two(3)])
    monkeypatch.setattr("gpipe_sim.programs.device_programs.MOST_STEPS", 1_000)
    with pytest.raises(ValueError, match="program of device 0 has more than 1,000 steps: does it end"):
        gp.check([repeat(F(0, 0))])
    with pytest.raises(TypeError, match="only for a text, or a list of programs"):
        gp.device_programs(gp.GPipe(2, 3), microbatches=3)


def test_a_rank_is_a_device():
    text = str(gp.device_programs(gp.ZBV(2, 3)))
    assert gp.device_programs(text.replace("device", "rank")) == gp.device_programs(text)
    order = gp.Explicit.parse(str(gp.ZBV(2, 3)).replace("device", "Rank"))
    assert order.actions == gp.ZBV(2, 3).actions
    gp.check(text.replace("device", "rank"))
    with pytest.raises(ValueError, match="row 1 is called device 2"):
        gp.Explicit.parse("rank 0: 0F0 0B0\nrank 2: 1F0 1B0")
    with pytest.raises(ValueError, match=r"sends and receives: if messages .* Explicit.parse"):
        gp.check("rank 0: 0F0 0B0\nrank 1: 1F0 1B0")


@pytest.mark.parametrize("sends", ["buffered", "blocking"])
def test_a_generator_is_a_program(sends):
    step = run([first_of_two(4), last_of_two(4)], 2, microbatches=4, sends=sends)
    assert_as_on_one_device(step)
    assert step.timeline.schedule.actions == gp.GPipe(2, 4).actions
    mixed = run([list(first_of_two(4)), last_of_two(4)], 2, microbatches=4, sends=sends)
    assert mixed.loss == step.loss


def test_a_generator_is_asked_for_its_next_step_only_when_the_last_one_has_ended():
    """Device 1 is at its receive until device 0 has sent; so what it decides then may depend on that."""
    told = []

    def first():
        yield F(0, 0)
        told.append("before the send")
        yield Send(F(0, 0), 1)
        yield Recv(B(1, 0), 1)
        told.append("gradient")
        yield B(0, 0)

    def last():
        yield Recv(F(0, 0), 0)
        told.append("received")
        yield F(1, 0)
        yield B(1, 0)
        yield Send(B(1, 0), 0)

    run([first(), last()], 2, microbatches=1)
    assert told == ["before the send", "received", "gradient"]


def test_a_program_that_would_never_end_is_stopped_at_its_first_mistake():
    def forwards():
        m = 0
        while True:
            yield F(0, m)
            m += 1

    with pytest.raises(
        gp.errors.ScheduleError, match="0F3, which is out of range: stages are 0 to 0, microbatches 0 to 2"
    ):
        run([forwards()], 1, microbatches=3)


def test_an_error_inside_a_program_says_whose_it_was():
    def broken():
        yield F(0, 0)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as error:
        run([broken()], 1, microbatches=1)
    assert error.value.__notes__ == ["in the program of device 0"]


def test_the_weights_do_not_change_and_layers_draw_by_seed_and_step():
    partitions = gp.split([*gp.mlp([64, 12]), gp.transformers.Dropout(0.5), *gp.mlp([12, 10])], stages=2)
    before = [array.copy() for part in partitions for array in part.parameters.values()]
    schedule, batch = gp.OneFOneB(2, 3), ten_digits()
    for options in ({"seed": 1}, {"seed": 1, "step": 2}):
        found = gp.run_programs(gp.device_programs(schedule), partitions, batch, gp.cross_entropy, **options)
        assert found.loss == gp.train_step(partitions, schedule, batch, gp.cross_entropy, **options).loss
    after = [array for part in partitions for array in part.parameters.values()]
    assert all((old == new).all() for old, new in zip(before, after, strict=True))


def test_a_mask_is_sent_and_received_with_what_it_belongs_to():
    layers, batch, schedule = model(3), padded(9), gp.OneFOneB(3, 4)
    expected = gp.single_device_step(layers, batch, gp.cross_entropy)
    for into in (None, "a"):
        rows = [
            [
                replace(step, into=into and f"{into}{step.what.microbatch}") if is_forward(step) else step
                for step in row
            ]
            for row in gp.device_programs(schedule)
        ]
        found = gp.run_programs(rows, gp.split(layers, stages=3), batch, gp.cross_entropy)
        assert furthest_apart(found.gradients, expected.gradients) < 1e-12


def is_forward(step) -> bool:
    return isinstance(step, Recv) and step.what.kind == "F"
