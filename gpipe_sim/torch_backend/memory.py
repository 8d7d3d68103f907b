"""What each device really holds in a step on PyTorch's engine, to stand beside what ``predict_memory`` says.

    step = train_step(modules, schedule, batch, loss, devices=["cpu"] * 4, meter=True)
    predicted = gp.predict_memory(schedule, gp.profile(partitions, batch, loss))
    [(torchs.activation_peak, numpys.activation_peak) for torchs, numpys in zip(step.memory, predicted)]

Autograd hands over every tensor that it saves (``torch.autograd.graph.saved_tensors_hooks``), and lets go of
it when its backward is done. Where an action ends, the meter counts the memory behind those that are still
held: each piece once, however many tensors look at it, a weight as a parameter only, and of the batch only
the part that a microbatch is. Beside it stand parameters (with buffers), their gradients, and what the engine
keeps between I and W.

For an MLP without I, W and R the two agree on every device, but for the loss: torch's cross entropy saves one
number more per microbatch. Elsewhere they differ where torch saves something else than NumPy's layers:

- A block of a Transformer, as torch runs it on a CPU, saves one number for each row of the softmax, and makes
  the rest again. NumPy's saves the softmax: heads x sequence squared. For each row of a LayerNorm torch saves
  one more, the mean.
- Torch's LayerNorm saves its input, NumPy's what is normalised. As many bytes, but if it comes first in a
  stage, torch's are a boundary input, and NumPy's a saved activation.
- On a CPU, dropout saves a number of the model's type for each entry, NumPy's a byte. With dropout inside
  attention, torch saves the softmax, too.
- Autocast saves copies of the weights.
- I frees only what lies between the last weights of a stage and its end: the rest belongs to the graph that W
  needs. On stage 0 the engine does nothing in I: all stays until W, and is not joined by gradients.
- R runs within B, I or W, when the loss has let go of what it saved. And R does not repeat the loss, so that
  holds what it saved from F on.

Not counted: what lives within an action; what another hook takes first, such as a checkpoint inside a module;
and what the engine keeps for itself, which is each stage's output until its backward, those of the last stage
until the end, and memory to receive every microbatch in. Such a hook that is set around the whole step is not
asked while it is metered. ``torch.cuda.max_memory_allocated`` has all of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpipe_sim.core.actions import Action
from gpipe_sim.core.memory import ACTIVATIONS, CATEGORIES, GRADIENTS, PARAMETERS, MemoryTrace, Moment

COUNTED = (PARAMETERS, GRADIENTS, *ACTIVATIONS)  #: in order of precedence


Samples = list[tuple[Action, tuple[int, ...]]]  #: bytes of each counted category after each action


@dataclass(frozen=True, repr=False)
class MeasuredMemory(MemoryTrace):
    """A ``MemoryTrace`` of what torch held on one device, in bytes, on the clock of the step's timeline.

    ``times`` are the ends of ``actions``. Messages and optimizer state are not counted, and there is no
    ``inside``. What CUDA's allocator had given out at most is ``torch.cuda.max_memory_allocated``.
    """

    actions: tuple[Action, ...] = ()

    @property
    def peak_moment(self) -> Moment:
        held = self.over_time()
        i = held.index(max(held))
        return Moment(self.times[i], held[i], self.actions[i])

    def __repr__(self) -> str:
        at = self.peak_moment
        return f"<MeasuredMemory: at most {at.bytes:,} bytes after {at.action} at {at.time:.4g} ms>"


def measured_memory(
    samples: Samples, ends: Mapping[Action, float], named: Callable[[Action], Action]
) -> MeasuredMemory:
    """The samples of a meter as columns, each at the end of its action, under the name that it has here."""
    rows = [dict(zip(COUNTED, row, strict=True)) for _, row in samples]
    columns = {category: tuple(row.get(category, 0) for row in rows) for category in CATEGORIES}
    actions = tuple(named(action) for action, _ in samples)
    times = tuple(ends[action] for action in actions)
    return MeasuredMemory(times, columns, (), actions)
