"""The published errors: the command that anyone can run, and what is said of its results elsewhere."""

import csv
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.measured import BY_HAND, RESULTS, starting_from
from gpipe_sim.pricing.hardware import SHEET
from gpipe_sim.pricing.rows import measured_rows, read_rows

ROOT = Path(__file__).parent.parent
COMMITTED = ROOT / "gpipe_sim" / "data" / "measured" / "one-node.csv"
RUN = [sys.executable, "-m", "benchmarks.measured"]


def written(path, rows, without=()):
    columns = [name for name in rows[0] if name not in without]
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def read(path):
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def run(*arguments):
    return subprocess.run([*RUN, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def test_rows_without_times_are_predicted_from_rows_with_times(tmp_path):
    rows = read(COMMITTED)[::12]
    known, asked = (rows[start::2] for start in (0, 1))
    fit, predict = written(tmp_path / "fit.csv", known), written(tmp_path / "rows.csv", asked, ["ms"])
    off = {}
    for name, how in (("fitted", ["--fit", fit]), ("by hand", ["--by-hand"])):
        out = tmp_path / f"{name}.csv"
        done = run(*how, "--predict", predict, "--out", str(out))
        assert done.returncode == 0, done.stderr
        found = read(out)
        assert [{k: v for k, v in row.items() if k != "predicted_ms"} for row in found] == [
            {k: v for k, v in row.items() if k != "ms"} for row in asked
        ]
        times = [float(row["predicted_ms"]) for row in found]
        off[name] = np.mean(
            [abs(time / float(row["ms"]) - 1) for time, row in zip(times, asked, strict=True)]
        )
    expected = [1000 * row.priced(BY_HAND).time for row in read_rows(predict)]
    assert times == pytest.approx(expected, rel=1e-5)
    assert off["fitted"] < off["by hand"] < 0.1


def test_asked_for_wrongly_it_says_how():
    for wrong in (["--predict", "rows.csv"], ["--predict", "rows.csv", "--out", "out.csv"]):
        done = run(*wrong)
        assert (
            done.returncode == 2
            and "--predict needs --out, and either --fit FIT.csv or --by-hand" in done.stderr
        )


RESULT = json.loads(RESULTS.read_text(encoding="utf-8"))


def test_the_results_are_of_rows_that_are_here():
    """The times of the half that was not fitted are measured ones, and the errors are theirs."""
    rows = RESULT["rows"]["one-node"]
    measured = sorted(row.time for row in measured_rows("one-node"))
    assert all(min(abs(row["measured"] / time - 1) for time in measured) < 1e-5 for row in rows)
    assert 300 < len(rows) < 400
    for way in ("by hand", "with shapes"):
        errors = np.abs([row[way] / row["measured"] - 1 for row in rows])
        said = RESULT[f"one-node, {way}"]
        assert [said["mean"], said["worst"]] == pytest.approx([errors.mean(), errors.max()], rel=1e-3)


SAID = {
    "2 to 8 GPUs, numbers set by hand": "one-node, by hand",
    "the same, a dozen numbers fitted": "one-node, numbers",
    "the same, and a factor for each shape of block": "one-node, with shapes",
    "the same, from 32 rows in all": "one-node, 32 rows",
    "64 to 512 GPUs, fitted to others of them": "many-nodes, with shapes",
    "*harder:* shapes of blocks never seen": "harder: shapes of blocks never seen",
    "numbers of features never seen": "harder: features never seen",
    "tensor degrees never seen": "harder: tensor degrees never seen",
    "pipelines, from rows without one": "harder: pipelines from rows without",
    "64 to 512 GPUs, from rows of one node": "harder: many nodes from one node",
}


def test_the_page_quotes_the_results():
    page = (ROOT / "docs" / "howto" / "what_it_takes.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([^|]*) \| (\d.*) \|$", page, re.M))
    assert rows.keys() == SAID.keys()
    for words, name in SAID.items():
        found = [f"{100 * RESULT[name][which]:.1f}" for which in ("mean", "p90", "worst")]
        assert rows[words] == " | ".join(found), words
    plans = RESULT["one-node, with shapes: plans"]
    assert f"in {plans['best found']} of {plans['groups']} tasks" in page
    for name in ("2205.05198 table 5", "2104.04473 table 1", "2104.04473 table 2", "BLOOM", "MT-NLG"):
        assert f"{100 * RESULT[name]['mean']:.1f}" in page, name
    for name in ("BLOOM", "MT-NLG"):
        assert f"{RESULT[name]['unexplained factor']:.2f} times" in page
    off = [error for name, error in RESULT["H100, FP8"]["errors"].items() if "gpt3" in name]
    assert sorted(f"{100 * error:.0f}" for error in off) == ["13", "15"] and "13 and 15% too slow" in page


def test_the_readme_quotes_the_results_and_the_harder_ones():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [said] = re.findall(r"Predicted steps of 2 to 8 A100s are .*$", text, re.M)
    names = "one-node, with shapes", "harder: shapes of blocks never seen", "many-nodes, with shapes"
    assert [*map(float, re.findall(r"([\d.]+)%", said))] == [
        round(100 * RESULT[name][which], 1 if which == "mean" or name == names[0] else 0)
        for name in names
        for which in ("mean", "worst")
    ]


def test_numbers_by_hand_still_give_these_errors():
    rows = {float(f"{row.time:.6g}"): row for row in measured_rows("one-node")}
    for said in RESULT["rows"]["one-node"][::10]:
        row = rows[said["measured"]]
        assert row.priced(BY_HAND).time == pytest.approx(said["by hand"], rel=1e-5)


def test_a_fit_to_rows_of_a_named_card_begins_below_its_data_sheet():
    row = measured_rows("one-node")[0]
    named = replace(row, given={**row.given, "card": "NVIDIA H100 80GB HBM3"})
    assert 0 < starting_from([named]).accelerator.flops < SHEET["H100"][0]
