"""A student's file from before lessons were split and renumbered: what it holds is named by its function."""

import inspect

import pytest

from gpipe_sim import textbook
from gpipe_sim.course import answers, mine

#: The pieces of builds whose lesson has another number now, under the checks that kept them.
KEPT = {
    "program": "program",
    "two_halves": "input_gradient weight_gradient",
    "split_needs": "SPLIT",  # now a part of two_halves
    "putting_off": "putting_off",
    "stamped": "stamped",
    "attention": "attention one_head",
    "ring_sum": "ring_sum",
    "stream": "stream_rows versions_seen",
}


def source(name: str) -> str:
    if name == "SPLIT":
        return f"SPLIT = {textbook.SPLIT!r}\n"
    return inspect.getsource(getattr(answers, name))


def old_file() -> str:
    text = ""
    for check, names in KEPT.items():
        text = mine.with_section(text, check, "\n\n".join(map(source, names.split())))
    return text


@pytest.mark.parametrize("name", " ".join(KEPT.values()).split())
def test_each_piece_of_an_old_file_is_read_as_the_students_own(name):
    piece, given = mine.pipeline(old_file())[name], mine.pipeline()[name]
    assert piece == given if name == "SPLIT" else piece.__code__.co_filename == mine.FILE
    assert piece is not given


def test_what_is_written_now_stands_beside_what_an_old_file_has():
    """The table is one build with the halves now; a right one of before says the same."""
    again = "\n\n".join(map(source, ("SPLIT", "input_gradient", "weight_gradient")))
    text = mine.with_section(old_file(), "two_halves", again)
    assert list(mine.sections(text)) == list(KEPT)
    assert mine.pipeline(text)["SPLIT"] == textbook.SPLIT
