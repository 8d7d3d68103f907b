"""Orders as PyTorch writes them: there and back, and what its format cannot say. Nothing here needs torch."""

import json
from pathlib import Path

import pytest
from cases import BOTH_WAYS, over, over_every_schedule
from engine_cases import legal_orders, one_copy, over_explicit, runnable
from hypothesis import given

import gpipe_sim as gp
from gpipe_sim import ZBV, Explicit, GPipe, OneFOneB, remat, with_updates
from gpipe_sim.core import Schedule
from gpipe_sim.errors import DeadlockError, ScheduleError
from gpipe_sim.export import from_torch_csv, to_torch_csv
from gpipe_sim.families import WITHOUT_FLUSH, Chimera, DualPipe, DualPipeV

PYTORCH = json.loads((Path(__file__).parent / "data" / "pytorch-orders.json").read_text())["schedules"]


def assert_same(found: Schedule, expected: Schedule) -> None:
    assert found.actions == expected.actions
    assert found.placement == tuple(tuple(sorted(held)) for held in expected.placement)
    assert (found.devices, found.microbatches) == (expected.devices, expected.microbatches)


# There and back


def test_a_line_per_rank_in_pytorchs_spelling():
    assert to_torch_csv(OneFOneB(2, 3)) == "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n"


def test_a_pair_is_one_cell():
    row = to_torch_csv(DualPipeV(2, 4)).splitlines()[0].split(",")
    assert row[:8] == ["0F0", "0F1", "0F2", "3F0", "3I0", "3W0", "3F1", "(0F3;3B1)OVERLAP_F_B"]


@over(runnable())
def test_every_family_comes_back_as_it_was(schedule):
    assert_same(from_torch_csv(to_torch_csv(schedule)), schedule)


@over_explicit
def test_orders_written_out_come_back_as_they_were(schedule):
    assert_same(from_torch_csv(to_torch_csv(schedule)), schedule)


@given(legal_orders(recompute=False))
def test_any_legal_order_comes_back_as_it_was(schedule):
    assert_same(from_torch_csv(to_torch_csv(schedule)), schedule)


def test_pytorchs_recorded_orders_read_as_they_are():
    for record in PYTORCH.values():
        orders, ranks = record["orders"], record["stage_to_rank"]
        found = from_torch_csv("\n".join(row.replace(" ", ",") for row in orders))
        held = [[stage for stage, rank in enumerate(ranks) if rank == k] for k in range(1 + max(ranks))]
        assert_same(found, Explicit(orders, placement=held))


def test_one_that_repeats_nothing_is_written_as_if_remat_were_not_there():
    assert to_torch_csv(remat(GPipe(3, 2), "never")) == to_torch_csv(GPipe(3, 2))
    assert to_torch_csv(remat(GPipe(3, 1), "except_last")) == to_torch_csv(GPipe(3, 1))


# What the format cannot say


@over_every_schedule([(2, 4), (4, 8)])
def test_two_copies_of_a_stage_are_refused_by_name(schedule):
    assert one_copy(schedule) == (not isinstance(schedule, Chimera | DualPipe))
    if one_copy(schedule):
        return
    with pytest.raises(ScheduleError) as error:
        to_torch_csv(schedule)
    assert repr(schedule) in str(error.value)
    assert "two copies of the model, such as Chimera and DualPipe" in str(error.value)
    assert "holds stage" in str(error.value)


def test_which_stage_is_on_which_two_devices_is_said():
    with pytest.raises(
        ScheduleError, match="holds stage 1 on devices 0 and 1, and PyTorch's engine gives a stage"
    ):
        to_torch_csv(BOTH_WAYS)


@pytest.mark.parametrize("mode", ["always", "except_last"])
def test_recomputation_is_refused_with_a_way_out(mode):
    with pytest.raises(ScheduleError, match=r"^0R\d of remat\(.*cannot say R: write the order without remat"):
        to_torch_csv(remat(OneFOneB(2, 3), mode))


def test_updates_within_the_step_are_refused_with_a_way_out():
    with pytest.raises(ScheduleError, match=r"^0U2 of Explicit.*asynchronous.*step an optimizer after it"):
        to_torch_csv(with_updates(OneFOneB(2, 3)))


@pytest.mark.parametrize("family", WITHOUT_FLUSH)
def test_streams_are_refused_by_name_with_a_way_out(family):
    for stream in (family(2, 6), remat(family(2, 6), "always"), gp.replicate(family(2, 6), 2)):
        with pytest.raises(ScheduleError) as refused:
            to_torch_csv(stream)
        assert f" of {stream!r} updates weights within the step" in str(refused.value)
        assert "such as OneFOneB's, and step an optimizer after it" in str(refused.value)


def test_a_device_without_work_is_refused():
    idle = Explicit(["0F0 0B0", ""], placement=[[0], []])
    with pytest.raises(ScheduleError, match=r"^device 1 of Explicit.* has no work"):
        to_torch_csv(idle)


def test_an_order_that_cannot_finish_is_refused():
    with pytest.raises(DeadlockError, match="device 0 is stuck at 0B0"):
        to_torch_csv(Explicit(["0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"]))


def test_an_order_with_a_gap_is_refused():
    with pytest.raises(ScheduleError, match="1B0 is missing"):
        to_torch_csv(Explicit(["0F0 0B0", "1F0"]))


# Reading what PyTorch writes


def test_what_pytorch_adds_by_itself_is_left_out():
    """Row 1 of a ``_dump_csv`` with messages, of a V whose stages 0 and 3 are here."""
    text = (
        "0UNSHARD,3UNSHARD,0F0,0SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,0RECV_B0,0B0,0REDUCE_GRAD,3REDUCE_GRAD,0RESHARD\n"
        "1RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2WAIT_SEND_F0,2B0,1B0,1SEND_B0,1WAIT_REDUCE_GRAD\n"
    )
    found = from_torch_csv(text)
    assert str(found) == "device 0, stages 0 3: 0F0 3F0 3B0 0B0\ndevice 1, stages 1 2: 1F0 2F0 2B0 1B0"
    assert found.placement == ((0, 3), (1, 2))


def test_padding_is_left_out_wherever_it_stands():
    found = from_torch_csv("0F0,0F1,,,0B0,,0B1\n,1F0,1B0,1F1, ,1B1,\n")
    assert str(found) == "device 0: 0F0 0F1 0B0 0B1\ndevice 1: 1F0 1B0 1F1 1B1"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_ends_of_lines_do_not_matter(end):
    text = to_torch_csv(ZBV(2, 4)).replace("\n", end)
    assert_same(from_torch_csv(text), ZBV(2, 4))
    assert_same(from_torch_csv(text.removesuffix(end)), ZBV(2, 4))


def test_an_empty_line_is_a_device_without_work_wherever_it_stands():
    assert from_torch_csv("\n0F0,0B0\n\n1F0,1B0\n").placement == ((), (0,), (), (1,))
    assert from_torch_csv("0F0,0B0\n\n").placement == ((0,), ())


def test_a_line_of_padding_alone_is_a_device_without_work():
    assert from_torch_csv(",,\n0F0,0B0,\n").placement == ((), (0,))


def test_stages_are_where_their_line_is():
    assert from_torch_csv("2F0,0F0\n1F0\n").placement == ((0, 2), (1,))


def test_a_stage_that_is_only_the_second_half_of_a_pair_is_on_its_line_too():
    """So in DualPipeV, whose device runs some stages' backwards in pairs; here nothing else of stage 1 is."""
    found = from_torch_csv("0F0,(0F1;1B0)OVERLAP_F_B,0B0\n2F0,1F0\n")
    assert found.placement == ((0, 1), (1, 2))


def test_an_order_that_cannot_run_is_read_all_the_same():
    """So that it can be looked at: ``problems`` says what is wrong."""
    assert from_torch_csv("0B0,0F0").actions == Explicit(["0B0 0F0"]).actions


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("0F0,0X0", "line 1, cell 2: '0X0' is not an action"),
        ("0F0,0B0\n\n1F0,,F1", "line 3, cell 3: 'F1' is not an action"),
        ("0F0,0SENDF0", "line 1, cell 2: '0SENDF0' is not an action"),
        ("0F0,0SEND_W0", "line 1, cell 2: '0SEND_W0' is not an action"),
        ("0F0 0B0", "line 1, cell 1: '0F0 0B0' is not an action"),
        ("(0F0;1B0)", r"line 1, cell 1: '\(0F0;1B0\)' is not an action"),
    ],
)
def test_a_cell_that_cannot_be_read_is_named_with_its_place(text, place):
    with pytest.raises(ValueError, match=f"^{place}; write stage, kind, microbatch, such as 2F0"):
        from_torch_csv(text)


@pytest.mark.parametrize("text", ["", "\n", " \n \n", ",,,\n,,", "0UNSHARD,0SEND_F0\n"])
def test_nothing_to_read_is_said(text):
    with pytest.raises(ValueError, match="at least one action, such as 0F0"):
        from_torch_csv(text)
