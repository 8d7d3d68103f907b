"""Our orders against those that PyTorch's own engine runs, recorded in data/pytorch-orders.json."""

import json
import re
from pathlib import Path

import pytest
from cases import EQUAL

from gpipe_sim import Costs, Explicit, GPipe, Interleaved1F1B, OneFOneB, peak_in_flight, problems, simulate

PYTORCH = json.loads((Path(__file__).parent / "data" / "pytorch-orders.json").read_text())
RECORDED = PYTORCH["schedules"]


def sizes(name: str) -> tuple[str, int, int, int]:
    """`1F1B K=4 M=8 V=1`, taken apart."""
    family, *counts = re.fullmatch(r"(\w+) K=(\d+) M=(\d+) V=(\d+)", name).groups()
    return family, *map(int, counts)


def ours(name: str):
    family, devices, microbatches, stages_per_device = sizes(name)
    if family == "GPipe":
        return GPipe(devices, microbatches, drain="in_order")
    if family == "1F1B":
        return OneFOneB(devices, microbatches)
    return Interleaved1F1B(devices, microbatches, stages_per_device)


def test_the_record_has_all_three_families_with_m_below_k_and_uneven_m():
    assert len(RECORDED) == 44
    assert {sizes(name)[0] for name in RECORDED} == {"GPipe", "1F1B", "Interleaved1F1B"}
    assert {"GPipe K=4 M=3 V=1", "1F1B K=4 M=6 V=1", "Interleaved1F1B K=4 M=3 V=2"} <= set(RECORDED)


@pytest.mark.parametrize("name", RECORDED)
def test_in_order_gpipe_1f1b_and_interleaved_are_pytorchs_orders(name):
    rows = str(ours(name)).splitlines()
    assert [row.split(": ")[1] for row in rows] == RECORDED[name]["orders"]


@pytest.mark.parametrize("name", RECORDED)
def test_each_stage_is_on_pytorchs_rank(name):
    schedule, ranks = ours(name), RECORDED[name]["stage_to_rank"]
    assert [
        k for s in range(schedule.stages) for k, held in enumerate(schedule.placement) if s in held
    ] == ranks


@pytest.mark.parametrize("name", RECORDED)
def test_pytorchs_orders_take_the_recorded_time_and_hold_the_recorded_microbatches(name):
    recorded = RECORDED[name]
    schedule = Explicit(recorded["orders"])
    assert problems(schedule) == []
    assert simulate(schedule).makespan == recorded["makespan_F1_B2"]
    assert simulate(schedule, Costs(**EQUAL)).makespan == recorded["makespan_F1_B1"]
    assert list(peak_in_flight(schedule)) == recorded["peak_in_flight"]


@pytest.mark.parametrize("name", PYTORCH["refused"])
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
