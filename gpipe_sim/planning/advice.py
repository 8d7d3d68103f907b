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
    steps = tuple(Step(question, answer(asked)) for question, answer in STEPS.items())
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
        replicas = {
            "data parallel": [self.devices],
            "pipeline": [1] if self.devices > 1 else [],
            "both": divisors(self.devices)[1:-1],
        }
        return {name: self.fastest(counts) for name, counts in replicas.items()}

    @cached_property
    def best(self) -> Plan:
        return min(filter(None, self.kinds.values()), key=lambda plan: plan.time)

    def at_best(self, **changes) -> Plan | None:
        """The fastest with the replicas of the best."""
        return self.fastest([self.best.replicas], **changes)


def _fits_one(asked: _Asked) -> str:
    tried, _ = candidates(asked.table, asked.space([asked.devices]))
    if not tried:
        return "The batch has no sample for each device."
    (size, _), memory = smallest(tried), asked.table.cluster.memory
    fits = "It does" if size <= memory else "It does not"
    return f"{fits}: it holds at least {in_bytes(size)}, and a device has {in_bytes(memory)}."


def _shortest(asked: _Asked) -> str:
    for replicas in reversed(divisors(asked.devices)):
        if least := asked.fastest([replicas], schedules=[OneFOneB]):
            k = asked.devices // replicas
            return f"1F1B fits from K = {k} on, where it holds {in_bytes(least.peak)}."
    return "No 1F1B fits."


def _which(asked: _Asked) -> str:
    kinds = asked.kinds.items()
    said = ", ".join(f"{name} {number(each.time) if each else 'has no plan'}" for name, each in kinds)
    chosen = next(name for name, each in kinds if each is asked.best)
    return f"{chosen.capitalize()}: {said}."


def _links(asked: _Asked) -> str:
    shares = (f"{name} {_crossing(each):.1%}" for name, each in asked.kinds.items() if each)
    return f"Of a step of the fastest of each kind: {', '.join(shares)}."


def _crossing(plan: Plan) -> float:
    """The share of a step that is spent on what crosses links."""
    return (plan.parts["messages"] + plan.parts["all-reduce"]) / float(plan.time)


def _microbatches(asked: _Asked) -> str:
    schedule, mesh, bubble = asked.best.candidate.schedule, asked.best.candidate.mesh, asked.best.bubble
    wanted = microbatches_for_bubble(mesh.devices, TARGET)
    there = asked.table.profile.samples // mesh.replicas
    enough = "There are" if there >= wanted else "There are not"
    return (
        f"{enough}: 1F1B wants {wanted} for K = {mesh.devices}, and a replica has {there} samples. "
        f"The plan takes {schedule.microbatches}, with a bubble of {bubble:.1%}."
    )


def _even(asked: _Asked) -> str:
    parts = asked.best.parts
    more = parts["imbalance"] / (parts["compute"] + parts["recompute"])
    layers, stages = asked.table.count, len(asked.best.balance)
    return f"{layers} layers in {stages} stages: the busiest device does {more:.1%} more than the mean."


def _gpipe(asked: _Asked) -> str:
    named = {"GPipe": GPipe, "1F1B": OneFOneB}.items()
    return ", ".join(f"{name} {_describe(asked.at_best(schedules=[family]))}" for name, family in named) + "."


def _describe(plan: Plan | None) -> str:
    if plan is None:
        return "does not fit"
    how = " with recompute" if plan.candidate.recompute else ""
    return f"takes {number(plan.time)}{how} and holds {in_bytes(plan.peak)}"


def _schedule(asked: _Asked) -> str:
    simple = asked.at_best(schedules=[GPipe, OneFOneB])
    if simple is None:
        return "It has to be another one: neither GPipe nor 1F1B fits."
    if asked.best.time >= simple.time:
        return "None is faster."
    gain = 1 - float(asked.best.time) / float(simple.time)
    return f"{asked.best.candidate.schedule.name} takes {gain:.1%} less than the better of these."


def _recompute(asked: _Asked) -> str:
    without, again = (asked.at_best(recompute=[each]) for each in (False, True))
    if without is None:
        return "It is: without recompute, no plan with as many replicas fits."
    if again is None:
        return f"It is not: without it {number(without.time)}."
    if again.time < without.time:
        return f"It helps: with it {number(again.time)}, without {number(without.time)}."
    return f"It is not: without it {number(without.time)}, with it {number(again.time)}."


def _limit(asked: _Asked) -> str:
    name = asked.best.limited_by
    return f"{name.capitalize()}: {asked.best.parts[name] / float(asked.best.time):.1%} of the step."


STEPS: dict[str, Callable[[_Asked], str]] = {
    "Does a replica fit one device?": _fits_one,
    "How long must a pipeline be?": _shortest,
    "Data parallel, pipeline, or both: what is the fastest step?": _which,
    "What do messages and all-reduce cost?": _links,
    "Are there microbatches enough for a bubble of a tenth?": _microbatches,
    "Can the layers be cut evenly?": _even,
    "GPipe or 1F1B?": _gpipe,
    "Does another schedule gain anything?": _schedule,
    "Is recompute needed?": _recompute,
    "What takes the most time that is not compute?": _limit,
}
