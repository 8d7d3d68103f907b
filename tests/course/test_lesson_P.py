"""The puzzles as a notebook: the words of the page, orders that run, a reply to each mistake."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from replies import assert_each_is_told, assert_says, each_reply, natural

import gpipe_sim as gp
from gpipe_sim.core.timeline import number
from gpipe_sim.course import lesson_P, puzzle
from gpipe_sim.course.reveal import FRAME, PRESS
from gpipe_sim.errors import DeadlockError
from gpipe_sim.viewer.bound import device_bounds, simple_bound
from gpipe_sim.viewer.puzzles import Puzzle, puzzles

NOTEBOOK = Path(__file__).parents[2] / "notebooks/P_puzzles.ipynb"
EACH = [*lesson_P.names().items()]
LOCKED = "there_and_back"  #: one microbatch alone has one order, so this one begins with another
each_puzzle = pytest.mark.parametrize(("name", "board"), EACH, ids=[name for name, _ in EACH])


def asked(number_: int, board: Puzzle) -> str:
    """What stands above a puzzle's cell: the words of the page, and nothing else."""
    held = "; ".join(f"device {k} has {' and '.join(map(str, own))}" for k, own in enumerate(board.placement))
    stages = f" Stages: {held}." if board.stages > board.devices else ""
    head = f"### {number_} · {board.title}\n\n{board.idea}\n\n"
    return f"{head}{board.facts}{stages} **Par is {number(board.par)}.**"


def begun(name: str, board: Puzzle) -> str:
    """The cell as a student finds it."""
    order = "0B0 0F0\n1F0 1B0" if name == LOCKED else lesson_P.slow(board)
    return f"{as_cell(name, order)}\n\ngp.course.lesson_P.play_{name}({name})"


def answer(name: str, board: Puzzle) -> str:
    summary = f"<details {FRAME}><summary {PRESS}>One answer</summary>"
    return f"{summary}\n\n```python\n{as_cell(name, chr(10).join(board.rows))}\n```\n\n</details>"


def as_cell(name: str, order: str) -> str:
    return f'{name} = """\n{order}\n"""'


def test_the_notebook_has_each_puzzle_of_the_page_in_its_order_and_words():
    """A puzzle that is new in puzzles.json gets three cells: these texts."""
    sources = ["".join(cell["source"]) for cell in json.loads(NOTEBOOK.read_text())["cells"]]
    found = [n for n, source in enumerate(sources) if source.startswith("### ")]
    assert len(found) == len(puzzles())
    for n, (at, (name, board)) in enumerate(zip(found, EACH, strict=True), start=1):
        assert sources[at : at + 3] == [asked(n, board), begun(name, board), answer(name, board)]


@each_puzzle
def test_the_order_to_begin_with_runs_within_its_room_and_takes_longer_than_par(name, board):
    timeline = board.timed(board.read(lesson_P.slow(board)))
    assert max(gp.peak_in_flight(timeline.schedule)) == max(map(len, board.placement))
    assert timeline.makespan > board.par or name == LOCKED


@each_puzzle
def test_the_proof_counts_what_each_device_needs_and_says_what_a_search_adds(name, board):
    below = getattr(lesson_P, f"play_{name}")(lesson_P.slow(board)).below
    assert all(each.why in below for each in device_bounds(board))
    assert f"Why no order takes less than {number(board.par)}</summary>" in below
    counted = simple_bound(board).value == board.par
    assert counted != (f"<code>.venv/bin/python -m prove {board.name}</code>" in below)


def test_below_a_reply_stand_the_chart_what_each_device_did_and_at_par_what_was_learnt():
    board = puzzles()["the-straggler"]
    orders = lesson_P.slow(board), str(board.schedule())
    slow, par = map(lesson_P.play_the_straggler, orders)
    assert "device 1      24 of 48               1      2        5.888 kB" in slow.below
    assert "takes 48; par is 28" in slow.below and "takes 28; par is 28" in par.below
    assert slow.below.count("<img") == par.below.count("<img") == 1
    assert board.learnt in par.below and board.learnt not in slow.below
    assert slow._repr_html_() == f"<p><b>almost</b>: {slow.text}</p>{slow.below}"
    assert "any        " in lesson_P.play_fill_the_wait(str(gp.OneFOneB(3, 4))).below


def test_where_it_goes_wrong_is_drawn_if_it_can_be():
    stuck = lesson_P.play_there_and_back("0B0 0F0\n1F0 1B0").below
    full = lesson_P.play_give_back_first(str(gp.GPipe(3, 4))).below
    assert gp.drawing.draw_deadlock(gp.Explicit(["0B0 0F0", "1F0 1B0"]))._repr_html_() in stuck
    assert "0F3 is one more than device 0 has room for" in full and full.count("<img") == 1
    assert "<img" not in lesson_P.play_give_back_first("spam").below


def test_scores_say_what_each_order_takes_and_what_counting_shows():
    said = lesson_P.scores({"the_straggler": str(gp.OneFOneB(3, 4)), "v_min": 7, "tight_loop": "spam"})
    lines = said.splitlines()
    assert "The straggler                28    28       27" in lines
    assert "V-Min                      none    35       27" in lines
    assert "A tight loop           no order    32       20" in lines
    assert lines[-1] == "at par in 1 of 23; counting alone shows par of 11"


def test_there_is_no_check_of_another_name():
    with pytest.raises(AttributeError, match="no puzzle has a check 'play_two_pases'"):
        lesson_P.play_two_pases  # noqa: B018
    check = lesson_P.play_two_passes
    assert check is lesson_P.play_two_passes and check.__name__ == "play_two_passes"


def test_each_natural_guess_is_told():
    """GPipe, which holds all four, takes 30; what fits into 3, 2 and 1 takes 28."""
    board = puzzles()["the-straggler"]
    gpipe = gp.simulate(gp.GPipe(3, 4), board.costs)
    waits = [(one.end, two.start) for one, two in zip(gpipe.rows[1], gpipe.rows[1][1:], strict=False)]
    assert [wait for wait in waits if wait[0] != wait[1]] == [(9, 12)]
    assert (gpipe.makespan, board.par) == (30, 28)
    assert_each_is_told(natural("P", "The straggler, with less room"), "shorter")
    assert_each_is_told(natural("P", "Three schedules on one V"), "false")


# --- wrong answers: one of each kind, made of every puzzle's own order


def text(rows: list[list[str]]) -> str:
    return "\n".join(map(" ".join, rows))


def wrong(board: Puzzle) -> list[tuple[object, str]]:
    """(an order that is none of this board's, words of the reply)."""
    rows = [row.split() for row in board.rows]
    first, *others = rows
    last = first[-1]
    back = board.kinds[-1]
    sizes = f"{board.name} has devices: {board.devices}, stages: {board.stages}, microbatches: "
    return [
        ("", "Explicit needs at least one action, such as 0F0"),
        ("spam", "'spam' is not an action"),
        (12, "the text has a row per device, such as '0F0 0B0', and is not 12"),
        (rows, "the text has a row per device"),
        (text(rows[:1]), "and this order devices: 1"),
        (text([*rows, ["9F0", "9B0"]]), sizes),
        (text([[*first, f"0F{board.microbatches}"], *others]), sizes),
        (text([first[:-1], *others]), f"{last} is missing" if board.microbatches > 1 else "missing"),
        (text([[*first, last], *others]), f"{last} stands 2 times"),
        (text([first[::-1], *others]), f"device 0 is stuck at {last}"),
        (text([*rows[1:], first]), "but stage" if board.stages == board.devices else ""),
        (text(rows).replace(f"0{back}0", "0R0"), ""),
    ]


def slow_ones(name: str, board: Puzzle) -> list[tuple[object, str]]:
    taken = number(Fraction(board.timed(board.read(lesson_P.slow(board))).makespan))
    return [(lesson_P.slow(board), f"it takes {taken}, ")] * (name != LOCKED)


test_replies = each_reply(
    lesson_P,
    **{
        f"play_{name}": {
            "keep working": wrong(board),
            "almost": slow_ones(name, board),
            "correct": [("\n".join(board.rows), f"it takes {number(board.par)}, the least of all orders")],
        }
        for name, board in EACH
    },
)


def test_a_deadlock_is_told_in_the_librarys_words():
    with pytest.raises(DeadlockError) as error:
        gp.simulate(gp.Explicit(["0B0 0F0", "1F0 1B0"]))
    first = str(error.value).splitlines()[0]
    assert_says(puzzle("there-and-back", "0B0 0F0\n1F0 1B0"), "keep working", first)
