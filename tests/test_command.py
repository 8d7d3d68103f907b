"""The command: each answer beside the library's own, its exit status, and what it does with bad questions."""

import io
import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace

import pytest

import gpipe_sim as gp
from gpipe_sim.classroom import notebooks
from gpipe_sim.command import lessons
from gpipe_sim.command.draw import FAMILIES, shown_name
from gpipe_sim.command.main import COMMANDS, main
from gpipe_sim.command.orders import timed
from gpipe_sim.errors import DeadlockError, ScheduleError

ROOT = Path(__file__).parents[1]
NAME = "gpipe-sim"
DEADLOCK = "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n2F1 2B1 2F0 2B0\n"
#: Device 1 receives both microbatches before it works on the first.
EARLY = (
    "rank 0: [0F0, 0SEND_F0, 0F1, 0SEND_F1, 0RECV_B0, 0B0, 0RECV_B1, 0B1]\n"
    "rank 1: [1RECV_F0, 1RECV_F1, 1F0, 1B0, 1SEND_B0, 1F1, 1B1, 1SEND_B1]\n"
)


@pytest.fixture(autouse=True)
def _called_by_its_name(monkeypatch):
    monkeypatch.setattr(sys, "argv", [f"/bin/{NAME}"])


@pytest.fixture
def ask(capsys, monkeypatch, tmp_path):
    """Run the command in a folder of its own: (exit status, stdout, stderr)."""

    def run(*words: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin.encode())))
        capsys.readouterr()
        with chdir(tmp_path):
            try:
                status = main(words)
            except SystemExit as end:
                status = end.code
        return status, *capsys.readouterr()

    return run


def process(*words: str, **options) -> subprocess.CompletedProcess:
    """The same in a process of its own, from the root of the clone."""
    python = [sys.executable, "-m", "gpipe_sim", *words]
    return subprocess.run(python, cwd=ROOT, capture_output=True, text=True, **options)


def written(folder: Path, **texts: str) -> None:
    """``order_txt="0F0 0B0"`` is a file order.txt."""
    for name, text in texts.items():
        (folder / name.replace("_", ".")).write_text(text)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}


def makespan_in(printed: str) -> str:
    return re.search(r"^makespan +(\S+)$", printed, re.M)[1]


# What --help says


def examples(helped: str) -> list[str]:
    return re.findall(rf"^  ({NAME} .*)$", helped.replace("\\\n", " "), re.M)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_example_of_the_help_does_what_it_says(command, ask, tmp_path):
    status, helped, error = ask(command, "--help")
    assert (status, error) == (0, "")
    assert "exit status" in helped and all(len(line) <= 112 for line in helped.splitlines())
    for name, rows in re.findall(r"(\w+\.\w+):\n((?:  .*\n)+)", ask("check", "--help")[1]):
        (tmp_path / name).write_text(rows)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["order.csv", "order.txt", "programs.txt"]
    (tmp_path / "handed-in" / "ann").mkdir(parents=True)
    (tmp_path / "handed-in" / "ann" / "my_pipeline.py").write_text("")
    assert 2 <= len(examples(helped)) <= 5
    for example in examples(helped):
        words, _, file = example.partition(" < ")
        stdin = (tmp_path / file).read_text() if file else ""
        status, printed, error = ask(*shlex.split(words)[1:], stdin=stdin)
        assert (status, error) == (0, ""), example
        assert printed.strip()


def test_help_lists_all_commands_and_no_words_at_all_are_a_question_for_help(ask):
    status, helped, error = ask()
    assert (status, error) == (0, "") and (0, helped, "") == ask("--help")
    assert all(re.search(rf"^    {command}  ", helped, re.M) for command in COMMANDS)
    assert ask("--version") == (0, f"gpipe_sim {gp.__version__}\n", "")


def test_it_calls_itself_as_it_was_called(ask, monkeypatch):
    ran = process("check", "nowhere.txt")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "python -m gpipe_sim check: nowhere.txt: No such file or directory\n"
    monkeypatch.setattr(sys, "argv", ["/lib/gpipe_sim/__main__.py"])
    assert "  python -m gpipe_sim check order.txt\n" in ask("check", "--help")[1]


# draw


def test_draw_prints_the_grid_and_the_numbers(ask):
    status, printed, error = ask("draw", "1F1B", "4", "8")
    assert (status, error) == (0, "")
    grid, numbers = printed.split("\n\n")
    assert grid == str(gp.simulate(gp.OneFOneB(4, 8)))
    assert numbers == (
        "1F1B, 4 devices, 8 microbatches; F takes 1, B 2\n"
        f"makespan   {3 * (8 + 4 - 1)}\n"
        f"bubble     {float(gp.formulas.gpipe_bubble(4, 8)):.1%} of the devices' time is waiting\n"
        "in flight  4, 3, 2, 1: the most microbatches that each device holds\n"
    )


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_a_family_goes_by_the_name_of_its_paper_and_of_its_class_in_any_case(family, ask):
    expected = f"{gp.simulate(family(4, 8))}\n\n"
    names = {family.__name__, shown_name(family), shown_name(family).upper(), shown_name(family).lower()}
    answers = {ask("draw", name, "4", "8") for name in names | {shown_name(family).replace(" ", "-")}}
    [(status, printed, error)] = answers
    assert (status, error) == (0, "") and printed.startswith(expected)


def test_the_beginning_of_a_name_will_do_if_it_is_only_one_s(ask):
    assert ask("draw", "interleaved", "4", "8") == ask("draw", "Interleaved 1F1B", "4", "8")
    assert ask("draw", "chim", "4", "8") == ask("draw", "Chimera", "4", "8")
    for several in ("zb", "v", ""):
        status, printed, error = ask("draw", several, "4", "8")
        assert (status, printed) == (2, "") and "is no family: the families are" in error


def test_times_are_exact_and_a_backward_is_its_two_halves(ask):
    for words, costs in (
        ("--times 0.1 0.3", gp.Costs(0.1, 0.15, 0.15)),
        ("--times 1/3 2/3 1 --comm .5", gp.Costs(1 / 3, 2 / 3, 1, comm=0.5)),
    ):
        printed = ask("draw", "zb-h1", "4", "8", *words.split())[1]
        expected = gp.simulate(gp.ZBH1(4, 8), costs).makespan
        assert float(makespan_in(printed)) == pytest.approx(expected, abs=0.01)
    # (M + K - 1)(F + B) in tenths, each a column: floats that add up to 4.3999999999999995 have no grid
    printed = ask("draw", "GPipe", "4", "8", "--times", "0.1", "0.3")[1]
    assert printed.startswith("time") and makespan_in(printed) == "4.4"


def test_equal_work_is_said_of_several_stages_on_a_device_as_compare_has_it(ask, tmp_path):
    written(tmp_path, zbv_csv=gp.export.to_torch_csv(gp.ZBV(4, 8)))
    [row] = gp.compare([gp.ZBV(4, 8)])
    for words in (["zb-v", "4", "8"], ["zbv.csv"]):
        printed = ask("draw", *words)[1]
        assert makespan_in(printed) == "51"
        assert "in flight  8, 8, 8, 8: the most pairs of stage and microbatch" in printed
        assert f"\nequal work {float(row.makespan)} long, if all 2 stages" in printed
    assert "equal work" not in ask("draw", "DualPipe", "4", "8")[1]  # two copies are no more work
    words = ["interleaved1f1b", "6", "6", "--stages-per-device", "3"]
    assert "6 devices with 3 stages" in ask("draw", *words)[1]


@pytest.mark.parametrize("suffix", ["svg", "pdf", "png"])
def test_a_chart_is_written_as_its_name_says_and_over_an_older_one(suffix, ask, tmp_path):
    chart = tmp_path / f"chart.{suffix}"
    chart.write_text("an older one")
    options = ["--in-flight", "--critical-path", "-o", chart.name]
    status, printed, error = ask("draw", "GPipe", "2", "3", *options)
    assert (status, error) == (0, "")
    assert printed.endswith(f"chart      {chart.name}\n") and "device 0" not in printed
    made = gp.draw(gp.simulate(gp.GPipe(2, 3)), in_flight=True, critical_path=True)
    made.save(tmp_path / f"other.{suffix}")
    assert chart.read_bytes()[:4] == (tmp_path / f"other.{suffix}").read_bytes()[:4]
    if suffix == "svg":
        assert chart.read_text() == str(made)


def test_an_order_that_deadlocks_is_drawn_as_who_waits_for_whom(ask, tmp_path):
    written(tmp_path, order_txt=DEADLOCK)
    status, printed, error = ask("draw", "order.txt", "-o", "hang.svg")
    assert (status, error) == (1, "") and "device 0 is stuck at 0B0" in printed
    drawn = gp.drawing.draw_deadlock(gp.Explicit.parse(DEADLOCK))
    assert (tmp_path / "hang.svg").read_text() == str(drawn)
    status, printed, error = ask("draw", "order.txt")
    assert (status, error) == (1, "") and "device 0 is stuck at 0B0" in printed


# check


@pytest.mark.parametrize("family", gp.SCHEDULES, ids=lambda family: family.__name__)
def test_every_family_is_recognized_in_every_form_of_file(family, ask, tmp_path):
    schedule = family(4, 8)
    programs = gp.device_programs(schedule)
    forms = {"order": schedule, "run": gp.simulate(schedule)}
    written(tmp_path, rows_txt=str(schedule), programs_txt=str(programs))
    written(tmp_path, **{f"{name}_json": gp.export.to_json(thing) for name, thing in forms.items()})
    if sum(map(len, schedule.placement)) == schedule.stages:  # PyTorch's have one copy of a stage
        rows = (",".join(row.partition(": ")[2].split()) for row in str(programs).splitlines())
        written(tmp_path, torch_csv=gp.export.to_torch_csv(schedule), messages_csv="\n".join(rows))
    for path in tmp_path.iterdir():
        status, printed, error = ask("check", path.name)
        assert (status, error) == (0, ""), path
        assert printed.startswith("OK with buffered sends; this is ") and repr(schedule) in printed
        assert float(makespan_in(printed)) == gp.simulate(schedule).makespan
    assert (0, printed, "") == ask("check", "-", stdin=path.read_text())


def test_a_program_takes_the_time_that_its_receives_give_it(ask, tmp_path):
    """Device 1 begins at 2 instead of 1: 2 + 2 (F + B) + B is 10, and the order alone would take 9."""
    written(tmp_path, early_txt=EARLY)
    assert makespan_in(ask("check", "early.txt")[1]) == makespan_in(ask("draw", "early.txt")[1]) == "10"
    assert gp.simulate(gp.device_programs(EARLY).schedule).makespan == 9
    assert makespan_in(ask("draw", "early.txt", "--times", "2", "4")[1]) == "20"


def test_a_send_that_blocks_keeps_its_device_busy():
    """Device 0 sends in 1-2, 3-4, 5-6; device 1 works until 9, 12 and 15 and sends for 1 after each."""
    costs = gp.Costs(comm=1)
    assert timed(gp.GPipe(2, 3), costs).makespan == 14
    assert timed(gp.GPipe(2, 3), costs, "blocking").makespan == 18


def test_no_is_an_answer_in_the_words_of_the_library(ask, tmp_path):
    apart = "0F0 0B0\n1F0 1F1 1B0 1B1\n"
    rows, programs = str(gp.OneFOneB(3, 6)), str(gp.device_programs(gp.OneFOneB(3, 6)))
    written(tmp_path, dead_txt=DEADLOCK, apart_txt=apart, programs_txt=programs, rows_txt=rows)
    for name, sends, order in (
        ("dead.txt", "buffered", gp.Explicit.parse(DEADLOCK)),
        ("apart.txt", "buffered", gp.Explicit.parse(apart)),
        ("programs.txt", "blocking", gp.device_programs(programs)),
        ("rows.txt", "blocking", gp.Explicit.parse(rows)),
    ):
        with pytest.raises(ScheduleError) as wrong:
            gp.check(order, sends)
        assert ask("check", name, "--sends", sends) == (1, f"{wrong.value}\n", ""), name
        assert isinstance(wrong.value, DeadlockError) == (name != "apart.txt")
    assert ask("check", "rows.txt")[0] == ask("check", "programs.txt")[0] == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (bytes(range(256)), "is no text"),
        (b"0F0\x000B0", "is no text"),
        (b"Dear Sir or Madam", "holds no order: 'Dear' is not an action"),
        (b"a,b\n", "holds no order: line 1, cell 1: 'a' is not an action"),
        (b'{"a": 1}', "holds no order: from_json cannot read this text"),
        (gp.export.to_json(gp.Costs()).encode(), "holds no order: it is JSON of Costs, not of a schedule"),
        (b"0F0 0B0\ndevice 7: 1F0 1B0", "holds no order: row 1 is called device 7"),
        (b"99999999F0 0B0", "holds no order"),
        (b"0SEND_F0 0F0 0B0", "holds no order: '0SEND_F0': no row has an action of stage 1"),
    ],
    ids=lambda value: value[:12] if isinstance(value, bytes) else None,
)
def test_a_file_that_holds_no_order_is_refused_in_one_sentence(content, says, ask, tmp_path):
    (tmp_path / "file.txt").write_bytes(content)
    for command in ("check", "draw"):
        status, printed, error = ask(command, "file.txt")
        assert (status, printed) == (2, "") and error.startswith(f"{NAME} {command}: file.txt {says}")
        assert error.count("\n") == 1


def test_what_cannot_be_read_is_named(ask, tmp_path):
    (tmp_path / "folder").mkdir()
    status, printed, error = ask("check", "folder")  # in the words of the system
    assert (status, printed) == (2, "") and re.fullmatch(rf"{NAME} check: folder: [^\n]+\n", error)
    assert ask("check", "none") == (2, "", f"{NAME} check: none: No such file or directory\n")
    assert ask("check", "-", stdin="no")[2].startswith(f"{NAME} check: stdin holds no order")
    written(tmp_path, mark_txt="\ufeff0F0 0B0")
    assert ask("check", "mark.txt")[0] == 0


def test_a_text_without_end_is_not_read_to_its_end(ask, monkeypatch):
    monkeypatch.setattr("gpipe_sim.command.orders.MOST_BYTES", 1000)
    assert "needs at most 1,000 bytes" in ask("check", "-", stdin="0F0 " * 300)[2]


# Questions that are wrong


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("draw", "the following arguments are required"),
        ("draw 1F1B", "a family needs devices and microbatches"),
        ("draw 1F1B 4", "a family needs devices and microbatches"),
        ("draw 1F1Z 4 8", "'1F1Z' is no family: the families are Naive, GPipe, 1F1B,"),
        ("draw nothing", "'nothing' is no file, and no family: the families are"),
        ("draw 1F1B 4 x", "MICROBATCHES has to be a whole number (got 'x')"),
        ("draw 1F1B 0 8", "OneFOneB needs devices >= 1 (got 0)"),
        ("draw DualPipe 3 8", "DualPipe needs an even number of devices (got 3); 4 would work"),
        ("draw GPipe 4 8 --stages-per-device 2", "GPipe takes no --stages-per-device: it always has 1"),
        ("draw order.txt --stages-per-device 2", "--stages-per-device is of a family"),
        ("draw GPipe 999999999 999999999", "GPipe needs at most 10,000,000 pairs"),
        ("draw GPipe 4 8 --times 1", "--times needs two or three numbers, F B or F I W (got 1)"),
        ("draw GPipe 4 8 --times 1 nan", "argument --times: 'nan' is no time"),
        ("draw GPipe 4 8 --times 1 1/0", "argument --times: '1/0' is no time"),
        ("draw GPipe 4 8 --comm 1e999999999", "argument --comm: '1e999999999' is no time"),
        ("draw GPipe 4 8 --in-flight", "--in-flight and --critical-path are of a chart"),
        ("draw GPipe 4 8 -o chart.txt", "save writes what the suffix says: .svg, .pdf or .png"),
        ("draw GPipe 4 8 -o none/chart.svg", "none/chart.svg: No such file or directory"),
        ("check order.txt --sends maybe", "argument --sends: invalid choice: 'maybe'"),
        ("plan --model gpt", "the following arguments are required: --batch, --devices, --flops, --memory"),
        (
            "plan --model gpt {} --heads 2",
            "gpt also needs --blocks, --features, --tokens, --sequence",
        ),
        ("plan --model bert-large {} --heads 2", "bert-large has sizes of its own: --heads"),
        ("plan --model bert-large {} --sequence 513", "bert-large needs --sequence from 1 to 512 (got 513)"),
        ("plan --model bert-large {} --rows 0", "plan needs --rows >= 1 (got 0)"),
        ("plan --model bert-large {} --latency -1", "Link needs latency to be finite and >= 0 (got -1.0)"),
        ("lessons order.txt", "order.txt is no folder"),
        ("lessons order.txt/inside", "lessons: order.txt"),
        ("nonsense", "invalid choice: 'nonsense'"),
        ("--nonsense", "unrecognized arguments: --nonsense"),
    ],
)
def test_a_wrong_question_gets_one_sentence_on_stderr(words, says, ask, tmp_path):
    written(tmp_path, order_txt="0F0 0B0")
    words = words.format("--batch 8 --devices 2 --flops 1e12 --memory 1e9")
    status, printed, error = ask(*words.split())
    assert (status, printed) == (2, "")
    assert says in error and error.startswith(NAME) and error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["order.txt"]


# plan


def test_plan_prints_what_the_library_plans(ask):
    sizes = {"blocks": 4, "features": 64, "heads": 4, "tokens": 100, "sequence": 16}
    words = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    words += shlex.split("--devices 2 --flops 1e12 --memory 1e9 --batch 4 --rows 3")
    words += shlex.split("--latency 1e-6 --bandwidth 1e9")
    texts = gp.MetaArray((4, 16), "i8")
    cluster = gp.Cluster(2, gp.Accelerator(1e12), 1e9, gp.Link(1e-6, 1e9))
    layers = gp.gpt(**sizes, dtype="float16")
    plans = gp.plan(layers, cluster, (texts, texts), gp.cross_entropy, gp.MixedPrecision(gp.Adam()), rows=3)
    assert ask("plan", "--model", "gpt", *words) == (0, f"{plans}\n", "")


def test_a_model_that_fits_nowhere_is_a_no_and_a_warning_is_one_line():
    model = ["--model", "bert-large", "--batch", "1", "--sequence", "128"]
    ran = process("plan", *model, "--devices", "2", "--flops", "312", "--memory", "1e9")
    assert ran.returncode == 1
    assert ran.stdout.startswith("plan finds no plan that fits 2 devices of 1 GB each.")
    assert re.fullmatch(r"python -m gpipe_sim plan: Accelerator has 312 flops [^\n]*\n", ran.stderr)


# lessons


def test_lessons_are_copied_with_the_pictures_and_the_page_that_they_show(ask, tmp_path):
    status, printed, error = ask("lessons", "made/my lessons")
    assert (status, error) == (0, "")
    folder = tmp_path / "made/my lessons"
    home = ROOT / "notebooks"
    originals = [*home.glob("*.ipynb"), *home.glob("exercises/*.ipynb"), *home.glob("exercises/solutions/*")]
    inside = {path.relative_to(home) for path in originals}
    assert {path.relative_to(folder) for path in folder.rglob("*.ipynb")} == inside
    shown = set()
    for original in originals:
        text = (folder / original.relative_to(home)).read_text(encoding="utf-8")
        links = re.findall(r"\]\((?!https?:)([\w./]+\.\w+)(?:#[^)]*)?\)", text)
        assert all((folder / link).exists() for link in links), original.name
        shown |= {link for link in links if link.endswith((".png", ".html"))}
        assert text.replace("](figures/", "](../figures/") == original.read_text(encoding="utf-8")
        assert json.loads(text)["nbformat"] == 4
    assert {f"figures/{path.name}" for path in (folder / "figures").iterdir()} == shown
    assert all((folder / name).read_bytes() == (ROOT / name).read_bytes() for name in shown)
    assert f"{len(originals) + len(shown)} files added, 0 there already, 0 that differ" in printed
    *python, opened = shlex.split(printed.splitlines()[-1])
    assert (python, opened) == ([sys.executable, "-m", "jupyterlab"], "made/my lessons")


def test_a_second_time_adds_what_is_missing_and_leaves_what_differs(ask, tmp_path):
    ask("lessons", ".")
    assert ask("lessons", ".")[0] == 0
    mine, missing, link = (tmp_path / name for name in sorted(os.listdir(tmp_path))[:3])
    mine.write_text("my work")
    missing.unlink()
    link.unlink()
    link.symlink_to(tmp_path / "elsewhere")  # nothing is there, and nothing is written there
    (tmp_path / "my_pipeline.py").write_text("also mine")
    before = contents(tmp_path)
    status, printed, error = ask("lessons", ".")
    assert (status, error) == (1, "")
    assert ": 1 files added, " in printed and ", 2 that differ\n" in printed
    assert re.findall(r"^  (\w+\.ipynb)$", printed, re.M) == [mine.name, link.name]
    assert before.items() <= contents(tmp_path).items()
    assert missing.exists() and not (tmp_path / "elsewhere").exists()


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    with pytest.raises(TypeError):
        lessons.placed(tmp_path / "file", "no bytes")
    assert not (tmp_path / "file").exists()


def test_the_lessons_are_not_copied_onto_themselves(ask):
    status, printed, error = ask("lessons", str(ROOT / "notebooks"))
    assert (status, printed) == (2, "") and error.endswith("is where the lessons are copied from\n")


def test_without_lessons_it_says_where_they_should_be(ask, monkeypatch, tmp_path):
    monkeypatch.setattr(notebooks, "PACKAGE", tmp_path / "gpipe_sim")
    assert "the lessons are not in" in ask("lessons", "there")[2]


def test_jupyter_is_asked_for_where_it_is_missing(ask, monkeypatch):
    monkeypatch.setattr(lessons, "find_spec", lambda name: None)
    assert 'pip install "gpipe_sim[lessons]"' in ask("lessons", "there")[1]


# Pipes and terminals


@pytest.mark.skipif(os.name == "nt", reason="pipes end otherwise there")
def test_a_reader_that_stops_early_changes_nothing():
    python = [sys.executable, "-m", "gpipe_sim", "draw", "GPipe", "100", "100"]
    pipe = subprocess.PIPE
    with subprocess.Popen(python, cwd=ROOT, stdout=pipe, stderr=pipe) as ran:
        assert ran.stdout.readline()
        ran.stdout.close()
        assert (ran.stderr.read(), ran.wait()) == (b"", 0)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is full")
def test_an_answer_that_cannot_be_written_is_told():
    python = [sys.executable, "-m", "gpipe_sim", "draw", "GPipe", "2", "2"]
    with open("/dev/full", "w") as full:
        ran = subprocess.run(python, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
    assert ran.stderr.endswith("the answer cannot be written: No space left on device\n")


def test_a_terminal_of_few_letters_gets_question_marks():
    plain = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ran = process("draw", "GPipe", "2", "2", env=plain)
    assert ran.returncode == 0 and "F1  ?  ?" in ran.stdout
