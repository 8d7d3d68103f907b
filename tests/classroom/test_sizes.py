"""Whatever an instructor's seed draws, the lessons' answers are right, and a table of old sizes is not."""

import pytest

from gpipe_sim.classroom.notebooks import every_lesson, pieces
from gpipe_sim.classroom.sizes import DRAWN, seeded
from gpipe_sim.course import answers, lesson_04

PIECES = [(lesson, piece) for lesson in every_lesson() for piece in pieces(lesson) if piece.name in DRAWN]
SEEDS = 2


def own(piece):
    """The functions of a lesson's folded answers."""
    names = dict(vars(answers))
    exec("import gpipe_sim as gp\nfrom fractions import Fraction\nfrom math import *", names)
    for text in piece.answers:
        exec(text, names)
    return [names[name] for name in piece.names]


def test_every_draw_is_of_a_piece():
    assert {piece.name for _, piece in PIECES} == {*DRAWN} and len(DRAWN) >= 34


@pytest.mark.parametrize(("lesson", "piece"), PIECES, ids=lambda each: getattr(each, "name", each))
def test_the_lessons_answer_is_right_at_sizes_of_any_seed(lesson, piece):
    for seed in range(SEEDS):
        with seeded(piece.name, lesson, seed):
            reply = piece.check(*own(piece))
        assert reply.verdict == "correct", (seed, reply)


def test_a_table_of_what_is_right_at_the_old_sizes_does_not_pass():
    known = {size: answers.gpipe_rows(*size) for size in lesson_04.ROWS}

    def from_table(K, M):
        return known.get((K, M), [])

    assert lesson_04.gpipe_rows(from_table).verdict == "correct"
    with seeded("gpipe_rows", "04", 1):
        assert lesson_04.gpipe_rows(from_table).verdict == "keep working"
    assert lesson_04.gpipe_rows(from_table).verdict == "correct"
