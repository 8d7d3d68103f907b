"""What a reader of a notebook has in sight while nothing is opened, and what the notebook asks."""

import json
import re
from dataclasses import dataclass
from html import unescape
from numbers import Number
from pathlib import Path

FOLD = re.compile(r"<details[^>]*>(?:\s*<summary[^>]*>(.*?)</summary>)?(?:(?!<details).)*?</details>", re.S)
FOLDED = {"answer", "explanation"}  #: the tags of markdown cells that are folds
MEASURED = re.compile(r"<p>It is <b>(.*?)</b>\.</p>")  # the first words of a prediction's fold
NAMED = re.compile(r"<summary[^>]*>(.*?)</summary>")
CHECK = re.compile(r"^gp\.course\.lesson_\w+\.(\w+)\((.*)\)$", re.M)
ANSWER = re.compile(r"<summary[^>]*>One answer.*?```python\n(.*?)```", re.S)
GUESS = "guess = None"


@dataclass
class Line:
    """A paragraph of text, a line of code or of output, and the place where it stands."""

    text: str
    lesson: str = "README"
    at: int = 0
    kind: str = "text"  #: or "code", "output"


@dataclass
class Asked:
    """A prediction or an exercise: its cell, the one that replies, and the next prediction's."""

    lesson: str
    name: str  #: of the fold, or of the check
    question: str
    answer: str  #: as the fold says it, with its unit; of an exercise, if it is a number
    guess: int
    reply: int
    until: int


def source(cell: dict) -> str:
    return "".join(cell["source"])


def hidden(cell: dict) -> bool:
    return bool(cell["metadata"].get("jupyter", {}).get("source_hidden"))


def unfolded(text: str) -> str:
    """Without what is folded; a fold's name stays."""
    return FOLD.sub(lambda fold: f" {fold[1] or ''}\n\n", text)


def plain(html: str) -> str:
    """Text, and the words of pictures."""
    html = re.sub(r'<img [^>]*?alt="([^"]*)"[^>]*>', r"\n\1\n", html)
    return unescape(re.sub(r"</?[a-z][^<>]*>", " ", re.sub(r"</(p|tr|li|div)>|<br>", "\n", html)))


def paragraphs(markdown: str) -> list[str]:
    """Of unfolded text, and lines of code in it; pictures as their words, links without their targets."""
    text = re.sub(
        r"^```.*?^```", lambda code: code[0].replace("\n", "\n\n"), unfolded(markdown), flags=re.S | re.M
    )
    text = re.sub(r"!\[(.*?)\]\(.*?\)", r"\n\n\1\n\n", text, flags=re.S)
    text = plain(re.sub(r"\]\([^)]*\)", "]", text))
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n|\n(?=[-*|] )", text) if part.strip()]


def shown(output: dict) -> str:
    """What an output shows: text, or HTML without its folds."""
    data = output.get("data", {})
    if "text/html" in data:
        return plain(unfolded("".join(data["text/html"])))
    return "".join(output.get("text", data.get("text/plain", "")))


def seen_in(cell: dict) -> list[tuple[str, str]]:
    """(kind, line) of what nobody has to open."""
    if cell["cell_type"] == "markdown":
        folded = FOLDED & set(cell["metadata"].get("tags", ()))
        return [("text", part) for part in paragraphs(source(cell))] * (not folded)
    code = [] if hidden(cell) else source(cell).splitlines()
    output = [line for each in cell["outputs"] for line in shown(each).splitlines()]
    lines = [("code", line.strip()) for line in code] + [("output", line.strip()) for line in output]
    return [(kind, line) for kind, line in lines if line]


def lines(path: Path) -> list[Line]:
    """All of a lesson, or of README."""
    if path.suffix == ".md":
        return [Line(part) for part in paragraphs(path.read_text())]
    return [
        Line(line, number(path), at, kind)
        for at, cell in enumerate(cells(path))
        for kind, line in seen_in(cell)
    ]


def number(path: Path) -> str:
    return path.stem.split("_")[0]


def cells(path: Path) -> list[dict]:
    return json.loads(path.read_text())["cells"]


def question(before: list[dict], guess: dict) -> str:
    """The paragraphs that ask, from the last **Predict.**, claim or heading on, and the unit."""
    text = next((source(cell) for cell in before[::-1] if cell["cell_type"] == "markdown"), "")
    last = max(text.rfind("**Predict.**"), text.rfind("\n> **"), text.rfind("\n#"), 0)
    return " ".join(paragraphs(text[last:])) + " " + source(guess).partition("#")[2].partition("\n")[0]


def asked_in(path: Path) -> list[Asked]:
    """The predictions of a lesson, and its exercises: these may only have an answer that is declared."""
    found, every = [], cells(path)
    code = [at for at, cell in enumerate(every) if cell["cell_type"] == "code"]
    guesses = [at for at in code if source(every[at]).startswith(GUESS)]
    for at in code:
        until = next((guess for guess in guesses if guess > at), len(every))
        asks, check = question(every[:at], every[at]), CHECK.search(source(every[at]))
        if at in guesses:
            reply = next(i for i in code if i > at and "course.reveal(" in source(every[i]))
            name, answer = measured(every[reply])
            found.append(Asked(number(path), name, asks, answer, at, reply, until))
        elif check:
            after = ANSWER.search("".join(map(source, every[at + 1 : at + 4])))
            answer = constant(after[1], check[2]) if after else ""
            found.append(Asked(number(path), check[1], asks, answer, at, at, until))
    return found


def measured(reply: dict) -> tuple[str, str]:
    """What a fold is called, and what it says first; nothing if a cell shows the reply alone."""
    html = "".join("".join(output.get("data", {}).get("text/html", "")) for output in reply["outputs"])
    name, answer = NAMED.search(html), MEASURED.search(html)
    return unescape(name[1]) if name else "", unescape(answer[1]) if answer else ""


def constant(answer: str, argument: str) -> str:
    """What an answer that needs no other cell gives, if it is a number."""
    names: dict = {}
    try:
        exec(answer, names)
    except NameError:
        return ""
    return f"{float(names[argument]):.4g}" if isinstance(names.get(argument), Number) else ""
