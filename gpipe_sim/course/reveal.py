"""A prediction: a guess, and the result, folded away until there is a guess or the reader asks for it.

A cell shows it as HTML with a ``<details>``. JupyterLab shows that folded in a fresh clone, where nothing was
run and nothing is trusted; a page made by nbconvert folds it too.
"""

import io
import re
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from fractions import Fraction
from html import escape
from math import inf
from operator import itemgetter
from textwrap import dedent
from typing import Any

from gpipe_sim.core.timeline import number as written
from gpipe_sim.course.printed import unbroken
from gpipe_sim.course.reply import Reply, apart, is_number, your_turn
from gpipe_sim.errors import Real, got, number, require

NEAR = 0.03  #: how far off, relatively, a guess at a number that is not whole may be
HAPPENED = "What happened"  #: the name of a fold, unless it has one
#: What makes a fold look like something to press: inline, because a notebook that nobody trusts has no other.
FRAME = 'style="border: 1px solid #888888; border-radius: 6px; padding: 6px 12px; margin: 6px 0"'
PRESS = 'style="cursor: pointer; font-weight: bold"'
YOUR_TURN = "write your guess in the cell above, run it, and run this cell again"
NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
#: Words that say the same as another, in a guess or in what was measured.
SAYS = {word: str(n) for n, word in enumerate(NUMBERS)}
SAYS |= dict.fromkeys(("same", "alike", "identical"), "equal") | {"bigger": "larger", "neither": "none"}
SAYS |= {"yes": "true", "right": "true", "correct": "true", "no": "false"}
RIGHT, NEAR_ENOUGH, OTHERWISE, NO_NUMBER = "right", "near enough", "not what happened", "not a number"


@dataclass(frozen=True, repr=False)
class Revealed:
    """A reply to a guess, and what happened: in view after a guess, folded before."""

    reply: Reply
    happened: str  #: HTML
    name: str = HAPPENED

    def __repr__(self) -> str:
        """What a terminal shows; it spoils nothing before the guess."""
        return repr(self.reply)

    def _repr_html_(self) -> str:
        folded = fold(self.name, self.happened)
        if self.reply.verdict == "your turn":
            return folded
        shown = folded if self.reply.verdict == NO_NUMBER else self.happened
        return self.reply._repr_html_() + shown


def reveal(
    guess: Real | str | None,
    measured: Real | str,
    unit: str = "",
    *shows: Any,
    within: Real = 0,
    wrong: Mapping[Any, str] | None = None,
    why: str = "",
    name: str = HAPPENED,
) -> Revealed:
    """Compare a prediction with what was measured, a number or a word, and show how it came about.

    A guess may be written in another way: ``"six"``, ``"3/4"`` or ``"6 kB"`` for a number, "no" for "false".

    ``shows`` are drawings, texts, or functions that print. ``wrong`` says of natural wrong answers what they
    would mean: ``{24: "That is without any waiting."}``. ``within=0.25`` takes a guess as right if it is off
    by at most a quarter of what was measured, unless a wrong answer is nearer to it. ``why`` explains it,
    below what is shown: paragraphs with `code`, **bold** and *italic*. ``name`` is what the fold is called.
    TypeError for a unit that is no text.
    """
    require("reveal", unit, str, "unit to be a text, such as 'units'")
    if not isinstance(measured, str):
        measured = number("reveal", "measured", measured)
    within, wrong = number("reveal", "within", within), wrong or {}
    happened = f"<p>It is <b>{escape(_amount(measured, unit))}</b>.</p>" + "".join(map(_as_html, shows))
    happened += prose(why)
    if guess is None:
        return Revealed(your_turn(YOUR_TURN), happened, name)
    if isinstance(measured, str):
        return Revealed(_words(guess, measured, wrong), happened, name)
    return Revealed(_numbers(guess, measured, unit, within, wrong), happened, name)


def fold(name: str, inside: str) -> str:
    """Something to press: HTML that is closed until a reader opens it."""
    return f"<details {FRAME}><summary {PRESS}>{escape(name)}</summary>{inside}</details>"


def prose(text: str) -> str:
    """Paragraphs as HTML: `code`, **bold** and *italic*, and nothing else of Markdown."""
    text = escape(dedent(text).strip(), quote=False)
    for mark, tag in ((r"`([^`]+)`", "code"), (r"\*\*(.+?)\*\*", "b"), (r"\*(.+?)\*", "i")):
        text = re.sub(mark, rf"<{tag}>\1</{tag}>", text, flags=re.DOTALL)
    return "".join(f"<p>{one}</p>" for one in re.split(r"\n\s*\n", text) if one)


def _amount(value: Real | str, unit: str) -> str:
    if value == 1 and not unit.startswith("times"):
        unit = re.sub(r"\A(\w+?)((?<=ch)e)?s\b", r"\1", unit)  # "1 buffer", "1 microbatch"
    return f"{value if isinstance(value, str) else written(value)} {unit}".strip()


def _numbers(
    guess: object, measured: Real, unit: str, within: Real, wrong: Mapping[Real | str, str]
) -> Reply:
    guess = _number_in(guess, unit) if isinstance(guess, str) else guess
    if not is_number(guess):
        of = f" of {unit.removeprefix('of ')}" if unit else ""
        return Reply(NO_NUMBER, f"a guess here is a number{of}, such as 1 {got(guess, 'you wrote ')}")
    said, off = f"you said {_amount(guess, unit)}", apart(guess, measured)
    if written(guess) == written(measured) or _rounds_to(guess, measured):
        return Reply(RIGHT, said)
    known = [
        (apart(guess, each), says) for each, says in wrong.items() if is_number(each) and _same(guess, each)
    ]
    less = f"It is {_far(guess, measured)}{'less' if measured < guess else 'more'} than you thought."
    from_wrong, meaning = min(known, key=itemgetter(0), default=(inf, less))
    allowed = max(within, NEAR * bool(measured % 1))
    if off <= from_wrong and off <= (1 + 1e-9) * allowed * apart(measured, 0):
        return Reply(NEAR_ENOUGH, f"{said}; it is {_amount(measured, unit)}")
    return Reply(OTHERWISE, f"{said}; it is {_amount(measured, unit)}. {meaning}")


def _number_in(guess: str, unit: str) -> Real | str:
    """The number that a text says, with its unit or without; the text if it says none."""
    text = guess.strip().lower().removesuffix(unit.lower()).removesuffix("%" * unit.startswith("percent"))
    text = SAYS.get(text.strip(), text.strip()).replace(",", "")
    try:
        value = Fraction(text) if "e" not in text else Fraction(float(text))  # 1e999999999 takes hours
    except (ValueError, OverflowError, ZeroDivisionError):
        return guess
    return int(value) if value.denominator == 1 else value


def _far(guess: Real, measured: Real) -> str:
    """Whether a guess is off by a factor of two or more, or by a tenth or less."""
    few, many = sorted((guess, measured))
    if few <= 0 or many >= 2 * few:
        return "far "
    return "a little " if 10 * many <= 11 * few else ""


def _rounds_to(guess: Real, measured: Real) -> bool:
    """Whether a finer number is what was measured: 32/11 is 2.91."""
    off, places = apart(guess, measured), len(written(measured).partition(".")[2])
    return off <= min(0.5 / 10**places, 0.005 * apart(measured, 0)) if measured % 1 else off == 0


def _same(guess: Real, natural: Real) -> bool:
    return apart(guess, natural) <= NEAR * bool(natural % 1) * apart(natural, 0)


def _words(guess: object, measured: str, wrong: Mapping[Real | str, str]) -> Reply:
    said = "".join(map(str, guess)) if isinstance(guess, tuple) else str(guess).strip()  # an action: "0F0"
    if _plain(said) == _plain(measured):
        return Reply(RIGHT, f"you said {said}")
    known = {_plain(str(natural)): words for natural, words in wrong.items()}
    meaning = known.get(_plain(said), "")
    return Reply(OTHERWISE, f"you said {said}; it is: {measured}. {meaning}".strip())


def _plain(words: str) -> str:
    """What is compared of words: "The 4×4" is "4 x 4", "six" is "6", and "data-parallel" "data parallel"."""
    plain = re.sub(r"[\W_]", "", words.lower().removeprefix("the ").replace("×", "x"))
    return SAYS.get(plain, plain)


def _as_html(shown: Any) -> str:
    """A drawing as it is; text, and what a function prints, as it would be printed.

    Without ``<code>``, the pages that nbconvert makes show it in letters of unequal width.
    """
    if hasattr(shown, "_repr_html_"):
        return shown._repr_html_()
    return unbroken(_printed(shown) if callable(shown) else str(shown))


def _printed(function: Callable[[], Any]) -> str:
    with redirect_stdout(io.StringIO()) as out:
        function()
    return out.getvalue().rstrip()
