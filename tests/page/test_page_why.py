"""The page explains and counts as the library does: waits, critical paths, and what devices hold."""

import json
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import chain, pairwise
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from cases import every_order, every_schedule
from doubles import as_doubles, links_as_doubles
from engine_cases import EXPLICIT
from measured import measured

import gpipe_sim as gp
from gpipe_sim.core import Layer, ReLU, Schedule, Span, Timeline
from gpipe_sim.core.costs import UNIT
from gpipe_sim.core.deadlock import waiting
from gpipe_sim.core.memory import CATEGORIES
from gpipe_sim.core.timeline import number
from gpipe_sim.export.spans import from_spans
from gpipe_sim.families import VHalf
from gpipe_sim.links import shared_wire
from gpipe_sim.links.collective import Collective
from gpipe_sim.memory.meter import InsideMeter
from gpipe_sim.memory.prediction import devices_on_paper
from gpipe_sim.memory.profile import Profile
from gpipe_sim.transformers import Dropout, Embedding, PaddingMask, Residual, TransformerBlock
from gpipe_sim.viewer.shown import of_schedule, of_timeline
from gpipe_sim.viewer.sizes import sizes_of
from gpipe_sim.why import critical_path, in_flight, why_idle

NODE = """
import { readFileSync } from "node:fs";
import { lower, readEntry, simulate } from "./clock.js";
import { criticalPath, givenTimeline, inOrder, number, why } from "./why.js";
import { bytesHeld, heldAt, inFlight, messageBytes, whyNoBytes } from "./memory.js";

function answer({ record, rows, asked }) {
  const { schedule, costs, links, message_bytes, sizes, times } = record;
  const program = lower({ ...schedule, rows: rows.map((row) => row.map(readEntry)) });
  const bytesOf = sizes ? messageBytes(sizes, program) : () => message_bytes ?? 0;
  const timeline = times ? givenTimeline(program, times) : simulate(program, costs, links, bytesOf);
  const steps = inFlight(timeline), held = sizes ? bytesHeld(timeline, sizes) : null;
  return {
    said: asked.map(([device, time]) => why(timeline, device, time)),
    path: criticalPath(timeline),
    ways: program.messages.map(({ part, target }) => [part, target]),
    stuck: [...timeline.stuck.keys()].map((device) => why(timeline, device, timeline.makespan).sentence),
    messageBytes: sizes && sizes.stages.length === program.stages ? program.messages.map(bytesOf) : null,
    ends: inOrder(timeline),
    steps,
    held,
    peaks: steps.map(({ counts }) => Math.max(...counts)),
    bytePeaks: held && held.map(({ total }) => Math.max(...total)),
    at: asked.map(([device, time]) => [steps[device].counts[heldAt(steps[device], time)],
      held && held[device].total[heldAt(held[device], time)]]),
    noBytes: sizes && whyNoBytes(program, sizes),
  };
}
const { cases, numbers } = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify({ answers: cases.map(answer), numbers: numbers.map(number) }));
"""


@dataclass(frozen=True, eq=False)
class Case:
    """A schedule with what it costs, or a timeline; and a model, if its bytes are counted."""

    what: Schedule | Timeline
    costs: gp.Costs = UNIT
    links: Any = None
    message_bytes: Any = None
    profile: Profile | None = None

    @cached_property
    def timeline(self) -> Timeline:
        if isinstance(self.what, Timeline):
            return self.what
        links = links_as_doubles(self.links)
        sizes = {} if links is None else {"message_bytes": self.message_bytes}
        profile = self.profile if sizes.get("message_bytes") is None and links is not None else None
        return gp.simulate(self.what, as_doubles(self.costs), links=links, profile=profile, **sizes)

    @cached_property
    def asked(self) -> list[tuple[int, float]]:
        """Each device, at each start and end, and in the middle between any two of them."""
        found = []
        for device, row in enumerate(self.timeline.rows):
            times = sorted(
                {0.0, float(self.timeline.makespan), *(float(t) for span in row for t in span[2:])}
            )
            middles = [(a + b) / 2 for a, b in pairwise(times)]
            found += [(device, time) for time in (*times, *middles)]
        return found

    @property
    def profile_bytes(self) -> dict:
        """The bytes of each message, as the profile says, by what is sent and to which device."""
        schedule = self.timeline.schedule
        sizes = self.profile.message_bytes(schedule)
        by_need = zip(schedule.program.ways, sizes.index.tolist(), strict=True)
        return {way[::2]: sizes.values[i] for way, i in by_need}

    @property
    def sent(self) -> dict[str, Any]:
        """What node is given."""
        if isinstance(self.what, Timeline):
            record = of_timeline(self.what) | {"sizes": self.profile and sizes_of(self.profile)}
        else:
            sizes = self.profile and sizes_of(self.profile)
            record = of_schedule(self.what, self.costs, self.links, self.message_bytes, sizes, None)
        return {"record": record, "rows": rows_of(self.timeline.schedule), "asked": self.asked}

    def __repr__(self) -> str:
        return f"{self.what!r} {self.costs} {self.links}"


def sent_bytes(case: "Case", answer: dict) -> dict:
    """The bytes of each message, by what is sent and to which device."""
    ways = [(case.timeline.schedule.program.action_of(part), target) for part, target in answer["ways"]]
    return dict(zip(ways, answer["messageBytes"], strict=True))


def rows_of(schedule: Schedule) -> list[list[str]]:
    return [[str(action) for action in row] for row in schedule.actions]


FLOATS = gp.Costs(0.1, 0.3, 0.2, comm=0.7)
UNEVEN = gp.Costs(1.25, 1.1, 0.9, comm=0.3, update=0.4, overhead=0.05)
SLOW = gp.Link(latency=0.5, bandwidth=0.7)
PLANS = (UNIT, FLOATS, gp.Costs(update=1, recompute=2.5), UNEVEN)


def under_costs() -> Iterator[Case]:
    for i, schedule in enumerate(every_order([(1, 1), (2, 1), (2, 3), (3, 4), (4, 6)])):
        yield Case(schedule, PLANS[i % 4])
    for schedule in EXPLICIT.values():
        yield from (Case(schedule, UNEVEN), Case(gp.remat(schedule, "always"), FLOATS))


def on_links() -> Iterator[Case]:
    nodes = gp.Nodes(2, inside=gp.Link(latency=0.1), between=gp.Link(latency=0.3, bandwidth=1.5))
    for schedule in every_order([(3, 5)]):
        yield from (Case(schedule, UNEVEN, SLOW, 1), Case(schedule, UNIT, nodes, 3))


def given() -> Iterator[Case]:
    """Times that only Python makes: measured, on one wire, sent and received by the devices, and summed."""
    for seed, schedule in enumerate(every_schedule([(3, 4)])):
        yield Case(measured(schedule, seed=seed))
        yield Case(gp.simulate(schedule, as_doubles(UNEVEN), links=SLOW, message_bytes=1.0, overlap=False))
        yield Case(shared_wire.simulate_shared(schedule, SLOW, as_doubles(UNEVEN), message_bytes=1.0))
        random = Random(seed)
        late = [sorted(random.choices(range(40), k=len(row))) for row in schedule.actions]
        spans = [
            Span(action, device, float(start), float(start + 3))
            for device, row in enumerate(schedule.actions)
            for action, start in zip(row, late[device], strict=True)
        ]
        yield Case(from_spans(schedule, spans))  # of a clock that is wrong: spans overlap, needs come late
        for part in (1, 2):  # every message, or one in two, the others assumed
            messages = gp.simulate(schedule, as_doubles(UNEVEN), links=SLOW, message_bytes=1.0)
            stretched = [span._replace(start=2 * span.start + 1, end=2 * span.end) for span in messages.spans]
            seen = [each._replace(start=2 * each.start, end=2 * each.end) for each in messages.messages]
            yield Case(from_spans(schedule, stretched, messages=seen[::part]))
    for base in (gp.OneFOneB(2, 4), gp.GPipe(3, 6), VHalf(2, 6), gp.Interleaved1F1B(2, 4)):
        for steps in (gp.replicate(base, 2), gp.with_updates(gp.replicate(base, 2))):
            timeline = gp.simulate(steps, as_doubles(UNEVEN))
            for size, buckets, clip in ((3, 1, False), (2.5, 3, True), (0, 2, True), (0, 1, False)):
                link = gp.Link(latency=0.25, bandwidth=1.5)
                yield Case(gp.all_reduce(timeline, size, links=link, buckets=buckets, clip=clip))
                yield Case(
                    gp.all_reduce(timeline, size, links=gp.Link(bandwidth=2), buckets=buckets, clip=clip)
                )


class MaskTwice(Layer):
    """Lets the mask travel along twice: one array under two names."""

    carries = True

    def outline(self, x, ctx):
        return (*x, x[1]), None

    def outline_input(self, saved, dy):
        return dy, None

    forward, backward_input = outline, outline_input


@cache
def profiled(stages: int, samples: int, kind: str) -> Profile:
    """Of a model whose stages pass arrays on as they are: one layer each, or Transformers behind a mask."""
    rng, drop = np.random.default_rng(0), partial(Dropout, 0.5)
    if kind == "layers":
        make = (
            ReLU,
            drop,
            lambda: gp.core.Linear(6, 6, rng=rng),
            gp.core.Tanh,
            lambda: Residual(ReLU(), drop()),
        )
        layers = [make[i % len(make)]() for i in range(stages)]
        batch = rng.normal(size=(samples, 6)), rng.normal(size=(samples, 6))
        return gp.profile(gp.split(layers, stages=stages), batch, gp.mse, gp.Adam(0.1))
    text = gp.MetaArray((samples, 5), "i8")
    blocks = [TransformerBlock(8, 2, dropout=0.1, rng=rng) for _ in range(max(1, stages - 2))]
    layers = [PaddingMask(), MaskTwice(), Embedding(7, 8, rng=rng), *blocks, gp.core.Linear(8, 7, rng=rng)]
    return gp.profile(
        gp.split(layers, stages=stages), (text, text), gp.cross_entropy, gp.SGD(0.1, momentum=0.9)
    )


def in_bytes() -> Iterator[Case]:
    """Batches that do not divide, recompute, copies, stages on one device, updates at the end, links."""
    rows = "0F0 1F0 2F0 0F1 1F1 2B0 1B0 2F1 0B0 2B1 1B1 0B1", "0F0 1F0 0R0 2F0 1R0 2R0 2B0 1B0 0I0 0W0"
    own = [gp.Explicit([row], placement=[[0, 1, 2]]) for row in rows]
    orders = [*every_schedule([(1, 3), (2, 1), (2, 4), (3, 5), (4, 8)]), *EXPLICIT.values(), *own[:1]]
    orders += [gp.with_updates(gp.OneFOneB(3, 4)), gp.with_updates(gp.replicate(gp.OneFOneB(2, 4), 2))]
    orders += [gp.PipeDream(2, 1), *(gp.replicate(each, 2) for each in (VHalf(2, 4), gp.GPipe(2, 6)))]
    yield from (Case(own[1], profile=profiled(3, 3, kind)) for kind in ("layers", "text"))
    for i, schedule in enumerate(orders):
        modes = [
            schedule,
            gp.remat(schedule, "always"),
            gp.remat(schedule, "except_last", [schedule.stages - 1]),
        ]
        for j, each in enumerate(modes):
            kind = ("layers", "text")[(i + j) % 2]
            profile = profiled(schedule.stages, schedule.microbatches + (0, 3, 7)[j], kind)
            yield Case(each, (gp.Costs(), FLOATS, UNEVEN)[(i + j) % 3], profile=profile)
        yield Case(
            schedule,
            UNEVEN,
            gp.Link(0.5, 3e2),
            profile=profiled(schedule.stages, schedule.microbatches + 2, "text"),
        )
        real = measured(schedule, seed=i)
        yield Case(real, profile=profiled(schedule.stages, schedule.microbatches + 1, "layers"))


@cache
def modules(folder) -> None:
    subprocess.run([sys.executable, "-m", "gpipe_sim.viewer", folder], check=True)
    (folder / "package.json").write_text('{"type":"module"}')
    (folder / "answer.js").write_text(NODE)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """What the page's modules answer to cases, in their order, and how they write numbers."""
    folder = tmp_path_factory.mktemp("page")
    modules(folder)

    def run(cases: list, numbers: Sequence[float] = ()) -> dict:
        sent = json.dumps({"cases": [getattr(case, "sent", case) for case in cases], "numbers": numbers})
        done = subprocess.run(
            ["node", folder / "answer.js"], input=sent, capture_output=True, text=True, check=False
        )
        assert not done.returncode, done.stderr
        return json.loads(done.stdout)

    return run


KINDS = {"costs": under_costs, "links": on_links, "given": given}


@pytest.fixture(scope="module", params=KINDS)
def answers(request, node) -> list[tuple[Case, dict]]:
    """Cases of one kind, each with what the modules say of it."""
    cases = list(KINDS[request.param]())
    return list(zip(cases, node(cases)["answers"], strict=True))


@pytest.fixture(scope="module", autouse=True)
def quicker():
    """What a timeline is explained from is found once for it, not for every question."""
    chapter = sys.modules[why_idle.__module__]
    with patch.object(chapter, "_HeldBack", cache(chapter._HeldBack)):
        yield


def test_numbers_are_written_as_python_writes_them(node):
    random = Random(0)
    ties = [i / 2**k for k in range(1, 12) for i in random.sample(range(1, 1 << 22), 300)]
    bits = [struct.unpack("d", random.randbytes(8))[0] for _ in range(3000)]
    small = [random.random() * 10.0 ** random.randint(-9, 6) for _ in range(3000)]
    short = [random.randrange(100_000) / 10 ** random.randint(0, 9) for _ in range(3000)]
    values = [each for each in (*ties, *bits, *small, *short) if each == each and abs(each) != float("inf")]
    values += [-each for each in values] + [0.0, -0.0, 999.95, 999.96, 9999.5, 1e15 + 0.5, 1e22, 5e-324]
    for value, text in zip(values, node([], values)["numbers"], strict=True):
        assert text == number(value), value


def test_every_sentence_is_the_librarys(answers):
    for case, answer in answers:
        entries = {span: e for e, span in enumerate(chain(*case.timeline.rows))}
        for (device, time), said in zip(case.asked, answer["said"], strict=True):
            found = why_idle(case.timeline, device, time)
            assert said["sentence"] == found.sentence, (case, device, time)
            assert (said["device"], said["start"], said["end"]) == (device, found.start, found.end)
            assert said["links"] == [entries[span] for span in found.links], (case, device, time)


def test_every_critical_path_is_the_librarys(answers):
    for case, answer in answers:
        entries = {span: e for e, span in enumerate(chain(*case.timeline.rows))}
        messages, wanted = [tuple(way) for way in answer["ways"]], []
        for cause in critical_path(case.timeline):
            if isinstance(cause, Span):
                wanted.append({"entry": entries[cause]})
            elif isinstance(cause, Collective):
                wanted.append({"collective": case.timeline.collectives.index(cause)})
            else:
                part = case.timeline.schedule.program.part_of(cause.action)
                wanted.append({"message": messages.index((part, cause.target))})
        assert answer["path"] == wanted, case
        assert answer["ends"] == case.timeline.order, case


def test_every_device_has_as_many_in_flight(answers):
    for case, answer in answers:
        for device, (steps, peak) in enumerate(zip(answer["steps"], answer["peaks"], strict=True)):
            wanted = in_flight(case.timeline, device)
            assert [*zip(steps["times"], steps["counts"], strict=True)] == wanted, case
            assert peak == max(count for _, count in wanted)
        for (device, time), (count, _) in zip(case.asked, answer["at"], strict=True):
            assert count == [held for at, held in in_flight(case.timeline, device) if at <= time][-1], case


def test_every_device_holds_as_many_bytes_of_each_category_at_every_moment(node):
    cases = list(in_bytes())
    for case, answer in zip(cases, node(cases)["answers"], strict=True):
        traces = [each.memory.trace() for each in devices_on_paper(case.timeline, case.profile, InsideMeter)]
        if not isinstance(case.what, Timeline) and case.links is None:
            assert traces == [*gp.predict_memory(case.what, case.profile, as_doubles(case.costs))]
        for trace, held in zip(traces, answer["held"], strict=True):
            assert held["times"] == [*trace.times], case
            for category in CATEGORIES:
                assert held["bytes"][category] == [*trace.bytes[category]], (case, category)
            assert held["total"] == [*trace.over_time()]
        assert answer["bytePeaks"] == [trace.peak() for trace in traces]
        for (device, time), (_, held) in zip(case.asked, answer["at"], strict=True):
            assert held == sum(traces[device].at(time).values())
        assert sent_bytes(case, answer) == case.profile_bytes, case


def test_bytes_are_refused_where_weights_change_on_the_way_or_the_model_does_not_fit(node):
    profile, few = profiled(3, 11, "layers"), profiled(3, 3, "layers")
    cases = [Case(gp.PipeDream(3, 4), profile=profile), Case(gp.GPipe(3, 4), profile=few)]
    cases += [Case(gp.GPipe(2, 4), profile=profile)]
    answers = node(cases)["answers"]
    assert [answer["held"] for answer in answers] == [None] * 3
    changing, samples, stages = (answer["noBytes"] for answer in answers)
    assert changing.startswith("weights change on the way")
    assert sent_bytes(cases[0], answers[0]) == cases[0].profile_bytes  # of microbatches of other sizes
    assert samples == "3 samples cannot be cut into 4 microbatches"
    assert stages == "the schedule has 2 stages, but the model is cut into 3"


def test_a_device_that_never_gets_on_says_what_it_needs(node):
    random, stuck = Random(1), []
    for schedule in [*every_schedule([(2, 3), (3, 2)]), *EXPLICIT.values()]:
        rows = [random.sample(row, len(row)) for row in schedule.actions]
        order = gp.Explicit(rows, placement=schedule.placement, microbatches=schedule.microbatches)
        stuck += [order] if waiting(order) else []
    assert len(stuck) > 20
    records = [of_schedule(order, UNIT, None, None, None, None) for order in stuck]
    cases = [
        {"record": one, "rows": rows_of(of), "asked": []} for one, of in zip(records, stuck, strict=True)
    ]
    for order, answer in zip(stuck, node(cases)["answers"], strict=True):
        assert answer["stuck"] == [wait.sentence for wait in waiting(order)]


def test_a_model_of_more_bytes_than_doubles_count_is_refused():
    many = gp.MetaArray((1 << 40, 1 << 10), "f8")
    profile = gp.profile(gp.split([ReLU()], stages=1), (many, many), gp.mse)
    with pytest.raises(ValueError, match="more bytes than a page can count exactly, 9,007,199,254,740,992"):
        sizes_of(profile)
