"""The orders of pytorch issue #172668, "Pipeline communication blocks the execution of pipeline stages".

What is cited as a fact: the text that PyTorch printed (issue #172668, 2026-01-16), the text after "move RECV
right before F/B" (pull request #172833, 2026-01-20), and where that hung on two nodes (issue, 2026-01-21).
Interleaved 1F1B, 2 ranks, 4 stages. The first text has two microbatches.
"""

import pytest
from test_device_programs import assert_as_on_one_device, posted, posted_first, run

import gpipe_sim as gp
from gpipe_sim.core.step import StepResult
from gpipe_sim.errors import DeadlockError

FRONT_LOADED = """
[0UNSHARD, 2UNSHARD, 0F0, 0SEND_F0, 2RECV_F0, 0F1, 0SEND_F1, 2RECV_F1, 2F0, 2SEND_F0, 2F1, 2SEND_F1, 2RECV_B0,
 2B0, 2SEND_B0, 2RECV_B1, 2B1, 2SEND_B1, 2REDUCE_GRAD, 2RESHARD, 0RECV_B0, 0B0, 0RECV_B1, 0B1, 0REDUCE_GRAD,
 0RESHARD]
[1UNSHARD, 3UNSHARD, 1RECV_F0, 1F0, 1SEND_F0, 1RECV_F1, 1F1, 1SEND_F1, 3RECV_F0, 3F0, 3RECV_F1, 3B0, 3SEND_B0,
 1RECV_B0, 3F1, 3B1, 3SEND_B1, 1RECV_B1, 3REDUCE_GRAD, 3RESHARD, 1B0, 1SEND_B0, 1B1, 1SEND_B1, 1REDUCE_GRAD,
 1RESHARD]
"""
RIGHT_BEFORE = """
[0UNSHARD, 2UNSHARD, 0F0, 0SEND_F0, 0F1, 0SEND_F1, 2RECV_F0, 2F0, 2SEND_F0, 2RECV_F1, 2F1, 2SEND_F1, 0F2,
 0SEND_F2, 2RECV_B0, 2B0, 2SEND_B0, 0F3, 0SEND_F3, 2RECV_B1, 2B1, 2SEND_B1, 2RECV_F2, 2F2, 2SEND_F2, 0RECV_B0,
 0B0, 2RECV_F3, 2F3, 2SEND_F3, 0RECV_B1, 0B1, 2RECV_B2, 2B2, 2SEND_B2, 2RECV_B3, 2B3, 2SEND_B3, 2REDUCE_GRAD,
 2RESHARD, 0RECV_B2, 0B2, 0RECV_B3, 0B3, 0REDUCE_GRAD, 0RESHARD]
[1UNSHARD, 3UNSHARD, 1RECV_F0, 1F0, 1SEND_F0, 1RECV_F1, 1F1, 1SEND_F1, 3RECV_F0, 3F0, 3B0, 3SEND_B0, 3RECV_F1,
 3F1, 3B1, 3SEND_B1, 1RECV_F2, 1F2, 1SEND_F2, 1RECV_B0, 1B0, 1SEND_B0, 1RECV_F3, 1F3, 1SEND_F3, 1RECV_B1, 1B1,
 1SEND_B1, 3RECV_F2, 3F2, 3B2, 3SEND_B2, 3RECV_F3, 3F3, 3B3, 3SEND_B3, 3REDUCE_GRAD, 3RESHARD, 1RECV_B2, 1B2,
 1SEND_B2, 1RECV_B3, 1B3, 1SEND_B3, 1REDUCE_GRAD, 1RESHARD]
"""


def pasted(text: str):
    """The text as it was printed: a line per rank."""
    return gp.device_programs(text.replace(",\n", ","))


def starts(step: StepResult) -> dict[str, int]:
    return {str(span.action): span.start for span in step.timeline.spans}


def test_receives_posted_up_front_are_right_and_hold_up_a_device_that_waits_in_them():
    """The issue: 2RECV_F0 stands before 0F1, which does not need it. If it waits, 0F1 starts at 2, not 1."""
    programs = pasted(FRONT_LOADED)
    for sends in ("buffered", "blocking"):
        waits, goes_on = run(programs, 4, sends=sends), run(posted(programs), 4, sends=sends)
        assert_as_on_one_device(waits)
        assert (starts(waits)["0F1"], starts(goes_on)["0F1"]) == (2, 1)
        assert (waits.timeline.makespan, goes_on.timeline.makespan) == (21, 15)
    assert gp.simulate(programs.schedule).makespan == 15


def test_the_patched_order_is_the_one_that_follows_from_the_rows():
    """A receive right before the action, a send right after: to the last step what we derive from ours."""
    assert pasted(RIGHT_BEFORE) == gp.device_programs(gp.Interleaved1F1B(2, 4))


def test_it_hangs_where_the_thread_says_for_the_reason_given_there():
    """Stuck at rank 0 [... 0SEND_F1, 2RECV_F0, 2F0], rank 1 [... 1SEND_F0, 1RECV_F1, 1F1]: both send."""
    programs = pasted(RIGHT_BEFORE)
    assert_as_on_one_device(run(programs, 4))
    with pytest.raises(DeadlockError) as error:
        run(programs, 4, sends="blocking")
    assert str(error.value) == (
        "the programs of 2 devices cannot finish with blocking sends:\n"
        "  device 0 waits in Send 0F1 to device 1; device 1 waits in Send 1F0 to device 0. "
        "On device 1, put Recv 0F1 before Send 1F0"
    )


def swapped_on_odd_ranks(programs) -> list[list]:
    """Each send with the receive right after it, on device 1: the receive comes first."""
    row, swapped = list(programs[1]), []
    while row:
        ends = [type(step) for step in row[:2]] == [gp.programs.Send, gp.programs.Recv]
        swapped += reversed([row.pop(0) for _ in range(2)]) if ends else [row.pop(0)]
    return [list(programs[0]), swapped]


def test_so_it_does_with_sends_and_receives_swapped_on_odd_ranks_later():
    """Also tried there; rank 1 [... 3RECV_F1, 3SEND_B0, 3F1, 3B1, 1RECV_F2, ...] hangs in 3SEND_B0."""
    rows = swapped_on_odd_ranks(pasted(RIGHT_BEFORE))
    spelled = " ".join(getattr(step, "spelled", str(step)) for step in rows[1])
    assert "3RECV_F1 3SEND_B0 3F1 3B1 1RECV_F2 3SEND_B1 1F2" in spelled
    with pytest.raises(
        DeadlockError, match="waits in Send 0F2 to device 1; device 1 waits in Send 3B0 to device 0"
    ):
        run(rows, 4, sends="blocking")


def test_it_runs_once_every_receive_is_posted_before_the_sends():
    step = run(posted_first(pasted(RIGHT_BEFORE)), 4, sends="blocking")
    assert_as_on_one_device(step)
    assert step.timeline.makespan == gp.simulate(gp.Interleaved1F1B(2, 4)).makespan == 27
