"""No answer in sight: before a prediction, right after its fold, in an earlier lesson, or in README.

What gives a number away follows from the number. 138, 28.5, 3/11 or 19.0% do wherever they stand; two digits
do beside their unit, or among three words of the question; a digit, or an answer in words, only does in what
follows the fold, among two words of the question. What this cannot see is declared in `SPOILS`.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest
from in_sight import (
    Asked,
    Line,
    asked_in,
    cells,
    hidden,
    lines,
    seen_in,
    source,
)

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

#: What gives an answer away and does not follow from it: (lesson, answer) or (lesson, check): patterns.
SPOILS: dict[tuple[str, str], str] = {
    ("01", "12 units"): r"works, and three wait",
    ("02", "false"): r"60% of (them|the weights)",
    ("04", "15 units"): r"waits 15|waits for 15",
    ("04", "same"): r"F\+B is a factor of both|cancels",
    ("05", "0F0"): r"0F0 0B0 0F1 0B1",
    ("07", "1 times the bytes"): r"min\(K ?- ?k, M\)",
    ("09", "168 messages"): r"2\(KV ?- ?1\)M",
    ("09", "9 forwards"): r"2\(K-k-1\) \+ \(V-1\)K\s*\+\s*1",
    ("10", "true"): r"√\(Su/",
    ("10", "17.8 times K"): r"19\(K-1\)",
    ("10", "4 doublings"): r"fewer devices than",
    ("12", "76 units"): r"[Nn]arrow ones are a reason",
    ("13", "3 buffers"): r"K-k are enough|one for each microbatch in flight",
    ("16", "block_bytes"): r"shares after it",
    ("17", "1.969 times"): r"2\(n-1\)/n|2 ?· ?\(n-1\)/n",
    ("17", "16 x 1"): r"now the reverse|each further copy costs|and 342 with the sums",
    ("18", "1 times"): r"only through M · b",
    ("19", "5 updates"): r"stage 0: 0 0 0 0 1 2 3 4|weights three updates old",
    ("19", "129 units"): r"[Aa]s long as with a single flush",
}

#: What may stand where it stands, and why: (lesson, answer, lesson of the line, words of the line).
EXCUSED: dict[tuple[str, str, str, str], str] = {
    ("05", "0F0", "05", "0F0 0B0 0F1 0B1"): "the rows that the question is about",
    ("05", "24 gradients", "05", "Between the stages 24"): "of how many; that all are is the surprise",
    ("14", "27 units", "14", "ZB-H1 is 27 long"): "that ZB-H2 is as long is the surprise",
    ("21", "20.5 ms", "20", "20.3  20.3  20.3  20.5"): "forwards of another run",
}

UNITS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen"""
TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
#: Words that stand in every question, or say nothing.
COMMON = """device devic microbatch forward backward stage time step unit layer the and that this with for
how long what which when then has have had are was were will would can could does not only than
its their there they them each all from into more most many much your you guess none predict say
true false same take taken get first last now here where who why but also very other another
before after between over under because though still just like such these those said see been
being both too out off own per"""
NEXT = r"#|> |\*\*Predict"  #: what a text begins with where something else begins
NEAR = 80  #: characters on each side of a phrase in which words of the question count


def spelled(n: int) -> str:
    units = UNITS.split()
    return units[n] if n < 20 else TENS.split()[n // 10 - 2] + f"-{units[n % 10]}" * bool(n % 10)


def written(value: str, unit: str) -> set[str]:
    """How a text may write a number: with fewer digits, in words, as a fraction, in percent."""
    x, digits = float(value), len(value.partition(".")[2])
    found = {f"{x:,.0f}", f"{x:.0f}", f"{x:.1f}"} if x % 1 == 0 else set()
    if x % 1 == 0 and x < 100:
        found.add(spelled(int(x)))
    elif x % 1:
        found = {f"{x:,.{d}f}" for d in range(digits + 1) if abs(round(x, d) - x) < 0.01 * x}
        simple = Fraction(x).limit_denominator(64)
        found |= {str(simple)} if round(float(simple), digits) == x else set()
    if unit == "percent":
        return {each + sign for each in found for sign in ("%", " percent")}
    return found | ({f"{100 * x:.{d}f}%" for d in (0, 1)} if 0.01 < x < 1 else set())


def is_number(answer: str) -> bool:
    return bool(re.match(r"\d+(\.\d+)?( (?!x ).*)?$", answer))


@cache
def phrases(answer: str) -> re.Pattern:
    value, _, unit = answer.partition(" ")
    forms = written(value, unit) if is_number(answer) else {answer}
    longest = sorted(map(re.escape, forms), key=len, reverse=True)
    return re.compile(rf"(?<![\w.,/=-])({'|'.join(longest)})(?![\w/%]|[.,]\d|-\w)", re.I)


def digits(phrase: str) -> int:
    return len(re.sub(r"\.0\b|\D", "", phrase))


def rare(phrase: str) -> bool:
    """As 138, 28.5, 3/11 and 19.0% are. 512 and 100 are in many a line."""
    significant = re.sub(r"\D", "", phrase).strip("0")
    power_of_two = re.fullmatch(r"[\d,]+", phrase) and int(phrase.replace(",", "")).bit_count() == 1
    return len(significant) >= 3 - ("%" in phrase) and not power_of_two


def stems(text: str) -> set[str]:
    common = {*COMMON.split(), *UNITS.split()}
    words = set(re.findall(r"[a-z][a-z0-9-]{2,}", text.lower())) - common
    return {re.sub(r"(?<=...)(ies|es|s|ing|ed)$", "", word) for word in words} - common


def tells(asked: Asked, line: Line, below: bool) -> bool:
    """Whether a line gives the answer away; ``below`` if it stands right below the fold."""
    value, _, unit = asked.answer.partition(" ")
    noun = unit.split(" ")[0].removesuffix("s") or "%"
    for hit in phrases(asked.answer).finditer(line.text):
        after = line.text[hit.end() :]
        around = f"{line.text[max(0, hit.start() - NEAR) : hit.start()]} {after[:NEAR]}"
        words = len(stems(asked.question) & stems(around))
        with_unit = "%" in hit[0] or re.match(rf"\W*(\w+ )?{re.escape(noun)}", after, re.I)
        long = is_number(asked.answer) and digits(hit[0] if digits(hit[0]) else value) > 1
        if (below and words > 1) or (long and (words > 2 or with_unit or rare(hit[0]))):
            return True
    return False


@cache
def in_sight(path: Path) -> list[Line]:
    return lines(path)


def spoilers(asked: Asked, earlier: list[Line], own: list[Line]) -> Iterator[Line]:
    """The lines that give it away: before it, and after it until the next prediction."""
    declared = SPOILS.get((asked.lesson, asked.answer or asked.name), "(?!)")
    after = [line for line in own if asked.reply < line.at < asked.until]
    below = list(takewhile(lambda line: line.kind != "text" or not re.match(NEXT, line.text), after))
    silent = asked.answer in ("", "true", "false")
    for line in [*earlier, *(line for line in own if line.at <= asked.reply), *after]:
        if re.search(declared, line.text) or (not silent and tells(asked, line, line in below)):
            yield line


@cache
def found_in(path: Path) -> list[tuple[Asked, Line]]:
    before = [
        line for each in [ROOT / "README.md", *NOTEBOOKS[: NOTEBOOKS.index(path)]] for line in in_sight(each)
    ]
    return [(asked, line) for asked in asked_in(path) for line in spoilers(asked, before, in_sight(path))]


def excuses(asked: Asked, line: Line) -> set[tuple[str, str, str, str]]:
    return {
        each
        for each in EXCUSED
        if each[:3] == (asked.lesson, asked.answer, line.lesson) and each[3] in line.text
    }


each_lesson = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@each_lesson
def test_nothing_in_sight_gives_an_answer_away(path):
    told = [(asked, line) for asked, line in found_in(path) if not excuses(asked, line)]
    assert not told, "\n".join(
        f"{asked.lesson} [{asked.guess}] = {asked.answer}: {line.lesson} [{line.at}] {line.text[:200]}"
        for asked, line in told
    )


def test_what_is_declared_is_of_something_asked():
    every = [asked for path in NOTEBOOKS for asked in asked_in(path)]
    assert set(SPOILS) <= {(asked.lesson, asked.answer or asked.name) for asked in every}


def test_every_excuse_is_needed():
    found = [each for path in NOTEBOOKS for each in found_in(path)]
    assert set(EXCUSED) == set().union(*(excuses(asked, line) for asked, line in found))


@each_lesson
def test_a_guess_is_followed_by_what_replies_and_that_hides_its_source(path):
    """But what your own machine measures is not stored, and only replied to."""
    every = cells(path)
    for asked in asked_in(path):
        guess, *between, reply = (
            every[asked.guess : asked.reply + 1] if asked.guess < asked.reply else [{}] * 2
        )
        if guess and ".reply" not in source(reply).splitlines()[-1]:
            assert asked.answer, f"[{asked.reply}] has no stored result"
            assert hidden(reply), f"[{asked.reply}] shows how the answer is computed"
            assert not any(cell["cell_type"] == "code" for cell in between), f"[{asked.guess}]: code between"


@each_lesson
def test_a_claim_asks_for_a_guess_before_anything_is_shown(path):
    every = cells(path)
    for at, cell in enumerate(every):
        if cell["cell_type"] == "markdown" and re.search(r"^> \*\*\d+\.\*\*", source(cell), re.M):
            follows = next(source(each) for each in every[at + 1 :] if each["cell_type"] == "code")
            assert follows.startswith("guess = None"), f"[{at}]: {follows[:80]}"


HOW_LONG = "**Predict.** Two pipelines share a slow hop. How long does it take GPipe to cross the hop?"
BUFFERS = "**Predict.** How many buffers does device 1 need for right gradients? buffers"


@pytest.mark.parametrize(
    ("asks", "answer", "line", "before", "below"),
    [
        (HOW_LONG, "138 units", "2, 2, 2 and 5 layers: 138", True, True),
        (HOW_LONG, "28.5 units", "V = 2: 28.5", True, True),
        (HOW_LONG, "0.2727", "3/11 by the formula", True, True),
        (HOW_LONG, "0.2727", "they wait 27.3% of the time", True, True),
        (HOW_LONG, "19 percent", "K = 16   31.9%  19.0%", True, True),
        (HOW_LONG, "4096 bytes", "(32, 16), 4,096 bytes", True, True),
        (HOW_LONG, "33 units", "thirty-three units", True, True),
        (HOW_LONG, "33 units", "digits 33 to 64", False, False),
        (HOW_LONG, "33 units", "GPipe crosses the slow hop, 33", True, True),
        (HOW_LONG, "512 kB", "gp.mlp([64, 512, 512])", False, False),
        (HOW_LONG, "512 kB", "at most 512 kB", True, True),
        (HOW_LONG, "28.5 units", "128.55 or 0.285", False, False),
        (BUFFERS, "3 buffers", "device 3 has nothing to do", False, False),
        (BUFFERS, "3 buffers", "so three of these buffers are all that the gradients need", False, True),
        (HOW_LONG, "GPipe", "a reason to take GPipe over a slow hop", False, True),
        (HOW_LONG, "GPipe", "the rows of GPipe", False, False),
    ],
)
def test_what_tells(asks, answer, line, before, below):
    asked = Asked("04", "", asks, answer, 0, 1, 2)
    assert [tells(asked, Line(line), follows) for follows in (False, True)] == [before, below]


def test_what_is_in_sight():
    """Not what is folded, or hidden; but the name of a fold, and the words of a picture."""
    fold = "<details><summary>How long</summary>It is 33.</details>"
    drawn = {"data": {"text/html": f'{fold}<img alt="Two lanes" src="data:image/svg+xml;base64,33">'}}
    code = {"cell_type": "code", "source": ["1\n", "\n", "2"], "metadata": {}, "outputs": [drawn]}
    text = {"cell_type": "markdown", "source": [f"Before\n\n{fold}\n\n![Lanes](a.png)"], "metadata": {}}
    output = [("output", "How long"), ("output", "Two lanes")]
    assert seen_in(code) == [("code", "1"), ("code", "2"), *output]
    assert seen_in(code | {"metadata": {"jupyter": {"source_hidden": True}}}) == output
    assert seen_in(text) == [("text", "Before"), ("text", "How long"), ("text", "Lanes")]
    assert seen_in(text | {"metadata": {"tags": ["answer"]}}) == []
