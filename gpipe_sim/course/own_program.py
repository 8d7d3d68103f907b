"""What is wrong with a student's program of one device, step by step and when all of them run."""

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np

from gpipe_sim.core.costs import Costs
from gpipe_sim.core.layers import mlp
from gpipe_sim.core.losses import mse
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.split import split
from gpipe_sim.core.step import single_device_step
from gpipe_sim.course.own_rows import TITLE, Drawn, drawn
from gpipe_sim.course.reply import Reply, keep_working
from gpipe_sim.course.rows import Step, first_other, in_a_row, rows_of, what_is_amiss
from gpipe_sim.drawing.deadlock import draw_deadlock
from gpipe_sim.drawing.svg import draw
from gpipe_sim.errors import DeadlockError
from gpipe_sim.families import OneFOneB
from gpipe_sim.programs.device_programs import device_programs
from gpipe_sim.programs.run_programs import run_programs

CLOSE = 1e-12
STEP = re.compile(r"(\d{1,9})((?:RECV_|SEND_)?)([FB])(\d{1,9})")
STEPS = re.compile(r"\d{1,9}(?:RECV_|SEND_)[FB]\d{1,9}")


def read_steps(steps: object, where: str) -> list[str]:
    """The steps of a program, as texts; raises a Reply if they are anything else."""
    if not isinstance(steps, list | tuple):
        asks = "How does a generator yield one step after the other?"
        raise keep_working(f"{where} it gives {steps!r}. {asks}")
    for step in steps:
        if not isinstance(step, str) or not STEP.fullmatch(step):
            asks = "How is that written in the way of 1F0, 1RECV_F0, 1SEND_B0?"
            if isinstance(step, str) and re.search(r"I(?=RECV)|>\w+$", step):
                asks = "Here each receive waits, into a place of its own. How is that written: 1RECV_F0?"
            elif isinstance(step, str) and STEP.fullmatch(step.replace("-", "")):
                asks = "Which one comes first, and how many can be ahead if there are fewer than devices?"
            raise keep_working(f"{where} it has the step {step!r}. {asks}")
    return list(steps)


def _read(step: str) -> tuple[int, str, str, int]:
    """Stage, what is done with it ("", "RECV" or "SEND"), kind, microbatch."""
    s, what, kind, m = STEP.findall(step)[0]
    return int(s), what.strip("_"), kind, int(m)


def wrong_row(steps: list[str], k: int, K: int, M: int) -> str:
    """What is wrong with one device's program by itself, and a question; empty if nothing is."""
    row = list(map(_read, steps))
    actions = [(s, kind, m) for s, what, kind, m in row if not what]
    wanted: list[Step] = [*rows_of(OneFOneB(K, M))[k]]
    if wrong := what_is_amiss(actions, wanted):
        return f"its actions are {in_a_row(actions, end='.')} {wrong}"
    if actions != wanted:
        its = f"its actions are {in_a_row(actions, most=8, end='.')}"
        ahead, due = ([kind for _, kind, _ in row].index("B") for row in (actions, wanted))
        if ahead != due:
            asks = "How many forwards does 1F1B do first on this device?"
            return f"{its} Before its first backward that is {ahead}. {asks}"
        at = first_other(actions, wanted)
        return f"{its} The one at place {at} is not 1F1B's. What does it do in turn?"
    return _wrong_messages(row, steps, list(_messages(k, K, M)))


def _messages(k: int, K: int, M: int) -> Iterator[tuple[int, str, str, int]]:
    """What device k receives and sends, in any order."""
    for m in range(M):
        if k > 0:
            yield from [(k, "RECV", "F", m), (k, "SEND", "B", m)]
        if k < K - 1:
            yield from [(k, "SEND", "F", m), (k, "RECV", "B", m)]


def _wrong_messages(row: list, steps: list[str], wanted: list) -> str:
    spelling = dict(zip(row, steps, strict=True))
    counts = Counter(step for step in row if step[1])
    for step, often in counts.items():
        s, what, kind, m = step
        if step not in wanted:
            who = "Who sends that?" if what == "RECV" else "Who needs that?"
            return f"it has {spelling[step]}. {who}"
        if often > 1:
            return f"it has {spelling[step]} {often} times. How often does it cross?"
        early, late = (step, (s, "", kind, m)) if what == "RECV" else ((s, "", kind, m), step)
        if row.index(late) < row.index(early):
            says = f"{spelling[late]} comes before {spelling[early]}"
            return f"{says}. {'What does it read?' if what == 'RECV' else 'What would it send?'}"
    for s, what, kind, m in wanted:
        if (s, what, kind, m) not in counts:
            why = f"What does {s}{kind}{m} read?" if what == "RECV" else "Who waits for that?"
            return f"it never comes to {s}{what}_{kind}{m}. {why}"
    return ""


def with_actions(reply: Reply, programs: list[list[str]], K: int, M: int) -> Reply:
    """The reply to the last of these programs, with a chart of their actions; further devices do 1F1B's.

    A frame is around the first action that is not 1F1B's, or the one whose message the reply names.
    """
    wanted: list[list[Step]] = [[*row] for row in rows_of(OneFOneB(K, M))]
    rows = [[(s, kind, m) for s, what, kind, m in map(_read, steps) if not what] for steps in programs]
    k, own = len(rows) - 1, rows[-1]
    named = [(s, kind, m) for s, what, kind, m in map(_read, STEPS.findall(reply.text)) if what]
    wrong = [i for i, (one, other) in enumerate(zip(own, wanted[k], strict=False)) if one != other]
    wrong += [own.index(action) for action in named if action in own]
    return drawn(reply, [*rows, *wanted[k + 1 :]], (k, wrong[0]) if wrong else None)


def with_messages(reply: Reply, programs: list[list[str]]) -> Reply:
    """The reply, with a chart of the programs, which end: their actions, and an arrow for each message."""
    found = Drawn(reply.verdict, reply.text)
    timeline = simulate(device_programs(_text(programs)).schedule, Costs(comm=1))
    found.picture = draw(timeline, messages=True, titles=[TITLE])
    return found


def with_waits(reply: Reply, programs: list[list[str]]) -> Reply:
    """The reply, with who waits for whom if these programs wait for ever."""
    found = Drawn(reply.verdict, reply.text)
    try:
        found.picture = draw_deadlock(device_programs(_text(programs)), sends="blocking")
    except ValueError:
        return reply
    return found


def _text(programs: list[list[str]]) -> str:
    return "\n".join(map(" ".join, programs))


def early(steps: list[str], who: str) -> str:
    """Whether more than one activation has been received that no forward has read yet, in words."""
    waiting = most = 0
    for _, what, kind, _ in map(_read, steps):
        if kind == "F":
            waiting += {"RECV": 1, "": -1, "SEND": 0}[what]
            most = max(most, waiting)
    if most < 2:
        return ""
    return f"{who} has {most} activations lying there that no forward has read. How many must it take ahead?"


def wrong_run(rows: list[list[str]], K: int, M: int) -> str:
    """Run the programs on arrays with sends that block: what goes wrong, and a question."""
    layers, rng = mlp([6] * K + [3]), np.random.default_rng(0)
    batch = rng.normal(size=(2 * M, 6)), rng.normal(size=(2 * M, 3))
    try:
        programs = device_programs(_text(rows))
        step = run_programs(programs, split(layers, stages=K), batch, mse, sends="blocking")
    except DeadlockError as error:
        waits = str(error).partition("\n")[2].strip().partition(". On device")[0]
        return f"{waits}. Which of them could do something else first?"
    except ValueError as error:
        return f"{error}. What did the other device do?"
    alone = single_device_step(layers, batch, mse, microbatches=M).gradients
    for key, found in step.gradients.items():
        off = np.linalg.norm(found - alone[key]) / np.linalg.norm(alone[key])
        if off > CLOSE:
            return f"the gradient of layer {key[0]} is {off:.0%} wrong. What does its backward read?"
    return ""
