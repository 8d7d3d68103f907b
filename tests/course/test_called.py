"""How a check calls a student's function: copies go in, and whatever happens ends in a sentence."""

import signal
import sys
import threading
import time

import numpy as np
import pytest

from gpipe_sim.course import called as module
from gpipe_sim.course import limit
from gpipe_sim.course.called import alike, called
from gpipe_sim.course.limit import TooLong, time_limit
from gpipe_sim.course.reply import Reply

# TooLong may come while Python runs a callback of its own, which then reports it; a second one follows.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def refused(function, *arguments) -> str:
    """The text of the reply that a call ends in."""
    with pytest.raises(Reply) as caught:
        called(function, *arguments)
    return caught.value.text


def test_a_check_hands_out_copies():
    layers, x = [1, [2]], np.zeros(3)

    def greedy(layers, x):
        layers.pop()[0] = 7
        x += 1
        return len(layers)

    assert called(greedy, layers, x) == 1
    assert layers == [1, [2]] and not x.any()


@pytest.mark.parametrize("kind", [np.int8, np.uint64, np.float32])
def test_a_number_of_numpys_comes_as_pythons_own(kind):
    """In int8, 100 + 100 is -56."""
    assert type(called(lambda: kind(1))) is type(kind(1).item())
    assert type(called(lambda: kind(1), plain=False)) is kind


def test_unless_the_student_is_to_change_what_it_gets():
    stage = {}
    called(lambda stage: stage.update(kept=1), stage, copies=False)
    assert stage == {"kept": 1}


def test_a_crash_comes_with_the_students_own_line_and_a_question():
    def rows(K):
        row = [0] * K
        return sorted(row, key=lambda m: row[K])  # the innermost own line, though `sorted` called it

    said = refused(rows, 3)
    assert said.startswith("called with (3) it stopped: IndexError: list index out of range, in your line ")
    assert "return sorted(row, key=lambda m: row[K])" in said and said.endswith("which one did you ask for?")


def test_a_crash_without_a_text_is_a_sentence_too():
    def hopes(K):
        raise AssertionError

    said = refused(hopes, 3)
    assert said.startswith("called with (3) it stopped: AssertionError, in your line ")
    assert said.endswith("raise AssertionError. What are the values at that moment?")


def test_a_function_that_takes_other_things_is_asked_how_many():
    said = refused(lambda: 1, 3)
    assert "takes 0 positional arguments but 1 was given" in said
    assert said.endswith("How many things is it given, and how many does it take?")


def test_an_error_inside_the_library_shows_the_line_that_called_it():
    import gpipe_sim as gp

    said = refused(lambda K: gp.GPipe(K, 0), 3)
    assert "in your line" in said and "gp.GPipe(K, 0)" in said


def loops_for_ever(K):
    while True:
        pass


def loops_and_catches(K):
    while True:
        try:  # noqa: SIM105
            K += 1
        except:  # noqa: E722
            pass


@pytest.mark.parametrize("function", [loops_for_ever, loops_and_catches])
def test_an_endless_loop_ends_with_a_sentence(function, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.2)
    said = refused(function, 3)
    assert said.startswith("called with (3) it was still running after 0.2 seconds, in your line ")
    assert said.endswith(". Which loop never ends?")


def test_an_endless_loop_that_appends_ends_before_the_memory_does(monkeypatch):
    monkeypatch.setattr(limit, "BYTES", 50_000_000)
    before = limit._memory()

    def grows(K):
        rows = []
        while True:
            rows.append([K + sum(range(1000))] * 1000)

    said = refused(grows, 3)
    assert said.startswith("called with (3) it takes more and more memory, in your line ")
    assert "rows.append([K + sum(range(1000))] * 1000). Which" in said or "while True:. Which" in said
    assert limit._memory() - before < 3_000_000_000


def test_what_it_prints_is_shown_up_to_a_point(monkeypatch, capsys):
    monkeypatch.setattr(module, "SECONDS", 0.2)

    def prints(K):
        print("once")
        while True:
            print("more and more")

    assert "still running" in refused(prints, 3)
    shown = capsys.readouterr().out
    assert shown.startswith("once\nmore") and len(shown) == 2000


def test_a_generator_that_never_ends():
    def forever():
        m = 0
        while True:
            yield (m := m + 1)

    assert refused(forever) == "called with () it gives over 100,000 values. When does it end?"
    assert called(lambda: iter([1, 2])) == [1, 2]


def test_exit_harms_nothing(monkeypatch):
    ended = []
    monkeypatch.setattr(sys.modules["__main__"], "exit", lambda: ended.append(1), raising=False)
    for function in (lambda: sys.exit(), lambda: vars(sys.modules["__main__"])["exit"]()):
        assert "calls exit(), which would end the notebook" in refused(function)
    assert not ended
    sys.modules["__main__"].exit()
    assert ended


def test_what_ends_in_time_or_just_not_is_not_disturbed_later():
    """TooLong came while a body was being left, and again every second: in any test, in any cell."""
    before, often = signal.getsignal(signal.SIGALRM), 0
    for n in range(400):
        try:
            with time_limit(0.0005):
                [sum(range(50)) for _ in range(n % 40 * 200)]
        except TooLong:
            often += 1
    assert 0 < often < 400 and signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    time.sleep(0.01)


def test_a_limit_within_another_leaves_the_outer_one_on():
    with pytest.raises(TooLong), time_limit(0.3):
        with time_limit(5):
            pass
        while True:
            pass


def test_in_a_thread_of_its_own_there_is_no_limit():
    done = []
    thread = threading.Thread(target=lambda: done.append(called(lambda: 1)))
    thread.start()
    thread.join()
    assert done == [1]


def test_the_limit_stops_a_body():
    with pytest.raises(TooLong), time_limit(0.05):
        while True:
            pass


def test_an_error_of_the_links_shows_the_line_that_used_them():
    """The line quoted was the one of `Links.receive`, which the page gives: the student did not write it."""

    class Links:
        def receive(self, name):
            return {}.pop(name)

    assert 'Links().receive("y")' in refused(lambda: Links().receive("y"))


def test_what_must_stay_whole_is_of_a_kind_and_equal_all_the_way_down():
    assert alike({1: [2, (np.ones(3),)]}, {1: [2, (np.ones(3),)]})
    assert not alike([1, (2,)], [1, [2]]) and not alike(True, 1) and not alike(1, 1.0)
    assert not alike({1: 2, 2: 2}, {2: 2, 1: 2}), "the order of a table is what one loops over"
    assert not alike([np.ones(3)], [np.zeros(3)]) and not alike([1], [1, 2])
