"""for who teaches: copies without answers, grades, a report, an exam, pictures

  course handout DIR            lessons and exercises without answers, for students
  course grade FOLDER --csv F   what was handed in, checked again: a row for each student and piece
  course report F.csv -o PAGE   a page: what the class got wrong, and what was said to it
  course exam DIR               questions with numbers by seed, and their answers in a file of their own
  course slides DIR             the pictures of all lessons as files

In FOLDER a student is a folder with notebooks, my_pipeline.py or both; where my_tries.json is with them, it
says how many tries each check took. Their code runs in processes of its own, without network, with limits of
time and memory; where the system has no such walls, that is said. In the table exercise 01 is E01, and lesson
01 is 01.

examples:
  gpipe-sim course handout for-students --seed 7
  gpipe-sim course grade handed-in --csv grades.csv --handout-seed 7
  gpipe-sim course report grades.csv -o report.html
  gpipe-sim course exam first-exam --seed 3 --questions 6 --lessons 01 02 03 04 07
  gpipe-sim course slides pictures
"""

import os
import re
import secrets
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from gpipe_sim.command.answer import Answer


def add(parser: ArgumentParser) -> None:
    several = parser.add_subparsers(
        dest="what", metavar="handout | grade | report | exam | slides", required=True
    )
    made = several.add_parser("handout", help="lessons and exercises without answers, for students")
    made.add_argument("folder", metavar="DIR", help="it must not be there yet")
    made.add_argument("--with-answers", action="store_true", help="folded in, and solutions of exercises")
    made.add_argument(
        "--seed", type=whole, metavar="N", help="for the numbers of self-test, exercises and lab"
    )
    graded = several.add_parser("grade", help="what was handed in, checked again")
    graded.add_argument("folder", metavar="FOLDER", help="with a folder for each student")
    graded.add_argument("--csv", required=True, metavar="FILE", help="the table; it is written over")
    graded.add_argument(
        "--seed", type=whole, metavar="N", help="for sizes that no notebook shows (default: by lot)"
    )
    graded.add_argument(
        "--handout-seed", type=whole, default=0, metavar="N", help="of the handout (default: %(default)s)"
    )
    graded.add_argument(
        "--seconds", type=whole, default=15, metavar="S", help="for a call (default: %(default)s)"
    )
    shown = several.add_parser("report", help="a page on what the class got wrong")
    shown.add_argument("csv", metavar="FILE", help="what course grade wrote")
    shown.add_argument("-o", required=True, metavar="PAGE", help="the page, such as report.html")
    asked = several.add_parser("exam", help="questions by seed, and their answers")
    asked.add_argument("folder", metavar="DIR", help="it must not be there yet")
    asked.add_argument(
        "--seed", type=whole, required=True, metavar="N", help="that draws questions and numbers"
    )
    asked.add_argument(
        "--questions", type=whole, default=10, metavar="Q", help="how many (default: %(default)s)"
    )
    asked.add_argument(
        "--lessons", nargs="+", default=(), metavar="NN", help="that may be asked about (default: all)"
    )
    drawn = several.add_parser("slides", help="the pictures of all lessons, as files")
    drawn.add_argument("folder", metavar="DIR", help="it must not be there yet")


def whole(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise ArgumentTypeError(f"{text!r} is no whole number, such as 7")
    return int(text)


def answer(asked: Namespace) -> Answer:
    if asked.what in ("handout", "exam", "slides") and Path(asked.folder).exists():
        raise ValueError(
            f"{asked.folder} is there already; name a folder that is not, and nothing is written over"
        )
    each = {"handout": _handout, "grade": _grade, "report": _report, "exam": _exam, "slides": _slides}
    return each[asked.what](asked)


def _handout(asked: Namespace) -> Answer:
    from gpipe_sim.classroom.handout import handout

    folder = Path(asked.folder)
    written = handout(folder, answers=asked.with_answers, seed=asked.seed)
    kept = "with answers" if asked.with_answers else "without answers and results"
    return Answer(
        f"{folder}: {len(written)} notebooks, {kept}, seed {asked.seed if asked.seed is not None else 0}"
    )


def _grade(asked: Namespace) -> Answer:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from gpipe_sim.classroom.grade import OTHER, as_csv, grade
    from gpipe_sim.classroom.outside import Limits

    folder = Path(asked.folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder")
    if not Path(asked.csv).absolute().parent.is_dir():
        raise ValueError(f"there is no folder for {asked.csv}")
    seed = secrets.randbelow(10**6) if asked.seed is None else asked.seed
    rows, missing = grade(folder, seed, Limits(seconds=asked.seconds), given=asked.handout_seed)
    if not rows:
        raise ValueError(f"there is no notebook and no my_pipeline.py in {folder}, nor in folders of it")
    Path(asked.csv).write_text(as_csv(rows), encoding="utf-8", newline="")
    pieces = [row for row in rows if row.kind == "piece"]
    passed = sum(row.passed == "yes" for row in pieces)
    lines = [
        f"{asked.csv}: {students(rows)}, {passed} of {len(pieces)} pieces passed",
        f"seed {seed} drew the sizes that no notebook shows",
    ]
    if bad := [row for row in rows if row.kind == "file"]:
        lines += ["not graded:", *(f"  {row.file}: {row.reply}" for row in bad)]
    if other := {row.file for row in rows if OTHER in row.note}:
        lines.append(
            f"{len(other)} notebooks have another SEED than {asked.handout_seed}, which is what they are "
            "checked with; if the handout had another, say --handout-seed"
        )
    if missing:
        lines.append(
            f"this system has no wall around {', '.join(missing)}: grade where nothing else is at stake"
        )
    return Answer("\n".join(lines))


def _report(asked: Namespace) -> Answer:
    from gpipe_sim.classroom.report import page, read_csv

    rows = read_csv(Path(asked.csv).read_text(encoding="utf-8"))
    Path(asked.o).write_text(page(rows), encoding="utf-8")
    return Answer(f"{asked.o}: {students(rows)}")


def _exam(asked: Namespace) -> Answer:
    from gpipe_sim.classroom.exam import exam

    lessons = exam(Path(asked.folder), asked.seed, asked.questions, asked.lessons)
    return Answer(f"{asked.folder}: exam.md and answers.md, on lessons {', '.join(sorted({*lessons}))}")


def _slides(asked: Namespace) -> Answer:
    from gpipe_sim.classroom.slides import slides

    written = slides(Path(asked.folder))
    return Answer(f"{asked.folder}: {len(written) - 1} pictures, and index.html shows them")


def students(rows: list) -> str:
    count = len({row.student for row in rows})
    return f"{count} student{'s' * (count != 1)}"
