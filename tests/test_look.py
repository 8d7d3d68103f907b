"""What `make look` says of what it saw; seeing itself needs a browser."""

import pytest

from look.findings import NARROW, WIDE, in_outputs, in_page
from look.lessons import ROOT, chosen, number
from look.server import SERVED

CHART = {"source": "image/svg+xml", "alt": "GPipe: 4 devices", "loaded": True, "bare": False, "top": 300}
CELL = {"images": [CHART], "wide": False, "markup": False, "bare_folds": 0, "broken": None}

SAYS_NOTHING = ["", " ", "Image", "No description has been provided for this image"]


def wrong_with(image: dict | None = None, **cell) -> list[str]:
    """What is wrong in a window of 500 pixels, of whose two cells the second has these changes."""
    return list(in_page([CELL, CELL | {"images": [CHART | (image or {})]} | cell], 500))


def code(*outputs: dict, number: int | None = 1, tags: tuple[str, ...] = (), source: str = "f()") -> dict:
    return {
        "cell_type": "code",
        "execution_count": number,
        "metadata": {"tags": tags},
        "source": source,
        "outputs": outputs,
    }


def test_a_chart_that_shows_with_words_is_right():
    assert wrong_with() == []


@pytest.mark.parametrize(
    ("image", "cell", "said"),
    [
        ({"source": "/files/zoo.png", "loaded": False}, {}, "the image /files/zoo.png did not load"),
        *(({"alt": alt}, {}, "an image, image/svg+xml, has no alt text") for alt in SAYS_NOTHING),
        # it cannot have words
        ({"source": "image/png", "alt": "", "bare": True}, {}, "a bare output, image/png, has no alt text"),
        ({}, {"wide": True}, "what it shows is wider than its place, in a window of 500 pixels"),
        ({}, {"images": [], "markup": True}, "the text <svg is shown instead of a chart"),
        ({}, {"bare_folds": 1}, "a fold has no frame"),
        ({}, {"broken": "0F0"}, "the printed word 0F0 is broken, in a window of 500 pixels"),
    ],
)
def test_what_is_wrong_is_said_with_its_cell(image, cell, said):
    assert wrong_with(image, **cell) == [f"cell 2: {said}"]


@pytest.mark.parametrize(("top", "says"), [(None, "there is none"), (901, "the first is 901 down")])
def test_the_first_screen_has_an_open_picture(top, says):
    late = [CELL | {"images": [CHART | {"top": top}]}]
    assert list(in_page(late, WIDE)) == [f"no open picture in the first 900 pixels: {says}"]
    assert list(in_page([*late, CELL], WIDE)) == list(in_page(late, NARROW)) == []


def test_cells_that_ran_and_prose_and_empty_cells_are_right():
    prose = {"cell_type": "markdown", "metadata": {}, "source": "f()"}
    printed = {"output_type": "stream", "name": "stdout", "text": "3"}
    assert list(in_outputs([prose, code(printed), code(number=None, source="\n")])) == []


def test_an_error_names_its_cell_and_those_that_did_not_run():
    error = {"output_type": "error", "ename": "NameError", "evalue": "name 'f' is not defined"}
    assert list(in_outputs([code(error), code(number=None), code(number=None)])) == [
        "not run: cell 2, 3",
        "cell 1 ended in NameError: name 'f' is not defined",
    ]
    assert list(in_outputs([code(error, tags=("raises-exception",))])) == []


def test_what_is_written_to_stderr_is_quoted():
    warning = {"output_type": "stream", "name": "stderr", "text": ["careful\n", "and more\n"]}
    assert list(in_outputs([code(warning)])) == ["cell 1 wrote to stderr: careful"]


def test_lessons_are_chosen_by_number_in_the_course_s_order():
    assert [number(path) for path in chosen(["A", "04"])] == ["04", "A"]
    assert len(chosen([])) == len(list((ROOT / "notebooks").glob("*.ipynb")))
    with pytest.raises(SystemExit, match=r"There is no lesson 4\. There are 01, 02, .*, A, B, P, T\."):
        chosen(["4"])


def test_lessons_are_seen_as_make_lab_opens_them():
    assert f"$(RUN) jupyterlab {SERVED}\n" in (ROOT / "Makefile").read_text()
