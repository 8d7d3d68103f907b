"""What ``to_chrome_trace`` writes is read back: the file is made here, in the form that its module states."""

import json

import pytest

import gpipe_sim as gp


def event(ph, name, device, ms, **more):
    return {"ph": ph, "name": name, "pid": device, "tid": 0, "ts": round(ms * 1000, 3), **more}


def written(steps):
    """As in a file: each step after the other, times exact in ``args``, messages as arrows."""
    events, at = [], 0.0
    for number, step in enumerate(steps):
        for device in range(step.schedule.devices):
            mark = event(
                "X", f"ProfilerStep#{number}", device, at, cat="user_annotation", dur=step.makespan * 1000
            )
            events += [mark, event("C", "in flight", device, at, args={"microbatches": 1})]
            for span in step.on(device):
                more = {"cat": "user_annotation", "args": {"start": span.start, "end": span.end}}
                dur = round((span.end - span.start) * 1000, 3)
                events.append(event("X", f"PP:{span.action}", device, at + span.start, dur=dur, **more))
        for each in step.messages:
            more = {"cat": "message", "args": {"sent": each.start, "arrived": each.end}}
            events.append(
                event("s", f"{each.action} to device {each.target}", each.source, at + each.start, **more)
            )
        at += step.makespan + 0.001
    told = [{"schedule": repr(s.schedule), "began": s.began, "notes": list(s.notes)} for s in steps]
    return {"distributedInfo": {"world_size": 2}, "gpipe_sim": {"steps": told}, "traceEvents": events}


FAMILIES = (gp.OneFOneB(2, 4), gp.ZBV(2, 4), gp.families.DualPipeV(2, 4))


@pytest.mark.parametrize("schedule", FAMILIES, ids=repr)
def test_spans_and_messages_come_back_exactly(tmp_path, schedule):
    steps = [gp.simulate(schedule, gp.Costs(cost, 0.2, 0.3, comm=0.05)) for cost in (0.1, 7)]
    (tmp_path / "run.json").write_text(json.dumps(written(steps)))
    found = gp.read_trace(tmp_path / "run.json")
    assert [step.rows for step in found] == [step.rows for step in steps]
    assert [step.messages for step in found] == [step.messages for step in steps]
    assert {repr(step.schedule) for step in found} == {repr(schedule)}


def test_notes_and_the_time_when_it_began_come_back(tmp_path):
    data = written([gp.simulate(gp.GPipe(2, 2))])
    data["gpipe_sim"]["steps"][0] |= {"began": 1.5e12, "notes": ["measured by hand"]}
    (tmp_path / "run.json").write_text(json.dumps(data))
    [step] = gp.read_trace(tmp_path)
    assert step.began == 1.5e12 and step.notes == ("measured by hand",)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda data: data["traceEvents"].pop(2), "0F0"),
        (lambda data: data["traceEvents"][2].update(name="PP:0X0"), "'0X0' is not an action"),
        (lambda data: data["traceEvents"][2]["args"].update(start=None), "start to be a time"),
        (lambda data: data["traceEvents"][2].update(pid="x"), "pid to be a whole number"),
        (lambda data: data["traceEvents"][0].update(name="no mark"), "no ProfilerStep#0"),
        (lambda data: data["gpipe_sim"].update(steps=[3]), "'run.json'"),
        (lambda data: data.update(traceEvents=None), "'run.json'"),
    ],
)
def test_a_broken_file_says_where(tmp_path, spoil, said):
    data = written([gp.simulate(gp.Explicit(["0F0 0B0"]))])
    spoil(data)
    (tmp_path / "run.json").write_text(json.dumps(data))
    with pytest.raises(ValueError) as error:
        gp.read_trace(tmp_path / "run.json")
    assert said in str(error.value) and "run.json" in str(error.value)
