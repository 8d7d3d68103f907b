"""A page for who teaches: what the class guessed wrong, and which checks it failed."""

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import fields
from html import escape
from statistics import mean

from gpipe_sim.classroom.grade import Row
from gpipe_sim.classroom.notebooks import titled

MOST_SAID = 5  #: different answers that are listed
FEW = 2  #: tries that are not worth a line
NONE = "\N{EN DASH}"
ABOUT = """A piece is something that a student writes. "5 of 8" wrong: of the 8 who wrote or guessed, 5 were
wrong. The usual reply is the one that came most often; its numbers are those of one student."""
TRIES = """As my_tries.json in each student's folder says. An answer counts once, and none after the first
that is correct. Students can edit or delete that file: it shows what is hard, and
proves nothing. Pieces at which nobody needed more than two tries are left out."""
STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: 0.5rem 0 2rem; }
th, td { text-align: left; vertical-align: top; padding: 4px 12px 4px 0; border-bottom: 1px solid #8884; }
td.n { white-space: nowrap; }
td:first-child { overflow-wrap: break-word; }
.bar { background: #8883; height: 0.9em; width: 8rem; }
.bar i { display: block; height: 100%; background: #3b6ea5; }
small { color: #777; }
"""


def read_csv(text: str) -> list[Row]:
    """The rows that ``course grade`` wrote; ValueError for another table."""
    table = csv.DictReader(io.StringIO(text, newline=""))
    names = [each.name for each in fields(Row)]
    if table.fieldnames != names:
        raise ValueError(f"that is not what course grade writes: its columns are {', '.join(names)}")
    return [Row(**{name: _as_it_was(row[name]) for name in names}) for row in table]


def _as_it_was(cell: str) -> str:
    return cell[1:] if cell[:1] == "'" and cell[1:2] in ("=", "+", "-", "@", "\t", "\r") else cell


def page(rows: Sequence[Row]) -> str:
    """The whole page, as HTML that needs nothing else."""
    students = sorted({row.student for row in rows})
    parts = [
        f"<h1>{len(students)} student{'s' * (len(students) != 1)}</h1>",
        f"<p>{ABOUT}</p>",
        _students(rows, students),
        "<h2>Predictions, the most missed first</h2>",
        _predictions([row for row in rows if row.kind == "guess"]),
        "<h2>Pieces, the most missed first</h2>",
        _pieces([row for row in rows if row.kind == "piece"]),
        "<h2>Tries, the most first</h2>",
        _tries([*{(row.student, row.lesson, row.name): row for row in rows if row.tries.isdigit()}.values()]),
    ]
    if bad := [row for row in rows if row.kind == "file"]:
        parts += [
            "<h2>Files that could not be graded</h2>",
            _table(("file", "why"), ((row.file, row.reply) for row in bad)),
        ]
    head = "<!doctype html><html lang='en'><meta charset='utf-8'><title>What the class said</title>"
    head += f"<meta name='viewport' content='width=device-width'><style>{STYLE}</style>"
    return f"{head}{''.join(parts)}</html>\n"


def _students(rows: Sequence[Row], students: Sequence[str]) -> str:
    lines = []
    for student in students:
        own = [row for row in rows if row.student == student]
        pieces, guesses = ([r for r in own if r.kind == kind and r.passed] for kind in ("piece", "guess"))
        spent = {row.file: float(row.minutes) for row in own if row.minutes}
        notes = Counter(row.note for row in own if row.note)
        said = "; ".join(f"{count} {note}" for note, count in notes.items())
        passed, right = (sum(row.passed == "yes" for row in of) for of in (pieces, guesses))
        minutes = f"{sum(spent.values()):.0f}" if spent else NONE
        done = [f"{some} of {len(of)}" if of else NONE for some, of in ((passed, pieces), (right, guesses))]
        lines.append((student, *done, minutes, said))
    return _table(("student", "pieces passed", "guesses right", "minutes, if recorded", "note"), lines)


def _predictions(rows: Sequence[Row]) -> str:
    lines = []
    for (lesson, name), of in _by_name(rows).items():
        wrong = [row for row in of if row.passed == "no"]
        said = Counter(row.guess for row in wrong).most_common(MOST_SAID)
        words = ", ".join(_short(guess) + (f" ({count})" if count > 1 else "") for guess, count in said)
        reply = Counter(row.reply for row in wrong).most_common(1)
        lines.append((titled(lesson), name, _share(len(wrong), len(of)), words, reply[0][0] if reply else ""))
    return _table(("lesson", "prediction", "wrong", "what they said", "the usual reply"), _worst(lines))


def _pieces(rows: Sequence[Row]) -> str:
    lines = []
    for (lesson, name), of in _by_name(rows).items():
        tried = [row for row in of if row.verdict != "your turn"]
        wrong = [row for row in tried if row.passed != "yes"]
        reply = Counter(row.reply for row in wrong).most_common(1)
        lines.append(
            (
                titled(lesson),
                name,
                _share(len(wrong), len(tried)),
                str(len(of) - len(tried)),
                reply[0][0] if reply else "",
            )
        )
    return _table(("lesson", "piece", "wrong", "not begun", "the usual reply"), _worst(lines))


def _tries(rows: Sequence[Row]) -> str:
    if not rows:
        return "<p>None are recorded: no student's folder has a my_tries.json.</p>"
    by_name = {key: (of, [int(row.tries) for row in of]) for key, of in _by_name(rows).items()}
    largest = max(mean(counts) for _, counts in by_name.values())
    lines = []
    for (lesson, name), (of, counts) in by_name.items():
        average = (mean(counts) / largest, f"{mean(counts):.1f}")
        passed = f"{sum(row.passed == 'yes' for row in of)} of {len(of)}"
        if max(counts) > FEW:
            lines.append((titled(lesson), name, average, str(max(counts)), passed))
    heads = "lesson", "piece", "tries, on average", "the most", "of these passed"
    return f"<p>{TRIES}</p>{_table(heads, _worst(lines))}"


def _short(guess: str) -> str:
    """A long fraction of a computer's, as four digits."""
    return f"{float(guess):.4g}" if re.fullmatch(r"-?\d+\.\d{5,}", guess) else guess


def _by_name(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        found[row.lesson, row.name].append(row)
    return found


def _share(some: int, of: int) -> tuple[float, str]:
    return (some / of if of else 0, f"{some} of {of}")


def _worst(lines: list[tuple]) -> list[tuple]:
    return sorted(lines, key=lambda line: (-line[2][0], line[0], line[1]))


def _table(names: Sequence[str], lines: Iterable[Sequence]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(map(_cell, line))}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: str | tuple[float, str]) -> str:
    if isinstance(value, tuple):
        share, words = value
        return f"<td class='n'>{escape(words)}<div class='bar'><i style='width:{share:.0%}'></i></div></td>"
    return f"<td>{escape(value)}</td>"
