"""What a finished board is told: par or how far from it, on real digits; or what is wrong, in a sentence."""

import random
from dataclasses import replace

import numpy as np
import pytest
from replies import assert_says

import gpipe_sim as gp
from gpipe_sim.course import puzzle
from gpipe_sim.errors import DeadlockError
from gpipe_sim.viewer.puzzles import Bound, puzzles

STAIRS, FREE, V = "give-back-first", "fill-the-wait", "v-half"


@pytest.mark.parametrize("name", puzzles())
def test_the_shipped_order_runs_on_digits_at_par(name):
    board = puzzles()[name]
    reply = puzzle(name, str(board.schedule()))
    assert_says(reply, "correct", f"it takes {board.par:g}, the least of all orders. On ")
    found = reply.measured
    assert found.makespan == found.par == board.par and found.gradient_error < 1e-15
    assert len(found.peak) == board.devices and all(peak > 1000 for peak in found.peak)


def test_an_order_that_is_longer_is_told_by_how_much_what_it_gives_and_what_to_ask():
    reply = puzzle("there-and-back", "0F0 0B0\n1F0 1B0")
    assert str(reply).endswith("exactly those of one device, and the devices hold at most 16.64 kB, 2.72 kB.")
    slow = gp.memory.greedy(3, 4, memory_limit=1)
    reply = puzzle(name=FREE, text=str(slow))
    assert_says(
        reply, "almost", "it takes 36, 18 more than par. On 16 digits its gradients are exactly those of"
    )
    assert_says(reply, "almost", "Which device waits, and for what?")


def test_bytes_and_gradients_are_measured_on_this_order():
    """Backwards in reverse add gradients in another order; a device that holds more has more bytes."""
    in_turn, reverse = (gp.GPipe(3, 4, drain=drain) for drain in ("in_order", "reversed"))
    plain, mirrored = (puzzle(FREE, str(order)).measured for order in (in_turn, reverse))
    assert plain.gradient_error == 0 < mirrored.gradient_error < 1e-15
    stairs = puzzle(FREE, str(gp.OneFOneB(3, 4))).measured
    assert plain.peak[0] == stairs.peak[0] and plain.peak[1:] > stairs.peak[1:]
    layers, data = gp.mlp([64, 16, 16, 10]), gp.digits()
    batch = data.x[:16], data.y[:16]
    step = gp.train_step(gp.split(layers, stages=3), gp.OneFOneB(3, 4), batch, gp.cross_entropy)
    assert stairs.peak == tuple(trace.peak() for trace in step.memory)


def test_a_record_would_be_told_as_such(monkeypatch):
    """If par has a gap, the reply says what is proven, and an order below par is no mistake."""
    board = replace(puzzles()[FREE], par=20, bound=Bound(17, "why"), gap=3)
    monkeypatch.setitem(puzzles(), FREE, board)
    reply = puzzle(FREE, str(gp.OneFOneB(3, 4)))
    assert_says(reply, "correct", "it takes 18, the least known, and none takes less than 17. On 16 digits")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (
            FREE,
            "0F0",
            "fill-the-wait has devices: 3, stages: 3, microbatches: 4; and this order devices: 1, ",
        ),
        (FREE, str(gp.GPipe(3, 5)), "; and this order devices: 3, stages: 3, microbatches: 5"),
        (FREE, str(gp.Interleaved1F1B(3, 3, 2)), "; and this order devices: 3, stages: 6, microbatches: 3"),
        (FREE, "spam", "'spam' is not an action"),
        (FREE, "", "Explicit needs at least one action, such as 0F0"),
        (FREE, "device 1: 0F0", "row 0 is called device 1: rows are devices 0, 1, ..."),
        (FREE, 12, "the text has a row per device, such as '0F0 0B0', and is not 12"),
        (FREE, str(gp.GPipe(3, 4)).replace("1B2", ""), "is not a training step: 1B2 is missing"),
        (
            FREE,
            str(gp.GPipe(3, 4)).replace("1B2", "1B3"),
            "training step: 1B3 stands 2 times; it must run once; 1B2 is missing",
        ),
        (FREE, str(gp.ZBH1(3, 4)), "fill-the-wait is played with F, B alone, not with 0I0"),
        (
            FREE,
            str(gp.remat(gp.GPipe(3, 4), "always")),
            "fill-the-wait is played with F, B alone, not with 0R3",
        ),
        (
            FREE,
            str(gp.GPipe(3, 4)).replace("2F0 2F1", "(2F0;2B0)OVERLAP_F_B 2F1"),
            "alone, not with (2F0;2B0)",
        ),
        (
            V,
            str(gp.families.ZBV(4, 4))
            .replace("stages 0 7", "stages 0 1")
            .replace("stages 1 6", "stages 6 7"),
            "v-half has stages ((0, 7), (1, 6), (2, 5), (3, 4)) on its devices, not ((0, 1), (6, 7), (2, 5)",
        ),
        ("there-and-back", "1F0 1B0\n0F0 0B0", "0F0 is on device 1, but stage 0 is on device 0"),
        (STAIRS, str(gp.GPipe(3, 4)), "device 0 has room for 3 stage-activations, and 0F3 at 3 is one more"),
        (
            V,
            str(gp.families.ZBV(4, 4)),
            "device 2 has room for 6 stage-activations, and 5F2 at 9 is one more",
        ),
    ],
)
def test_what_does_not_run_is_refused_in_one_line(name, text, says):
    reply = puzzle(name, text)
    assert_says(reply, "keep working", says)
    assert "\n" not in reply.text


def test_a_deadlock_is_told_in_the_librarys_words():
    stuck = gp.Explicit(["0B0 0F0", "1F0 1B0"])
    with pytest.raises(DeadlockError) as error:
        gp.simulate(stuck)
    reply = puzzle("there-and-back", str(stuck))
    assert reply.verdict == "keep working"
    said = str(error.value).replace("\n", "").replace(" ", "")
    assert reply.text.replace("; ", "").replace(" ", "") == said


@pytest.mark.parametrize("name", ["two-pases", "", None, 7, [], np.zeros(3)])
def test_a_wrong_name_is_told_those_that_there_are(name):
    reply = puzzle(name, "0F0 0B0")
    assert_says(reply, "keep working", "there are there-and-back, fill-the-wait, ")
    assert all(each in reply.text for each in puzzles())


def test_without_a_text_it_says_what_to_do():
    assert puzzle(FREE) == puzzle(FREE, None)
    assert_says(puzzle(FREE), "your turn", "fill the board, and paste the text that it gives")


def test_whatever_is_pasted_gets_a_reply():
    """Pieces of a right answer, in any order."""
    pieces = [*str(gp.GPipe(3, 4)).split(), "\n", "device 0:", "stages", ";", "9F9", "ä"]
    rng = random.Random(0)
    for _ in range(200):
        text = " ".join(rng.choices(pieces, k=rng.randrange(30)))
        assert puzzle(FREE, text).verdict == "keep working", text
