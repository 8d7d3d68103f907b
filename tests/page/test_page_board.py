"""The board and the link: times, refusals and texts are the library's, and nothing hostile gets in."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from driver import Opened

import gpipe_sim as gp
from gpipe_sim.core.problems import REASONS
from gpipe_sim.core.rows import read_action
from gpipe_sim.core.schedule import needs
from gpipe_sim.viewer.bound import simple_bound
from gpipe_sim.viewer.puzzles import from_record, puzzles

HERE = Path(__file__).parent
PUZZLES = {name: json.loads(json.dumps(puzzle.record())) for name, puzzle in puzzles().items()}
COSTS = {**json.loads(json.dumps(next(iter(PUZZLES.values()))["costs"])), "speed": 1}
Json = dict[str, Any]


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """Run jobs of board_play.js on the page's modules: a list of (name, what it is given) gives a list."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "package.json").write_text('{"type": "module"}')
    subprocess.run([sys.executable, "-m", "gpipe_sim.viewer", folder], check=True)

    def run(jobs):
        command = ["node", str(HERE / "board_play.js"), folder.as_uri()]
        done = subprocess.run(command, input=json.dumps(jobs), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def own(placement, microbatches=3, kinds="FB", room=None, **costs) -> Json:
    """A puzzle of a test's own, without an order."""
    known = {
        "name": "own",
        "title": "Own",
        "idea": "",
        "learnt": "",
        "par": None,
        "rows": None,
        "bound": None,
        "gap": None,
    }
    board = {"placement": placement, "microbatches": microbatches, "kinds": kinds, "room": room}
    return {**known, **board, "costs": {**COSTS, **costs}}


def in_a_loop(devices: int, each: int = 1) -> list[list[int]]:
    return [[device + i * devices for i in range(each)] for device in range(devices)]


def in_a_v(devices: int) -> list[list[int]]:
    return [[device, 2 * devices - 1 - device] for device in range(devices)]


def drawn(seed: int) -> Json:
    """A board drawn by chance: any placement, unequal times, messages, speeds, and room or none."""
    chance = random.Random(seed)
    devices, kinds = chance.randint(1, 4), chance.choice(["FB", "FIW"])
    shapes = [in_a_loop(devices), in_a_loop(devices, 2), in_a_v(devices)]
    placement = chance.choice(shapes)
    stages = sum(map(len, placement))

    def each(*values, count):
        return [chance.choice(values) for _ in range(count)]

    return own(
        placement,
        chance.randint(1, 5),
        kinds,
        chance.choice([None, [len(held) + chance.randint(0, 3) for held in placement]]),
        forward=each(1, 0.1, 2.5, 1 / 3, count=stages),
        input_grad=each(1, 0.7, 2, count=stages),
        weight_grad=each(1, 0, 1.3, count=stages),
        comm=chance.choice([0, 0.3, 2]),
        speed=each(1, 0.5, 3, count=devices),
        overhead=chance.choice([0, 0.01]),
    )


RANDOM = [drawn(seed) for seed in range(60)]


def costs_of(puzzle: Json) -> gp.Costs:
    """In doubles, as a page calculates: whole numbers would stay exact."""

    def doubles(cost):
        return (
            [float(each) for each in cost]
            if isinstance(cost, list)
            else None
            if cost is None
            else float(cost)
        )

    return gp.Costs(**{name: doubles(cost) for name, cost in puzzle["costs"].items()})


def order_of(puzzle: Json, rows) -> gp.Explicit:
    return gp.Explicit(rows, placement=puzzle["placement"], microbatches=puzzle["microbatches"])


def all_of(puzzle: Json, held) -> list[str]:
    return [f"{s}{kind}{m}" for kind in puzzle["kinds"] for s in held for m in range(puzzle["microbatches"])]


def times(timeline) -> dict[str, tuple[float, float]]:
    return {str(span.action): (float(span.start), float(span.end)) for span in timeline.spans}


@pytest.fixture(scope="module")
def played(node):
    """Every puzzle by its shipped order, and boards drawn by chance by whatever can go."""
    jobs = [["play", {"puzzle": each, "rows": each["rows"], "seed": 1}] for each in PUZZLES.values()]
    jobs += [["play", {"puzzle": each, "seed": seed}] for seed, each in enumerate(RANDOM)]
    jobs += [["play", {"puzzle": each, "seed": 7}] for each in PUZZLES.values()]
    boards = [*PUZZLES.values(), *RANDOM, *PUZZLES.values()]
    return list(zip(boards, node(jobs), strict=True))


def finished(played):
    found = [(puzzle, game) for puzzle, game in played if game["last"]["finished"]]
    assert len(found) > 75
    return found


def test_every_shipped_order_is_reached_by_legal_picks_and_takes_par(played):
    for puzzle, game in played[: len(PUZZLES)]:
        last = game["last"]
        assert last["finished"] and last["rows"] == puzzle["rows"]
        assert last["makespan"] == puzzle["par"] == last["goal"]
        assert last["standing"].startswith(f"It takes {puzzle['par']}: par")


def test_partial_rows_have_the_times_of_the_finished_order(played):
    compared = 0
    for puzzle, game in finished(played):
        known = times(gp.simulate(order_of(puzzle, game["last"]["rows"]), costs_of(puzzle)))
        for seen in [*game["seen"], game["last"]]:
            assert {action: (start, end) for action, start, end in seen["spans"]} == {
                action: known[action] for action, _, _ in seen["spans"]
            }
            compared += len(seen["spans"])
    assert compared > 20_000


def test_a_finished_board_has_the_library_s_numbers(played):
    for puzzle, game in finished(played):
        last, order = game["last"], order_of(puzzle, game["last"]["rows"])
        timeline = gp.simulate(order, costs_of(puzzle))
        assert last["makespan"] == float(timeline.makespan)
        assert last["peaks"] == list(gp.peak_in_flight(order))
        assert last["held"] == [0] * order.devices
        assert last["score"]["bubble"] == pytest.approx(float(gp.bubble_fraction(timeline)), abs=1e-12)
        if puzzle["room"]:
            assert all(peak <= room for peak, room in zip(last["peaks"], puzzle["room"], strict=True))


def test_the_text_reads_back_and_takes_the_same_time(played):
    for puzzle, game in finished(played):
        again = gp.Explicit.parse(game["last"]["text"])
        order = order_of(puzzle, game["last"]["rows"])
        assert again.rows == order.rows and again.placement == order.placement
        assert game["last"]["text"] == str(order)
        assert gp.simulate(again, costs_of(puzzle)).makespan == pytest.approx(game["last"]["makespan"])


def test_the_text_of_every_par_is_correct_in_the_course(played):
    for name, (_, game) in zip(list(PUZZLES)[:4], played, strict=False):
        assert gp.course.puzzle(name, game["last"]["text"]).verdict == "correct"


def sentences(puzzle: Json, rows: list[str], action: str) -> list[str]:
    """What the library says of each action that this one needs and that is not there: here, or elsewhere."""
    one, home = read_action("", action), {}
    for device, held in enumerate(puzzle["placement"]):
        home |= dict.fromkeys(all_of(puzzle, held), device)
    work = order_of(puzzle, [all_of(puzzle, held) for held in puzzle["placement"]])
    missing = [need for need in needs(one, work) if str(need) not in " ".join(rows).split()]
    there = {need: f", on device {home[str(need)]}" for need in missing if home[str(need)] != home[action]}
    return [
        f"{one} needs {need} first{there.get(need, '')}: it {REASONS[one.kind, need.kind]}"
        for need in missing
    ]


def test_refusals_are_the_library_s_sentences(played):
    heard = 0
    for puzzle, game in played:
        for blocked in game["blocked"]:
            says = [each for each in blocked["says"].split("; ") if "has no room" not in each]
            assert sorted(says) == sorted(sentences(puzzle, blocked["rows"], blocked["action"]))
            heard += len(says)
            assert blocked["fits"] == ("has no room" not in blocked["says"])
    assert heard > 500


def test_no_room_says_what_is_held_and_what_would_free_it(played):
    seen = 0
    for puzzle, game in played:
        for blocked in game["blocked"]:
            if blocked["fits"]:
                continue
            [says] = [each for each in blocked["says"].split("; ") if "has no room" in each]
            stage = read_action("", blocked["action"]).stage
            device = next(k for k, held in enumerate(puzzle["placement"]) if stage in held)
            row = [read_action("", each) for each in blocked["rows"][device].split()]
            freeing = puzzle["kinds"][-1]
            freed = {(each.stage, each.microbatch) for each in row if each.kind == freeing}
            taken = [(each.stage, each.microbatch) for each in row if each.kind == "F"]
            kept = [each for each in taken if each not in freed]
            assert len(kept) == blocked["held"] == puzzle["room"][device]
            held, frees = (" ".join(f"{s}{kind}{m}" for s, m in kept) for kind in ("F", freeing))
            one = "one of " * (len(kept) > 1)
            assert says == (
                f"{blocked['action']} has no room: device {device} holds {held}, as many as it may, "
                f"so {one}{frees} has to come first"
            )
            seen += 1
    assert seen > 50


def test_a_board_on_which_nothing_can_go_says_so(played):
    stuck = [(puzzle, game["last"]) for puzzle, game in played if not game["last"]["finished"]]
    assert stuck
    for puzzle, last in stuck:
        assert puzzle["room"] and last["standing"].startswith("Nothing can go any more, so undo: ")
        assert "has to come first" in last["standing"]


def test_an_action_stands_once_and_what_the_board_does_not_have_is_refused(node):
    puzzle = own(in_a_loop(2), 2)
    texts = ["0F0", "0F2", "2F0", "0I0", "<b>", "(0F1;0B0)OVERLAP_F_B", "0F1 0B0 1F0", "0F1 1F0"]
    found = node([["type", {"puzzle": puzzle, "rows": ["0F0", ""], "text": text}] for text in texts])
    assert found[0]["says"] == "0F0 stands 2 times; it must run once"
    assert [each["says"] for each in found[1:6]] == [
        f'there is no "{text[:20]}" on this board; type actions such as 0F0' for text in texts[1:6]
    ]
    assert found[6] == {
        "says": "0B0 needs 1B0 first, on device 1: it reads its gradient",
        "rows": ["0F0 0F1", ""],
    }
    assert found[7]["rows"] == ["0F0 0F1", "1F0"]


def test_undo_and_redo_go_through_the_same_boards(node):
    jobs = [
        ["undo", {"puzzle": each, "seed": seed}]
        for seed, each in enumerate([*RANDOM[:30], *PUZZLES.values()])
    ]
    found = node(jobs)
    assert all(each["all"] for each in found) and sum(each["count"] for each in found) > 600


def reachable(puzzle: Json, rows: list[str]) -> set[tuple[tuple[str, ...], ...]]:
    """Every board that legal picks can make of this one, microbatches in turn, by the library's needs."""
    work = order_of(puzzle, [all_of(puzzle, held) for held in puzzle["placement"]])
    wanted = {str(each): {*map(str, needs(each, work))} for row in work.rows for each in row}
    more = {"F": 1, puzzle["kinds"][-1]: -1}

    def grow(state):
        placed = {each for row in state for each in row}
        for k, held in enumerate(puzzle["placement"]):
            count = sum(more.get(read_action("", each).kind, 0) for each in state[k])
            for s, kind in product(held, puzzle["kinds"]):
                turn = (f"{s}{kind}{m}" for m in range(puzzle["microbatches"]))
                action = next((each for each in turn if each not in placed), None)
                full = kind == "F" and puzzle["room"] and count >= puzzle["room"][k]
                if action and not full and not wanted[action] - placed:
                    yield (*state[:k], (*state[k], action), *state[k + 1 :])

    found = [tuple(tuple(row.split()) for row in rows)]
    seen = {*found}
    for state in found:
        fresh = {*grow(state)} - seen
        seen |= fresh
        found += fresh
    return seen


STEPS = [
    (own(in_a_loop(2), 1), ["", ""]),
    (own(in_a_loop(2), 2), ["", ""]),
    (own(in_a_loop(2), 2, room=[2, 1]), ["", ""]),
    (own(in_a_loop(2), 3, room=[2, 1]), ["0F0", ""]),
    (own(in_a_loop(2), 3, room=[1, 1]), ["", ""]),
    (own(in_a_loop(2), 2, "FIW", room=[1, 1]), ["0F0", "1F0"]),
    (own(in_a_loop(2), 2, "FIW"), ["0F0 0F1", "1F0 1F1"]),
    (own(in_a_v(2), 1), ["", ""]),
    (own(in_a_v(1), 2, room=[2]), [""]),
    (own(in_a_loop(3), 2, room=[2, 1, 1]), ["0F0 0F1", "1F0", ""]),
]


@pytest.mark.parametrize("case", range(len(STEPS)))
def test_a_step_places_just_what_has_no_alternative(case, node):
    puzzle, rows = STEPS[case]
    [found] = node([["step", {"puzzle": puzzle, "rows": rows}]])
    states = reachable(puzzle, rows)
    forced = tuple(tuple(row.split()) for row in rows)
    for _ in range(100):
        for k, row in enumerate(forced):
            nexts = {
                state[k][len(row)]
                for state in states
                if state[k][: len(row)] == row and len(state[k]) > len(row)
            }
            after = (*forced[:k], (*row, *nexts), *forced[k + 1 :])
            if len(nexts) == 1 and after in states:
                forced = after
    assert tuple(tuple(row.split()) for row in found["rows"]) == forced


def test_a_beginning_and_one_beat_stamped_over_all_is_1f1b(node):
    begun = [" ".join(f"{s}F{m}" for m in range(4 - s)) + f" {s}B0" for s in range(4)]
    whole, split = [f"{s}F0 {s}B0" for s in range(4)], [f"{s}F0 {s}I0 {s}W0" for s in range(4)]
    capped, free, halves = (
        own(in_a_loop(4), 8, room=[4, 3, 2, 1]),
        own(in_a_loop(4), 8),
        own(in_a_loop(4), 8, "FIW"),
    )
    jobs = [(capped, begun), (free, begun), (free, whole), (halves, split), (free, ["", "", "", ""])]
    found = [each["gives"] for each in node([["stamp", {"puzzle": p, "rows": rows}] for p, rows in jobs])]
    rows = [" ".join(map(str, row)) for row in gp.OneFOneB(4, 8).actions]
    assert found[0]["rows"] == rows == found[1]["rows"] and found[0]["makespan"] == 33
    one_by_one = [" ".join(f"{s}F{m} {s}B{m}" for m in range(8)) for s in range(4)]
    assert found[2]["rows"] == one_by_one and found[2]["makespan"] == 8 * 12  # it does not solve the board
    assert found[3]["finished"] and found[3]["makespan"] == 8 * 9
    assert found[4]["count"] == 0 and found[4]["rows"] == [""] * 4


def test_stamps_keep_to_the_rules(node):
    jobs = []
    for puzzle in [*RANDOM, *PUZZLES.values()]:
        back = puzzle["kinds"][1:]
        rows = [
            " ".join(
                [*(f"{s}F0" for s in sorted(held)), *(f"{s}{k}0" for s in sorted(held)[::-1] for k in back)]
            )
            for held in puzzle["placement"]
        ]
        jobs.append((puzzle, ["stamp", {"puzzle": puzzle, "rows": rows}]))
    found = node([job for _, job in jobs])
    done = 0
    for (puzzle, _), each in zip(jobs, found, strict=True):
        for k, row in enumerate(each["gives"]["rows"]):
            assert len(set(row.split())) == len(row.split())
            assert not puzzle["room"] or each["gives"]["peaks"][k] <= puzzle["room"][k]
        if each["gives"]["finished"]:
            gp.check(order_of(puzzle, each["gives"]["rows"]))
            done += 1
    assert done == len(jobs)


def test_a_stamp_moves_nothing_and_appends_what_is_legal(played, node):
    begun = [(puzzle, seen["rows"]) for puzzle, game in played for seen in game["seen"] if any(seen["rows"])]
    found = node([["stamp", {"puzzle": puzzle, "rows": rows}] for puzzle, rows in begun])
    stamped = complete = 0
    for (puzzle, rows), each in zip(begun, found, strict=True):
        given = each["gives"]
        for row, after, held in zip(rows, given["rows"], puzzle["placement"], strict=True):
            before, actions = row.split(), after.split()
            assert actions[: len(before)] == before
            assert len({*actions}) == len(actions) and {*actions} <= {*all_of(puzzle, held)}
            for action in (read_action("", text) for text in actions[len(before) :]):
                alike = [f"{action.stage}{action.kind}{m}" for m in range(action.microbatch)]
                assert {*alike} & {*before}  # a microbatch before it did the same here
        for k, peak in enumerate(given["peaks"]):
            assert not puzzle["room"] or peak <= puzzle["room"][k]
        placed = {*" ".join(given["rows"]).split()}
        work = order_of(puzzle, [all_of(puzzle, held) for held in puzzle["placement"]])
        for text in placed:
            assert {*map(str, needs(read_action("", text), work))} <= placed
        assert given["count"] == sum(len(row.split()) for row in given["rows"]) - sum(
            len(row.split()) for row in rows
        )
        if given["finished"]:
            gp.check(order_of(puzzle, given["rows"]))
        stamped += given["count"] > 0
        complete += given["finished"]
    assert stamped > 200 and complete > 50


def test_the_bound_of_the_board_is_the_simple_bound(played):
    for puzzle, game in played:
        known = from_record({**puzzle, "rows": [], "bound": {"value": 0, "why": ""}})
        bounds = [each["value"] for each in game["last"]["bounds"]]
        assert max(bounds) == pytest.approx(float(simple_bound(known).value), abs=1e-9)
        if game["last"]["finished"]:
            assert game["last"]["makespan"] >= max(bounds) - 1e-9


def test_missing_par_shows_a_wait_and_a_move_that_makes_it_shorter(played):
    missed = heard = shorter = later = 0
    for puzzle, game in finished(played):
        last = game["last"]
        if last["makespan"] <= last["goal"] + 1e-9:
            assert last["lost"] is None
            continue
        missed += 1
        if (lost := last["lost"]) is None:
            assert last["standing"].endswith("To move one action a little does not help.")
            continue
        order, device = order_of(puzzle, last["rows"]), lost["device"]
        timeline = gp.simulate(order, costs_of(puzzle))
        why = gp.why.why_idle(timeline, device, lost["start"])
        assert (float(why.start), float(why.end)) == (lost["start"], lost["end"])
        assert lost["sentence"] == why.sentence and why.sentence in last["standing"]
        moved, rows = lost["moved"]["text"], [row.split() for row in last["rows"]]
        [row] = [row for row in rows if moved in row]
        assert lost["goes"] == ("sooner" if lost["to"] < row.index(moved) else "later")
        row.remove(moved)
        row.insert(lost["to"], moved)
        other = order_of(puzzle, rows)
        again = gp.simulate(other, costs_of(puzzle))  # it can run
        assert float(again.makespan) <= float(timeline.makespan) + 1e-9
        before, after = (sum(float(span.start) for span in each.spans) for each in (timeline, again))
        assert float(again.makespan) < float(timeline.makespan) or after < before
        waited = next(span for span in timeline.on(device) if float(span.start) == lost["end"])
        assert times(again)[str(waited.action)][0] < lost["end"]
        assert f"; {moved} could go {lost['goes']}." in last["standing"]
        if puzzle["room"]:
            peaks = gp.peak_in_flight(other)
            assert all(peak <= room for peak, room in zip(peaks, puzzle["room"], strict=True))
        heard += 1
        shorter += again.makespan < timeline.makespan
        later += lost["goes"] == "later"
    assert missed > 20 and heard > 20 and shorter > 20 and later > 3, (missed, heard, shorter, later)


def test_a_board_of_one_s_own_is_made_or_refused_in_words(node):
    good = {
        "devices": "4",
        "microbatches": "6",
        "stages": "V",
        "kinds": "FIW",
        "room": "6",
        "costs": "1 1 1 0.5",
    }
    bad = [
        {"devices": "0"},
        {"devices": "9"},
        {"devices": "2.5"},
        {"microbatches": "17"},
        {"stages": "3"},
        {"kinds": "FBR"},
        {"room": "1"},
        {"room": "6 6"},
        {"room": "6.5"},
        {"costs": "1 1 1"},
        {"costs": "0 1 1 0"},
        {"costs": "1 -1 1 0"},
        {"devices": "<b>4</b>"},
        {"costs": "1e3 1 1 0"},
    ]
    made, *refused = node([["free", {"choice": good | each}] for each in [{}, *bad]])
    puzzle = made["gives"]
    assert puzzle["placement"] == in_a_v(4) and puzzle["room"] == [6] * 4 and puzzle["microbatches"] == 6
    assert puzzle["costs"] == {**COSTS, "comm": 0.5} and puzzle["par"] is None and puzzle["choice"] == good
    assert all(each["says"].startswith("a board needs ") for each in refused)
    assert refused[6]["says"] == "a board needs room for 2 on device 0"


def test_a_saved_board_comes_back_or_is_refused_in_words(node):
    known = list(PUZZLES.values())
    free = {"devices": "2", "microbatches": "2", "stages": "1", "kinds": "FB", "room": "", "costs": "1 1 1 0"}
    saved = [
        {"puzzle": known[0]["name"], "choice": None, "rows": known[0]["rows"]},
        {"puzzle": "free", "choice": free, "rows": ["0F0 0F1", "1F0"]},
        {"puzzle": "none such", "choice": None, "rows": []},
        {"puzzle": known[0]["name"], "choice": None, "rows": ["0F0"]},
        {"puzzle": known[0]["name"], "choice": None, "rows": ["0B0", ""]},
        {"puzzle": known[0]["name"], "choice": None, "rows": ["1F0", ""]},
        {"puzzle": known[0]["name"], "choice": None, "rows": ["0F0 0F0", ""]},
    ]
    found = node([["saved", {"saved": each, "puzzles": known}] for each in saved])
    assert [each["gives"] for each in found[:2]] == [known[0]["rows"], ["0F0 0F1", "1F0"]]
    assert [each["says"] for each in found[2:]] == [
        'there is no puzzle "none such"',
        "there are 2 devices, not 1",
        "0B0 needs 0F0 first: it reads what it saves; "
        "0B0 needs 1B0 first, on device 1: it reads its gradient",
        "1F0 belongs to device 1",
        "0F0 stands 2 times; it must run once",
    ]


# A link to share


def chart(schedule: Json, **more) -> Json:
    plain = {
        "costs": COSTS,
        "links": None,
        "message_bytes": None,
        "sizes": None,
        "limit": None,
        "times": None,
    }
    return {"schedule": schedule, **plain, **more}


def of_family(family: str, devices: int = 4, microbatches: int = 8, **options) -> Json:
    sizes = {"devices": devices, "microbatches": microbatches}
    return {"family": family, "options": {**sizes, **options}}


def of_rows(kinds: str, placement, microbatches: int, seed: int) -> Json:
    """Rows in any order: a link says what is there, not whether it runs."""
    chance, rows = random.Random(seed), []
    for held in placement:
        row = [f"{s}{kind}{m}" for s in held for kind in kinds for m in range(microbatches)]
        chance.shuffle(row)
        rows.append(" ".join(row))
    names = {"name": f"Order {seed}", "microbatches": microbatches}
    return {"family": None, "options": {}, "placement": placement, "rows": rows, **names}


def state(*charts, at=0, ask=None, board=None) -> Json:
    return {"charts": list(charts), "at": at, "ask": ask, "board": board}


WIRE = {"latency": 0.5, "bandwidth": None}
LINKS = [
    WIRE,
    {"latency": 0, "bandwidth": 1e9},
    {"devices_per_node": 2, "inside": WIRE, "between": {"latency": 1 / 3, "bandwidth": 8}},
]
V_ROWS = [of_rows("FIW", in_a_v(4), 8, seed) for seed in range(3)]
CHOICE = {
    "devices": "4",
    "microbatches": "8",
    "stages": "V",
    "kinds": "FIW",
    "room": "6 6",
    "costs": "1 1 .5 0",
}
COSTLY = {
    **COSTS,
    **{name: [0.1 + 0.7 * i for i in range(8)] for name in ("forward", "input_grad", "weight_grad")},
    "speed": [1, 1, 1 / 3, 1],
    "recompute": 0.3333333333333333,
    "comm": 1e-7,
}
PAIRED = {
    **{"family": None, "options": {}, "name": "Pairs", "microbatches": 2, "placement": [[0], [1]]},
    "rows": ["0F0 0F1 0B0 0B1", "1F0 (1F1;1B0)OVERLAP_F_B 1B1"],
}
STATES = {
    "two families": state(
        chart(of_family("GPipe", microbatches=6)), chart(of_family("OneFOneB", microbatches=6))
    ),
    "other sizes": state(
        chart(of_family("GPipe")), chart(of_family("Interleaved1F1B", 2, 4, stages_per_device=3))
    ),
    "options": state(
        chart({**of_family("GPipe", drain="in_order"), "recompute": "always"}),
        chart(of_family("PipeDream", every=2, weights="stash")),
        at=3.25,
        ask=[1, 3, 4.5],
    ),
    "one device": state(chart(of_family("Naive", 1, 1), costs={**COSTS, "speed": [0.5]}, limit=[3])),
    "pairs": state(chart(PAIRED)),
    "many stages": state(chart(of_rows("FRBU", [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]], 8, 5))),
    "another placement": state(chart(of_rows("FB", [[0, 3], [2, 1], [1, 2, 4], [3, 0]], 4, 6))),
    "a V of one's own, with all that it costs": state(
        chart(V_ROWS[0], costs=COSTLY, links=LINKS[2], limit=[6, 6, 6, 6], message_bytes=[4096.0] * 7),
        at=13.700000000000001,
        ask=[0, 3, 2 / 3],
    ),
    "two Vs of one's own": state(
        chart(V_ROWS[0], links=LINKS[2]), chart(V_ROWS[1], limit=6), ask=[1, 3, 4.5]
    ),
    "a V on a board": state(
        chart(of_family("ZBV")),
        chart(V_ROWS[1]),
        board={"puzzle": "free", "choice": CHOICE, "rows": V_ROWS[2]["rows"]},
    ),
    "a board alone": state(board={"puzzle": "fill-the-wait", "choice": None, "rows": ["0F0", "", ""]}),
    **{f"links {i}": state(chart(of_family("VHalf"), links=links)) for i, links in enumerate(LINKS)},
    **{
        f"puzzle {name}": state(
            chart(of_family("GPipe")), board={"puzzle": name, "choice": None, "rows": puzzle["rows"]}
        )
        for name, puzzle in PUZZLES.items()
    },
}


def plain(found: Json) -> Json:
    """A state of a link, with what a page fills in where a chart does not say it."""
    return {
        **found,
        "charts": [{**chart({}), **each, "costs": {**COSTS, **each["costs"]}} for each in found["charts"]],
    }


@pytest.fixture(scope="module")
def shared(node):
    return dict(zip(STATES, node([["share", {"state": each}] for each in STATES.values()]), strict=True))


@pytest.mark.parametrize("name", STATES)
def test_a_link_gives_the_state_back(name, shared):
    assert plain(shared[name]["gives"]["state"]) == STATES[name]


def test_a_link_is_short_and_can_be_read(shared):
    lengths = {name: len(each["gives"]["text"]) for name, each in shared.items()}
    assert max(lengths.values()) <= 2000 and lengths["two Vs of one's own"] > 1500
    assert shared["two families"]["gives"]["text"] == "a=GPipe&b=OneFOneB&K=4&M=6"
    assert shared["options"]["gives"]["text"] == (
        "a=GPipe&b=PipeDream&K=4&M=8&a.drain=in_order&a.recompute=always&b.every=2&b.weights=stash&at=3.25&ask=1,3,4.5"
    )
    assert shared["pairs"]["gives"]["text"] == "a=rows&name=Pairs&M=2&rows=0F0.0F1.0B0.0B1_1F0.1F1-1B0.1B1"
    assert shared["another placement"]["gives"]["text"].endswith("&stages=0.3_2.1_1.2.4_3.0")
    assert shared["a board alone"]["gives"]["text"] == "board=fill-the-wait&picks=0F0__"


def test_what_no_link_can_hold_is_refused_in_words(node):
    measured = chart(of_family("GPipe"), times={"start": [0], "end": [1]})
    huge = chart(of_rows("FIW", in_a_v(8), 160, 0))
    gpipe = chart(of_family("GPipe"))
    paired = chart(of_family("GPipe"), links={"pairs": [[0, 1, WIRE], [1, 0, WIRE]]})
    full = state(
        chart(V_ROWS[0]),
        chart(V_ROWS[1]),
        board={"puzzle": "free", "choice": CHOICE, "rows": V_ROWS[2]["rows"]},
    )
    states = [
        state(measured),
        state(huge),
        full,
        state(*[gpipe] * 9),
        state(),
        state(gpipe, at=1e20),
        state(paired),
    ]
    found = node([["share", {"state": each}] for each in states])
    assert all(each["says"].startswith("no link says this: ") for each in found), found
    assert "measured times are too long" in found[0]["says"]
    assert all("too long for a link; save the page instead" in each["says"] for each in found[1:3])


REFUSED = [
    "",
    "a",
    "a=GPipe",
    "a=GPipe&K=4",
    "K=4&M=6",
    "a=GPipe&K=4&M=6&K=4",
    "a=GPipe&K=4&M=6&harm=1",
    "a=GPipe&K=4&M=6&c.F=1",
    "a=GPipe&K=0&M=6",
    "a=GPipe&K=-4&M=6",
    "a=GPipe&K=4.5&M=6",
    "a=GPipe&K=0x4&M=6",
    "a=GPipe&K=9999&M=9999",
    "a=GPipe&K=4&M=%E0%A4%A",
    "a=GPipe%00&K=4&M=6",
    "a=%E2%80%AEGPipe&K=4&M=6",
    "a=<script>&K=4&M=6",
    "a=%3Cscript%3E&K=4&M=6",
    "__proto__=1&a=GPipe&K=4&M=6",
    "a=GPipe&K=4&M=6&name=Mine",
    "a=GPipe&K=4&M=6&F=Infinity",
    "a=GPipe&K=4&M=6&F=inf",
    "a=GPipe&K=4&M=6&F=-1",
    "a=GPipe&K=4&M=6&F=1,,2",
    "a=GPipe&K=4&M=6&comm=1,2",
    "a=GPipe&K=4&M=6&speed=0",
    "a=GPipe&K=4&M=6&speed=1,0.0",
    "a=GPipe&K=4&M=6&links=1",
    "a=GPipe&K=4&M=6&links=inf,1",
    "a=GPipe&K=4&M=6&at=inf",
    "a=GPipe&K=4&M=6&ask=7,0,0",
    "a=GPipe&K=4&M=6&ask=0,0.5,0",
    "a=GPipe&K=4&M=6&ask=0,0",
    "a=GPipe&K=4&M=6&ask=1,0,0",
    "a=GPipe&K=4&M=6&links={latency:1}",
    "a=GPipe&K=4&M=6&links={latency:1,bandwidth:inf}",
    "a=GPipe&K=4&M=6&links={latency:null,bandwidth:1}",
    'a=GPipe&K=4&M=6&links={"latency":1,"bandwidth":1}',
    "a=GPipe&K=4&M=6&links={pairs:[[0,1,{latency:1,bandwidth:1}]]}",
    "a=GPipe&K=4&M=6&picks=0F0",
    "a=GPipe&K=4&M=6&board=<b>&picks=0F0",
    "a=GPipe&K=4&M=6&board=x&picks=0F0&own=1;2;3;4;5;6",
    "a=GPipe&K=4&M=6&board=own&own=1;2",
    "board=<b>",
    "board=",
    "board=%00",
    "board=own&board=own",
    "board=own&picks=",
    "board=own&picks=0F0<b>",
    "board=own&own=<b>;2;3;4;5;6",
    "board=own&at=1",
    "board=own&ask=0,0,0",
    "board=own&K=4",
    "own=1;2;3;4;5;6",
    "at=1",
    "a=rows&M=2",
    "a=rows&M=2&rows=0F0.",
    "a=rows&M=2&rows=0F0-0F1",
    "a=rows&M=2&rows=0f0",
    "a=rows&M=2&rows=0F",
    "a=rows&M=2&rows=_",
    "a=rows&M=2&rows=0F0&K=1",
    "a=rows&M=2&rows=0F0&stages=0,1",
    "a=rows&rows=0F0",
    "a=rows&M=2&name=<img src=x>&rows=0F0",
    "a=GPipe&K=4&M=6&x=" + "x" * 30_000,
    "&" * 10_000,
]


def test_a_broken_or_hostile_link_is_refused_in_words(node):
    for text, found in zip(REFUSED, node([["read", {"text": text}] for text in REFUSED]), strict=True):
        assert found["says"].startswith("no link says this: ") and len(found["says"]) < 120, (text, found)


def test_ten_thousand_spoiled_links_are_refused_or_say_something_plain(node, shared):
    texts = [each["gives"]["text"] for each in shared.values()]
    [found] = node([["fuzz", {"texts": texts, "count": 10_000, "seed": 5}]])
    assert found["wrong"] == []
    assert found["refused"] > 5000 and found["read"] > 500 and found["says"] > 10


# In a browser


@pytest.fixture
def board(browser, file) -> Iterator[Any]:
    """The board of a page of its own, at its first puzzle: two devices and one microbatch."""
    with Opened(browser, file) as opened:
        opened.page.click("#show-board")
        yield opened.page
        assert opened.wrong == []


def saved(page) -> Json:
    return page.evaluate("window.pipeline.state().board")


def said(page) -> str:
    return page.inner_text(".board-say")


def test_a_board_is_played_by_clicks(board):
    board.click(".board-next button:has-text('0B0')", force=True)  # it is marked as disabled, and says why
    assert board.inner_text(".board-hint") == (
        "0B0 needs 0F0 first: it reads what it saves; 0B0 needs 1B0 first, on device 1: it reads its gradient"
    )
    assert said(board) == "" and saved(board)["rows"] == ["", ""]  # it says so once
    board.hover(".board-next button:has-text('0F0')")
    assert board.inner_text(".board-hint") == "0F0: from 0 to 1; then device 0 holds 1"
    for action, held in {"0F0": "10", "1F0": "11", "1B0": "10", "0B0": "00"}.items():
        board.click(f".board-next button:has-text('{action}')")
        assert board.locator(".board-lanes .board-row > span:nth-of-type(2)").all_inner_texts() == [
            "held now",
            *held,
            "",
        ]
    assert saved(board) == {"puzzle": "there-and-back", "choice": None, "rows": ["0F0 0B0", "1F0 1B0"]}
    assert said(board).startswith("It takes 6: par, and no order takes less. Only one device works")
    text = 'gp.course.puzzle("there-and-back", """\ndevice 0: 0F0 0B0\ndevice 1: 1F0 1B0\n""")'
    assert board.input_value(".board-done textarea") == text
    assert eval(text, {"gp": gp}).verdict == "correct"
    board.click("text=See it in a chart")
    assert board.evaluate("window.pipeline.state().makespan") == [6]
    assert saved(board)["rows"] == ["0F0 0B0", "1F0 1B0"]


def test_a_board_is_played_by_keys(board):
    board.focus(".board-next button:has-text('0F0')")
    for key in ["Enter", "u", "r", "u"]:
        board.keyboard.press(key)
    assert saved(board)["rows"] == ["", ""]
    board.keyboard.press("Enter")  # the focus stays in the row, on what can go
    assert saved(board)["rows"] == ["0F0", ""]
    board.focus("[name=words]")
    board.keyboard.type("1F0 0B0")
    board.keyboard.press("Enter")
    assert said(board) == "0B0 needs 1B0 first, on device 1: it reads its gradient."
    assert board.input_value("[name=words]") == "0B0"  # what went is gone
    board.focus(".board-next button")
    board.keyboard.press("n")
    assert said(board).startswith("Forced: 1B0 0B0. It takes 6: par, and no order takes less. Only")


def test_a_finished_board_leads_to_the_next_puzzle_and_keeps_the_focus(board):
    board.focus(".board-next button:has-text('0F0')")
    for _ in range(4):  # the focus goes where there is something to pick, and at the end to what comes next
        board.keyboard.press("Enter")
    assert saved(board)["rows"] == ["0F0 0B0", "1F0 1B0"]
    titles = [puzzle["title"] for puzzle in PUZZLES.values()]
    assert board.evaluate("document.activeElement.textContent") == f"Next: {titles[1]}"
    assert board.inner_text(".board-done label").startswith("Run this in Python to train with your order:")
    board.keyboard.press("Enter")
    assert saved(board) == {
        "puzzle": list(PUZZLES)[1],
        "choice": None,
        "rows": [""] * len(PUZZLES[list(PUZZLES)[1]]["placement"]),
    }
    assert board.evaluate("document.activeElement.closest('.board-next') !== null")
    board.keyboard.press("n")
    assert said(board).startswith("Forced: ")
    board.keyboard.press("n")
    assert said(board) == "Forced: nothing, you choose."


def lefts(page, selector) -> list[float]:
    return page.eval_on_selector_all(selector, "all => all.map(each => each.getBoundingClientRect().left)")


def test_the_bars_have_the_library_s_shares_on_the_axis_of_time(board):
    name = "fill-the-wait"
    puzzle = PUZZLES[name]
    board.select_option(".board-puzzle", name)
    board.fill("[name=words]", " ".join(" ".join(row.split()[:1]) for row in puzzle["rows"]))
    board.evaluate(
        "rows => window.pipeline.load({...window.pipeline.state(), board: {puzzle: 'fill-the-wait', rows}})",
        puzzle["rows"],
    )
    board.click("#show-board")
    timeline = gp.simulate(order_of(puzzle, puzzle["rows"]), costs_of(puzzle))
    share = float(gp.bubble_fraction(timeline))
    lanes = board.eval_on_selector_all(
        ".board-score .board-lane", "all => all.map(each => each.getBoundingClientRect().toJSON())"
    )
    par = lefts(board, ".board-lanes .goal")
    assert len({round(left) for left in par}) == 1  # par stands at one place in all lanes
    whole = par[0] - lanes[0]["left"]
    wide = board.eval_on_selector_all(".bar", "all => all.map(each => each.getBoundingClientRect().width)")
    peaks = gp.peak_in_flight(order_of(puzzle, puzzle["rows"]))
    held = max(
        peak / room for peak, room in zip(peaks, puzzle["room"] or [puzzle["microbatches"]] * 3, strict=True)
    )
    assert wide == pytest.approx([share * whole, held * whole, whole], abs=1.5)
    marks = [left - lanes[0]["left"] for left in lefts(board, ".board-score .goal")]
    assert marks == pytest.approx([share * whole, whole, whole], abs=1.5)
    ticks = board.locator(".board-lanes .board-row:last-child .mark").all_inner_texts()
    places = [left - lanes[0]["left"] for left in lefts(board, ".board-lanes .board-row:last-child .mark")]
    assert places == pytest.approx([float(tick) * whole / puzzle["par"] for tick in ticks], abs=1.5)
    assert 4 <= len(ticks) <= 9


def test_one_s_own_board_and_what_misses_the_bound(board):
    board.select_option(".board-puzzle", "free")
    board.fill("[name=room]", "1")
    board.select_option("[name=stages]", "V")
    board.click("text=Begin")
    assert said(board) == "a board needs room for 2 on device 0."
    board.select_option("[name=stages]", "1")
    board.click("text=Begin")
    board.fill("[name=words]", "0F0 1F0 2F0 3F0 3B0 2B0 1B0 0B0")
    board.keyboard.press("Enter")
    board.click("text=Repeat the pattern")
    assert said(board) == (
        "Each row again, with the next microbatches: 40 more placed. It takes 72, 45 more than the bound. "
        "To move one action a little does not help."
    )
    assert board.locator(".board-box.lost").count() == 0  # with room for one, every wait has to be
    state = saved(board)
    assert state["choice"]["room"] == "1" and state["puzzle"] == "free"


def test_a_link_with_a_board_opens_it_again(board, browser, file):
    board.select_option(".board-puzzle", "fill-the-wait")
    board.fill("[name=words]", "0F0 0F1 1F0")
    board.keyboard.press("Enter")
    before = saved(board)
    board.click("#show-charts")
    board.click("#copy")
    fragment = board.evaluate("location.hash")
    with Opened(browser, file, fragment) as again:
        assert again.state()["board"] == before
        assert again.wrong == []


def opens_board(page) -> bool:
    return page.is_visible("#board") and not page.is_visible("#charts")


def test_a_link_to_a_board_alone_opens_it_and_the_charts_stay(browser, file):
    with Opened(browser, file) as plain_page:
        charts = plain_page.state()["charts"]
    for fragment, puzzle, rows in [
        ("#board=a-steady-beat", "a-steady-beat", [""] * 4),
        ("#board=own", "free", [""] * 4),
        ("#board=fill-the-wait&picks=0F0.0F1_1F0_", "fill-the-wait", ["0F0 0F1", "1F0", ""]),
        ("#board=own&own=2;2;1;FB;;1 1 1 0&picks=0F0_", "free", ["0F0", ""]),
    ]:
        with Opened(browser, file, fragment) as opened:
            assert opens_board(opened.page)
            state = opened.state()
            assert (state["board"]["puzzle"], state["board"]["rows"]) == (puzzle, rows)
            assert state["charts"] == charts and opened.wrong == []


def test_a_link_clicked_in_the_page_is_followed_to_a_board_and_back(browser, file):
    with Opened(browser, file) as opened:
        page = opened.page
        page.evaluate("location.hash = '#board=own'")
        page.wait_for_selector(".board-own")
        assert opens_board(page) and saved(page)["choice"]["microbatches"] == "6"
        page.evaluate("location.hash = '#a=GPipe&K=2&M=2'")
        page.wait_for_function("window.pipeline.state().makespan[0] === 9")
        assert page.is_visible("#charts") and not page.is_visible("#board")
        assert page.evaluate("document.querySelector('.panel canvas').width") > 200
        for wrong in ["board=none", "board=fill-the-wait&picks=0B0__", "board=own&own=9;9;9;9;9;9"]:
            page.evaluate("location.hash = '#board=own'")
            page.wait_for_selector(".board-own")
            page.evaluate(f"location.hash = '#{wrong}'")
            page.wait_for_function(
                "document.getElementById('say').textContent.startsWith('this link shows nothing')"
            )
            assert page.is_visible("#say") and saved(page)["rows"] == [""] * 4
        assert opened.state()["makespan"] == [9] and opened.wrong == []
