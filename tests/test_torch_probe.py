"""The probe's rows are read back, and the step that it times is the one that its row says."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("scipy")

from torch.nn import functional  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import gpipe_sim as gp  # noqa: E402
from benchmarks.measured import flops, starting_from  # noqa: E402
from benchmarks.probe import Asked, Step, checked, milliseconds, options, others, probed, run, written  # noqa: E402
from gpipe_sim.pricing.rows import read_rows  # noqa: E402

SMALL = "--device cpu --hidden 16 32 --sequence 8 --microbatch 1 2 --layers 1 3 --microbatches 2 --head 8"


@pytest.fixture(autouse=True)
def one_thread():
    """As the probe has it: several wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def asked(path, more=""):
    return options([str(path), *SMALL.split(), "--vocabulary", "50", "--rounds", "1", *more.split()])


def test_what_was_measured_is_read_back_as_it_was_asked_for(tmp_path):
    found = run(asked(tmp_path / "rows.csv"))
    rows = read_rows(tmp_path / "rows.csv")
    shapes = {(samples, 8, hidden, 1) for hidden in (16, 32) for samples in (1, 2)}
    assert {shape for row in rows for shape in row.layout.shapes} == shapes
    assert sorted(int(row.given["layers"]) for row in rows) == [1] * 4 + [3] * 4
    assert all(row.time > 0 and row.layout.schedule == gp.OneFOneB(1, 2) for row in rows)
    assert found == {}  # of one round nobody knows the noise


@pytest.mark.parametrize("how", ["", "--recompute none", "--dtype bfloat16"])
def test_a_step_has_the_weights_and_the_flops_of_its_row(tmp_path, how):
    """Torch counts no attention on a CPU: two products forward and again, and five backward, as in tiles."""
    rows = written(tmp_path / "rows.csv", probed(given := asked(tmp_path, how)), given)
    for row in rows[:2]:
        step = Step(row, "cpu")
        assert sum(one.numel() for one in step.modules.parameters()) == sum(row.layout.weights)
        with FlopCounterMode(display=False) as counter:
            step()
        size, hidden, layers = (int(row.given[name]) for name in ("global_batch", "hidden", "layers"))
        product = 2 * size * 8 * 8 * hidden * layers  # the scores of all heads
        again = 0 if how == "--recompute none" else 2
        assert flops(row) == counter.get_total_flops() + (2 + again + 5) * product


def test_a_step_trains_by_the_gradient_of_its_whole_batch(tmp_path):
    given = asked(tmp_path)
    step = Step(written(tmp_path / "rows.csv", probed(given), given)[-1], "cpu")
    x, y = step.batch
    outputs = x
    for module in step.modules:
        outputs = module(outputs)
    loss = functional.cross_entropy(outputs.flatten(0, 1), y.flatten())
    plain = torch.cat([each.flatten() for each in torch.autograd.grad(loss, [*step.modules.parameters()])])
    before = step.weights.clone()
    step()
    assert torch.allclose(step.gradients, plain, rtol=1e-4, atol=1e-7)
    moved = step.weights - before
    assert torch.allclose(moved, -1e-4 * plain / (plain.abs() + 1e-8), atol=1e-6)  # Adam's first step


def test_a_card_of_other_numbers_is_found_from_its_rows_alone(tmp_path):
    """Times made by numbers that are no A100's: 20 others, half of them of other shapes, come back."""
    given = options([str(tmp_path / "rows.csv"), "--device", "cpu", "--sequence", "64"])
    truth = gp.Accelerator(
        9e10, hbm=2e10, launch=1.2e-5, exposed=0.8, vocabulary=7e10, microbatch=2e-4, step=5e-4
    )
    known = probed(given)
    new = others(given, known)
    assert len(new) == 20 and not {*new} & {*known}
    made = []
    for rows in (known, new):
        rows = written(tmp_path / "rows.csv", rows, given)
        made.append([replace(r, time=r.priced(gp.Cluster(1, truth, 1e9)).time) for r in rows])
    assert starting_from(made[0]).accelerator.flops < 2 * truth.flops
    found = checked(*made)["all"]
    assert found.worst < 0.02 and found.mean < 0.005, "what few rows tell stays near what was stated"


BAD = {
    "--hidden 100": "--hidden [100] have to be multiples of --head 64",
    "--layers 2 0": "argument --layers: '0' is no whole number above 0",
    "--device cuda:99": "cpu or cuda devices that are here (got 'cuda:99')",
    "--dtype float64": "invalid choice: 'float64'",
}


def test_the_page_asks_for_what_there_is():
    page = (Path(__file__).parents[1] / "docs/howto/own_card.md").read_text()
    [words] = re.findall(r"^python -m benchmarks.probe (.*)$", page, re.M)
    given = options([*words.split(), "--device", "cpu"])
    assert given.check and (len(probed(given)), len(others(given, probed(given)))) == (36, 20)
    assert "36 rows and 20 others" in page
    assert all(f"--{name}`" in page for name in vars(given).keys() & {*Asked._fields})


def test_rows_of_two_cards_and_a_size_that_has_no_whole_heads_are_refused(tmp_path, capsys):
    given = asked(tmp_path)
    rows = written(tmp_path / "rows.csv", probed(given), given)
    other = replace(rows[0], given={**rows[0].given, "card": "another"})
    with pytest.raises(ValueError, match=r"of one card \(got CPU, another"):
        starting_from([*rows, other])
    for words, says in (
        ("--hidden 100", "multiples of --head"),
        ("--device cuda:99", "cuda devices that are"),
    ):
        with pytest.raises(SystemExit):
            options(["rows.csv", "--device", "cpu", *words.split()])
        assert says in capsys.readouterr().err


def test_a_gpu_is_timed_between_two_events_after_what_was_started_before(monkeypatch):
    """Without a GPU: a stand-in says in which order it was called."""
    said: list[str] = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            said.append("record")

        def elapsed_time(self, end):
            return 12.5

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: said.append("wait"))
    assert milliseconds(lambda: said.append("step"), "cuda:0") == 12.5
    assert said == ["wait", "record", "step", "record", "wait"]
