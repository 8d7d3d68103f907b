"""Programs that do not fit each other: each mistake has an error that says who, what, and what would work."""

from textwrap import dedent

import pytest
from cases import BOTH_WAYS
from test_device_programs import run

import gpipe_sim as gp
from gpipe_sim.core import (
    B,
    F,
    I,
    R,
    U,
    W,
)
from gpipe_sim.errors import DeadlockError, ScheduleError
from gpipe_sim.families import LoopedBFS
from gpipe_sim.programs import Recv, Send
from gpipe_sim.programs.blocking import Wait, round_trip

GOOD = ("0F0 0SEND_F0 0RECV_B0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0")


def rows(*texts: str) -> list[list]:
    """Rows in which a transfer may be wrong: it is read beside good ones."""
    return [list(row) for row in gp.device_programs("\n".join(texts))]


def without(device: int, *places: int) -> list[list]:
    """The good programs, with steps of one device left out."""
    found = rows(*GOOD)
    for place in sorted(places, reverse=True):
        del found[device][place]
    return found


def with_step(device: int, place: int, *steps) -> list[list]:
    found = rows(*GOOD)
    found[device][place:place] = steps
    return found


F0, B1 = F(0, 0), B(1, 0)
REFUSED = {
    # the order of one device
    "device 0 comes to Send 0F0 to device 1, but it has not run 0F0": without(0, 0),
    "device 1 comes to 1F0, but has not received 0F0: 1F0 reads its output. Put Recv 0F0 before 1F0":
        without(1, 0),
    "device 0 comes to 0B0, but has not received 1B0: 0B0 reads its gradient. Put Recv 1B0 before 0B0":
        without(0, 2),
    "device 1 comes to 1B0, but 1F0 has not run: 1B0 reads what it saves": without(1, 1),
    "device 1 comes to 1F0 again; it must run once": with_step(1, 2, "1F0"),
    "device 1 comes to 1I0, but 1F0 has been used up: 1I0 reads what it saves": with_step(1, 3, I(1, 0)),
    "device 1 comes to 1W0, but 1I0 has not run: 1W0 finishes what it starts": with_step(1, 3, W(1, 0)),
    "device 0 comes to 0F1, which is out of range: stages are 0 to 1, microbatches 0 to 0":
        with_step(0, 1, F(0, 1)),
    "device 0 comes to 2F0, which is out of range": with_step(0, 1, F(2, 0)),
    "device 0 comes to 1F0, but holds stage 0; see placement=": with_step(0, 1, F(1, 0)),
    "device 0 comes to 0U0, but run_programs updates no weights: leave it out": with_step(0, 4, U(0, 0)),
    # sends and receives
    "device 0 comes to Send 0F0 to device 1, but it has sent that to device 1":
        with_step(0, 2, Send(F0, 1)),
    "device 0 comes to Send 0F0 to device 0, which is itself: what it makes is there":
        with_step(0, 1, Send(F0, 0)),
    "device 0 comes to Send 0F0 to device 2, but the devices are 0 to 1": with_step(0, 1, Send(F0, 2)),
    "device 1 comes to Send 1F0 to device 0, which is for 2F0; device 0 holds stage 0":
        with_step(1, 2, Send(F(1, 0), 0)),
    "device 1 comes to Recv 0F0 from device 0 again; it must receive that once":
        with_step(1, 1, Recv(F0, 0)),
    "Recv 0F0 from device 1, which is for 1F0; device 0 holds stage 0, and microbatches are 0 to 0":
        with_step(0, 0, Recv(F0, 1)),
    "Recv 0F7 from device 0, which is for 1F7; device 1 holds stage 1, and microbatches are 0 to 0":
        with_step(1, 0, Recv("0F7", 0)),
    "device 0 comes to Recv 1B0 from device 1 again": with_step(0, 2, Recv(I(1, 0), 1, wait=False)),
    # what is left over
    "device 0 waits in Recv 1B0 from device 1, whose program has ended": without(1, 3),
    "device 1 waits in Recv 0F0 from device 0, whose program has ended": without(0, 1, 2, 3),
    "device 1 sends 1B0 to device 0, which never receives it": without(0, 2, 3),
    "0B0 is missing": without(0, 3),
}  # fmt: skip


@pytest.mark.parametrize(("says", "programs"), REFUSED.items(), ids=[says[:60] for says in REFUSED])
def test_it_is_refused_and_says_who_and_what(says, programs):
    with pytest.raises(ScheduleError) as error:
        run(programs, 2, microbatches=1)
    assert type(error.value) is ScheduleError
    assert says in str(error.value)


def test_a_posted_receive_that_nobody_sends_and_nobody_needs():
    programs = with_step(1, 4, Recv("0F1", 0, wait=False))
    with pytest.raises(ScheduleError, match="device 1 receives 0F1 from device 0, which never sends it"):
        run(programs, 2, microbatches=2)


def test_a_receive_of_the_wrong_half_is_told_what_was_sent():
    split = [list(row) for row in gp.device_programs(gp.ZBH1(2, 1))]
    split[0][split[0].index(Recv(I(1, 0), 1))] = Recv(B(1, 0), 1)
    with pytest.raises(ScheduleError) as error:
        run(split, 2)
    assert str(error.value) == dedent("""\
        the programs of 2 devices cannot finish:
          device 0 waits in Recv 1B0 from device 1, whose program has ended
          device 1 has sent 1I0 to device 0, which has not received it""")


def test_a_message_to_the_wrong_copy_is_told_where_devices_wait_for_it():
    """Devices 1 and 2 hold stage 1, and 1F0 runs on device 1; device 0 sends to device 2."""
    first = ["0F0", Send("0F0", 2), Recv("1B0", 1), "0B0"]
    second = [Recv("0F0", 0), "1F0", "1B0", Send("1B0", 0)]
    third = [Recv("0F0", 0), "1F0", "1B0", Send("1B0", 0)]
    options = {"placement": [[0], [1], [1]]}
    with pytest.raises(DeadlockError) as error:
        run([first, second, []], 2, **options)
    assert str(error.value).split("\n  ")[1:] == [
        "device 0 waits in Recv 1B0 from device 1; device 1 waits in Recv 0F0 from device 0",
        "device 0 has sent 0F0 to device 2, which has not received it",
    ]
    with pytest.raises(ScheduleError) as error:
        run([first, second, []], 2, sends="blocking", **options)
    assert str(error.value).split("\n  ")[1:] == [
        "device 0 waits in Send 0F0 to device 2, whose program has ended",
        "device 1 waits in Recv 0F0 from device 0",
    ]
    first[2] = Recv("1B0", 2)
    assert run([first, [], third], 2, **options).loss > 0


def test_a_gradient_that_an_i_made_is_called_by_its_name():
    first = ["0F0", Send("0F0", 1), "0F1", Send("0F1", 1), Recv("1I0", 1), "0I0", "0I1"]
    last = [Recv("0F0", 0), "1F0", "1I0", Send("1I0", 0), Recv("0F1", 0), "1F1", "1I1"]
    with pytest.raises(ScheduleError, match="0I1, but has not received 1I1: 0I1 reads its gradient"):
        run([first, last], 2)


def test_a_stage_of_the_same_device_is_not_received_but_has_to_run():
    early = gp.device_programs("device 0, stages 0 1: 0F0 1F0 0B0 1B0")
    with pytest.raises(
        ScheduleError, match="device 0 comes to 0B0, but 1B0 has not run: 0B0 reads its gradient"
    ):
        run(early, 2)


def test_of_a_stage_with_two_copies_what_the_other_device_ran_is_to_be_received():
    """Both hold stages 0 and 1; device 0 runs 0B0 last, without 1B0, which device 1 has run and sent."""
    first, second = (list(row) for row in gp.device_programs(BOTH_WAYS))
    first.remove(Recv(B(1, 0), 1))
    first.append(first.pop(first.index(B(0, 0))))
    with pytest.raises(ScheduleError, match=r"0B0, but has not received 1B0: .* Put Recv 1B0 before 0B0"):
        run([first, second], 2, placement=BOTH_WAYS.placement)


def test_an_action_that_another_device_has_run():
    with pytest.raises(ScheduleError, match="device 1 comes to 0F0, which device 0 has run; it must run"):
        run([["0F0"], ["0F0"]], 1, placement=[[0], [0]])


def test_a_forward_that_a_generator_wants_to_repeat():
    def program():
        yield from (F(0, 0), R(0, 0), B(0, 0))

    assert run([list(program())], 1).loss > 0
    with pytest.raises(ScheduleError, match=r"0R0, but its forward was not told .* as a list"):
        run([program()], 1, microbatches=1)


def test_every_mistake_that_can_be_seen_without_running_on_is_listed():
    """Two messages that are not sent, and an action that is not there, behind what stops both devices."""
    programs = """
        0F0 0SEND_F0 0F1 0RECV_B0 0B0 0RECV_B1
        1RECV_F0 1F0 1B0 1RECV_F1 1F1 1SEND_B1 1B1
    """
    stop, *others = gp.problems(programs)
    assert stop.rule == "deadlock" and stop.sentence.endswith("On device 1, put Send 1B0 before Recv 0F1")
    assert [each.sentence for each in others] == [
        "device 0 receives 1B0 from device 1, which never sends it",
        "device 1 receives 0F1 from device 0, which never sends it",
        "0B1 is missing",
    ]


# Devices that wait for each other


def hang(programs, stages: int = 2, **options) -> str:
    with pytest.raises(DeadlockError) as error:
        run(programs, stages, **options)
    head, sentence = str(error.value).split("\n  ")
    assert head.startswith(f"the programs of {len(programs)} devices cannot finish")
    return sentence


def test_the_devices_of_a_cycle_are_told_lowest_first_and_those_outside_it_are_not():
    receives = Recv("2F0", 2), Recv("2B0", 2), Recv("1F0", 1)
    waits = {k: Wait(receive, receive) for k, receive in enumerate(receives)}
    assert list(round_trip(waits)) == [1, 2]


def test_two_that_both_receive_first_hang_anyway_and_one_has_something_to_send():
    programs = rows(*GOOD)
    send = programs[0].pop(1)
    programs[0].insert(2, send)
    for sends in ("buffered", "blocking"):
        assert hang(programs, sends=sends) == (
            "device 0 waits in Recv 1B0 from device 1; device 1 waits in Recv 0F0 from device 0. "
            "On device 0, put Send 0F0 before Recv 1B0"
        )


def test_what_is_only_on_its_way_is_not_told():
    """0F1 was sent and will be received; 0F2 is what device 1 waits for."""
    first = ["0F0", Send("0F0", 1), "0F1", Send("0F1", 1), Recv("1B0", 1)]
    assert hang([first, [Recv("0F2", 0)]], microbatches=3) == (
        "device 0 waits in Recv 1B0 from device 1; device 1 waits in Recv 0F2 from device 0. "
        "On device 0, put 0F2 and Send 0F2 before Recv 1B0"
    )


def test_or_could_make_it():
    programs = rows(*GOOD)
    programs[0] = [programs[0][2], *programs[0][:2], programs[0][3]]
    assert hang(programs) == (
        "device 0 waits in Recv 1B0 from device 1; device 1 waits in Recv 0F0 from device 0. "
        "On device 0, put 0F0 and Send 0F0 before Recv 1B0"
    )


def test_an_action_waits_for_what_was_only_posted():
    """Device 0 sends 0F1 before 0F0, which device 1 wants first; 1F0 waits, not its receive."""
    first = ["0F0", "0F1", Send("0F1", 1), Send("0F0", 1)]
    last = [Recv("0F0", 0, wait=False), "1F0", Recv("0F1", 0), "1F1"]
    assert hang([first, last], sends="blocking") == (
        "device 0 waits in Send 0F1 to device 1; device 1 waits in 1F0 for Recv 0F0 from device 0. "
        "On device 1, put Recv 0F1 before 1F0"
    )


def test_of_three_devices_in_a_ring_the_cycle_is_told_lowest_first():
    """Device 0 sends to 1, 1 to 2, and 2 back to 0, which holds stage 3 too."""
    assert hang(gp.device_programs(LoopedBFS(3, 4)), 6, sends="blocking") == (
        "device 0 waits in Send 0F2 to device 1; device 1 waits in Send 1F1 to device 2; "
        "device 2 waits in Send 2F0 to device 0. On device 1, put Recv 0F2 before Send 1F1"
    )


@pytest.mark.parametrize("sends", ["buffered", "blocking"])
def test_whoever_waits_for_a_device_that_has_ended_is_told_first(sends):
    programs = [list(row) for row in gp.device_programs(gp.GPipe(3, 1))]
    del programs[0][1:]
    with pytest.raises(ScheduleError) as error:
        run(programs, 3, sends=sends)
    assert type(error.value) is ScheduleError
    assert str(error.value).split("\n  ")[1:] == [
        "device 1 waits in Recv 0F0 from device 0, whose program has ended",
        "device 2 waits in Recv 1F0 from device 1",
    ]
