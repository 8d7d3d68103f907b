"""Where later chapters plug into the core, which imports none of them.

Some functions of the core can do more once a later chapter is there: ``simulate`` knows nothing of links,
and ``train_step`` nothing of updates on the way, but both have a hook. A hook says what it is for and what
type of thing belongs there. The package's ``__init__``, its table of contents, says which chapter fills which
hook; the chapter is loaded when the hook is first used, and if it was torn out, the hook says so in one
sentence.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    import numpy as np

    from gpipe_sim.core.actions import Action
    from gpipe_sim.core.cost_model import CostModel
    from gpipe_sim.core.costs import Costs
    from gpipe_sim.core.device import Batch, Device
    from gpipe_sim.core.losses import Loss
    from gpipe_sim.core.numbers import CostColumn
    from gpipe_sim.core.optimizers import Optimizer
    from gpipe_sim.core.partition import Partition
    from gpipe_sim.core.program import Program
    from gpipe_sim.core.schedule import Schedule
    from gpipe_sim.core.step import Step
    from gpipe_sim.core.timeline import Timeline

T = TypeVar("T")


class Hook(Generic[T]):
    """One thing that a later chapter adds.

    ``use`` is what asks for it, as a message says it; ``home`` is where it stands, "module:name".
    """

    def __init__(self, use: str):
        self.use, self.home = use, ""

    @cached_property
    def filled(self) -> T:
        """The thing itself. ModuleNotFoundError, in one sentence, if its chapter is not there."""
        module, _, name = self.home.partition(":")
        try:
            return getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("gpipe_sim"):
                raise
            raise ModuleNotFoundError(f"{self.use} needs {error.name}, which is not here") from None


class Sizes(Protocol):
    """What the core asks of a profile: plain numbers, never layers."""

    def message_bytes(self, schedule: "Schedule") -> "CostColumn":
        """The bytes of each need that crosses, in the order of the program's."""

    def require_within(self, schedule: "Schedule", limit, costs=None, weights: str | None = None) -> object:
        """MemoryLimitError if a device would hold more than the limit."""

    def costs(self, microbatches: int = 1) -> "Costs":
        """The FLOPs of F, I and W of each stage, for the largest microbatch."""


class Hang(Protocol):
    """Devices that wait for each other in sends and receives, and the receive that would free them."""

    @property
    def early(self) -> "Received": ...

    @property
    def sentence(self) -> str: ...


class Received(Protocol):
    """A message, by the action that made it."""

    @property
    def what(self) -> "Action": ...


class Shown(Protocol):
    """A chart, as a notebook shows it."""

    def _repr_html_(self) -> str: ...


Columns = tuple["np.ndarray", "np.ndarray"]

chart_of_schedule: Hook[Callable[["Schedule"], Shown | None]] = Hook("a chart in a notebook")
chart_of_timeline: Hook[Callable[["Timeline"], Shown]] = Hook("a chart in a notebook")
text_of_timeline: Hook[Callable[["Timeline"], str]] = Hook("a timeline as text")
#: Costs that time a program with its messages queueing on links: (schedule, costs, links, profile, overlap).
on_links: Hook[Callable[["Schedule", "CostModel", object, Sizes | None, bool], "CostModel"]] = Hook(
    "simulate(..., links=...)"
)
profile: Hook[
    Callable[[Sequence["Partition"], "Batch", "Loss", "Optimizer | None"], Sizes]
] = Hook("train_step(..., memory_limit=...)")  # fmt: skip
#: Where devices hang if a send ends only when the other device receives.
hangs: Hook[Callable[["Schedule"], Sequence[Hang]]] = Hook('problems(..., sends="blocking")')
#: The kind of step whose weights change on the way.
stream: Hook["type[Step]"] = Hook("a schedule with updates, such as 0U0,")
#: What is wrong with the updates of a program: (action, sentence).
wrong_updates: Hook[Callable[["Program"], Iterator[tuple["Action", str]]]] = Hook(
    "a schedule with updates, such as 0U0,"
)
#: An update applies the sum over all copies of its stage, so it needs the last gradient of each.
needs_of_updates: Hook[Callable[..., Columns]] = Hook("a schedule with updates, such as 0U0,")
#: Sums the gradients of the copies of a stage, in place, on the devices that hold them.
sum_copies: Hook[Callable[[Sequence["Device"], int], None]] = Hook("a step with several copies of a stage")
#: Per device, partitions and optimizers of its own where several devices hold a stage.
own_copies: Hook[
    Callable[..., Iterator[tuple["dict[int, Partition]", "dict[int, Optimizer]"]]]
] = Hook("a step with several copies of a stage")  # fmt: skip
#: By what a stage should have as little of as possible: how many layers each stage gets.
balances: Hook[Mapping[str, Callable[..., list[int]]]] = Hook('split(..., balance="time")')
from_flops: Hook[Callable[[Sizes, object, int], "Costs"]] = Hook("Costs.from_flops")
stopwatch: Hook[Callable[..., tuple[list[float], ...]]] = Hook("Costs.measured")


def plug(**homes: str) -> None:
    """Say where each hook's thing stands: ``plug(on_links="links.links:on_links")``."""
    for name, home in homes.items():
        globals()[name].home = f"gpipe_sim.{home}"
