"""A recorder around megatron-core's own schedules, on four processes; skipped where it is not installed.

pip install --no-deps megatron-core==0.16.1 packaging
"""

import csv
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch")
if find_spec("megatron") is None or find_spec("megatron.core") is None:
    pytest.skip("megatron-core is not installed", allow_module_level=True)

import megatron_loop as loop  # noqa: E402

import gpipe_sim as gp  # noqa: E402

ORDERS = {"plain": gp.OneFOneB(4, 8), "interleaved": gp.Interleaved1F1B(4, 8, 2)}


class Run(NamedTuple):
    """Of each rank, what the recorder wrote of each schedule, and what was true."""

    rows: dict[str, list[list[dict[str, str]]]]
    truth: list[dict]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("megatron")
    here = Path(__file__).parents[1]
    path = os.pathsep.join([str(here), *(os.environ.get("PYTHONPATH", "").split(os.pathsep))])
    env = os.environ | {"PYTHONPATH": path, "GLOO_SOCKET_IFNAME": "lo", "OPENBLAS_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, here / "tests" / "megatron_loop.py", str(rank), folder],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(loop.DEVICES)
    ]
    try:
        said = [process.communicate(timeout=240)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert not any(process.returncode for process in started), "\n".join(said)[-4000:]
    rows = {
        name: [
            list(csv.DictReader((folder / f"{name}_{rank}.csv").read_text().splitlines()))
            for rank in range(loop.DEVICES)
        ]
        for name in ORDERS
    }
    return Run(
        rows, [json.loads((folder / f"truth_{rank}.json").read_text()) for rank in range(loop.DEVICES)]
    )


@pytest.mark.parametrize("name", ORDERS)
def test_stages_and_microbatches_are_those_of_the_order_that_megatron_ran(name, run):
    """Three steps, without the evaluation after the first one; so are 1F1B and interleaved 1F1B here."""
    for rank, rows in enumerate(run.rows[name]):
        own = [f"{row['stage']}{row['kind']}{row['microbatch']}" for row in rows]
        assert own == [str(action) for action in ORDERS[name].actions[rank]] * loop.STEPS
        per_step = len(own) // loop.STEPS
        assert [int(row["step"]) for row in rows] == [i // per_step for i in range(len(rows))]
        assert run.truth[rank][name]["evaluated"] == loop.MICROBATCHES * loop.CHUNKS[name]


@pytest.mark.parametrize("name", ORDERS)
def test_times_are_those_of_megatrons_own_functions(name, run):
    """By another clock, below the recorder: 0.05 ms in the middle."""
    off = []
    for rank, rows in enumerate(run.rows[name]):
        true = run.truth[rank][name]["true"]
        assert [row["kind"] for row in rows] == [kind for kind, _, _ in true]
        both = zip(rows, true, strict=True)
        off += [
            abs(float(row["start"]) - start) + abs(float(row["end"]) - end) for row, (_, start, end) in both
        ]
    assert median(off) < 0.05


@pytest.mark.parametrize("name", ORDERS)
def test_the_slow_stage_is_found_within_5_percent(name, run):
    """It sleeps 20 and 30 ms more than the others in F and B."""
    took: dict[tuple[str, int], list[float]] = {}
    for row in (row for rows in run.rows[name] for row in rows):
        took.setdefault((row["kind"], int(row["stage"])), []).append(float(row["end"]) - float(row["start"]))
    for kind, planted in loop.TOOK.items():
        usual = {stage: median(times) for (of, stage), times in took.items() if of == kind}
        slow = usual.pop(loop.SLOW[name])
        assert max(usual.values()) < slow
        assert slow - median(usual.values()) == pytest.approx(planted, rel=0.05)


@pytest.mark.parametrize("name", ORDERS)
def test_gradients_are_the_same_with_a_recorder(name, run):
    for each in run.truth:
        assert each[name]["recorded"] == each[name]["alone"] and each[name]["alone"][0][0] != 0
