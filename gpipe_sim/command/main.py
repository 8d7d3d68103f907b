"""Arguments in, an answer out: one place for how the command prints, fails and ends."""

import os
import sys
import warnings
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from gpipe_sim.command import check, course, draw, lessons, plan
from gpipe_sim.command.answer import Answer
from gpipe_sim.errors import MemoryLimitError, ScheduleError

COMMANDS = {"draw": draw, "check": check, "plan": plan, "lessons": lessons, "course": course}
STATUS = """\
exit status, for scripts:
  0  yes, or done
  1  no: the order cannot run, no plan fits, a lesson differs
  2  the question was wrong: an unknown option, a file that cannot be read
Answers go to stdout, also when they are no; what is wrong with a question goes to stderr."""
INTERRUPTED = 130  #: as a shell counts a program that Ctrl-C ended


class Parser(ArgumentParser):
    """One whose errors are one sentence, without the usage, and whose help keeps its lines."""

    def __init__(self, prog: str, **options: Any):
        super().__init__(prog, formatter_class=RawDescriptionHelpFormatter, allow_abbrev=False, **options)

    def error(self, message: str):
        self.exit(2, f"{self.prog}: {message}; {self.prog} --help has examples\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer the arguments, those of the command line unless given; the exit status."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that has no dot shows a question mark
    asked = parser().parse_args(arguments)
    if not asked.command:
        return said(Answer(parser().format_help().rstrip()))
    who = f"{name()} {asked.command}"
    try:
        with warned_in_a_line(who):
            answer = COMMANDS[asked.command].answer(asked)
        return said(answer)
    except (ScheduleError, MemoryLimitError) as no:
        return said(Answer(str(no), 1))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return refused(who, f"{where}{error.strerror or error}")
    except (ValueError, TypeError, ArithmeticError, ImportError, MemoryError) as error:
        return refused(who, str(error) or "there is not enough memory for that")
    except KeyboardInterrupt:
        return INTERRUPTED


def parser() -> Parser:
    about = "Pipeline-parallel training, simulated: draw, check and plan, get the lessons, and teach them."
    whole = Parser(name(), description=about, epilog=STATUS)
    version = import_module("gpipe_sim").__version__
    whole.add_argument("--version", action="version", version=f"gpipe_sim {version}")
    several = whole.add_subparsers(dest="command", metavar="draw | check | plan | lessons | course")
    for word, module in COMMANDS.items():
        said, _, examples = (module.__doc__ or "").partition("\n\n")
        epilog = f"{examples.strip().replace('gpipe-sim', name())}\n\n{STATUS}".replace("%", "%%")
        module.add(several.add_parser(word, help=said, description=said, epilog=epilog))
    return whole


def name() -> str:
    """As it was called."""
    return "python -m gpipe_sim" if Path(sys.argv[0]).name == "__main__.py" else "gpipe-sim"


def said(answer: Answer) -> int:
    """Print the answer; its status. A reader that stops early, such as ``head``, changes nothing."""
    try:
        print(answer.text, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python may flush again at its end
        if not isinstance(error, BrokenPipeError):
            return refused(name(), f"the answer cannot be written: {error.strerror}")
    return answer.status


def refused(who: str, why: str) -> int:
    print(f"{who}: {why}", file=sys.stderr)
    return 2


@contextmanager
def warned_in_a_line(who: str) -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: print(f"{who}: {message}", file=sys.stderr)
        yield
