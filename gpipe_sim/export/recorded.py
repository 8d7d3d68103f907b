"""Steps that were measured once and then stored, because measured times differ from run to run.

A lesson can draw them and print their numbers without torch. ``python -m benchmarks.record`` measures them
again.
"""

import json
from functools import cache
from importlib.resources import files

from gpipe_sim import families
from gpipe_sim.core.actions import Action
from gpipe_sim.core.timeline import Span, Timeline
from gpipe_sim.errors import one_of
from gpipe_sim.export.spans import from_spans

FILE = files("gpipe_sim") / "data" / "recorded.json"


def recorded_run(name: str = "1f1b") -> Timeline:
    """A measured step, in milliseconds from its first start; ``recorded_where()`` says on what machine.

    >>> timeline = gp.export.recorded_run("1f1b")
    >>> timeline.schedule
    OneFOneB(devices=4, microbatches=8)
    >>> round(timeline.makespan), f"{gp.bubble_fraction(timeline):.3f}"
    (683, '0.285')

    ``"1f1b"``, ``"zbh1"`` and ``"gpipe16"`` have four stages that sleep for 20 ms in F, I and W each.
    ``"narrow"`` and ``"wide"`` are 12 Linear + ReLU on two processes, ``"narrow_alone"`` and ``"wide_alone"``
    the same on one. ValueError for any other name.
    """
    runs = _stored()["runs"]
    run = runs[one_of("recorded_run", "name", name, runs)]
    family, devices, microbatches = run["schedule"]
    schedule = getattr(families, family)(devices, microbatches)
    actions = {text: Action.parse(text) for text in run["spans"]}
    spans = (Span(actions[at], schedule.device_of(actions[at]), *times) for at, times in run["spans"].items())
    return from_spans(schedule, spans)


def recorded_where() -> str:
    """On what machine, with which torch, and when the runs were recorded."""
    return _stored()["where"]


@cache
def _stored() -> dict:
    return json.loads(FILE.read_text())
