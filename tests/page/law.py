"""What the page shows of a chart, beside what the library says of it: not a bit may differ."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from random import Random
from unittest.mock import patch

from doubles import as_doubles, links_as_doubles
from driver import Json, Opened

import gpipe_sim as gp
from gpipe_sim.core import Schedule, Timeline
from gpipe_sim.memory import prediction
from gpipe_sim.memory.profile import Profile
from gpipe_sim.streams.updates import updates_of
from gpipe_sim.viewer.shown import of_schedule, of_timeline
from gpipe_sim.viewer.sizes import sizes_of
from gpipe_sim.why import idle_spans, in_flight, why_idle

Facts = dict[str, Json]


@dataclass(frozen=True, eq=False)
class Case:
    """A chart: a schedule with what it costs, or a timeline."""

    what: Schedule | Timeline
    costs: gp.Costs | None = None
    links: gp.Link | gp.Nodes | dict | None = None
    message_bytes: Json = None
    profile: Profile | None = None

    @cached_property
    def record(self) -> Json:
        """As the page is given it."""
        if isinstance(self.what, Timeline):
            return of_timeline(self.what)
        sizes = self.profile and sizes_of(self.profile)
        return of_schedule(self.what, self.costs, self.links, self.message_bytes, sizes, None)

    @cached_property
    def timeline(self) -> Timeline:
        """Python's, in doubles."""
        if isinstance(self.what, Timeline):
            return self.what
        links, sizes = links_as_doubles(self.links), self.message_bytes
        if sizes is not None:
            sizes = [*map(float, sizes)] if isinstance(sizes, list) else float(sizes)
        costs = as_doubles(self.costs or gp.Costs())
        if links is None:
            return gp.simulate(self.what, costs)
        return gp.simulate(self.what, costs, links=links, message_bytes=sizes, profile=self.profile)

    @cached_property
    def facts(self) -> Facts:
        timeline = self.timeline
        spans = [(str(s.action), float(s.start), float(s.end)) for row in timeline.rows for s in row]
        messages = {
            (str(m.action), m.source, m.target): (float(m.start), float(m.end)) for m in timeline.messages
        }
        devices = range(timeline.schedule.devices)
        return {
            "rows": [[str(action) for action in row] for row in timeline.schedule.actions],
            "times": sorted(spans),
            "messages": messages,
            "makespan": float(timeline.makespan),
            "peak": [max(count for _, count in in_flight(timeline, device)) for device in devices],
            "bytes": self.bytes,
        }

    @cached_property
    def bytes(self) -> list[int] | None:
        """The most that each device holds where an action ends, over this very timeline.

        The page does not count older weights: where updates are on the way, it says so and shows none.
        """
        if self.profile is None or updates_of(self.what.program).before.any():
            return None
        with patch.object(prediction, "simulate_once", lambda *_: self.timeline):
            return [trace.peak() for trace in gp.predict_memory(self.what, self.profile)]

    def asked(self, random: Random) -> tuple[int, float]:
        """A device and a time: in a wait or where it begins, if it waits; else any, or an end."""
        device = random.randrange(self.timeline.schedule.devices)
        gaps, until = idle_spans(self.timeline, device), float(self.timeline.makespan)
        if gaps and random.random() < 0.8:
            start, end = map(float, random.choice(gaps))
            return device, random.choice([start, start + (end - start) * random.random()])
        return device, random.choice([0.0, until, until * random.random()])


def shown(state: Json, chart: int) -> Facts:
    """What the page says of one of its charts, in the same form."""
    rows: list[list[str]] = [[] for _ in state["charts"][chart]["schedule"]["placement"]]
    for device, text, *_ in state["times"][chart]:
        rows[device].append(text)
    return {
        "rows": rows,
        "times": sorted((text, start, end) for _, text, start, end in state["times"][chart]),
        "messages": {
            (text, source, target): (sent, arrived)
            for text, source, target, sent, arrived in state["messages"][chart]
            if sent is not None  # of a measured timeline nobody knows
        },
        "makespan": state["makespan"][chart],
        "peak": state["peak"][chart],
        "bytes": state["bytes"][chart],
    }


def differences(opened: Opened, cases: list[Case], seed: int = 0, asks: int = 1) -> Iterator[str]:
    """In sentences, each thing in which the page differs: two charts at a time, each asked so often."""
    random, loads = Random(seed), []
    for pair in zip(cases[::2], [*cases[1::2], cases[0]], strict=False):
        records = [case.record for case in pair]
        for asked in [*range(len(pair))] * asks:
            device, time = pair[asked].asked(random)
            loads.append((pair[asked], {"charts": records, "at": 0, "ask": [asked, device, time]}))
    states = opened.states([load for _, load in loads])
    for (case, load), state in zip(loads, states, strict=True):
        asked, device, time = load["ask"]
        if "refused" in state:
            yield f"{case} is refused: {state['refused']}"
            continue
        found = shown(state, asked)
        for name, wanted in case.facts.items():
            if found[name] != wanted:
                yield f"{name} of {case}: {first_apart(found[name], wanted)}"
        sentence, said = why_idle(case.timeline, device, time).sentence, state["sentence"]
        if said != sentence and not (" is busy with " in sentence and said.startswith(f"{sentence}: ")):
            yield f"asked for device {device} at {time} of {case}: {said!r}, not {sentence!r}"


def first_apart(found: Json, wanted: Json) -> str:
    """Of two lists or tables, the first thing that differs."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        found, wanted = sorted(found.items()), sorted(wanted.items())
    if isinstance(wanted, list) and isinstance(found, list) and len(found) == len(wanted):
        found, wanted = next((a, b) for a, b in zip(found, wanted, strict=True) if a != b)
    return f"{str(found)[:300]} in the page, {str(wanted)[:300]} in Python"
