"""What is printed inside ``wide``: on a page its lines stay whole, elsewhere it is printed."""

import sys
from types import SimpleNamespace

from gpipe_sim import course
from gpipe_sim.course.printed import Printed


def test_outside_a_notebook_it_is_printed(capsys):
    with course.wide():
        print("one line")
        print("0F0 < 1F0")
    assert capsys.readouterr().out == "one line\n0F0 < 1F0\n"


def test_a_notebook_shows_lines_that_scroll(monkeypatch, capsys):
    shown = []
    page = SimpleNamespace(get_ipython=lambda: "a shell", display=SimpleNamespace(display=shown.append))
    monkeypatch.setitem(sys.modules, "IPython", page)
    with course.wide():
        print("one line")
        print("0F0 < 1F0")
    assert shown == [Printed("one line\n0F0 < 1F0\n")] and not capsys.readouterr().out
    html = shown[0]._repr_html_()
    assert "white-space: pre" in html and "one line\n0F0 &lt; 1F0<" in html
    assert repr(shown[0]) == "one line\n0F0 < 1F0"


def test_what_ends_a_line_stays():
    assert repr(Printed("a  \n")) == "a  "
