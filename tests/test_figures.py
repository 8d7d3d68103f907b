"""The committed figures: their numbers come out again, and the pictures show these numbers and no others."""

import copy
import json
import os
import struct
from fractions import Fraction

import matplotlib.text
import numpy as np
import pytest
from drawn import bubble, committed, in_axes
from matplotlib.image import imread, imsave

import gpipe_sim as gp
from figures import _store, remat_memory, training_loss
from figures.__main__ import DPI, main
from figures._exact import plain
from figures._page import WIDTH
from figures._store import NAMES, differences, file, folder, module, read, to_text
from gpipe_sim import Kind, formulas
from gpipe_sim.drawing.palette import KINDS
from gpipe_sim.drawing.plots.gantt import STRIP_FILL
from gpipe_sim.drawing.plots.style import LABEL_SIZE

#: makespan, bubble, peaks in flight: the numbers that the issue and the lessons name.
GANTT = {
    "gantt_naive": (12, Fraction(3, 4), [1, 1, 1, 1]),
    "gantt_gpipe": (33, Fraction(3, 11), [8, 8, 8, 8]),
    "gantt_1f1b": (33, Fraction(3, 11), [4, 3, 2, 1]),
    "gantt_interleaved": (28.5, Fraction(3, 19), [11, 9, 7, 5]),
    "gantt_gpipe_remat": (41, Fraction(9, 41), [8, 8, 8, 8]),
}


def test_every_figure_has_its_picture_and_its_numbers_and_nothing_is_left_over():
    for kind in ("png", "json"):
        assert sorted(path.stem for path in folder.glob(f"*.{kind}")) == sorted(NAMES)
    assert {
        *GANTT,
        "bubble_curves",
        "efficiency",
        "remat_memory",
        "summary",
        "training_loss",
        "zero_bubble_table",
        "zoo",
    } == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_numbers_come_out_again(name):
    assert differences(module(name).data(), read(name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_as_wide_as_a_readme_needs(name):
    header = file(name, "png").read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", header[16:])[0] == WIDTH * DPI == 1350


@pytest.mark.parametrize("name", NAMES)
def test_text_is_large_enough_inside_the_sheet_and_apart(name, drawn_texts):
    figure = committed(name)
    extents = drawn_texts(figure)
    sheet = figure.bbox
    assert len(extents) >= 12
    for text, box in extents:
        assert text.get_fontsize() >= LABEL_SIZE == 9  # at 9 inches for 900 pixels, 12.5 pixels high
        assert sheet.x0 <= box.x0 and box.x1 <= sheet.x1 and sheet.y0 <= box.y0 and box.y1 <= sheet.y1
    left, bottom, right, top = np.array([box.extents for _, box in extents]).T[:, :, None]
    overlap = (left < right.T) & (right > left.T) & (bottom < top.T) & (top > bottom.T)
    pairs = [(extents[i][0].get_text(), extents[j][0].get_text()) for i, j in np.argwhere(overlap) if i < j]
    assert pairs == []


@pytest.mark.parametrize("name", GANTT)
def test_a_gantt_chart_says_the_numbers_of_its_schedule(name):
    makespan, share, peaks = GANTT[name]
    data = read(name)
    assert data["makespan"] == makespan
    assert Fraction(*data["bubble"]) == share
    assert data["peak_in_flight"] == peaks
    chart, strips = committed(name).axes
    assert f"makespan {makespan}, bubble {share} = {float(share):.1%}" in chart.get_title("left")
    assert [text.get_text() for text in strips.texts] == [str(peak) for peak in peaks]
    assert (chart.get_xlim(), strips.get_xlim()) == ((0, makespan), (0, makespan))
    assert [ax.get_xlabel() for ax in (chart, strips)] == ["", "time"]


@pytest.mark.parametrize("name", GANTT)
def test_a_gantt_chart_draws_the_spans_of_its_numbers(name):
    data = read(name)
    drawn = in_axes(committed(name).axes[0])
    assert sorted([box.device, box.start, box.end] for box in drawn) == sorted(
        span[:3] for span in data["spans"]
    )
    assert bubble(drawn) == Fraction(*data["bubble"])


@pytest.mark.parametrize("name", GANTT)
def test_strips_reach_the_peaks_on_one_scale(name):
    data = read(name)
    full = data["microbatches"] * len(data["placement"][0])
    strips = committed(name).axes[1].collections
    tops = [strip.get_paths()[0].vertices[:, 1].min() for strip in strips]
    assert tops == pytest.approx(
        [k + 1 - STRIP_FILL * p / full for k, p in enumerate(data["peak_in_flight"])]
    )


def test_a_picture_is_drawn_from_its_numbers_alone():
    data = read("gantt_naive")
    data["spans"][-1] = [3, 5, 7, "3B0"]
    data |= {"makespan": 99, "bubble": [1, 2]}
    chart = module("gantt_naive").draw(data).axes[0]
    assert (3, 5.0, 7.0) in {(box.device, box.start, box.end) for box in in_axes(chart)}
    assert chart.get_title("left") == "Naive, 4 devices: makespan 99, bubble 1/2 = 50.0%"


def test_a_time_that_json_cannot_hold_is_refused():
    assert [plain(time) for time in (3, Fraction(57, 2), 2.0)] == [3, 28.5, 2]
    with pytest.raises(ValueError, match=r"exact in JSON \(got 1/3\)"):
        plain(Fraction(1, 3))


def test_bubbles_equal_the_formula():
    data = read("bubble_curves")
    assert data["devices"] == [2, 4, 8, 16]
    assert (data["microbatches"][0], data["microbatches"][-1]) == (1, 64)
    for k, row in zip(data["devices"], data["bubble"], strict=True):
        assert [Fraction(*pair) for pair in row] == [
            formulas.gpipe_bubble(k, m) for m in data["microbatches"]
        ]


def test_at_four_times_as_many_microbatches_11_to_19_percent_are_left():
    ax = committed("bubble_curves").axes[0]
    assert [text.get_text() for text in ax.texts] == ["11.1%", "15.8%", "17.9%", "19.0%"]
    assert marks(ax, "K = 16")[-1] == (64, 15 / 79)
    assert len(marks(ax, "K = 2")) == 12


def test_efficiencies_equal_the_formula():
    data = read("efficiency")
    for m, row in zip(data["microbatches"], data["efficiency"], strict=True):
        assert [Fraction(*pair) for pair in row] == [Fraction(m, k - 1 + m) for k in data["devices"]]
    ax = committed("efficiency").axes[0]
    assert marks(ax, "M = 8")[-1] == (16, 8 / 23)


def test_bytes_measured_are_the_bytes_predicted():
    data = read("remat_memory")
    for mode in data["modes"]:
        for k in map(str, data["devices"]):
            assert [sum(held) for held in data["measured"][mode][k]] == data["predicted"][mode][k]
            assert len(data["predicted"][mode][k]) == int(k)


def test_recompute_keeps_boundary_inputs_and_one_working_set():
    data = read("remat_memory")
    boundary, rest = data["measured"]["never"]["4"][0]
    assert data["measured"]["always"]["4"][0] == [boundary, rest // 8]
    assert data["measured"]["except_last"] == data["measured"]["always"]  # saved is time, not memory
    assert [data["makespan"][mode]["4"] for mode in ("never", "except_last", "always")] == [33, 40, 41]
    assert boundary == 256 * 64 * 8  # the whole batch crosses every boundary: samples, features, bytes


def test_the_memory_of_every_device_is_drawn_under_its_prediction():
    data = read("remat_memory")
    left, right = committed("remat_memory").axes
    bars = [(bar.get_x() + bar.get_width() / 2, bar.get_y() + bar.get_height()) for bar in left.patches]
    lines = {tuple(line.get_xdata()): line.get_ydata()[0] for line in left.lines}
    tops = {x: max(top for at, top in bars if at == x) for x, _ in bars}
    predicted = [at for mode in data["modes"] for at in data["predicted"][mode]["4"]]
    assert [tops[x] for x in sorted(tops)] == [lines[ends] for ends in sorted(lines)] == predicted
    assert all(start < x < end for x, (start, end) in zip(sorted(tops), sorted(lines), strict=True))
    assert left.get_ylim()[0] == right.get_ylim()[0] == 0
    fullest = [(k, max(data["predicted"]["always"][str(k)])) for k in data["devices"]]
    assert marks(right, "always") == marks(right, "except_last") == fullest


def test_every_schedule_learns_and_learns_the_same():
    data = read("training_loss")
    curves = training_loss.losses(data)
    assert list(curves) == ["one device", "naive", "GPipe", "1F1B", "interleaved"]
    assert min(data["accuracy"].values()) > 0.94
    assert max(training_loss.apart(curves).values()) < 1e-12
    alone = curves.pop("one device")
    assert len(alone) == 15 * (1437 // 64)
    assert alone[0] > 2.3 > 0.1 > sum(alone[-22:]) / 22  # from guessing among ten classes
    assert {len(curve) for curve in curves.values()} == {len(alone)}


def test_losses_are_drawn_as_they_are():
    data = read("training_loss")
    above, below = committed("training_loss").axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in above.lines}
    assert drawn == data["losses"]
    assert f"held-out accuracy {min(data['accuracy'].values()):.1%}" in above.get_title("left")
    worst = max(training_loss.apart(training_loss.losses(data)).values())
    assert max(max(line.get_ydata()) for line in below.lines) == pytest.approx(worst * 1e15)
    assert f"{worst:.1e}" in below.get_title("left")


def test_the_zero_bubble_table_comes_out_to_every_printed_digit():
    data = read("zero_bubble_table")
    assert data["settings"][0] == ["1.5B", 8, 24] and len(data["settings"]) == 6
    for name in ("1F1B", "ZB-H1", "ZB-H2"):
        assert data["simulated"][name] == data["published"][name]
    assert data["simulated"]["interleaved"] == [0.1090, 0.0847, 0.0461, 0.1136, 0.0878, 0.0459]
    assert data["k_messages_fewer"] == data["published"]["interleaved"]


def test_the_zero_bubble_table_draws_rings_and_marks_and_what_lies_between():
    data = read("zero_bubble_table")
    rates, apart = committed("zero_bubble_table").axes
    for name, simulated in data["simulated"].items():
        assert [y for _, y in marks(rates, name)] == simulated
    rings = [line.get_ydata().tolist() for line in rates.lines if line.get_markerfacecolor() == "none"]
    assert sorted(rings) == sorted([[], *data["published"].values()])
    assert [bar.get_height() for bar in apart.patches] == [35, 29, 18, 32, 26, 14]
    assert sorted(max(line.get_ydata()) for line in apart.lines) == [0, 0, 0, 35]


def test_differences_are_summed_up_in_words():
    curves = {"one device": [1.0, 2.0], "a": [1.0, 2.0], "b": [1.0, 2.25], "c": [1.0, 2.0]}
    assert (
        training_loss._apart_in_words(curves) == "Loss minus one device's: b at most 2.5e-01; a, c exactly 0"
    )


def test_the_summary_draws_the_four_figures():
    data = read("summary")
    assert set(data) == {"training_loss", "bubble_curves", "remat_memory", "efficiency"}
    for name, numbers in data.items():
        assert differences(numbers, read(name)) == []
    loss, white, memory, share = committed("summary").axes
    assert [len(ax.get_legend().texts) for ax in (loss, white, memory, share)] == [5, 5, 3, 5]
    assert marks(white, "K = 4") == marks(committed("bubble_curves").axes[0], "K = 4")
    assert marks(share, "M = 4") == marks(committed("efficiency").axes[0], "M = 4")
    assert marks(memory, "never") == marks(committed("remat_memory").axes[1], "never")
    assert list(loss.lines[0].get_ydata()) == read("training_loss")["losses"]["one device"]


def test_a_changed_number_is_found_and_named():
    data = read("gantt_gpipe")
    wrong = copy.deepcopy(data)
    wrong["spans"][3][2] += 1
    assert differences(data, wrong) == [
        f"spans[3][2]: {data['spans'][3][2]}, committed {wrong['spans'][3][2]}"
    ]
    assert differences(data, {**data, "makespan": 33.0}) == ["makespan: 33, committed 33.0"]
    assert differences({**data, "new": 1}, data) == ["new: only in the fresh numbers"]
    assert differences({}, {"old": 1}) == ["old: only in the committed numbers"]
    assert differences({"a": [1]}, {"a": [1, 2]}) == ["a: [1], committed [1, 2]"]
    assert differences(data, None)


def test_only_what_states_a_tolerance_may_differ_and_only_so_far():
    fresh = {"losses": {"a": [1.0, 2.0]}, "other": 1.0, "tolerance": {"losses": 0.25}}
    near, far = copy.deepcopy(fresh), copy.deepcopy(fresh)
    near["losses"]["a"][1], far["losses"]["a"][1] = 2.2, 2.3
    assert differences(fresh, near) == []
    assert differences({"inner": fresh}, {"inner": near}) == []
    assert differences(fresh, far) == ["losses.a[1]: 2.0, committed 2.3, tolerance 0.25"]
    assert differences(fresh, {**fresh, "other": 1.1}) == ["other: 1.0, committed 1.1"]
    assert differences(fresh, {**fresh, "tolerance": {"losses": 9.0}})
    assert differences({"n": float("1e-30"), "tolerance": {"n": 1.0}}, {"n": None, "tolerance": {"n": 1.0}})


def test_losses_have_a_tolerance_and_schedules_none():
    stated = {name: read(name).get("tolerance") for name in NAMES}
    assert {name: tolerance for name, tolerance in stated.items() if tolerance} == {
        "training_loss": training_loss.TOLERANCE
    }


def test_json_has_a_line_for_each_list_of_plain_values():
    text = to_text({"b": [[1, 2], ["[y]"]], "a": {"c": 0.5, "d": []}})
    assert text == '{\n "a": {\n  "c": 0.5,\n  "d": []\n },\n "b": [\n  [1, 2],\n  [\n   "[y]"\n  ]\n ]\n}\n'
    for name in NAMES:
        assert file(name, "json").read_text() == to_text(json.loads(file(name, "json").read_text()))
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_text([float("nan")])


def test_building_writes_the_committed_numbers_and_a_picture(elsewhere, capsys):
    assert main(["efficiency", "gantt_1f1b"]) == 0
    for name in ("efficiency", "gantt_1f1b"):
        assert (elsewhere / f"{name}.json").read_bytes() == (folder / f"{name}.json").read_bytes()
        assert (elsewhere / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    assert len(list(elsewhere.iterdir())) == 4
    assert capsys.readouterr().out.splitlines()[::2] == ["efficiency", "gantt_1f1b"]


def test_what_came_out_the_same_is_not_written_again(elsewhere, capsys):
    main(["gantt_naive"])
    assert "wrote gantt_naive.json and gantt_naive.png" in capsys.readouterr().out
    assert written(elsewhere, "gantt_naive") == set()
    assert "nothing new" in capsys.readouterr().out


def test_last_digits_of_another_processor_are_not_written(elsewhere):
    here = read_from(folder, "training_loss")
    here["losses"]["GPipe"][100] += 0.9 * training_loss.TOLERANCE["losses"]
    (elsewhere / "training_loss.json").write_text(to_text(here))
    assert written(elsewhere, "training_loss") == {"training_loss.png"}  # there was none
    assert written(elsewhere, "training_loss") == set()
    here["losses"]["GPipe"][100] += 0.2 * training_loss.TOLERANCE["losses"]
    (elsewhere / "training_loss.json").write_text(to_text(here))
    assert written(elsewhere, "training_loss") == {"training_loss.json", "training_loss.png"}
    assert (elsewhere / "training_loss.json").read_text() == to_text(training_loss.data())


def test_the_last_digit_of_a_schedule_is_written(elsewhere):
    main(["gantt_interleaved"])
    off = read_from(elsewhere, "gantt_interleaved")
    off["spans"][0][2] += 1e-15
    (elsewhere / "gantt_interleaved.json").write_text(to_text(off))
    assert written(elsewhere, "gantt_interleaved") == {
        "gantt_interleaved.json"
    }  # nobody sees it in the image


def test_an_image_is_drawn_again_if_the_code_that_draws_it_changed(elsewhere, monkeypatch):
    main(["gantt_naive"])
    monkeypatch.setitem(KINDS, Kind.F, KINDS[Kind.F]._replace(colour="#0072B4"))
    assert written(elsewhere, "gantt_naive") == set()  # two levels of blue
    monkeypatch.setitem(KINDS, Kind.F, KINDS[Kind.F]._replace(colour="#0072B5"))
    assert written(elsewhere, "gantt_naive") == {"gantt_naive.png"}
    monkeypatch.setattr("figures._page.WIDTH", 8)
    assert written(elsewhere, "gantt_naive") == {"gantt_naive.png"}


def test_an_image_that_another_machine_compressed_is_the_same_image(elsewhere):
    main(["gantt_naive"])
    path = elsewhere / "gantt_naive.png"
    before = path.read_bytes()
    imsave(path, imread(path), dpi=DPI)
    assert path.read_bytes() != before
    assert written(elsewhere, "gantt_naive") == set()


def written(place, name) -> set[str]:
    """The files that building a figure writes, new ones too."""
    past = {path: os.utime(path, ns=(0, 0)) for path in place.iterdir()}
    assert main([name]) == 0
    return {path.name for path in place.iterdir() if path not in past or path.stat().st_mtime_ns}


def test_a_check_says_what_differs_and_writes_nothing(elsewhere, capsys):
    wrong = read_from(folder, "efficiency")
    wrong["efficiency"][0][0] = [1, 2]
    (elsewhere / "efficiency.json").write_text(to_text(wrong))
    (elsewhere / "gantt_1f1b.json").write_bytes((folder / "gantt_1f1b.json").read_bytes())
    before = {path: path.read_bytes() for path in elsewhere.iterdir()}
    assert main(["--check", "gantt_1f1b"]) == 0
    assert "as in figures/gantt_1f1b.json" in capsys.readouterr().out
    assert main(["--check", "efficiency", "gantt_1f1b"]) == 1
    said = capsys.readouterr().out
    assert "DIFFERS efficiency[0][0][1]: 1, committed 2" in said
    assert "as in figures/gantt_1f1b.json" in said
    assert main(["--check", "bubble_curves"]) == 1  # never built
    assert {path: path.read_bytes() for path in elsewhere.iterdir()} == before


def test_many_differences_are_counted_not_listed(elsewhere, capsys):
    wrong = read_from(folder, "gantt_1f1b")
    wrong["spans"] = [[device, start + 1, end + 1, action] for device, start, end, action in wrong["spans"]]
    (elsewhere / "gantt_1f1b.json").write_text(to_text(wrong))
    assert main(["--check", "gantt_1f1b"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert sum("DIFFERS" in line for line in said) == 10
    assert "  ... and 118 more" in said


def test_an_unknown_figure_is_refused_with_those_there_are(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["gantt_zb"])
    assert stopped.value.code == 2
    assert f"no figure gantt_zb; there are {', '.join(NAMES)}" in " ".join(capsys.readouterr().err.split())


def test_training_shows_its_progress(monkeypatch, capsys):
    monkeypatch.setattr(training_loss, "EPOCHS", 2)
    monkeypatch.setattr(training_loss, "SCHEDULES", {"1F1B": gp.OneFOneB(4, 8)})
    training_loss.data.__wrapped__()
    alone, pipelined = capsys.readouterr().out.splitlines()
    assert alone.startswith("  one device   .. epoch 2/2  loss 1.")
    assert pipelined.removeprefix("  1F1B         .. ") == alone.removeprefix("  one device   .. ")


def test_the_prediction_of_bytes_follows_from_shapes():
    layers = gp.mlp([64, 64, 64, 10])  # Linear, ReLU, Linear, ReLU, Linear
    first, last = gp.split(layers, balance=[3, 2])
    boundary, relu, loss = 32 * 64 * 8, 32 * 64 * 8, 32 * (10 + 1) * 8
    assert remat_memory.predicted(first, "never", last=False) == 8 * (boundary + relu)
    assert remat_memory.predicted(first, "always", last=False) == 8 * boundary + relu
    assert remat_memory.predicted(last, "always", last=True) == 8 * boundary + relu + loss


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Figures are read and written here, not in the repository."""
    monkeypatch.setattr(_store, "folder", tmp_path)
    return tmp_path


@pytest.fixture
def drawn_texts(monkeypatch):
    """Draw a figure; the texts that left ink, each with its extent in pixels."""

    def draw(figure):
        seen, paint = {}, matplotlib.text.Text.draw

        def record(text, renderer):
            if text.get_visible() and text.get_text().strip():
                seen[id(text)] = text
            paint(text, renderer)

        with monkeypatch.context() as patch:
            patch.setattr(matplotlib.text.Text, "draw", record)
            figure.draw_without_rendering()
        return [(text, text.get_window_extent()) for text in seen.values()]

    return draw


def read_from(place, name):
    return json.loads((place / f"{name}.json").read_text())


def marks(ax, label):
    """The points of the row of marks with this name."""
    [line] = [line for line in ax.lines if line.get_label() == label]
    return list(map(tuple, line.get_xydata().tolist()))
