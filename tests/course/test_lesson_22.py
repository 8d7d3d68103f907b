"""The self-test: for every seed all answers differ and are told apart, and no reply says what is right.

And every claim of five widely copied guides that is wrong is met: in a lesson, or in a question.
"""

import json
import re
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
from replies import WRONG, each_reply

from gpipe_sim.course import lesson_22
from gpipe_sim.course.lesson_22 import is_right, told
from gpipe_sim.course.questions import QUESTIONS, right, twenty
from gpipe_sim.course.reply import MOST, is_number

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
LESSONS = [path.stem.split("_")[0] for path in sorted(NOTEBOOKS.glob("*.ipynb"))]
SEEDS = range(24)
CELLS = {"first": 1, "second": 6, "third": 11, "last": 16}

each_question = pytest.mark.parametrize("key", QUESTIONS)


def order(lesson):
    return LESSONS.index(lesson)


# --- the questions


def test_forty_questions_stand_in_twenty_pairs_in_the_courses_order():
    every = [order(each.lesson) for each in QUESTIONS.values()]
    assert len(every) == 40 and {*LESSONS} - {"22", "P", "T"} == {each.lesson for each in QUESTIONS.values()}
    paper, code = every[:30], every[30:]
    assert paper == sorted(paper) and code == sorted(code)


@each_question
def test_all_answers_differ_and_each_wrong_one_is_told_its_own_and_not_what_is_right(key):
    """For 24 seeds. A reply names the student's own answer and the lesson, and asks."""
    question = QUESTIONS[key]
    for seed in SEEDS:
        asked = question.asked(seed)
        assert told(question, asked.right, seed) == "" and asked.differ()
        said = {told(question, value, seed): value for value, _ in asked.wrong}
        assert len(said) == len(asked.wrong) == len({words for _, words in asked.wrong}) >= 1
        for reply, value in said.items():
            assert not is_right(value, asked.right)
            meant = next(words for each, words in asked.wrong if each == value)
            assert reply == f"you said {lesson_22._short(value)}. {meant} Read lesson {question.lesson} again"
            assert meant.endswith(("?", ".")) and "?" in meant + "?" * (key == "sources")
            assert not gives_away(meant, asked.right), (key, seed, meant, asked.right)


def gives_away(words, value):
    """Whether a number or a word that is right stands in a reply."""
    forms = {str(value)} | ({f"{float(value):.3g}"} if is_number(value) else set())
    return any(f" {form} " in re.sub(r"[?,.:]? |[?.]$", " ", f" {words}") for form in forms)


def test_what_gives_away():
    assert gives_away("That is 3.5.", Fraction(7, 2)) and gives_away("Is it ZB-H2, then?", "ZB-H2")
    assert not gives_away("That is 13, or 3/4.", 3)


@each_question
def test_a_question_is_the_same_for_a_seed_and_another_for_another(key):
    question = QUESTIONS[key]
    assert question.asked(3) == question.asked(3)
    assert len({question.asked(seed) for seed in range(40)}) >= 3


def test_a_seed_draws_the_same_everywhere():
    assert [each.key for each in twenty(0)][:5] == FIRST_OF_0
    assert right(0, 1, 3) == RIGHT_OF_0
    assert twenty(0) != twenty(1) and right("a class") == right("a class")


FIRST_OF_0 = ["naive", "messages", "loss_scale", "bubble", "few_enough"]
RIGHT_OF_0 = {1: Fraction(11, 12), 2: 40, 3: 8}


def test_some_seed_draws_each():
    assert {each.key for seed in range(20) for each in twenty(seed)} == {*QUESTIONS}


# --- the replies


def cases(cell):
    """One of five wrong, each natural wrong answer in its turn; and answers that are none."""
    start = CELLS[cell]
    best = right(0, start, start + 4)
    almost = [
        (best | {n: value}, f"question {n}: {told(each, value, 0)}")
        for n, each in enumerate(twenty(0), 1)
        if n in best
        for value, _ in each.asked(0).wrong
    ]
    none = dict.fromkeys(best)
    return {
        "correct": [(best, "all 5")],
        "almost": [*almost, (best | {start: None}, f"question {start}: not answered yet")],
        "your turn": [(none, "write your answers")],
        "keep working": [
            (none | {start: best[start]}, "1 of 5 are right"),
            (7, f"an answer for each of {start} to {start + 4}, and this 7"),
            ([1, 2, 3, 4, 5], "and this [1, 2, 3, 4, 5]"),
            ({0: 1}, "and this has [0]"),
            (best | {21: 1}, "and this has ["),
            (dict.fromkeys(best, float("nan")), "you said nan. Read lesson"),
            (dict.fromkeys(best, "x" * 1000), "xxx ..."),
            (dict.fromkeys(best, (1,)), "Answer with a "),
        ],
    }


test_replies = each_reply(lesson_22, **{cell: cases(cell) for cell in CELLS})


@pytest.mark.parametrize("seed", range(8))
def test_a_reply_is_never_cut_and_names_the_students_own_number(seed):
    for cell, start in CELLS.items():
        every = {n: each for n, each in enumerate(twenty(seed), 1) if start <= n < start + 5}
        longest = {n: max(each.asked(seed).wrong, key=lambda pair: len(pair[1])) for n, each in every.items()}
        reply = getattr(lesson_22, cell)({n: value for n, (value, _) in longest.items()}, seed=seed)
        assert reply.verdict in WRONG and len(reply.text) < MOST and " ... " not in reply.text, reply
        assert reply._repr_html_().count("<p>") == 6


@pytest.mark.parametrize(
    ("said", "value", "is_it"),
    [
        ("3/11", Fraction(3, 11), True),
        (0.273, Fraction(3, 11), True),
        ("27.3%", Fraction(3, 11), True),
        (0.28, Fraction(3, 11), False),
        ("six", 6, True),
        (6.0, 6, True),
        (6.01, 6, False),
        (True, 1, False),
        (None, 0, False),
        ("same", "equal", True),
        ("zb h2", "ZB-H2", True),
        (1, "equal", False),
        (float("inf"), 6, False),
        ("1e999999999", 6, False),
    ],
)
def test_an_answer_is_read_generously(said, value, is_it):
    assert is_right(said, value) == is_it


def test_the_score_names_the_lessons_to_read_again_in_their_order():
    assert lesson_22.score(0, None, {1: None}).reply.verdict == "your turn"
    best = right(0)
    assert lesson_22.score(0, best).reply.text == "20 of 20 answers are right"
    lessons = {n: each.lesson for n, each in enumerate(twenty(0), 1)}
    some = lesson_22.score(0, {n: best[n] for n in range(1, 6)}, {20: "?", 16: -1, 8: "time"})
    assert some.reply.text == (
        f"5 of 8 answers are right; read again: {lessons[8]}, {lessons[16]}, {lessons[20]}; not answered: 12"
    )
    assert "5 of 20 are right" in some.happened


# --- the claims

#: Claims of guides to pipelines that are wrong, and where each is met: (lesson, words that stand there), or
#: the key of a question. What is no claim, but a slip of one program, such as a crash, is left out.
CLAIMS: dict[str, tuple[str, str] | str] = {
    # how a balance, a list of devices and microbatches relate
    "the number of different devices limits the partitions, not the length of the list": "shared",
    "four partitions share two devices by themselves": "shared",
    "eight partitions share four devices by themselves": "shared",
    "fewer partitions than devices take less memory on each": "fullest",
    "partitions that share a device run at the same time": "shared",
    # a pipeline in ten sections
    "a simulated pipeline waits 1 - 1/K of its time": ("22", "Its waiting is 1 - 1/K whatever M is"),
    "the clock goes on with every microbatch and stage": "columns",
    "the bubble of one K is that of all": "bubble",
    "11 layers in four stages are 2, 2, 2 and 5": ("11", "Cut into 2, 2, 2 and 5 layers"),
    "the rest of a division belongs to the last stage": "heavy_last",
    "the gradient is divided by the samples where the loss is divided by all outputs": "loss_scale",
    "what recompute keeps are the boundary inputs alone": "working_set",
    "the boundary input of what is computed again counts twice": (
        "08",
        "That counts one boundary input twice",
    ),
    "recompute always costs 33% more work": "recomputed",
    "a drawing may begin the backwards on the first device": ("05", "In the drawing device 0 begins"),
    "a pipeline and copies are compared in units of their own": ("17", "every device works for 192 units"),
    "a pipeline has no communication": "messages",
    "K devices hold K times as large a model": ("01", "half as much of our model as on four"),
    "GPT-3 was trained with GPipe": "sources",
    "Megatron-LM of 2019 was a pipeline": "sources",
    # a guide to pipeline parallelism
    "GPipe of four stages and eight microbatches takes 19 columns": ("05", "19 columns in all"),
    "1F1B has K+1-k microbatches in flight": "in_flight",
    "the steady state has M-(K-1) rounds on every stage": ("07", "does M-(K-1) rounds of one forward"),
    "1F1B updates after each backward": ("19", "after each backward, call `optimizer.step()`"),
    "PipeDream's order is not that of 1F1B": ("19", "in the order of 1F1B"),
    "vertical sync copies weights between stages": (
        "19",
        "every device uses *its own* weights of that number",
    ),
    "every stage keeps K versions": "versions",
    "with checkpoints memory grows with the root of M": ("08", "a square root of the *layers*"),
    "except_last spares the last stage": "except_last",
    "cutting greedily keeps all layers": "lost_layers",
    "int() of the formula is enough microbatches": "few_enough",
    "interleaved backwards visit their stages as forwards do": "backwards_begin",
    "a model of 175 billion weights fits on eight devices": "enough_devices",
    "fewer stages have a larger bubble": "twice_the_stages",
    "bubbles cannot be removed": "without_a_stop",
    "attention never mixes the samples of a batch": "mixed",
    "a language model is trained on its own input": "next_token",
    "one receive buffer is enough": "buffers",
    "a received activation may be overwritten by the next": ("13", "No buffer may be overwritten"),
    "the layers that take the most bytes are computed again first": "by_rate",
    "what is cheap is computed again first": ("16", "how many bytes it frees for a FLOP"),
    "as many layers as blocks: embedding and head cost nothing": "left_out",
    "a head needs no place in a balance": ("11", "give a heavy head fewer layers"),
    "pipelines are 70 to 85% efficient": "few_enough",
    "there is a good number of stages, whatever the model": ("10", "fewer devices than microbatches"),
    "from so many layers on a model needs a pipeline": ("T", "plain copies"),
    "GPipe is the choice where nothing else fits": "smaller",
    "torch takes a balance": "sources",
    # several devices in one machine
    "overlapped, a step can be shorter than its copies": "both_at_once",
    "gradients are summed on a server": "through_one",
    # a first guide to several devices
    "every copy sends as much under nn.DataParallel": "through_one",
}


@cache
def text_of(lesson):
    """What the lesson's notebook says, on one line."""
    path = next(NOTEBOOKS.glob(f"{lesson}_*.ipynb"))
    sources = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]
    return " ".join(" ".join(sources).split())


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_wrong_claim_is_met(claim):
    match CLAIMS[claim]:
        case (lesson, words):
            assert words in text_of(lesson)
        case key:
            assert key in QUESTIONS


@pytest.mark.parametrize("value", [each for each in CLAIMS.values() if isinstance(each, str)])
def test_a_question_that_meets_a_claim_has_it_among_its_wrong_answers(value):
    assert QUESTIONS[value].asked(0).wrong
