"""The pictures of the lessons, as files: each opens by itself, and a page shows all of them."""

import re
from xml.etree import ElementTree

from gpipe_sim.classroom.notebooks import notebooks
from gpipe_sim.classroom.slides import slides


def test_every_lesson_with_a_picture_has_it_as_a_file_and_the_page_shows_each(tmp_path):
    *files, index = slides(tmp_path / "pictures")
    for path in files:
        if path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        else:
            assert path.read_bytes().startswith(b"\x89PNG")
    page = index.read_text("utf-8")
    assert re.findall(r'<img src="([^"]+)"', page) == [path.name for path in files]
    shown = {path.name.partition("-")[0] for path in files}
    assert shown >= {lesson for lesson in notebooks() if re.fullmatch(r"\d\d|[AB]", lesson)}
    assert "01-1.svg</code> One device has the model" in page
