"""A prediction: a guess, and the result, folded away until the guess is there or the reader asks for it.

What a cell gives is HTML with a ``<details>``, which JupyterLab shows folded in a fresh clone, and a page
made by nbconvert too.
"""

import io
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from html import escape
from numbers import Real
from typing import Any

from gpipe_sim.course.reply import Reply, is_number, your_turn
from gpipe_sim.errors import number, require
from gpipe_sim.simulation.timeline import number as in_words

NEAR = 0.03  #: how far off, relatively, a guess at a number that is not whole may be
ASKS = "Guess first: in the cell above, then run both again. The result is folded away in here."


@dataclass(frozen=True, repr=False)
class Revealed:
    """A reply to a guess, and what was measured: in view once there is a guess."""

    reply: Reply
    results: tuple[str, ...]
    guessed: bool

    def __repr__(self) -> str:
        """What a terminal shows; it spoils nothing before the guess."""
        return repr(self.reply)

    def _repr_html_(self) -> str:
        results = "".join(self.results)
        if self.guessed:
            return f"<p><b>{self.reply.verdict}</b>: {escape(self.reply.text)}</p>{results}"
        return f"<details><summary>{ASKS}</summary>{results}</details>"


def reveal(
    guess: Real | str | None,
    measured: Real | str,
    unit: str = "",
    *shows: Any,
    within: Real = 0,
    wrong: Mapping[Real | str, str] | None = None,
) -> Revealed:
    """Compare a prediction with what was measured, and show what there is to see: drawings, or text.

    ``shows`` are objects that a notebook can draw, texts, or functions that print. ``wrong`` says of natural
    wrong answers what they would mean. ``within`` is how far off, relatively, a guess may be.
    """
    require("reveal", unit, str, "unit to be a text, such as 'ms'")
    within = number("reveal", "within", within)
    answer = _sentence(measured, unit)
    results = (f"<p>{escape(answer)}</p>", *map(_as_html, shows))
    if guess is None:
        return Revealed(
            your_turn("write your guess in the cell above, run it, then run this again"), results, False
        )
    return Revealed(_compared(guess, measured, unit, within, wrong or {}), results, True)


def _sentence(measured: Real | str, unit: str) -> str:
    return f"Measured: {_amount(measured, unit)}."


def _amount(value: Real | str, unit: str) -> str:
    said = value if isinstance(value, str) else in_words(value)
    return f"{said} {unit}".strip()


def _compared(guess: Any, measured: Any, unit: str, within: Real, wrong: Mapping) -> Reply:
    if isinstance(measured, str):
        return _compared_words(guess, measured, wrong)
    if not is_number(guess):
        return Reply(
            "not a number", f"{guess!r}: write your guess as a number{f' of {unit}' if unit else ''}"
        )
    said, is_ = _amount(guess, unit), _amount(measured, unit)
    if guess == measured:
        return Reply("right", f"{said}, and that is what was measured")
    off = abs(guess - measured)
    if off <= (1 + 1e-9) * max(within, NEAR * bool(measured % 1)) * abs(measured):
        return Reply("near enough", f"you said {said}; it is {is_}")
    for natural, meaning in wrong.items():
        if is_number(natural) and abs(guess - natural) <= 1e-9 * max(1, abs(natural)):
            return Reply("not this time", f"you said {said}; it is {is_}. {meaning}")
    return Reply("not this time", f"you said {said}; it is {is_}, {'less' if measured < guess else 'more'}")


def _compared_words(guess: Any, measured: str, wrong: Mapping) -> Reply:
    said = str(guess).strip().lower()
    if said == measured.lower():
        return Reply("right", f"{measured}")
    meaning = {str(key).lower(): words for key, words in wrong.items()}.get(said, "")
    return Reply("not this time", f"you said {guess}; it is: {measured}. {meaning}".strip())


def _as_html(shown: Any) -> str:
    """A drawing as it is, and text or what a function prints as it would be printed."""
    if hasattr(shown, "_repr_html_"):
        return shown._repr_html_()
    return f"<pre>{escape(_printed(shown) if callable(shown) else str(shown))}</pre>"


def _printed(function: Callable) -> str:
    with redirect_stdout(io.StringIO()) as out:
        function()
    return out.getvalue().rstrip()
