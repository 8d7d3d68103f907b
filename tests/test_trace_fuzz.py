"""A hundred spoiled traces: each is refused in words, or read to a timeline that is whole."""

import json
import random

import numpy as np
import pytest
from traced import document, truths

import gpipe_sim as gp

NAMES = ("dualpipev", "interleaved_zero_bubble", "1f1b_bare")
VALUES = (
    None,
    True,
    -1,
    0,
    0.5,
    10**30,
    1e300,
    "",
    "PP:0F0",
    "PP:(0F0;1B0)OVERLAP_F_B",
    "Forward 0",
    [],
    {},
    [[]],
    {"a": 1},
)
RAW = (b"NaN", b"Infinity", b"-", b"[", b"}", b'"', b"\x00", b"\xff", b"9" * 400)


def spoil_event(random_, data):
    """One field of one event, or of the head, becomes something else, or goes."""
    event = random_.choice([*random_.choices(data["traceEvents"], k=8), data, data["distributedInfo"]])
    field = random_.choice([*event, "name"])
    if random_.random() < 0.2:
        event.pop(field, None)
    else:
        event[field] = random_.choice(VALUES)


def spoil_all(random_, data):
    """A tenth of all events goes, comes twice, changes its name with others, or is moved."""
    events = data.get("traceEvents")
    for event in random_.sample(events, len(events) // 10):
        how = random_.randrange(4)
        if how == 0:
            events.remove(event)
        elif how == 1:
            events.append(dict(event))
        elif how == 2:
            event["name"] = random_.choice(events).get("name")
        elif "ts" in event:
            event["ts"] += random_.uniform(-1e5, 1e5)


def spoil_bytes(random_, text):
    """Bytes change, go, or are cut off."""
    found = bytearray(text.encode())
    for _ in range(random_.randrange(1, 4)):
        at = random_.randrange(len(found))
        found[at : at + random_.randrange(3)] = random_.choice(RAW)
    return bytes(found[: random_.randrange(1, len(found))] if random_.random() < 0.3 else found)


def spoiled(random_, text):
    if random_.random() < 0.3:
        return spoil_bytes(random_, text)
    data = json.loads(text)
    spoil = random_.choice([spoil_event, spoil_event, spoil_all])
    for _ in range(1 if spoil is spoil_all else random_.randrange(1, 6)):
        if not isinstance(data.get("traceEvents"), list) or not isinstance(data.get("distributedInfo"), dict):
            break
        spoil(random_, data)
    return json.dumps(data).encode()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("part", (1, 5, 9))
def test_a_spoiled_trace_is_refused_in_words_or_is_a_timeline(name, part, tmp_path):
    """These parts of ten meet every refusal that the ten do."""
    random_, read = random.Random(f"{name} {part}"), 0
    for _ in range(12):
        for rank in range(2):
            text = document(name, rank)
            (tmp_path / f"rank{rank}.json").write_bytes(
                spoiled(random_, text) if rank == 0 else text.encode()
            )
        try:
            steps = gp.read_trace(tmp_path)
        except ValueError as error:
            assert len(str(error)) > 40 and "read_trace" in str(error), error
            continue
        read += 1
        assert 1 <= len(steps) <= len(truths(name)) + 1
        for step in steps:
            assert gp.problems(step.schedule) == [] and step.notes
            assert np.isfinite([*step.start, *step.end]).all() and step.start.min() == 0
            assert (step.end >= step.start).all() and step.makespan < 1e5
            assert {span.action for span in step.spans} == truths(name)[0].times.keys()
    assert read < 12
