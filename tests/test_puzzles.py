"""The puzzles: each order is legal and takes par, each bound holds, and rules of thumb miss what is hidden.

Where OR-Tools is installed (``make prove``), the solver is held against other ways to find the least.
"""

import json
import math
import random
import re
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpipe_sim as gp
from gpipe_sim.core import Action, looped
from gpipe_sim.errors import ScheduleError
from gpipe_sim.families import SCHEDULES, v_shaped
from gpipe_sim.machine.machine import Machine
from gpipe_sim.memory import greedy
from gpipe_sim.memory.greedy import Room
from gpipe_sim.viewer.bound import simple_bound
from gpipe_sim.viewer.puzzles import Bound, Puzzle, from_record, puzzles
from gpipe_sim.viewer.tables import about
from prove.answer import FILE, SHOWN, answered, as_text

ALL = list(puzzles().values())
each_puzzle = pytest.mark.parametrize("puzzle", ALL, ids=lambda puzzle: puzzle.name)
#: (par, the simple bound), as CP-SAT found them elsewhere, without an order of the microbatches.
KNOWN = {
    "there-and-back": (6, 6),
    "give-back-first": (18, 18),
    "a-steady-beat": (33, 33),
    "half-the-room": (39, 27),
    "loop-of-three": (20, 20),
    "tight-loop": (32, 20),
    "the-remainder": (24, 24),
    "in-groups": (57, 57),
    "put-off": (27, 27),
    "v-half": (29, 27),
    "v-min": (35, 27),
    "a-heavy-middle": (34, 33),
    "the-slow-link": (37, 29),
    "the-straggler": (28, 27),
    "down-and-up": (27, 26),
    "v-min-long": (59, 51),
}
#: No rule of thumb below reaches par.
DEFEATED = [
    "two-passes", "first-and-last", "loop-of-three", "the-remainder", "tight-loop", "slow-loop",
    "room-for-a-straggler", "v-half", "in-groups", "v-half-long",
]  # fmt: skip


def made(placement, microbatches, kinds="FB", room=None, **costs) -> Puzzle:
    """A puzzle that is nowhere shipped, and has no answer yet."""
    costs = gp.Costs(**costs)
    return Puzzle("made", "", "", "", placement, microbatches, kinds, costs, room, 0, (), Bound(0, ""), 0)


# What is shipped

NAMES = {about(family)["name"]: family for family in SCHEDULES} | {"Interleaved 1F1B": gp.Interleaved1F1B}
#: A family and what is said of it, up to the next one.
SAID = re.compile("({0})((?:(?!{0})[^.;])*)".format("|".join(sorted(NAMES, key=len, reverse=True))))


def test_what_was_learnt_is_so():
    checked = 0
    for puzzle in ALL:
        assert 40 <= len(puzzle.learnt) <= 190 and puzzle.learnt.endswith(".")
        for name, said in SAID.findall(puzzle.learnt):
            order = NAMES[name](puzzle.devices, puzzle.microbatches)
            assert order.placement == puzzle.placement
            took, peaks = gp.simulate(order, puzzle.costs).makespan, gp.peak_in_flight(order)
            if "does this" in said or " too" in said or "takes that" in said:
                assert took == puzzle.par or (took == 33 and puzzle.name == "put-off")
                fits = all(peak <= room for peak, room in zip(peaks, puzzle.limits, strict=True))
                assert fits or "does this" not in said, puzzle.name
                checked += 1
            if takes := re.search(r"takes? (\d+)", said):
                assert took == int(takes[1]), puzzle.name
                checked += 1
            if holds := re.search(r"holds (up to )?([\d, and]*\d)( on device 0)?", said):
                counts = tuple(map(int, re.findall(r"\d+", holds[2])))
                assert (peaks if counts[1:] else (peaks[0] if holds[3] else max(peaks),)) == counts, (
                    puzzle.name
                )
                assert "every" not in said or len({*peaks}) == 1
                checked += 1
        if works := re.search(r"Device (\d) works (\d+) of these (\d+)", puzzle.learnt, re.IGNORECASE):
            row = puzzle.timed(puzzle.schedule()).rows[int(works[1])]
            assert (sum(span.end - span.start for span in row), puzzle.par) == (int(works[2]), int(works[3]))
            checked += 1
    assert checked >= 50


def test_what_no_order_is_below_where_stages_or_backwards_are_whole():
    wholes = {
        "two-passes": made(looped(2, 2), 3, forward=2),
        "two-halves": made(looped(3, 3), 4),
        "put-off": made(looped(4, 4), 8),
    }
    for name, puzzle in wholes.items():
        assert f"no order takes less than {simple_bound(puzzle).value}" in puzzles()[name].learnt


def test_there_are_puzzles_of_every_kind_from_easy_to_hard():
    assert len(ALL) >= 15
    assert {puzzle.kinds for puzzle in ALL} == {"FB", "FIW"}
    assert ALL[0].microbatches == 1 and ALL[0].devices == 2
    actions = [puzzle.stages * puzzle.microbatches * len(puzzle.kinds) for puzzle in ALL]
    third = len(ALL) // 3
    assert sum(actions[:third]) < sum(actions[third : 2 * third]) < sum(actions[2 * third :])
    assert any(puzzle.room is None for puzzle in ALL) and any(puzzle.costs.comm for puzzle in ALL)
    assert any(puzzle.placement == v_shaped(puzzle.devices) for puzzle in ALL)
    assert {type(puzzle.costs.speed) for puzzle in ALL} == {type(puzzle.costs.forward) for puzzle in ALL}


def test_each_has_a_name_to_type_a_title_and_one_sentence_that_gives_no_order():
    assert len({puzzle.title for puzzle in ALL}) == len({puzzle.idea for puzzle in ALL}) == len(ALL)
    for name, puzzle in puzzles().items():
        assert name == puzzle.name and re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
        assert re.fullmatch(r"[A-Z][^.!?]{30,130}[.?]", puzzle.idea), puzzle.idea
        assert not re.search(r"\d[FBIW]\d", puzzle.idea + puzzle.title)


@each_puzzle
def test_its_order_has_every_action_once_keeps_within_its_room_and_takes_par(puzzle):
    order = puzzle.schedule()
    assert [sorted(row) for row in order.actions] == [sorted(row) for row in puzzle.work.actions]
    assert order.placement == puzzle.placement and {*map(len, puzzle.rows)} != {0}
    assert all(peak <= limit for peak, limit in zip(gp.peak_in_flight(order), puzzle.limits, strict=True))
    assert gp.simulate(order, puzzle.costs).makespan == puzzle.timed(order).makespan == puzzle.par


@each_puzzle
def test_a_room_is_enough_for_a_microbatch_and_not_for_all(puzzle):
    if puzzle.room is not None:
        rooms = list(zip(puzzle.room, puzzle.placement, strict=True))
        assert all(room >= len(stages) for room, stages in rooms)
        assert any(room < len(stages) * puzzle.microbatches for room, stages in rooms)


@each_puzzle
def test_its_bound_and_its_gap_make_par_and_the_simple_bound_speaks_where_it_is_as_good(puzzle):
    simple = simple_bound(puzzle)
    assert puzzle.bound.value + puzzle.gap == puzzle.par >= simple.value and puzzle.gap >= 0
    if puzzle.bound.value == simple.value:
        assert puzzle.bound == simple
    else:
        assert puzzle.bound.value > simple.value
        assert puzzle.bound.why == f"{SHOWN}." or (puzzle.gap and puzzle.bound.why.startswith(SHOWN))


def test_pars_and_simple_bounds_that_are_known():
    found = {name: (puzzles()[name].par, simple_bound(puzzles()[name]).value) for name in KNOWN}
    assert found == KNOWN


def test_the_file_is_what_the_proofs_write_and_reads_back_as_it_was():
    assert FILE.read_text() == as_text(ALL)
    assert [from_record(json.loads(json.dumps(puzzle.record()))) for puzzle in ALL] == ALL
    for puzzle in ALL:
        assert set(puzzle.record()["costs"]) == {*vars(gp.Costs())}


def test_an_answer_that_is_no_better_changes_nothing_and_what_is_not_proven_is_a_gap():
    puzzle = puzzles()["the-straggler"]
    slow = [" ".join(map(str, row)) for row in greedy(3, 4, memory_limit=1).actions]
    assert answered(puzzle, slow, shown=28) == puzzle
    open_ = answered(puzzle, puzzle.rows, shown=0)
    assert (open_.par, open_.bound, open_.gap) == (28, simple_bound(puzzle), 1)
    halfway = answered(puzzle, puzzle.rows, shown=27.5)
    assert (halfway.gap, halfway.bound.why) == (0.5, "CP-SAT shows that no order takes less than 27.5.")


# The simple bound


def test_the_sentence_of_the_simple_bound():
    assert simple_bound(puzzles()["the-slow-link"]) == Bound(
        29,
        "Device 2 cannot start before 6, has 15 of work, and after that the last gradient needs 8 more: "
        "6 + 15 + 8 = 29.",
    )
    why = simple_bound(puzzles()["put-off"]).why
    assert why == "Device 3 cannot start before 3, and has 24 of work: 3 + 24 = 27."
    assert simple_bound(puzzles()["first-and-last"]).why == "Device 0 has 24 of work."
    slow_back = made(looped(2, 2), 2, "FIW", forward=1, input_grad=5, weight_grad=1)
    assert simple_bound(slow_back) == Bound(
        19,
        "Device 1 cannot start before 1, has F and I of 12, and after that the last gradient needs 6 more: "
        "1 + 12 + 6 = 19.",
    )


PLACED = [looped(2, 4), v_shaped(2), looped(4, 4), ((0, 3), (1,), (2,)), ((2, 0), (1, 3))]
lists_of = st.lists(st.integers(1, 3), min_size=4, max_size=4)


@given(
    placement=st.sampled_from(PLACED),
    microbatches=st.integers(1, 4),
    kinds=st.sampled_from(["FB", "FIW"]),
    forward=lists_of,
    input_grad=lists_of,
    weight_grad=lists_of,
    comm=st.integers(0, 3),
    slow=st.integers(1, 2),
    seed=st.integers(0, 99),
)
def test_no_order_is_below_the_simple_bound(placement, microbatches, kinds, comm, slow, seed, **takes):
    """Neither greedy ones, of all priorities, nor random ones."""
    speed = [1 / slow, *[1] * (len(placement) - 1)]
    puzzle = made(placement, microbatches, kinds, **takes, comm=comm, speed=speed)
    bound = simple_bound(puzzle).value
    assert by_greedy(puzzle) >= bound
    rng = random.Random(seed)
    assert taken_by(puzzle, lambda machine, fitting: rng.choice(sorted(fitting))) >= bound


@pytest.mark.parametrize("microbatches", range(1, 5))
def test_the_simple_bound_is_reached_by_one_microbatch_and_by_1f1b(microbatches):
    puzzle = made(looped(3, 3), microbatches, comm=1)
    if microbatches == 1:
        assert gp.simulate(gp.OneFOneB(3, 1), puzzle.costs).makespan == simple_bound(puzzle).value == 13
    free = made(looped(3, 3), microbatches)
    assert gp.simulate(gp.OneFOneB(3, microbatches)).makespan == simple_bound(free).value


# Rules of thumb


def by_greedy(puzzle: Puzzle):
    """The best of ``gp.greedy`` with every priority."""
    size = puzzle.devices, puzzle.microbatches, puzzle.placement
    plans = [greedy(*size, first, puzzle.limits, puzzle.costs) for first in permutations(puzzle.kinds)]
    return min(gp.simulate(plan, puzzle.costs).makespan for plan in plans)


def taken_by(puzzle: Puzzle, choose, kinds=None):
    """The makespan if ``choose`` says which of the entries runs next that are ready and fit into the room."""
    rank = {kind: place for place, kind in enumerate(kinds or puzzle.kinds)}
    work = puzzle.schedule(
        [sorted(row, key=lambda a: (rank[a.kind], a.microbatch, a.stage)) for row in puzzle.work.actions]
    )
    machine = Machine(work.program, puzzle.costs, ordered=False)
    rooms = [Room(stages, limit) for stages, limit in zip(puzzle.placement, puzzle.limits, strict=True)]
    actions = [action for row in work.actions for action in row]
    while machine.ready:
        fitting = [entry for entry in machine.ready if rooms[machine.home[entry]].admits(actions[entry])]
        entry = choose(machine, fitting)
        rooms[machine.home[entry]].record(actions[entry])
        machine.apply(entry)
    return max(machine.ends)


def by_earliest(puzzle: Puzzle):
    """As ``Machine.earliest`` among those that fit; the best, whichever kind comes first in a tie."""

    def earliest(machine, fitting):
        return min(fitting, key=lambda entry: (machine.start(entry), entry))

    return min(taken_by(puzzle, earliest, kinds) for kinds in permutations(puzzle.kinds))


def pattern(puzzle: Puzzle, period: int, unit: float) -> dict[Action, int]:
    """When one microbatch does what: as early as it can, no two of a device at one time of the period."""
    alone = made(puzzle.placement, 1, puzzle.kinds).work
    machine = Machine(alone.program, puzzle.costs, ordered=False)
    actions = [action for row in alone.actions for action in row]
    taken: list[set[int]] = [set() for _ in puzzle.placement]
    starts: dict[int, float] = {}
    while machine.ready:
        arrivals = {
            entry: max(
                (starts[need] + machine.durations[need] + late for need, late in machine.needs[entry]),
                default=0,
            )
            for entry in machine.ready
        }
        entry = min(machine.ready, key=lambda entry: (arrivals[entry], actions[entry].kind == "W", entry))
        steps, busy = int(machine.durations[entry] / unit), taken[machine.home[entry]]
        for start in range(int(arrivals[entry] / unit), int(arrivals[entry] / unit) + period):
            slots = {(start + step) % period for step in range(steps)}
            if not slots & busy and len(slots) == steps:
                break
        else:
            return {}
        busy |= slots
        starts[entry] = start * unit
        machine.apply(entry)
    return {actions[entry]: start for entry, start in starts.items()}


def by_stamping(puzzle: Puzzle):
    """The best of one microbatch's pattern, repeated after every period: packed into it, or as if alone."""
    unit = 0.5 if any(time % 1 for time in Machine(puzzle.work.program, puzzle.costs).durations) else 1
    freely = pattern(puzzle, 1000, unit)
    found = [math.inf]
    for period in range(1, int(max(freely.values()) / unit) + 5):
        for starts in filter(None, (freely, pattern(puzzle, period, unit))):
            order = stamped(puzzle, starts, period * unit)
            if all(peak <= most for peak, most in zip(gp.peak_in_flight(order), puzzle.limits, strict=True)):
                found.append(makespan(order, puzzle.costs))
    return min(found)


def stamped(puzzle: Puzzle, starts: dict[Action, float], period: float) -> gp.Explicit:
    placed = [
        (start + m * period, m, Action(stage, kind, m))
        for (stage, kind, _), start in starts.items()
        for m in range(puzzle.microbatches)
    ]
    rows = [[a for *_, a in sorted(placed) if a.stage in stages] for stages in puzzle.placement]
    return puzzle.schedule(rows)


def makespan(order, costs):
    """Infinite for an order that cannot finish."""
    try:
        return gp.simulate(order, costs).makespan
    except ScheduleError:
        return math.inf


def test_rules_of_thumb_find_what_they_are_for():
    """Par of the plain ones, so that missing it says something of the puzzle."""
    for name in ("there-and-back", "fill-the-wait", "give-back-first", "a-steady-beat", "the-straggler"):
        puzzle = puzzles()[name]
        assert by_greedy(puzzle) == by_earliest(puzzle) == by_stamping(puzzle) == puzzle.par
    assert by_stamping(puzzles()["v-min"]) == 35 < by_greedy(puzzles()["v-min"])


def test_at_least_eight_puzzles_defeat_them():
    assert len({*DEFEATED}) >= 8


@pytest.mark.parametrize("name", DEFEATED)
def test_no_rule_of_thumb_reaches_par_of(name):
    puzzle = puzzles()[name]
    for found in (by_greedy(puzzle), by_earliest(puzzle), by_stamping(puzzle)):
        assert puzzle.par < found < math.inf


# A text, and its times


def test_a_board_reads_its_text_with_heads_and_without():
    puzzle = puzzles()["v-half"]
    assert puzzle.read(str(puzzle.schedule())) == puzzle.read("\n".join(puzzle.rows)) == puzzle.schedule()


def test_times_of_an_order_beyond_the_room_are_refused_where_it_happens_first():
    puzzle = puzzles()["give-back-first"]
    says = "device 0 has room for 3 stage-activations, and 0F3 at 3 is one more"
    with pytest.raises(ScheduleError, match=f"^{says}$"):
        puzzle.timed(gp.GPipe(3, 4))
    later = (
        "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3\n1F0 1F1 1F2 1B0 1B1 1B2 1F3 1B3\n2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3"
    )
    with pytest.raises(ScheduleError, match="device 1 has room for 2 stage-activations, and 1F2 at 3"):
        puzzle.timed(puzzle.read(later))


def test_a_backward_that_ends_when_a_forward_starts_has_made_room():
    puzzle = made(looped(1, 1), 3, room=(1,))
    assert puzzle.timed(puzzle.read("0F0 0B0 0F1 0B1 0F2 0B2")).makespan == 9
    split = made(looped(1, 1), 2, "FIW", room=(1,))
    assert split.timed(split.read("0F0 0I0 0W0 0F1 0I1 0W1")).makespan == 6
    with pytest.raises(ScheduleError, match="0F1 at 2 is one more"):
        split.timed(split.read("0F0 0I0 0F1 0W0 0I1 0W1"))


# With OR-Tools


@pytest.fixture(scope="module")
def solve():
    pytest.importorskip("ortools", reason="make prove installs OR-Tools")
    from prove.model import solve

    return solve


@pytest.mark.parametrize(
    "puzzle",
    [
        made(looped(2, 2), 3, room=(1, 2), forward=[1, 2], input_grad=[2, 1], weight_grad=[1, 0]),
        made(looped(2, 4), 2, comm=1, room=(3, 4)),
        made(looped(2, 2), 2, "FIW", room=(2, 1)),
        made(v_shaped(2), 2, "FIW", speed=[1, 0.5], room=(3, 3)),
        made(((0, 3), (1,), (2,)), 3, room=(3, 2, 1)),
    ],
)
def test_the_order_of_microbatches_loses_no_makespan(solve, puzzle):
    best, any_turn = solve(puzzle), solve(puzzle, in_turn=False)
    assert best.status == any_turn.status == "OPTIMAL"
    assert best.makespan == any_turn.makespan == puzzle.timed(puzzle.schedule(best.rows)).makespan
    assert solve(puzzle, best.makespan, below=True).status == "INFEASIBLE"


@pytest.mark.parametrize("name", [*DEFEATED[:6], "v-half"])
def test_no_pattern_at_all_reaches_par_however_it_is_repeated(solve, name):
    puzzle = puzzles()[name]
    assert solve(puzzle, puzzle.par, stamped=True).status == "INFEASIBLE"
    assert solve(puzzle, puzzle.par).status == "OPTIMAL"
