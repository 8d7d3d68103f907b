"""The page's families are the library's: the same rows on the same stages, and the same refusals."""

import json
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from itertools import product
from pathlib import Path

import pytest

import gpipe_sim as gp
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.families import SCHEDULES, WITHOUT_FLUSH

FAMILIES = {family.__name__: family for family in (*SCHEDULES, *WITHOUT_FLUSH)}
SIZES = [*product(range(1, 10), range(1, 21)), (8, 64), (12, 25), (16, 33), (32, 512)]
ODD = [(0, 4), (4, 0), (-3, 4), (4, -1), (1.5, 2), (2, 2.5), (4000, 4000)]
VARIANTS = {
    "GPipe": [{"drain": "in_order"}, {"drain": "reversed"}, {"drain": "sideways"}],
    "Interleaved1F1B": [{"stages_per_device": v} for v in (1, 3, 4, 0, 0.5)],
    "LoopedBFS": [{"stages_per_device": v} for v in (1, 3, 4, 0, 0.5)],
    "PipeDream": [{"every": every} for every in (2, 3, 4, 7, 30, 0, 1.5)],
    "PipeDream2BW": [{"every": every} for every in (2, 3, 4, 7, 30, 0, 1.5)],
}
RECOMPUTED = ["always", "except_last", "never", "sometimes"]

#: Of each case the digest of [name, placement, rows], or the sentence that refuses it.
NODE = """
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { FAMILIES, orderOf, withRecompute } from "./families.js";
import { KINDS } from "./clock.js";

const action = (stage, kind, microbatch) => [stage, KINDS[kind], microbatch];
const pair = (entry) => [action(...entry.slice(0, 3)), action(...entry.slice(3))];
const spelled = (entry) => (entry.length > 3 ? pair(entry) : action(...entry));

function answer({ family, options, remat }) {
  try {
    const order = withRecompute(orderOf(family, options), remat);
    const said = [order.name, order.placement, order.rows.map((row) => row.map(spelled))];
    return createHash("sha256").update(JSON.stringify(said)).digest("hex");
  } catch (error) {
    return error.message;
  }
}
const cases = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify({ families: Object.keys(FAMILIES), answers: cases.map(answer) }));
"""


def cases_of(name: str) -> Iterator[dict]:
    for (devices, microbatches), more in product([*SIZES, *ODD], [{}, *VARIANTS.get(name, ())]):
        if devices < 16 or not more:
            options = {"devices": devices, "microbatches": microbatches, **more}
            yield {"family": name, "options": options, "remat": "never"}
    for (devices, microbatches), remat in product([(1, 1), (2, 4), (2, 5), (4, 3), (4, 8)], RECOMPUTED):
        options = {"devices": devices, "microbatches": microbatches}
        yield {"family": name, "options": options, "remat": remat}


def answer(case: dict) -> str:
    """What the library says of a case, as ``NODE`` does of the page."""
    try:
        schedule = gp.remat(FAMILIES[case["family"]](**case["options"]), case["remat"])
        said = schedule.name, schedule.placement, rows_of(schedule)
    except (TypeError, ValueError) as error:
        return str(error)
    return sha256(json.dumps(said, separators=(",", ":")).encode()).hexdigest()


def rows_of(schedule: Schedule) -> list[list]:
    return [list(schedule.order(device)) for device in range(schedule.devices)]


@pytest.fixture(scope="module")
def modules(tmp_path_factory) -> Path:
    """The folder of the page's scripts as modules."""
    folder = tmp_path_factory.mktemp("page")
    subprocess.run([sys.executable, "-m", "gpipe_sim.viewer", folder], check=True)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


@pytest.fixture(scope="module")
def answers(modules) -> dict[str, list[str]]:
    """What the page says of all cases, by family."""
    (modules / "answers.js").write_text(NODE)
    cases = {name: list(cases_of(name)) for name in FAMILIES}
    asked = json.dumps([case for of_family in cases.values() for case in of_family])
    ran = subprocess.run(["node", modules / "answers.js"], input=asked, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["families"] == list(FAMILIES)
    said = iter(found["answers"])
    return {name: [next(said) for _ in of_family] for name, of_family in cases.items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_familys_rows_placement_and_refusals_are_the_librarys(name, answers):
    differ = [
        (case, said, by_library)
        for case, said in zip(cases_of(name), answers[name], strict=True)
        if said != (by_library := answer(case))
    ]
    assert not differ, f"{len(differ)} cases, such as {differ[:3]}"
    assert any(len(said) == 64 and " " not in said for said in answers[name])
