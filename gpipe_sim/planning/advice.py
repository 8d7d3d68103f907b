"""Data parallel, pipeline, or both; which schedule; recompute or not? Each answer is a comparison of numbers.

Rules of thumb ("a pipeline from 24 layers on", "else GPipe", "M = 4K") are replaced by what the model and the
cluster at hand give. Every question is asked of the best plans that there are, so each answer can be checked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from gpipe_sim.core.device import Batch
from gpipe_sim.core.gpipe import GPipe
from gpipe_sim.core.layers import Layer
from gpipe_sim.core.losses import Loss
from gpipe_sim.core.one_f_one_b import OneFOneB
from gpipe_sim.core.optimizers import Optimizer
from gpipe_sim.core.timeline import number
from gpipe_sim.families import SCHEDULES
from gpipe_sim.memory.limit import in_bytes
from gpipe_sim.papers.formulas import microbatches_for_bubble
from gpipe_sim.planning.candidates import Space, candidates, read_space
from gpipe_sim.planning.cluster import Cluster, divisors
from gpipe_sim.planning.layer_table import LayerTable, table_of
from gpipe_sim.planning.plans import Plan, no_plan, plans_of
from gpipe_sim.planning.search import smallest

TARGET = "0.1"  #: the bubble fraction that microbatches are counted for


class Step(NamedTuple):
    """A question, and its answer with the numbers that were compared for it."""

    question: str
    answer: str


@dataclass(frozen=True, repr=False, eq=False)
class Advice:
    """The steps that lead to a plan, and the ``plan``. ``print`` shows them."""

    steps: tuple[Step, ...]
    plan: Plan

    def __str__(self) -> str:
        lines = [line for step in self.steps for line in (step.question, f"    {step.answer}")]
        return "\n".join([*lines, f"So: {self.plan.words}, {number(self.plan.time)} for a step"])

    def __repr__(self) -> str:
        return f"<Advice in {len(self.steps)} steps: {self.plan!r}>"


def advise(
    layers: Sequence[Layer],
    cluster: Cluster,
    batch: Batch,
    loss: Loss,
    optimizer: Optimizer | None = None,
) -> Advice:
    """How to train a model on a cluster, question by question; see ``plan`` for the arguments.

    - Does a replica fit one device? How long must a pipeline be?
    - Data parallel, pipeline, or both: which is fastest? What do messages and all-reduce cost?
    - Are there microbatches enough for a bubble of a tenth? Can the layers be cut evenly?
    - GPipe or 1F1B? Does another schedule gain anything? Is recompute needed?
    - What then takes the most time that is not compute?

    It raises what ``plan`` does, if there is no plan at all.
    """
    table = table_of("advise", layers, cluster, batch, loss, optimizer)
    asked = _Asked(table)
    if not any(asked.kinds.values()):
        raise no_plan(table, asked.space(None))
    steps = tuple(step(asked) for step in STEPS)
    return Advice(steps, asked.best)


class _Asked:
    """The best plans of some kinds, each searched for when it is first asked for."""

    def __init__(self, table: LayerTable):
        self.table = table
        self.devices = table.cluster.devices

    def space(self, replicas: Sequence[int] | None, **changes) -> Space:
        usual = {"schedules": SCHEDULES, "microbatches": None, "stages_per_device": (2, 4)}
        return read_space(
            self.table.cluster, replicas=replicas, **usual | {"recompute": (False, True)} | changes
        )

    def fastest(self, replicas: Sequence[int] | None, **changes) -> Plan | None:
        if not replicas:
            return None
        plans = plans_of(self.table, self.space(replicas, **changes), 1)
        return plans.best if plans else None

    @cached_property
    def kinds(self) -> dict[str, Plan | None]:
        """The fastest of each kind; one device is no pipeline."""
        between = divisors(self.devices)[1:-1]
        replicas = {
            "data parallel": [self.devices],
            "pipeline": [1] if self.devices > 1 else [],
            "both": between,
        }
        return {name: self.fastest(counts) for name, counts in replicas.items()}

    @cached_property
    def best(self) -> Plan:
        return min(filter(None, self.kinds.values()), key=lambda plan: plan.time)

    def at_best(self, **changes) -> Plan | None:
        """The fastest with the replicas of the best."""
        return self.fastest([self.best.replicas], **changes)


def _fits_one(asked: _Asked) -> Step:
    question = "Does a replica fit one device?"
    tried, _ = candidates(asked.table, asked.space([asked.devices]))
    memory = asked.table.cluster.memory
    if not tried:
        return Step(question, "The batch has no sample for each device.")
    size, _ = smallest(tried)
    fits = "It does" if size <= memory else "It does not"
    return Step(question, f"{fits}: it holds at least {in_bytes(size)}, and a device has {in_bytes(memory)}.")


def _shortest(asked: _Asked) -> Step:
    question = "How long must a pipeline be?"
    for replicas in reversed(divisors(asked.devices)):
        if least := asked.fastest([replicas], schedules=[OneFOneB]):
            k = asked.devices // replicas
            return Step(question, f"1F1B fits from K = {k} on, where it holds {in_bytes(least.peak)}.")
    return Step(question, "No 1F1B fits.")


def _which(asked: _Asked) -> Step:
    kinds = asked.kinds.items()
    said = ", ".join(f"{name} {number(each.time) if each else 'has no plan'}" for name, each in kinds)
    chosen = next(name for name, each in kinds if each is asked.best)
    return Step(
        "Data parallel, pipeline, or both: what is the fastest step?", f"{chosen.capitalize()}: {said}."
    )


def _microbatches(asked: _Asked) -> Step:
    schedule, mesh, bubble = asked.best.candidate.schedule, asked.best.candidate.mesh, asked.best.bubble
    wanted = microbatches_for_bubble(mesh.devices, TARGET)
    there = asked.table.profile.samples // mesh.replicas
    enough = "There are" if there >= wanted else "There are not"
    answer = (
        f"{enough}: 1F1B wants {wanted} for K = {mesh.devices}, and a replica has {there} samples. "
        f"The plan takes {schedule.microbatches}, with a bubble of {bubble:.1%}."
    )
    return Step("Are there microbatches enough for a bubble of a tenth?", answer)


def _even(asked: _Asked) -> Step:
    parts = asked.best.parts
    more = parts["imbalance"] / (parts["compute"] + parts["recompute"])
    layers, stages = asked.table.count, len(asked.best.balance)
    answer = f"{layers} layers in {stages} stages: the busiest device does {more:.1%} more than the mean."
    return Step("Can the layers be cut evenly?", answer)


def _gpipe(asked: _Asked) -> Step:
    named = {"GPipe": GPipe, "1F1B": OneFOneB}.items()
    told = (f"{name} {_describe(asked.at_best(schedules=[family]))}" for name, family in named)
    return Step("GPipe or 1F1B?", f"{', '.join(told)}.")


def _describe(plan: Plan | None) -> str:
    if plan is None:
        return "does not fit"
    how = " with recompute" if plan.candidate.recompute else ""
    return f"takes {number(plan.time)}{how} and holds {in_bytes(plan.peak)}"


def _schedule(asked: _Asked) -> Step:
    simple = asked.at_best(schedules=[GPipe, OneFOneB])
    if simple is None:
        answer = "It has to be another one: neither GPipe nor 1F1B fits."
    elif asked.best.time < simple.time:
        gain = 1 - float(asked.best.time) / float(simple.time)
        answer = f"{asked.best.candidate.schedule.name} takes {gain:.1%} less than the better of these."
    else:
        answer = "None is faster."
    return Step("Does another schedule gain anything?", answer)


def _recompute(asked: _Asked) -> Step:
    without, again = (asked.at_best(recompute=[each]) for each in (False, True))
    if without is None:
        answer = "It is: without recompute, no plan with as many replicas fits."
    elif again is not None and again.time < without.time:
        answer = f"It helps: with it {number(again.time)}, without {number(without.time)}."
    else:
        answer = f"It is not: without it {number(without.time)}"
        answer += f", with it {number(again.time)}." if again else "."
    return Step("Is recompute needed?", answer)


def _limit(asked: _Asked) -> Step:
    name = asked.best.limited_by
    share = asked.best.parts[name] / float(asked.best.time)
    return Step(
        "What takes the most time that is not compute?", f"{name.capitalize()}: {share:.1%} of the step."
    )


def _links(asked: _Asked) -> Step:
    shares = (f"{name} {_crossing(each):.1%}" for name, each in asked.kinds.items() if each)
    answer = f"Of a step of the fastest of each kind: {', '.join(shares)}."
    return Step("What do messages and all-reduce cost?", answer)


def _crossing(plan: Plan) -> float:
    """The share of a step that is spent on what crosses links."""
    return (plan.parts["messages"] + plan.parts["all-reduce"]) / float(plan.time)


STEPS: tuple[Callable[[_Asked], Step], ...] = (
    _fits_one,
    _shortest,
    _which,
    _links,
    _microbatches,
    _even,
    _gpipe,
    _schedule,
    _recompute,
    _limit,
)
