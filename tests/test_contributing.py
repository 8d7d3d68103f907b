"""The recipes of CONTRIBUTING.md, all of them followed to the letter in one copy of the project."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest

import gpipe_sim as gp

ROOT = Path(__file__).parents[1]
SECTION = re.compile(r"^## (An? .*?)\n(.*?)(?=^## |\Z)", re.M | re.S)
RECIPES = dict(SECTION.findall((ROOT / "CONTRIBUTING.md").read_text()))


class Block(NamedTuple):
    """Code of a recipe, and the file that the sentence before it names, if it does."""

    file: str | None
    language: str
    code: str


def blocks(recipe: str) -> Iterator[Block]:
    for before, language, code in re.findall(r"([^\n]*)\n\n```(\w+)\n(.*?)```", RECIPES[recipe], re.S):
        named = re.findall(r"`([\w/]+\.pyi?)`", before)
        yield Block(named[-1] if named else None, language, code)


def applied(diff: str, text: str) -> str:
    """A text after each hunk of a diff, whose place in it must be the only one like that."""
    for hunk in diff.split("@@\n"):
        old, new = (lines_with(marks, hunk) for marks in (" -", " +"))
        places = [found.start() for found in re.finditer(rf"^(?={re.escape(old)})", text, re.M)]
        assert len(places) == 1, f"found {len(places)} times in the file: {old}"
        text = text[: places[0]] + new + text[places[0] + len(old) :]
    return text


def lines_with(marks: str, hunk: str) -> str:
    return "".join(f"{line[1:]}\n" for line in hunk.splitlines() if line[0] in marks)


def follow(recipe: str, copy: Path) -> None:
    """Write each block where its recipe says."""
    for file, language, code in blocks(recipe):
        path = copy / file
        if language == "python":
            assert not path.exists()
        path.write_text(code if language == "python" else applied(code, path.read_text()))


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """What a contributor has, without what was built, after following every recipe."""
    copy = tmp_path_factory.mktemp("copy")
    for folder in ("gpipe_sim", "figures", "tests"):
        shutil.copytree(ROOT / folder, copy / folder)
    shutil.copy(ROOT / "pyproject.toml", copy)
    for recipe in set(RECIPES) - {"A cost model"}:  # which is in no file
        follow(recipe, copy)
    return copy


def python(copy: Path, *arguments: str) -> subprocess.CompletedProcess:
    """Run Python in the copy, so that it imports what stands there."""
    path = os.pathsep.join([str(copy), os.environ.get("PYTHONPATH", "")])
    there = os.environ | {"PYTHONPATH": path, "MPLBACKEND": "Agg", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run([sys.executable, *arguments], cwd=copy, env=there, capture_output=True, text=True)


def printed(copy: Path, code: str) -> list[str]:
    """The lines that a program prints in the copy."""
    ran = python(copy, "-c", dedent(code))
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


LAWS = "core/test_laws.py", "test_layers.py", "test_palette.py"
NEW = "Patient1F1B or Softsign or (test_palette and (differ or alike or read))"


def judged(copy: Path) -> dict[str, str]:
    """What pytest says in the copy of each test that runs over something new: PASSED, FAILED or ERROR."""
    files = [f"tests/{file}" for file in LAWS]
    options = "-q", "--tb=no", "-rA", "-p", "no:cacheprovider", "-k", NEW
    ran = python(copy, "-m", "pytest", *options, *files)
    found = re.findall(r"^(PASSED|FAILED|ERROR) tests/([^ ]+)", ran.stdout, re.M)
    return {test: outcome for outcome, test in found}


@pytest.fixture(scope="module")
def laws(copy) -> dict[str, str]:
    return judged(copy)


#: A gradient that is wrong, and a colour that is taken: by recomputes.
WRONG = {
    "core/layers.py": ("dy / (1 + np.abs(saved)) ** 2, None", "dy, None"),
    "drawing/palette.py": ("#AD5B00", "#7FA650"),
}


@pytest.fixture(scope="module")
def laws_where_it_is_wrong(copy, laws) -> dict[str, str]:
    right = {copy / "gpipe_sim" / file: (copy / "gpipe_sim" / file).read_text() for file in WRONG}
    for path, (good, bad) in zip(right, WRONG.values(), strict=True):
        assert good in right[path]
        path.write_text(right[path].replace(good, bad))
    found = judged(copy)
    for path, text in right.items():
        path.write_text(text)
    return found


def outcomes(laws: dict[str, str], of_what: str) -> set[str]:
    return {outcome for test, outcome in laws.items() if of_what in test}


def test_there_is_a_recipe_for_each_and_its_blocks_are_short():
    assert list(RECIPES) == [
        "A schedule",
        "A layer",
        "A cost model",
        "A check of an exercise",
        "A figure",
        "A colour",
    ]
    for recipe in RECIPES:
        lengths = [block.code.count("\n") for block in blocks(recipe)]
        assert RECIPES[recipe].count("```") == 2 * len(lengths) > 0  # none is overlooked
        assert max(lengths) <= 15


def test_a_schedule(copy, laws):
    lines = printed(
        copy,
        """
        import gpipe_sim as gp

        schedule, batch = gp.families.Patient1F1B(3, 4), [array[:12] for array in gp.digits()[:2]]
        gp.check(schedule)
        print(schedule)
        print("Patient1F1B" in gp.families.__all__, gp.families.Patient1F1B in gp.SCHEDULES)
        for comm in (0, 1):
            kinds = gp.OneFOneB(4, 16), gp.families.Patient1F1B(4, 16)
            print(*(gp.simulate(kind, gp.Costs(comm=comm)).makespan for kind in kinds))
        print(gp.peak_in_flight(gp.families.Patient1F1B(4, 16)))
        layers = gp.mlp([64, 32, 32, 10])
        step = gp.train_step(gp.split(layers, stages=3), schedule, batch, gp.cross_entropy)
        alone = gp.single_device_step(layers, batch, gp.cross_entropy)
        print(all(abs(step.gradients[key] - alone.gradients[key]).max() < 1e-12 for key in alone.gradients))
        how = {"loss": gp.cross_entropy, "optimizer": gp.Adam(1e-2), "epochs": 1, "batch_size": 64}
        learnt = gp.train(gp.split(layers, stages=3), schedule, gp.digits(), report=None, **how)
        print(learnt.losses[-1] < learnt.losses[0] / 2)
        again = gp.export.from_torch_csv(gp.export.to_torch_csv(schedule))
        print(gp.simulate(gp.remat(schedule, "always")).makespan, again.actions == schedule.actions)
        """,
    )
    assert lines[:3] == [
        "device 0: 0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3",
        "device 1: 1F0 1F1 1F2 1B0 1F3 1B1 1B2 1B3",
        "device 2: 2F0 2F1 2B0 2F2 2B1 2F3 2B2 2B3",
    ]
    assert lines[3:] == ["True True", "57 57", "85 83", "(5, 4, 3, 2)", "True", "True", "22 True"]
    assert outcomes(laws, "Patient1F1B") == {"PASSED"}


def test_a_layer(copy, laws):
    lines = printed(
        copy,
        """
        import numpy as np
        import gpipe_sim as gp

        print(gp.core.Softsign(), gp.core.Softsign in gp.core.LAYERS, "Softsign" in dir(gp.core))
        print(gp.core.Softsign().forward(np.array([[-3.0, 0.0, 1.0]]), gp.core.Context())[0])
        rng = np.random.default_rng(0)
        layers = [gp.core.Linear(64, 32, rng=rng), gp.core.Softsign(), gp.core.Linear(32, 10, rng=rng)]
        how = {"loss": gp.cross_entropy, "optimizer": gp.Adam(1e-2), "epochs": 3, "batch_size": 64}
        learnt = gp.train(gp.split(layers, stages=3), gp.OneFOneB(3, 4), gp.digits(), report=None, **how)
        print(learnt.accuracies[-1] > 0.9)
        """,
    )
    assert lines == ["Softsign() True True", "[[-0.75  0.    0.5 ]]", "True"]
    assert outcomes(laws, "Softsign") == {"PASSED"}


def test_the_laws_find_a_layer_whose_gradient_is_wrong(laws_where_it_is_wrong):
    assert "FAILED" in outcomes(laws_where_it_is_wrong, "Softsign")


def test_a_layer_on_pytorch(copy):
    pytest.importorskip("torch")
    assert printed(
        copy,
        """
        import numpy as np, torch
        import gpipe_sim as gp

        x = np.random.default_rng(0).normal(size=(4, 3))
        [module] = gp.torch_backend.to_torch([gp.core.Softsign()])
        expected, _ = gp.core.Softsign().forward(x, gp.core.Context())
        print(module, abs(module(torch.tensor(x)).numpy() - expected).max() < 1e-15)
        """,
    ) == ["Softsign() True"]


def test_a_cost_model():
    [(_, _, code)] = blocks("A cost model")
    exec(code, names := {"__name__": "recipe"})
    timeline = gp.simulate(gp.Naive(devices=2), names["OneSlowDevice"]())
    spans = [(str(span.action), span.start, span.end) for span in timeline.spans]
    assert spans == [("0F0", 0, 1), ("1F0", 1, 3), ("1B0", 3, 7), ("0B0", 8, 10)]


def test_a_check_of_an_exercise(copy):
    assert printed(
        copy,
        """
        import gpipe_sim as gp

        for mine in (None, lambda k: k, lambda k: k + 1, lambda k: 1 // (3 - k), 7):
            print(gp.course.lesson_X.first_start(mine))
        print([gp.simulate(gp.GPipe(8, 2)).on(k)[0].start for k in (0, 3, 6)])
        """,
    ) == [
        "your turn: write a function of k and pass it in",
        "correct: device k waits for one forward on each device before it",
        "keep working: you say that device 0 starts at 1. Which forwards come before?",
        "keep working: called with (3) it stopped: ZeroDivisionError: integer division or modulo by zero. "
        "What is zero there?",
        "keep working: pass in a function, not 7",
        "[0, 3, 6]",
    ]


def test_a_figure(copy):
    built = python(copy, "-m", "figures", "warm_up")
    assert "wrote warm_up.json and warm_up.png" in built.stdout, built.stderr
    assert json.loads((copy / "figures/warm_up.json").read_text()) == {
        "devices": [1, 2, 4, 8],
        "held": [1, 2, 4, 8],
    }
    assert (copy / "figures/warm_up.png").read_bytes()[:4] == b"\x89PNG"
    lines = printed(
        copy,
        """
        from pathlib import Path
        from figures.__main__ import main

        print(main(["warm_up"]), main(["--check", "warm_up"]))
        Path("figures/warm_up.json").write_text('{"devices": [1, 2, 4, 8], "held": [1, 2, 4, 9]}')
        print(main(["--check", "warm_up"]))
        """,
    )
    assert "nothing new" in lines[1] and lines[4] == "0 0" and lines[-1] == "1"


def test_a_colour(copy, laws):
    draw = """
        import gpipe_sim as gp
        from matplotlib.colors import to_hex

        timeline = gp.simulate(gp.Explicit(["0F0 0B0 0U0"]), gp.Costs(update=1))
        svg = gp.drawing.to_svg(timeline)
        boxes = gp.plots.plot_timeline(timeline).collections
        colours = [to_hex(colour) for colour in boxes[3].get_facecolors()]
        print(svg.lower().count("#ad5b00") > 1, "<pattern" in svg, *colours, boxes[-1].get_hatch())
        """
    assert printed(copy, draw) == ["True True #ad5b00 ...."]
    assert outcomes(laws, "test_palette") == {"PASSED"}


def test_the_laws_find_a_colour_that_is_taken(laws_where_it_is_wrong):
    found = laws_where_it_is_wrong
    failed = [test for test, outcome in found.items() if "palette" in test and outcome == "FAILED"]
    assert len(failed) == 1 and "differ_in_grey_by" in failed[0]


def test_a_diff_that_does_not_fit_is_found():
    assert applied(" a\n+b\n-c\n", "\na\nc\n") == "\na\nb\n"
    for text in ("\na\n", "\na\nc\na\nc\n"):
        with pytest.raises(AssertionError, match=r"found [02] times"):
            applied(" a\n+b\n-c\n", text)
