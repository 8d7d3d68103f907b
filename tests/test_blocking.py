"""Sends that block: who hangs, and what frees them. A plain reference runs the same programs."""

from textwrap import dedent

import pytest
from cases import BOTH_WAYS, V_SHAPED, over_every_order, overlapped

from gpipe_sim import Explicit, GPipe, Interleaved1F1B, Naive, OneFOneB, check, problems, with_updates
from gpipe_sim.core import F
from gpipe_sim.errors import DeadlockError
from gpipe_sim.families import DualPipe, LoopedBFS
from gpipe_sim.programs import Recv, Send
from gpipe_sim.programs.blocking import blocked_cycles
from gpipe_sim.programs.device_programs import rows_with_messages
from gpipe_sim.programs.transfers import Transfer


def transfers(schedule) -> list[list[Transfer]]:
    return [[step for step in row if isinstance(step, Transfer)] for row in rows_with_messages(schedule)]


SMALL = ((1, 2), (2, 1), (2, 4), (3, 2), (4, 4))


def meet(programs: list[list[Transfer]]) -> list[list[Transfer]]:
    """What is left of the programs when no two devices stand at the two sides of one message."""
    left = [list(row) for row in programs]
    met = True
    while met:
        met = False
        for device, row in enumerate(left):
            while row and left[row[0].other][:1] == [
                Recv(row[0].what, device) if isinstance(row[0], Send) else Send(row[0].what, device)
            ]:
                del left[row[0].other][0], row[0]
                met = True
    return left


def test_two_neighbours_that_both_send_first_hang():
    """1F1B as it is written: device 0 sends its second forward, device 1 its first gradient."""
    [problem] = problems(OneFOneB(2, 2), sends="blocking")
    assert (problem.rule, problem.action) == ("blocking", F(0, 1))
    assert problem.sentence == (
        "device 0 waits in Send 0F1 to device 1; device 1 waits in Send 1B0 to device 0. "
        "On device 1, put Recv 0F1 before Send 1B0"
    )
    assert problems(OneFOneB(2, 2)) == []


def test_check_raises_it_as_a_deadlock():
    with pytest.raises(DeadlockError) as error:
        check(OneFOneB(2, 3), sends="blocking")
    assert str(error.value) == dedent("""\
        OneFOneB(devices=2, microbatches=3) cannot finish with blocking sends:
          device 0 waits in Send 0F1 to device 1; device 1 waits in Send 1B0 to device 0. \
On device 1, put Recv 0F1 before Send 1B0
          device 0 waits in Send 0F2 to device 1; device 1 waits in Send 1B1 to device 0. \
On device 1, put Recv 0F2 before Send 1B1""")
    check(OneFOneB(2, 3))


def test_of_many_hangs_the_first_eight_are_listed():
    with pytest.raises(DeadlockError, match=r"\n  \.\.\. and 10 more$"):
        check(OneFOneB(4, 8), sends="blocking")


@pytest.mark.parametrize("devices", range(2, 7))
def test_1f1b_hangs_once_for_each_pair_that_crosses_a_boundary_and_gpipe_never(devices):
    """Of the M forwards that device k sends, those after its K-k-1 of warm-up meet a gradient."""
    for microbatches in (devices, 7, 11):
        pairs = sum(microbatches - warmup for warmup in range(1, devices))
        assert len(blocked_cycles(OneFOneB(devices, microbatches))) == pairs
        for schedule in (GPipe(devices, microbatches), Naive(devices, microbatches)):
            assert blocked_cycles(schedule) == []
        assert blocked_cycles(GPipe(devices, microbatches, drain="in_order")) == []


def test_schedules_whose_devices_form_a_ring_hang_too():
    """Looped stages: the last device sends to the first, which still sends to the next."""
    assert [len(blocked_cycles(family(2, 2))) for family in (LoopedBFS, Interleaved1F1B)] == [4, 5]
    assert len(blocked_cycles(DualPipe(2, 4))) == 4


def test_a_program_receives_before_and_sends_after_each_action():
    assert [" ".join(map(str, row)) for row in transfers(GPipe(2, 1))] == [
        "Send 0F0 to device 1 Recv 1B0 from device 1",
        "Recv 0F0 from device 0 Send 1B0 to device 0",
    ]
    assert transfers(Naive(1, 2)) == [[]]


def test_what_two_actions_of_a_device_need_is_received_once():
    """1B0 goes to device 0, where 0B0 reads its gradient and 1U0 applies it to a second copy of stage 1."""
    schedule = Explicit(["0F0 0B0 1U0", "1F0 1B0"], placement=[[0, 1], [1]])
    assert [list(map(str, row)) for row in transfers(schedule)] == [
        ["Send 0F0 to device 1", "Recv 1B0 from device 1"],
        ["Recv 0F0 from device 0", "Send 1B0 to device 0"],
    ]
    assert [problem.rule for problem in problems(schedule)] == ["update"], "its gradients are on device 1"


def test_an_overlapped_pair_receives_for_both_halves_and_then_sends_both():
    schedule = Explicit.parse("0F0 0F1 0B0 0B1\n1F0 (1F1;1B0)OVERLAP_F_B 1B1\n2F0 2B0 2F1 2B1")
    said = list(map(str, transfers(schedule)[1]))
    assert said[:2] == ["Recv 0F0 from device 0", "Send 1F0 to device 2"]
    assert said[2:4] == ["Recv 0F1 from device 0", "Recv 2B0 from device 2"]
    assert said[4:6] == ["Send 1F1 to device 2", "Send 1B0 to device 0"]


def test_an_order_that_deadlocks_anyway_is_told_as_such():
    stuck = Explicit(["0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"])
    assert problems(stuck, sends="blocking") == problems(stuck)
    missing = Explicit(["0F0"])
    assert problems(missing, sends="blocking") == problems(missing)


def test_sends_are_buffered_or_blocking():
    for refuses in (check, problems):
        with pytest.raises(ValueError, match=r"needs sends to be one of .*'buffered', 'blocking'.*'eager'"):
            refuses(GPipe(2, 2), sends="eager")


def frees(schedule) -> None:
    """It hangs exactly where the reference does, in a circle, and not once every swap is made."""
    programs, found = transfers(schedule), blocked_cycles(schedule)
    left = meet(programs)
    assert any(left) == bool(found)
    if found:
        assert found[0].waits == {device: (left[device][0],) * 2 for device in found[0].waits}
    for waits, receiver, early in found:
        others = [wait.on.other for wait in waits.values()]
        assert [*others[-1:], *others[:-1]] == list(waits)
        programs[receiver].remove(early)
        programs[receiver].insert(programs[receiver].index(waits[receiver].at), early)
    assert not any(meet(programs))


@over_every_order(SMALL)
def test_the_swaps_free_every_family(schedule):
    frees(schedule)


@pytest.mark.parametrize("schedule", [V_SHAPED, BOTH_WAYS, overlapped(4, 8), with_updates(OneFOneB(4, 8))])
def test_the_swaps_free_other_orders_too(schedule):
    frees(schedule)
