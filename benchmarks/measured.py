"""How far off is what is predicted? Whole steps that were measured, on rows that the fit has not seen.

python -m benchmarks.measured                                   one half of the committed rows, and all tables
python -m benchmarks.measured --fit FIT.csv --predict ROWS.csv --out OUT.csv [--by-hand]

Without arguments it writes ``benchmarks/results/measured.json``. ``ROWS.csv`` needs no times; ``OUT.csv``
has its columns and ``predicted_ms``. Needs scipy: pip install "gpipe_sim[calibrate]".
"""

import argparse
import csv
import json
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

import gpipe_sim as gp
from benchmarks.ablation import ablation
from benchmarks.h100_steps import FITTED, fitted, fp8_steps
from benchmarks.published_steps import FREE, INSIDE, NODE, ONE_FACTOR
from gpipe_sim.pricing.calibrate import Calibration, Errors, calibrate
from gpipe_sim.pricing.hardware import SHEET
from gpipe_sim.pricing.rows import Row, measured_rows, read_rows

RESULTS = Path(__file__).parent / "results" / "measured.json"
#: 800 Gb/s from each node, as vTrain states for its cluster. That groups of some devices of a node use the
#: link of one is what its rows say: with tensor 2 and 4 Megatron-DeepSpeed sums gradients that slowly.
BETWEEN = gp.Link(bandwidth=100e9)
LINKS = gp.pricing.OneRail(NODE, inside=gp.Link(bandwidth=INSIDE), between=BETWEEN, per="node")
BY_HAND = gp.Cluster(NODE, gp.pricing.A100, memory=80e9, links=LINKS)
ENOUGH = 24  #: rows to fit a cluster on
MANY = 200  #: rows for each fit where many are fitted
SMALL = 32  #: rows, one for each shape first


def predicted(found: Calibration | gp.Cluster, rows: Sequence[Row]) -> list[float]:
    """The seconds of each row's step."""
    if isinstance(found, Calibration):
        return [found.price(row).time for row in rows]
    return [row.priced(found).time for row in rows]


def starting_from(rows: Sequence[Row]) -> gp.Cluster:
    """What a fit begins with: A100s by hand; for rows with a column ``card``, one device as their fastest.

    Of that only ``flops`` are known, so the other numbers are what they may be beside them.
    """
    cards = {row.given.get("card") or "" for row in rows}
    if cards == {""}:
        return BY_HAND
    if len(cards) > 1:
        raise ValueError(f"rows to fit have to be of one card (got {', '.join(sorted(cards))})")
    [said] = cards
    card = next((name for name in SHEET if name in said), "")
    most, moved, *_ = SHEET.get(card, (inf, inf))
    rate = min(0.9 * most, max(flops(row) / row.seconds for row in rows))
    hbm = min(0.9 * moved, rate / 40)
    gpu = gp.Accelerator(
        rate, hbm=hbm, launch=1e-5, exposed=0.3, vocabulary=rate, microbatch=1e-4, step=1e-3, card=card
    )
    return gp.Cluster(1, gpu, memory=80e9)


def flops(row: Row) -> float:
    """What a device computes in a step, with what it computes again."""
    layout = row.layout
    works = [piece.work for piece in layout.pieces]
    each = [3 * work.flops + (work.again.flops if work.again else 0) for work in works]
    order = layout.schedule
    return order.microbatches * float((layout.counts @ each).sum()) / order.devices


def off(times: Sequence[float], rows: Sequence[Row]) -> dict[str, float]:
    """The errors on these rows, and the share of them within a tenth."""
    errors = [row.off(each) for each, row in zip(times, rows, strict=True)]
    return asdict(Errors.of(errors)) | {"within 10%": sum(abs(e) < 0.1 for e in errors) / len(errors)}


def group(row: Row) -> tuple[str, ...]:
    """A task that one would plan: GPUs, batch and model."""
    return tuple(row.given[name] for name in ("gpus", "global_batch", "hidden", "layers", "sequence"))


def halves(rows: Sequence[Row], seed: int = 0) -> tuple[list[Row], list[Row]]:
    """Whole groups in one or the other."""
    groups = sorted({group(row) for row in rows})
    random.Random(seed).shuffle(groups)
    first = {*groups[::2]}
    return [row for row in rows if group(row) in first], [row for row in rows if group(row) not in first]


def from_the_other_half(rows: Sequence[Row], shapes: bool) -> list[float]:
    """Each row's seconds, from the half of the rows that it is not in: many nodes ran but four models."""
    order = random.Random(0).sample(range(len(rows)), len(rows))
    times: dict[int, float] = {}
    for fit, others in ((order[::2], order[1::2]), (order[1::2], order[::2])):
        found = calibrate(BY_HAND, [rows[i] for i in fit], shapes=shapes)
        times |= zip(others, predicted(found, [rows[i] for i in others]), strict=True)
    return [times[i] for i in range(len(rows))]


def regret(times: Sequence[float], rows: Sequence[Row]) -> dict[str, float]:
    """Of groups with several rows: how often the predicted best is the best, and how much longer it takes."""
    groups = defaultdict(list)
    for row, each in zip(rows, times, strict=True):
        groups[group(row)].append((each, row.seconds))
    chosen = [min(some)[1] / min(time for _, time in some) - 1 for some in groups.values() if len(some) > 2]
    best = sum(each == 0 for each in chosen)
    return {"groups": len(chosen), "best found": best, "mean": statistics.mean(chosen), "worst": max(chosen)}


def one_of_each_shape(rows: Sequence[Row], seed: int = 0) -> tuple[list[Row], list[Row]]:
    """So many rows, of every shape of block one first; and the others."""
    shuffled = random.Random(seed).sample(list(rows), len(rows))
    first: dict[tuple, Row] = {}
    for row in shuffled:
        first.setdefault(row.layout.shapes[0], row)
    chosen = [*first.values(), *(row for row in shuffled if row not in first.values())][:SMALL]
    return chosen, [row for row in shuffled if row not in chosen]


def tables() -> dict[str, dict]:
    """The steps of papers and logs, by the numbers set by hand; two groups by one factor, which is said."""
    found = {}
    for make in (*FREE, *ONE_FACTOR):
        steps = list(make())
        errors = [step.priced(gp.pricing.A100).time / step.seconds - 1 for step in steps]
        factor = 1 / (1 + errors[0]) if make in ONE_FACTOR else None  # nobody knows why: published as it is
        rest = [factor * (1 + error) - 1 for error in errors[1:]] if factor else errors
        found[steps[0].group] = asdict(Errors.of(rest)) | {"unexplained factor": factor, "errors": errors}
    return found


def run() -> dict:
    """Everything; printed line by line."""
    results: dict[str, dict] = {}

    def say(name: str, found: dict) -> None:
        results[name] = found
        shown = {key: value for key, value in found.items() if isinstance(value, int | float)}
        print(f"{name:44}" + "  ".join(f"{key} {value:.3g}" for key, value in shown.items()), flush=True)

    one, many = (measured_rows(name) for name in ("one-node", "many-nodes"))
    fit, others = halves(one)
    few, rest = one_of_each_shape(one)
    say("one-node, by hand", off(predicted(BY_HAND, others), others))
    say("many-nodes, by hand", off(predicted(BY_HAND, many), many))
    for shapes in (False, True):
        what = "with shapes" if shapes else "numbers"
        found = calibrate(BY_HAND, fit, shapes=shapes)
        for name, times, rows in (
            ("one-node", predicted(found, others), others),
            ("many-nodes", from_the_other_half(many, shapes), many),
        ):
            say(f"{name}, {what}", off(times, rows))
            say(f"{name}, {what}: plans", regret(times, rows))
    results["ablation"] = ablation(found, fit, others)
    results["rows"] = {"one-node": [*in_seconds(found, others)]}
    say(f"one-node, {SMALL} rows", off(predicted(calibrate(BY_HAND, few), rest), rest))
    for name, found in harder(one, many):
        say(f"harder: {name}", found)
    results["H100, FP8"] = second_hardware()
    for name, table in tables().items():
        say(name, table)
    return results


def in_seconds(found: Calibration, rows: Sequence[Row]) -> Iterator[dict]:
    """Of each row what was measured, what is predicted, and what dominates the step beside the work."""
    for row, by_hand in zip(rows, predicted(BY_HAND, rows), strict=True):
        priced = found.price(row)
        most = max(priced.parts.items() - {("work", priced.parts["work"])}, key=lambda part: part[1])[0]
        times = {"measured": row.seconds, "by hand": by_hand, "with shapes": priced.time}
        yield {name: float(f"{time:.6g}") for name, time in times.items()} | {"most": most}


def second_hardware() -> dict:
    """NVIDIA's own rows of H100s, two of them fitted; printed row by row."""
    steps = list(fp8_steps())
    two = [steps[i] for i in FITTED]
    found = fitted(two)
    errors = {step.name: step.error(*found) for step in steps if step["context"] == 1}
    others = {name: error for name, error in errors.items() if name not in {step.name for step in two}}
    left = [step.name for step in steps if step["context"] > 1]
    for name, error in errors.items():
        print(f"H100, FP8: {name:66}{error:+.1%}{'' if name in others else ' (fitted)'}", flush=True)
    for name in left:
        print(f"H100, FP8: {name:66}not predicted: context parallelism", flush=True)
    print(f"H100, FP8: {Errors.of([*others.values()])}", flush=True)
    numbers = {"linear": found[0].linear, "inside": found[1].inside.bandwidth}
    said = {"fitted": [step.name for step in two], "numbers": numbers, "not predicted": left}
    return asdict(Errors.of([*others.values()])) | {"errors": errors} | said


def harder(one: Sequence[Row], many: Sequence[Row]) -> Iterator[tuple[str, dict]]:
    """Rows unlike those of the fit."""
    yield "shapes of blocks never seen", never_seen(one, lambda row: row.layout.shapes[0], folds=4)
    yield "samples of a microbatch never seen", never_seen(one, lambda row: row.layout.microbatch)
    yield "tensor degrees never seen", never_seen(one, lambda row: row.layout.tensor)
    yield "features never seen", never_seen(one, lambda row: row.given["hidden"])
    alone = [row for row in one if row.layout.schedule.devices == 1]
    piped = [row for row in one if row.layout.schedule.devices > 1]
    yield "pipelines from rows without", off(predicted(calibrate(BY_HAND, alone), piped), piped)
    fit, others = halves(many)
    yield "many nodes, models never seen", off(predicted(calibrate(BY_HAND, fit), others), others)
    yield "many nodes from one node", off(predicted(calibrate(BY_HAND, one), many), many)


def never_seen(rows: Sequence[Row], key: Callable[[Row], Any], folds: int = 8) -> dict[str, float]:
    """Whole values of a key left out, one at a time, or so many parts of them."""
    values = sorted({key(row) for row in rows})
    random.Random(0).shuffle(values)
    errors: list[float] = []
    for fold in range(min(folds, len(values))):
        left = {*values[fold::folds]}
        out = [row for row in rows if key(row) in left]
        others = [row for row in rows if key(row) not in left]
        found = calibrate(BY_HAND, random.Random(0).sample(others, min(MANY, len(others))), shapes=False)
        errors += map(Row.off, out, predicted(found, out))
    return asdict(Errors.of(errors))


def predicted_by_cluster(fit: Sequence[Row], asked: Sequence[Row]) -> list[float]:
    """The seconds of each row, from rows of its own cluster: one node, or many.

    Both have A100s, but one's numbers are not the other's. Rows of a cluster with no row to fit, or too few,
    are predicted from all.
    """
    times = [0.0] * len(asked)
    for many in (False, True):
        chosen = [i for i, row in enumerate(asked) if (row.devices > NODE) == many]
        own = [row for row in fit if (row.devices > NODE) == many]
        if chosen:
            known = own if len(own) >= ENOUGH else fit
            found = calibrate(starting_from(known), known)
            for i, seconds in zip(chosen, predicted(found, [asked[i] for i in chosen]), strict=True):
                times[i] = seconds
    return times


def predict(fit: str | None, rows: str, out: str) -> None:
    """Write the rows with what is predicted for each."""
    asked = read_rows(rows)
    times = predicted_by_cluster(read_rows(fit), asked) if fit else predicted(BY_HAND, asked)
    columns = [*dict.fromkeys([*asked[0].given, "predicted_ms"])] if asked else ["predicted_ms"]
    with open(out, "w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        for row, seconds in zip(asked, times, strict=True):
            writer.writerow({**row.given, "predicted_ms": f"{1000 * seconds:.6g}"})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.measured", description=__doc__.split("\n")[0])
    parser.add_argument("--fit", help="measured rows, CSV")
    parser.add_argument("--predict", help="rows to predict, CSV")
    parser.add_argument("--out", help="where these go with predicted_ms, CSV")
    parser.add_argument("--by-hand", action="store_true", help="fit nothing")
    asked = parser.parse_args()
    if asked.predict:
        if not asked.out or bool(asked.fit) == asked.by_hand:
            parser.error("--predict needs --out, and either --fit FIT.csv or --by-hand")
        predict(asked.fit, asked.predict, asked.out)
    else:
        RESULTS.write_text(json.dumps(run(), indent=1) + "\n")
