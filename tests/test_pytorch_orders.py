"""Our orders against those that PyTorch's own engine runs, recorded in data/pytorch-orders.json."""

import json
import re
from pathlib import Path

import pytest
from cases import EQUAL

from gpipe_sim import (
    ZBH1,
    ZBV,
    Costs,
    Explicit,
    GPipe,
    Interleaved1F1B,
    OneFOneB,
    bubble_fraction,
    peak_in_flight,
    problems,
    simulate,
)
from gpipe_sim.core import Kind, Schedule
from gpipe_sim.families import DualPipeV, LoopedBFS

PYTORCH = json.loads((Path(__file__).parent / "data" / "pytorch-orders.json").read_text())
RECORDED = PYTORCH["schedules"]


#: PyTorch's zero bubble over two stages per device, which go round the devices: no family here.
UNNAMED = "InterleavedZeroBubble K=4 M=8 V=2", "InterleavedZeroBubble K=2 M=8 V=2"
SAME = [name for name in RECORDED if name not in UNNAMED]


def sizes(name: str) -> tuple[str, int, int, int]:
    """`1F1B K=4 M=8 V=1`, taken apart."""
    family, *counts = re.fullmatch(r"(\w+) K=(\d+) M=(\d+) V=(\d+)", name).groups()
    return family, *map(int, counts)


def ours(name: str) -> Schedule:
    family, devices, microbatches, stages_per_device = sizes(name)
    return {
        "GPipe": lambda: GPipe(devices, microbatches, drain="in_order"),
        "1F1B": lambda: OneFOneB(devices, microbatches),
        "Interleaved1F1B": lambda: Interleaved1F1B(devices, microbatches, stages_per_device),
        "LoopedBFS": lambda: LoopedBFS(devices, microbatches, stages_per_device),
        "InterleavedZeroBubble": lambda: ZBH1(devices, microbatches),
        "ZBVZeroBubble": lambda: ZBV(devices, microbatches),
        "DualPipeV": lambda: DualPipeV(devices, microbatches),
    }[family]()


def recorded(name: str) -> Explicit:
    """PyTorch's order, on PyTorch's ranks."""
    ranks = RECORDED[name]["stage_to_rank"]
    placement = [[s for s, rank in enumerate(ranks) if rank == k] for k in range(1 + max(ranks))]
    return Explicit(RECORDED[name]["orders"], placement=placement)


def apart(schedule: Schedule) -> Explicit:
    """Each pair as PyTorch runs it: its forward, then its backward."""
    rows = [[part for action in row for part in action.parts] for row in schedule.actions]
    return Explicit(rows, placement=schedule.placement)


def test_the_record_has_all_seven_families_with_m_below_k_and_uneven_m():
    assert len(RECORDED) == 44 + 24 + 12 + 2 + 12 + 4
    assert {sizes(name)[0] for name in RECORDED} == {
        "GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"
    }  # fmt: skip
    assert {"GPipe K=4 M=3 V=1", "1F1B K=4 M=6 V=1", "Interleaved1F1B K=4 M=3 V=2"} <= set(RECORDED)
    assert {"LoopedBFS K=4 M=3 V=2", "ZBVZeroBubble K=4 M=1 V=2", "DualPipeV K=2 M=6 V=2"} <= set(RECORDED)


def test_each_family_is_pytorchs_order_on_pytorchs_ranks():
    for name in SAME:
        schedule = ours(name)
        rows = [row.split(": ")[1] for row in str(schedule).splitlines()]
        ranks = [k for s in range(schedule.stages) for k, held in enumerate(schedule.placement) if s in held]
        assert rows == RECORDED[name]["orders"], name
        assert ranks == RECORDED[name]["stage_to_rank"], name


def test_pytorchs_orders_take_the_recorded_time_and_hold_the_recorded_microbatches():
    """F = 1, B = 2 and I = W = 1; also B = 1, but not beside halves of 1 each, for there B is not I and W."""
    for name, record in RECORDED.items():
        schedule = apart(recorded(name))
        assert problems(schedule) == [], name
        assert simulate(schedule).makespan == record["makespan_F1_B2"], name
        if not any(action.kind is Kind.I for row in schedule.actions for action in row):
            assert simulate(schedule, Costs(**EQUAL)).makespan == record["makespan_F1_B1"], name
        assert list(peak_in_flight(schedule)) == record["peak_in_flight"], name


def test_dualpipev_takes_54_with_its_pairs_in_one_piece_and_51_as_pytorch_runs_them():
    assert simulate(recorded("DualPipeV K=4 M=8 V=2")).makespan == simulate(DualPipeV(4, 8)).makespan == 54
    assert simulate(apart(DualPipeV(4, 8))).makespan == 51


def test_pytorchs_interleaved_zero_bubble_is_zb_h1_with_one_stage_per_device_and_takes_51_with_two():
    """27 of 24 busy, against 51 of 48: the same three units of waiting, in twice the work."""
    thick, thin = ZBH1(4, 8), recorded("InterleavedZeroBubble K=4 M=8 V=2")
    assert simulate(thick).makespan == simulate(recorded("InterleavedZeroBubble K=4 M=8 V=1")).makespan == 27
    assert simulate(thin).makespan == 51
    assert [f"{float(bubble_fraction(simulate(each))):.3f}" for each in (thick, thin)] == ["0.111", "0.059"]
    assert (peak_in_flight(thick), peak_in_flight(thin)) == ((4,) * 4, (8,) * 4)


@pytest.mark.parametrize("name", [name for name in PYTORCH["refused"] if name.startswith("DualPipeV")])
def test_dualpipev_refuses_the_sizes_that_pytorch_refuses(name):
    """PyTorch: "requires at least as many microbatches as stages"."""
    _, devices, microbatches, _ = sizes(name)
    with pytest.raises(ValueError, match=rf"microbatches >= {2 * devices}, .* \(got {microbatches}\)"):
        DualPipeV(devices, microbatches)


@pytest.mark.parametrize("name", [name for name in PYTORCH["refused"] if name.startswith("1F1B")])
def test_1f1b_with_fewer_microbatches_than_devices_works_here(name):
    _, devices, microbatches, _ = sizes(name)
    assert microbatches < devices
    assert simulate(OneFOneB(devices, microbatches)).makespan == 3 * (microbatches + devices - 1)


@pytest.mark.parametrize(
    ("devices", "refused"), [(2, {5, 7, 9, 11}), (3, {7, 10, 11, 13, 14, 16, 32, 64}), (4, {9, 11, 13, 14})]
)
def test_interleaved_refuses_the_microbatches_that_pytorch_refuses(devices, refused):
    """PyTorch: "requires the number of microbatches to be a multiple of the number of rounds"."""
    for microbatches in range(1, max(refused) + 1):
        rounds = max(1, microbatches // devices)
        if microbatches in refused:
            assert microbatches % rounds
            with pytest.raises(ValueError, match=f"{microbatches} do not cut into {rounds}"):
                Interleaved1F1B(devices, microbatches)
        elif microbatches <= 12:
            assert Interleaved1F1B(devices, microbatches).group == microbatches / rounds
