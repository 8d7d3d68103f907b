"""The truth lab: plans for twenty tasks whose steps were measured, and what each way to choose one loses."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import isclose, isfinite
from statistics import mean

from gpipe_sim.course.build import exercise
from gpipe_sim.course.called import called
from gpipe_sim.course.lesson_18 import NOTHING, Plan, plan_of, task_of, terms
from gpipe_sim.course.printed import unbroken
from gpipe_sim.course.reply import (
    Reply,
    almost,
    correct,
    is_number,
    is_whole,
    keep_working,
    quoted,
    your_turn,
)
from gpipe_sim.course.reveal import Revealed
from gpipe_sim.drawing.document import Svg, text
from gpipe_sim.drawing.palette import CURVES, FAINT
from gpipe_sim.pricing.cluster import Cluster
from gpipe_sim.pricing.price import price
from gpipe_sim.pricing.rows import Row, measured_rows, read_rows

Key = tuple[int, int, int, int]  #: devices, batch, features and blocks
Task = Sequence[Row]  #: plans that were measured for one of these
SHARES = {2: 4, 4: 6, 8: 8, 64: 2}  #: how many tasks are of so many devices; 64 are 64 and more
LEAST, MOST = 3, 5  #: plans of a task, and how many of them the twenty have
KNOWN = (8, 32, 2048)  #: what lesson 18 shows
MEAN, WORST = 0.05, 0.27  #: what a model of one's own may lose
MUCH = 0.05  #: a loss that a reply looks into
#: What is to be least, and of equal plans.
RULES: dict[str, Callable[[Plan], float]] = {
    "most copies": lambda plan: -1000 * plan.R - plan.b,
    "largest b": lambda plan: -1000 * plan.b - plan.R,
    "largest t": lambda plan: -1000 * plan.t - plan.b,
    "least waiting": lambda plan: 1e6 * (plan.K - 1) / plan.M - plan.b,
}
#: How a plan may differ from the fastest, and what is asked about that. The first that fits well is said.
KINDS: dict[str, tuple[Callable[[Plan, Plan], bool], str]] = {
    "more waiting": (
        lambda one, best: (one.K - 1) / one.M > (best.K - 1) / best.M,
        "How long do K devices wait, if each does M microbatches?",
    ),
    "more copies": (
        lambda one, best: one.R > best.R,
        "What do copies send each other, and how many samples has each?",
    ),
    "more devices for each block": (
        lambda one, best: one.t > best.t,
        "What do these do, again and again, that one alone need not?",
    ),
    "smaller microbatches": (
        lambda one, best: one.b < best.b,
        "What does each microbatch take, however small it is?",
    ),
    "larger microbatches": (
        lambda one, best: one.b > best.b,
        "Which part of a step gets longer if there are fewer of them?",
    ),
    "fewer devices for each block": (
        lambda one, best: one.t < best.t,
        "What gets less when devices share a block?",
    ),
}
NEARLY = 0.9  #: of the kind that explains most


@cache
def every() -> dict[Key, Task]:
    """All tasks of at least three plans."""
    found: dict[Key, list[Row]] = defaultdict(list)
    for name in ("one-node", "many-nodes"):
        for row in measured_rows(name):
            found[task_of(row)].append(row)
    return {key: found[key] for key in sorted(found) if len(found[key]) >= LEAST}


def drawn(seed: int) -> dict[Key, Task]:
    """Twenty tasks, no two of the same devices, batch and features, each with up to five plans, by lot.

    Where plans differ in nothing but b there is little to choose: such a task is not drawn.
    """
    lot = random.Random(seed)
    found: dict[Key, Task] = {}
    for devices, count in SHARES.items():
        alike: dict[tuple[int, ...], list[Key]] = defaultdict(list)
        for key, task in every().items():
            meshes = {(plan.t, plan.K) for plan in map(plan_of, task)}
            if min(key[0], max(SHARES)) == devices and key[:3] != KNOWN and len(meshes) > 1:
                alike[key[:3]].append(key)
        for some in sorted(lot.sample(sorted(alike), count)):
            key = lot.choice(alike[some])
            found[key] = lot.sample(every()[key], min(MOST, len(every()[key])))
    return found


def twenty(seed: int) -> list[Task]:
    """The tasks that the notebook shows."""
    return [*drawn(seed).values()]


def hidden(seed: int) -> list[Task]:
    """All others, with all of their plans."""
    shown = drawn(seed)
    return [task for key, task in every().items() if key not in shown]


def elsewhere(seed: int) -> list[Row]:
    """The rows of one machine that are of none of the twenty tasks."""
    shown = drawn(seed)
    return [row for row in measured_rows("one-node") if task_of(row) not in shown]


def took(row: Row) -> float:
    return row.seconds


def lost(task: Task, rows: Sequence[Row]) -> float:
    """By what share this plan takes longer than the fastest; of several, one by lot."""
    return mean(map(took, rows)) / min(map(took, task)) - 1


def first(task: Task, said: Sequence[float]) -> list[Row]:
    """The plan of which the least is said; several if that is equal, but for rounding."""
    return [row for row, each in zip(task, said, strict=True) if isclose(each, min(said), rel_tol=1e-9)]


def losses(tasks: Sequence[Task], predict: Callable[[Row], float]) -> list[float]:
    """For each task, what the plan loses that is predicted to be the fastest."""
    return [lost(task, first(task, [predict(row) for row in task])) for task in tasks]


def rules(tasks: Sequence[Task]) -> dict[str, list[float]]:
    """What the lot loses, and each rule of thumb."""
    found = {"the lot": [lost(task, task) for task in tasks]}
    return found | {name: losses(tasks, _of_plans(rule)) for name, rule in RULES.items()}


def _of_plans(rule: Callable[[Plan], float]) -> Callable[[Row], float]:
    return lambda row: rule(plan_of(row))


def five_terms(plan: Plan) -> float:
    """The exercise's folded answer: a time that is far off, and finds good plans."""
    work, tensor, _, gradients = terms(plan)
    device = 2 * work + 1.5 * tensor
    host = plan.M * plan.L / plan.K * 2e-3
    busy = max(device, host) + 0.15 * min(device, host)
    return busy + (plan.K - 1) / plan.M * busy + gradients


# --- what is shown


def name_of(task: Task) -> tuple[str, str]:
    """The cluster's half, and the model's."""
    devices, batch, h, blocks = task_of(task[0])
    return f"{devices} devices, batch {batch}", f"h {h}, L {blocks}, s {plan_of(task[0]).s}"


def short(row: Row) -> str:
    plan = plan_of(row)
    return f"{plan.t} x {plan.K} x {plan.R} b {plan.b}"


def needs(row: Row, cluster: Cluster) -> str:
    """Its microbatches, and the bytes on its fullest device."""
    return f"M {plan_of(row).M}, {row.priced(cluster).peak / 1e9:.1f} GB"


def table(tasks: Sequence[Task], says: Callable[[Row], str]) -> str:
    """Two lines for each task: its plans, t x K x R and b, and what is said of each."""
    lines = [f"{'':>27}" + "".join(f"{f'plan {n + 1}':>16}" for n in range(MOST))]
    for n, task in enumerate(tasks, start=1):
        cluster, model = name_of(task)
        lines += [f"\n{n:>2}  {cluster:<23}" + "".join(f"{short(row):>16}" for row in task)]
        lines += [f"    {model:<23}" + "".join(f"{says(row):>16}" for row in task)]
    return "\n".join(lines)


def milliseconds(row: Row) -> str:
    return f"{1000 * took(row):,.0f} ms"


def compared(ways: Mapping[str, Sequence[float]]) -> str:
    """What each way of choosing loses."""
    lines = [f"{'chosen by':<15}{'fastest found':>14}{'lost, on average':>19}{'at worst':>11}"]
    for name, each in ways.items():
        found = f"{sum(one < 1e-9 for one in each)} of {len(each)}"
        lines.append(f"{name:<15}{found:>14}{mean(each):>19.1%}{max(each):>11.0%}")
    return "\n".join(lines)


LEFT, WIDE, HIGH, TOP = 214, 124, 17, 58  #: pixels
LONG = 76  #: the longest bar, of a plan that takes twice as long or longer


def chart(tasks: Sequence[Task], ways: Mapping[str, Sequence[float]]) -> Svg:
    """A row for each task, a column for each way to choose, a bar for how much longer its plan takes."""

    def parts(_: bool) -> Iterator[str]:
        yield text(12, 22, "Regret, plan by plan: how much longer than the fastest", "start", 14, bold=True)
        for n, task in enumerate(tasks):
            words = f"{n + 1}: {name_of(task)[0]}, h {task_of(task[0])[2]}"
            yield text(LEFT - 10, TOP + HIGH * n + 13, words, "end", colour=FAINT)
        for x, (name, each) in zip(range(LEFT, 10**4, WIDE), ways.items(), strict=False):
            yield text(x, TOP - 8, f"{name}: {mean(each):.1%}", "start", bold=True)
            yield f'<path d="M{x} {TOP}v{HIGH * len(tasks)}" stroke="{FAINT}"/>'
            for y, loss in zip(range(TOP, 10**4, HIGH), each, strict=False):
                long = round(LONG * min(loss, 1))
                yield f'<rect x="{x}" y="{y + 3}" width="{long}" height="{HIGH - 6}" fill="{CURVES[2]}"/>'
                yield text(x + long + 4, y + 13, f"{loss:.0%}" if loss >= 0.005 else "", "start")

    says = f"{len(tasks)} tasks in rows; how much longer than the fastest the plan takes that was chosen by "
    return Svg(parts, (LEFT + WIDE * len(ways), TOP + HIGH * len(tasks) + 10), says + ", ".join(ways))


# --- what is replied


def judged(choices: object, seed: int) -> Reply | Revealed:
    """Hold numbers of plans against what was measured, one for each of the twenty; None is any, by lot."""
    tasks = twenty(seed)
    measured = unbroken(table(tasks, milliseconds))
    if (places := _places(choices, tasks)) is None:
        says = "choose a plan for each task in this cell, and run it again"
        return Revealed(your_turn(says), measured, "What was measured")
    if isinstance(places, Reply):
        return places
    found = [lost(task, rows) for task, rows in zip(tasks, places, strict=True)]
    told = kind_of((task, rows) for task, rows in zip(tasks, places, strict=True) if len(rows) == 1)
    reply = Reply("measured", f"on average your plans take {mean(found):.1%} longer than the fastest. {told}")
    head = f"{'task':<7}{'you chose':<18}{'ms':>7}   {'the fastest':<18}{'ms':>7}{'longer':>9}"
    lines = [
        f"{n:>3}    {_which(rows)}   {_which([min(task, key=took)])}{loss:>9.0%}"
        for n, (task, rows, loss) in enumerate(zip(tasks, places, found, strict=True), start=1)
    ]
    each, all_ways = "\n".join([head, *lines]), compared({"you": found} | rules(tasks))
    return Revealed(reply, unbroken(each) + unbroken(all_ways) + measured)


def _which(rows: Sequence[Row]) -> str:
    return f"{short(rows[0]) if len(rows) == 1 else 'any':<18}{1000 * mean(map(took, rows)):>7,.0f}"


def _places(choices: object, tasks: Sequence[Task]) -> list[Task] | Reply | None:
    """The plans that are meant, or what is wrong; None if nothing was chosen."""
    if choices is None:
        return None
    if not isinstance(choices, list | tuple) or len(choices) != len(tasks):
        return keep_working(f"choices should be a list of {len(tasks)} numbers, and is {quoted(choices)}")
    for n, (task, choice) in enumerate(zip(tasks, choices, strict=True), start=1):
        if choice is not None and not (is_whole(choice) and 1 <= choice <= len(task)):
            return keep_working(f"task {n} has plans 1 to {len(task)}, and you choose {quoted(choice)}")
    if set(choices) == {None}:
        return None
    return [task if n is None else [task[n - 1]] for task, n in zip(tasks, choices, strict=True)]


def scored(
    own: Callable | None, choices: object, seed: int, ways: Mapping[str, Sequence[float]]
) -> Reply | Revealed:
    """The chart of these ways to choose, of the student's choices, and of ``own`` once that is a function."""
    tasks = twenty(seed)
    places, found = _places(choices, tasks), dict(ways)
    if isinstance(places, list):
        found = {"you": [*map(lost, tasks, places)]} | found
    try:
        found |= {"my_time": losses(tasks, lambda row: _number(own, row))} if own else {}
    except Reply as reply:
        return reply.with_traceback(None)
    html = chart(tasks, found)._repr_html_() + unbroken(compared(rules(tasks) | found))
    says = Reply("measured", "a row for each of the twenty") if own else your_turn("write my_time above")
    return Revealed(says, html, "Regret, plan by plan")


@exercise("write my_time in this cell, and run it again")
def my_time(answer: Callable[[Plan], float], *, seed: int = 0) -> Reply:
    """Check ``answer(plan)``: how fast the plans are that it makes the shortest, in tasks not shown."""
    tasks = hidden(seed)
    said = [[_number(answer, row) for row in task] for task in tasks]
    places = [*map(first, tasks, said)]
    found = [*map(lost, tasks, places)]
    own = mean(losses(twenty(seed), lambda row: _number(answer, row)))
    of = f"in the twenty it loses {own:.1%} on average; in {len(tasks)} tasks not shown {mean(found):.1%}"
    of += f", and {max(found):.0%} at worst"
    if mean(found) < MEAN and max(found) < WORST:
        return correct(f"{of}. No rule of thumb does")
    negative = [first(task, [-one for one in each]) for task, each in zip(tasks, said, strict=True)]
    if mean(map(lost, tasks, negative)) < MEAN:
        return almost(f"{of}. What it calls the slowest is fast. Is a small number a short time?")
    reply = almost if mean(found) < 2 * MEAN else keep_working
    several = [rows for rows in places if len(rows) > 1]
    if len(several) > len(tasks) / 4:
        one, other, *_ = max(several, key=len)
        equal = f"{short(one)} and {short(other)}, say. What of them does it not look at?"
        return reply(f"{of}. In {len(several)} tasks several plans are equally long for it: {equal}")
    return reply(f"{of}. {kind_of(zip(tasks, places, strict=True))}")


def kind_of(chosen: Iterable[tuple[Task, Sequence[Row]]]) -> str:
    """In what most of the plans that lose much differ from the fastest, and a question about it."""
    worst = [(task, max(rows, key=took)) for task, rows in chosen]
    bad = [(loss, row, task) for task, row in worst if (loss := lost(task, [row])) > MUCH]
    if not bad:
        return f"No plan loses more than {MUCH:.0%}."
    found = {
        kind: [each for each in bad if differs(plan_of(each[1]), plan_of(min(each[2], key=took)))]
        for kind, (differs, _) in KINDS.items()
    }
    weight = {kind: sum(loss for loss, *_ in some) for kind, some in found.items()}
    kind = next(kind for kind in KINDS if weight[kind] >= NEARLY * max(weight.values()))
    loss, row, task = max(found[kind], key=lambda each: each[0])
    return (
        f"{len(bad)} plans lose over {MUCH:.0%}, and {len(found[kind])} of these have {kind} than the "
        f"fastest. So has {short(row)} for {', '.join(name_of(task))}, which takes {1 + loss:.1f} times as "
        f"long. {KINDS[kind][1]}"
    )


def _number(answer: Callable[[Plan], float], row: Row) -> float:
    """What a student's function says of a plan; raises a Reply unless it is a number."""
    plan = plan_of(row)
    said = called(answer, plan, where=f"for {plan}", without=LOOKED_UP)
    if said is None:
        raise keep_working(f"for {plan} {NOTHING}")
    if not is_number(said) or not isfinite(said):
        raise keep_working(f"for {plan} you give {quoted(said)}. How long is its step, as one number?")
    return float(said)


LOOKED_UP = price, measured_rows, read_rows  #: what is no model of one's own
