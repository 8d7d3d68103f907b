"""The textbook bug: one receive buffer, written over while a backward still needs what was there."""

from dataclasses import replace

import numpy as np
import pytest

import gpipe_sim as gp
from gpipe_sim.core import F, Layer
from gpipe_sim.core.step import StepResult
from gpipe_sim.errors import ScheduleError
from gpipe_sim.programs import Recv, Send

X, Y = gp.digits().x[:8], gp.digits().y[:8]
SIZES = [64, 32, 10]  # Linear, ReLU | Linear: device 1's Linear saves its input, which is the buffer


def into(buffer, schedule: gp.core.Schedule, device: int, **how) -> list[list]:
    """A schedule's programs; this device receives microbatch m's activation into ``buffer(m)``."""
    rows = [list(row) for row in gp.device_programs(schedule)]
    rows[device] = [
        replace(step, into=buffer(step.what.microbatch), **how)
        if isinstance(step, Recv) and step.what.kind == "F"
        else step
        for step in rows[device]
    ]
    return rows


def run(programs, sizes=SIZES, **options) -> StepResult:
    stages = len(programs)
    layers = gp.mlp(sizes)
    partitions = gp.split(layers, balance=[2] * (stages - 1) + [len(layers) - 2 * (stages - 1)])
    return gp.run_programs(programs, partitions, (X, Y), gp.cross_entropy, **options)


def wrong(step: StepResult, sizes=SIZES) -> dict[tuple[int, str], float]:
    """How far each gradient is from the right one, as a part of its length; only those that are not right."""
    right = gp.single_device_step(gp.mlp(sizes), (X, Y), gp.cross_entropy).gradients
    off = {k: np.linalg.norm(step.gradients[k] - right[k]) / np.linalg.norm(right[k]) for k in right}
    return {key: part for key, part in off.items() if part > 1e-12}


ONE = into(lambda m: "a", gp.GPipe(2, 4), 1)


def test_with_one_buffer_the_loss_is_right_and_a_gradient_is_wrong():
    """Only x of dW = x^T dy was written over: b's gradient and all of device 0 are right."""
    step = run(ONE, check_buffers=False)
    alone = gp.single_device_step(gp.mlp(SIZES), (X, Y), gp.cross_entropy)
    assert step.loss == pytest.approx(alone.loss, rel=1e-14)
    assert (step.outputs == run(gp.device_programs(gp.GPipe(2, 4))).outputs).all()
    off = wrong(step)
    assert list(off) == [(2, "W")] and off[2, "W"] == pytest.approx(0.5557, abs=1e-3)


def test_the_wrong_gradient_is_that_of_the_last_microbatch_read_four_times():
    """x of microbatch 3 with dy of every microbatch: three of the four products are of the wrong x."""
    layers = gp.mlp(SIZES)
    x, dys = np.maximum(X @ layers[0].parameters["W"], 0), []
    for m in range(4):
        rows = slice(2 * m, 2 * m + 2)
        y = x[rows] @ layers[2].parameters["W"]
        _, saved = gp.cross_entropy.forward(y, Y[rows])
        dys.append(gp.cross_entropy.backward(saved, 1 / 4))
    read = sum(x[6:8].T @ dy for dy in dys)
    assert run(ONE, check_buffers=False).gradients[2, "W"] == pytest.approx(read, rel=1e-12, abs=1e-15)


def test_it_is_caught_and_the_error_says_what_is_in_the_buffer_and_who_reads_it():
    with pytest.raises(ScheduleError) as error:
        run(ONE)
    assert str(error.value) == (
        "device 1 receives 0F1 into buffer 'a', where 0F0 still is: 1F0 kept it, and the backward of stage 1 "
        "on microbatch 0 reads it. Receive into another buffer, or later"
    )


def test_a_buffer_for_each_microbatch_in_flight_is_enough():
    """Device 1 of 1F1B on three devices holds two: two buffers in turn are right, and one is not."""
    sizes, schedule = [64, 32, 32, 10], gp.OneFOneB(3, 4)
    assert wrong(run(into(lambda m: f"b{m % 2}", schedule, 1), sizes), sizes) == {}
    one = into(lambda m: "b", schedule, 1)
    with pytest.raises(ScheduleError, match="receives 0F1 into buffer 'b', where 0F0 still is: 1F0 kept it"):
        run(one, sizes)
    assert list(wrong(run(one, sizes, check_buffers=False), sizes)) == [(2, "W")]
    assert wrong(run(into(lambda m: "b", schedule, 2), sizes), sizes) == {}, "the last device holds one"


def test_a_layer_that_does_not_keep_its_input_needs_no_second_buffer():
    """Linear | ReLU, Linear: ReLU keeps its output. So one buffer is right, and nothing is refused."""
    layers = gp.mlp(SIZES)
    step = gp.run_programs(ONE, gp.split(layers, balance=[1, 2]), (X, Y), gp.cross_entropy)
    assert wrong(step) == {}


def test_w_still_reads_what_came_in_after_i_has_run():
    """Split backwards: I frees what was saved, but W's x is the buffer."""
    programs = gp.device_programs(
        "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0I0 0W0 0RECV_B1 0I1 0W1\n"
        "1RECV_F0>a 1F0 1I0 1SEND_B0 1RECV_F1>a 1F1 1I1 1SEND_B1 1W0 1W1"
    )
    with pytest.raises(
        ScheduleError, match="1F0 kept it, and the weight gradient of stage 1 on microbatch 0"
    ):
        run(programs)
    assert list(wrong(run(programs, check_buffers=False))) == [(2, "W")]


def test_r_still_reads_what_came_in():
    rows = into(lambda m: "a", gp.remat(gp.GPipe(2, 2), "always"), 1)
    with pytest.raises(ScheduleError, match="1F0 kept it, and the recompute of stage 1 on microbatch 0"):
        run(rows)


def test_what_has_come_but_was_not_read_yet_is_not_written_over_either():
    rows = [list(row) for row in gp.device_programs(gp.GPipe(2, 2))]
    recv = [step for step in rows[1] if isinstance(step, Recv)]
    rows[1] = [replace(step, into="a") for step in recv] + [step for step in rows[1] if step not in recv]
    with pytest.raises(ScheduleError, match="buffer 'a', where 0F0 still is: 1F0 has not read it yet"):
        run(rows)
    rows = [list(row) for row in gp.device_programs(gp.GPipe(2, 2))]
    early = [Recv(gp.core.B(1, m), 1, wait=False, into="a") for m in range(2)]
    rows[0] = early + [step for step in rows[0] if not isinstance(step, Recv)]
    says = "device 0 receives 1B1 into buffer 'a', into which it also receives 1B0, which is not there yet"
    with pytest.raises(ScheduleError, match=says):
        run(rows)


def test_what_is_sent_on_as_it_came_is_not_written_over_before_it_is_sent():
    class Same(Layer):
        def forward(self, x, ctx):
            return x, None

        def backward_input(self, saved, dy):
            return dy, None

    rows = [list(row) for row in gp.device_programs(gp.GPipe(3, 2))]
    first, second = (step for step in rows[1] if isinstance(step, Recv) and step.what.kind == "F")
    rows[1][:6] = [replace(first, into="a"), F(1, 0), replace(second, into="a"), Send("1F0", 2),
                   F(1, 1), Send("1F1", 2)]  # fmt: skip
    partitions = gp.split([gp.mlp([64, 10])[0], Same(), gp.mlp([10, 10])[0]], stages=3)
    with pytest.raises(ScheduleError, match="where 0F0 still is: 2F0 has not been sent it yet"):
        gp.run_programs(rows, partitions, (X, Y), gp.cross_entropy)


def test_a_smaller_microbatch_is_written_over_a_larger_one():
    """Microbatches of 3 and 2 rows in one buffer: the second takes the place of the first two rows."""
    one, layers = into(lambda m: "a", gp.GPipe(2, 2), 1), gp.mlp(SIZES)
    batch, parts = (X[:5], Y[:5]), gp.split(gp.mlp(SIZES), balance=[2, 1])
    with pytest.raises(ScheduleError, match="where 0F0 still is"):
        gp.run_programs(one, parts, batch, gp.cross_entropy)
    found = gp.run_programs(one, parts, batch, gp.cross_entropy, check_buffers=False)
    right = gp.single_device_step(layers, batch, gp.cross_entropy)
    assert abs(found.gradients[2, "W"] - right.gradients[2, "W"]).max() > 1e-3


def test_a_buffer_is_used_again_and_a_message_without_one_has_its_own_memory():
    """Device 1 of 1F1B holds one microbatch at a time; device 0 keeps what it sent."""
    came, went = [], []

    class Sees(Layer):
        def __init__(self, seen):
            super().__init__()
            self.seen = seen

        def forward(self, x, ctx):
            self.seen.append(x)
            return x, None

        def backward_input(self, saved, dy):
            return dy, None

    layers = [gp.mlp([64, 10])[0], Sees(went), Sees(came), gp.mlp([10, 10])[0]]
    for buffer, shared in (("a", True), (None, False)):
        came.clear(), went.clear()
        rows = into(lambda m, name=buffer: name, gp.OneFOneB(2, 3), 1)
        gp.run_programs(rows, gp.split(layers, balance=[2, 2]), (X, Y), gp.cross_entropy)
        assert np.shares_memory(came[0], came[1]) == shared
        assert not any(np.shares_memory(x, y) for x in came for y in went)


@pytest.mark.parametrize(("family", "check"), [(gp.GPipe, False), (gp.OneFOneB, True)])
def test_an_output_that_is_the_buffer_itself_stays_when_the_next_message_comes(family, check):
    """The outputs of all microbatches were those of the last one."""
    layers = [gp.core.Linear(64, 10, rng=np.random.default_rng(0)), gp.transformers.Dropout(0)]
    rows = into(lambda m: "a", family(2, 4), 1)
    step = gp.run_programs(rows, gp.split(layers, stages=2), (X, Y), gp.cross_entropy, check_buffers=check)
    alone = gp.single_device_step(layers, (X, Y), gp.cross_entropy)
    assert np.allclose(step.outputs, alone.outputs, rtol=1e-12)
