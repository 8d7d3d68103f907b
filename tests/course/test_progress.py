"""Progress goes home and comes back; what is no progress is refused, and changes nothing."""

import base64
import os
import re
import sys
from types import ModuleType, SimpleNamespace

import pytest

from gpipe_sim import course
from gpipe_sim.course import mine

KEPT = mine.with_section(mine.with_section("", "a", "a = 1\n"), "b", "b = a + 1\n")


def test_what_is_downloaded_comes_back_in_an_empty_folder(file, tmp_path):
    file.write_text(KEPT)
    reply = course.download()
    assert str(reply).startswith("progress: 2 pieces in my_pipeline.py: a, b. Bring it back with ")
    data = re.search(
        r'download="my_pipeline.py" href="data:text/x-python;base64,([^"]+)"', reply._repr_html_()
    )
    file.unlink()
    (tmp_path / "my_pipeline (1).py").write_bytes(base64.b64decode(data[1]))
    assert str(course.bring_back("my_pipeline (1).py")) == "progress: brought back: a, b"
    assert file.read_text() == KEPT and mine.b == 2


def test_what_is_there_already_stays(file, tmp_path):
    file.write_text(mine.with_section("", "a", "a = 7\n"))
    (tmp_path / "other.py").write_text(KEPT.replace("\n", "\r\n"), newline="")
    says = "progress: brought back: b. Yours of here stay: a. For the others, delete my_pipeline.py first"
    assert str(course.bring_back(tmp_path / "other.py")) == says
    assert mine.sections(file.read_text()) == {"a": "a = 7\n\n\n", "b": "b = a + 1\n\n"}
    says = "progress: all of it was here already. Yours of here stay: a. For "
    assert str(course.bring_back("other.py")).startswith(says)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no line in it begins a piece, such as # --- clock"),
        (b"print('hello')\n", "no line in it begins a piece"),
        (b'{"cells": []}', "no line in it begins a piece"),
        (b"# --- clock\ndef clock(:\n", "it is no Python (invalid syntax"),
        (b"\xff\xfe\x00", "it is no Python ('utf-8' codec"),
        (b"#" * (mine.MOST + 1), "it is over 1,000,000 bytes long"),
    ],
)
def test_what_is_no_progress_is_refused(data, says, file, tmp_path):
    (tmp_path / "strange.py").write_bytes(data)
    reply = course.bring_back("strange.py")
    assert reply.verdict == "keep working" and reply.text.startswith("strange.py is no progress file: ")
    assert says in reply.text and not file.exists()


def test_without_a_file_it_says_how(file):
    assert "nothing has passed its check yet" in course.download().text
    assert course.bring_back().text.startswith("upload my_pipeline.py into the folder of the notebooks")
    assert "missing.py cannot be read: " in course.bring_back("missing.py").text
    assert course.bring_back(7).text == "give the name of a file, not 7"
    assert "cannot be read: " in course.bring_back(".").text


def test_colab_asks_with_its_own_dialogues(file, monkeypatch):
    colab, saved = ModuleType("google.colab"), []
    colab.files = SimpleNamespace(download=saved.append, upload=lambda: {"mine.py": KEPT.encode()})
    monkeypatch.setitem(sys.modules, "google.colab", colab)
    assert str(course.bring_back()) == "progress: brought back: a, b"
    assert course.download().verdict == "progress" and saved == ["my_pipeline.py"]
    colab.files.upload = dict
    assert course.bring_back().text == "no file was chosen"


def test_where_nobody_may_write_it_is_kept_at_home(file, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert mine.stored() == ""
    mine.keep(KEPT)
    assert (home / mine.FILE).read_text() == mine.stored() == KEPT and not file.exists()
    assert f"2 pieces in {home / mine.FILE}" in course.download().text
