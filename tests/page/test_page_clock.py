"""The page's clock gives the library's times, bit for bit: families, random orders, costs, links, bytes."""

import json
import subprocess
import sys
from random import Random
from typing import Any

import pytest

import gpipe_sim as gp
from gpipe_sim.core.actions import Action, Kind, OverlapFB
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.families import SCHEDULES, WITHOUT_FLUSH
from gpipe_sim.links.links import Link, Nodes

CASES = 360
NODE = """
import { readFileSync } from "node:fs";
import { lower, messageBytesOf, readEntry, simulate, writeEntry } from "./clock.js";

console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(({ order, costs, links, bytes }) => {
  try {
    const rows = order.rows.map((row) => row.split(" ").filter(Boolean).map(readEntry));
    const program = lower({ ...order, rows }), bytesOf = messageBytesOf(program, bytes);
    const { start, end, sent, arrived, makespan } = simulate(program, costs, links, bytesOf);
    const crossing = [...program.messageOf].filter((message) => message >= 0);
    const written = rows.map((row) => row.map(writeEntry).join(" "));
    const [left, there] = [sent, arrived].map((times) => crossing.map((message) => times[message]));
    return { start: [...start], end: [...end], sent: left, arrived: there, makespan, rows: written };
  } catch (error) {
    return error.message;
  }
})));
"""


class Drawn:
    """Random schedules, costs and links; many costs are 0 or 1, so that things happen at the same time."""

    def __init__(self, seed: int):
        self.random = Random(seed)

    def one_of(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def cost(self) -> float:
        return self.one_of(0.0, 1.0, 0.1 * self.random.randint(1, 30), 3 * self.random.random())

    def costs(self, count: int) -> float | list[float]:
        return self.one_of(self.cost(), [self.cost() for _ in range(count)])

    def schedule(self) -> Schedule:
        """A family's order, some recomputed, with updates or in another legal order."""
        family = self.one_of(*SCHEDULES, *WITHOUT_FLUSH)
        try:
            found = family(self.random.randint(1, 8), self.random.randint(1, 12))
        except ValueError:  # a size that the family refuses
            return self.schedule()
        if family in SCHEDULES and self.one_of(True, False):
            found = gp.remat(found, self.one_of("always", "except_last", "never"), self.one_of(None, [0]))
            found = self.one_of(found, gp.with_updates(found))
        return self.one_of(found, self.shuffled(found))

    def shuffled(self, schedule: Schedule) -> Schedule:
        """The same actions in another order that can run, and unless pairs forbid it, on other devices."""
        program = schedule.program
        if Kind.U in program.where:
            return schedule
        devices = program.devices if program.paired else self.random.randint(1, 6)
        homes: dict[tuple[int, int], int] = {}  # of each stage, or copy of one
        left = [(action, device) for device, row in enumerate(schedule.actions) for action in row]
        needed = [set(map(program.action_of, program.needs_of(entry))) for entry in range(program.size)]
        needs = {action: of_action for (action, _), of_action in zip(left, needed, strict=True)}
        rows: list[list[Action | OverlapFB]] = [[] for _ in range(devices)]
        ran: set[Action] = set()
        self.random.shuffle(left)
        while left:
            action, device = left.pop(next(i for i, (each, _) in enumerate(left) if needs[each] <= ran))
            home = device if program.paired else self.random.randrange(devices)
            rows[homes.setdefault((action.parts[0].stage, device), home)].append(action)
            ran.update(action.parts)
        placement = [sorted({part.stage for action in row for part in action.parts}) for row in rows]
        return gp.Explicit(rows, placement=placement, microbatches=schedule.microbatches)

    def of_costs(self, stages: int, devices: int) -> dict[str, Any]:
        halves = {name: self.costs(stages) for name in ("forward", "input_grad", "weight_grad", "update")}
        others = {name: self.one_of(None, self.costs(stages)) for name in ("recompute", "overlap")}
        speed = self.one_of(1.0, [self.one_of(1.0, 0.3, 1.7) for _ in range(devices)])
        return {**halves, **others, "comm": self.cost(), "speed": speed, "overhead": self.costs(devices)}

    def link(self) -> tuple[dict, Link]:
        """As the page has it, and as the library."""
        latency, bandwidth = self.cost(), self.one_of(None, 1.0, 0.1 + 4 * self.random.random())
        return {"latency": latency, "bandwidth": bandwidth}, Link(latency, bandwidth or float("inf"))

    def links(self, devices: int) -> tuple[dict | None, Any]:
        one, other, nodes = self.link(), self.link(), self.random.randint(1, 4)
        pairs = {(a, b): self.link() for a in range(devices) for b in range(devices)}
        by_node = {"devices_per_node": nodes, "inside": one[0], "between": other[0]}
        by_pair = {"pairs": [[*pair, link] for pair, (link, _) in pairs.items()]}
        return self.one_of(
            (None, None),
            one,
            (by_node, Nodes(nodes, inside=one[1], between=other[1])),
            (by_pair, {pair: link for pair, (_, link) in pairs.items()}),
        )

    def case(self) -> tuple[dict, dict]:
        """What the page is asked, and what the library says."""
        schedule = self.schedule()
        program, rows = schedule.program, [" ".join(map(str, row)) for row in schedule.actions]
        costs, (links, as_links) = self.of_costs(program.stages, program.devices), self.links(program.devices)
        sizes = [self.cost() for _ in range(program.stages - 1)]
        size = None if links is None else self.one_of(self.cost(), sizes)
        timeline = gp.simulate(schedule, gp.Costs(**costs), links=as_links, message_bytes=size)
        order = {"placement": program.placement, "microbatches": program.microbatches, "rows": rows}
        columns = {name: getattr(timeline, name).tolist() for name in ("start", "end", "sent", "arrived")}
        asked = {"order": order, "costs": costs, "links": links, "bytes": size}
        return asked, {**columns, "makespan": timeline.makespan, "rows": rows}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A function that asks the page's clock for many cases at once."""
    folder = tmp_path_factory.mktemp("clock")
    subprocess.run([sys.executable, "-m", "gpipe_sim.viewer", folder], check=True)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "answers.js").write_text(NODE)

    def answers(cases: list[dict]) -> list[dict | str]:
        asked = json.dumps(cases)
        ran = subprocess.run(["node", folder / "answers.js"], input=asked, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    return answers


def test_times_are_the_librarys_bit_for_bit(page):
    cases = [Drawn(seed).case() for seed in range(CASES)]
    said = page([asked for asked, _ in cases])
    differ = [asked for (asked, by_library), each in zip(cases, said, strict=True) if each != by_library]
    assert not differ, f"{len(differ)} of {CASES} cases, such as {json.dumps(differ[0])}"


def test_what_a_link_cannot_say_is_refused_in_the_librarys_words(page):
    schedule, unit = gp.GPipe(3, 2), {"forward": 1, "input_grad": 1, "weight_grad": 1, "update": 0, "comm": 0}
    unit |= {"recompute": None, "overlap": None, "speed": 1, "overhead": 0}
    rows = [" ".join(map(str, row)) for row in schedule.actions]
    order = {"placement": schedule.placement, "microbatches": 2, "rows": rows}
    link = {"latency": 1.0, "bandwidth": 2.0}
    asked = {"order": order, "costs": unit, "links": {"pairs": [[0, 1, link], [1, 2, link]]}, "bytes": 1.0}
    with pytest.raises(ValueError) as no_link:
        gp.simulate(schedule, links={(0, 1): Link(1), (1, 2): Link(1)})
    assert page([asked, {**asked, "links": link, "bytes": [1.0, 2.0, 3.0]}]) == [
        str(no_link.value),
        "simulate needs message_bytes to be a number, or a list with one for each stage but the last: "
        "2 of them (got 3)",
    ]
