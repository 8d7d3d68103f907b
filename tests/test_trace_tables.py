"""Tables of measured spans, as CSV or JSON, come in by the same door as traces."""

import json

import pytest
from cases import overlapped

import gpipe_sim as gp

SCHEDULE = gp.Interleaved1F1B(2, 4, 2)


def table(timeline, step="", header="rank,stage,kind,microbatch,start,end", begin=0):
    more = f",{step}" if step != "" else ""
    lines = [header + (",step" if more else "")]
    for span in timeline.spans:
        stage, kind, microbatch = span.action
        lines.append(
            f"{span.device},{stage},{kind},{microbatch},{span.start + begin},{span.end + begin}{more}"
        )
    return "\n".join(lines) + "\n"


def refuses(path, said):
    with pytest.raises(ValueError, match=said):
        gp.read_trace(path)


@pytest.mark.parametrize(
    "schedule", [SCHEDULE, gp.ZBH1(3, 4), gp.families.DualPipeV(2, 4), overlapped(3, 4)], ids=repr
)
def test_what_to_csv_writes_is_read_back(tmp_path, schedule):
    whole = gp.simulate(schedule, gp.Costs(0.5, 1, 2))
    (tmp_path / "spans.csv").write_text(gp.export.to_csv(whole))
    [step] = gp.read_trace(tmp_path / "spans.csv")
    assert step.rows == whole.rows
    assert step.schedule == schedule or gp.export.recognize(schedule).startswith("this is yours")
    assert step.measured and "step 0 of measured spans" in step.notes


@pytest.mark.parametrize("numbers", ["3", "2.5", "1/3"])
def test_numbers_stay_what_they_are(tmp_path, numbers):
    from fractions import Fraction

    cost = {"3": 3, "2.5": 2.5, "1/3": Fraction(1, 3)}[numbers]
    whole = gp.simulate(gp.GPipe(2, 2), gp.Costs(cost, cost, cost))
    (tmp_path / "spans.csv").write_text(gp.export.to_csv(whole))
    [step] = gp.read_trace(tmp_path)
    assert step.rows == whole.rows and {type(span.end) for span in step.spans} <= {int, type(cost)}


def test_a_file_for_each_rank_and_two_steps(tmp_path):
    whole = gp.simulate(SCHEDULE, gp.Costs(1.5, 1.5, 1.5, comm=0.25))
    text = table(whole, 10, begin=1000) + table(whole, 9).split("\n", 1)[1]
    head, *lines = text.splitlines()
    for rank in range(2):
        own = [line for line in lines if line.startswith(f"{rank},")]
        (tmp_path / f"{rank}.csv").write_text("\n".join([head, *own]))
    steps = gp.read_trace(tmp_path)
    assert [step.began for step in steps] == [0, 1000] and [step.notes[0][:7] for step in steps] == [
        "step 9 ",
        "step 10",
    ]
    assert steps[0].spans == whole.spans and repr(steps[0].schedule) == repr(SCHEDULE)
    assert steps[0].messages == ()


@pytest.mark.parametrize("wrapped", [False, True])
def test_json_is_a_list_of_objects(tmp_path, wrapped):
    whole = gp.simulate(SCHEDULE, gp.Costs(1.5, 1.5, 1.5))
    names = ("rank", "stage", "kind", "microbatch", "start", "end")
    rows = [dict(zip(names, (s.device, *s.action, s.start, s.end), strict=True)) for s in whole.spans]
    (tmp_path / "spans.json").write_text(json.dumps({"spans": rows} if wrapped else rows))
    assert gp.read_trace(tmp_path / "spans.json")[0].spans == whole.spans


def test_clocks_of_tables_are_aligned_too(tmp_path):
    """Device 1's clock is 100 ms ahead: no action can start before what it needs has ended."""
    whole = gp.simulate(gp.OneFOneB(2, 4), gp.Costs(10.0, 10.0, 10.0, comm=0.5))
    lines = table(whole).splitlines()
    for at, line in enumerate(lines):
        if line.startswith("1,"):
            cells = line.split(",")
            lines[at] = ",".join([*cells[:4], *(str(float(time) + 20) for time in cells[4:])])
    (tmp_path / "spans.csv").write_text("\n".join(lines))
    [step] = gp.read_trace(tmp_path)
    assert [span.start for span in step.on(1)] == pytest.approx([span.start for span in whole.on(1)])
    assert "rank 1 -20.00" in "\n".join(step.notes)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (
            lambda t: t.replace("\n1,1,F,0,", "\n1,1,G,0,"),
            "span [0-9]+ of 'spans.csv': '1G0' is not an action",
        ),
        (lambda t: t.replace("\n1,1,F,0,", "\n-1,1,F,0,"), "rank to be a whole number"),
        (lambda t: t.replace("\n1,1,F,0,", "\n1,,F,0,"), "stage to be a whole number"),
        (lambda t: t.replace("\n1,1,F,0,", "\n1,99999999999,F,0,"), "stage to be a whole number"),
        (lambda t: t.replace("\n1,1,F,0,1,", "\n1,1,F,0,nan,"), "start to be finite"),
        (lambda t: t.replace("\n1,1,F,0,1,", "\n1,1,F,0,1/0,"), "start to be a time"),
        (lambda t: t.replace("\n1,1,F,0,1,", "\n1,1,F,0,soon,"), "start to be a time"),
        (lambda t: t.replace("\n1,1,F,0,1,", "\n1,1,F,0,1e999,"), "start to be finite"),
        (lambda t: t.replace("\n1,1,F,0,1,", "\n1,1,F,0,7,"), "ends at 2, before it starts at 7"),
        (lambda t: t.replace("\n1,1,F,0,1,2", ""), "no step that is whole.*1F0"),
        (lambda t: t + t.splitlines()[1] + "\n", "twice in a step: add a column"),
        (lambda t: t.replace("\n1,", "\n2,"), "no span of rank 1, and one of rank 2"),
        (lambda t: t.replace("\n1,1,F,0,1,", "\n1,1,F,0,1,4,4,4"), "not every line has all columns"),
        (lambda t: t.splitlines()[0], "no span in 'spans.csv'"),
        (lambda t: t.replace("microbatch", "m"), "neither a trace"),
    ],
)
def test_a_broken_table_says_where(tmp_path, edit, said):
    whole = table(gp.simulate(gp.OneFOneB(2, 2)))
    (tmp_path / "spans.csv").write_text(edit(whole))
    refuses(tmp_path / "spans.csv", said)
