"""The versions of its weights that a device holds: the newest, and those set aside for later actions."""

from copy import copy, deepcopy

from gpipe_sim.core.actions import Action
from gpipe_sim.core.memory import OLDER, Memory
from gpipe_sim.core.partition import Partition
from gpipe_sim.streams.versions import Lives


class Versions:
    """Hands each action the partition with the version of the weights that it uses.

    ``newest`` are the partitions themselves, by stage, which updates change in place. ``lives`` says which
    version an action uses, which updates set aside what they replace, and until when; None if no update
    stands on the way. ``used`` notes the version that each action was really given.
    """

    def __init__(self, newest: dict[int, Partition], memory: Memory, lives: Lives | None):
        self.newest, self.memory, self.lives = newest, memory, lives
        self.updates = dict.fromkeys(newest, 0)
        self.older: dict[tuple[int, int], Partition] = {}  # by stage and version
        self.used: dict[Action, int] = {}

    def for_action(self, action: Action) -> Partition:
        stage = action.stage
        if self.lives is None:
            return self.newest[stage]
        version = self.lives.reads[action]
        self.used[action] = version
        return self.newest[stage] if version == self.updates[stage] else self.older[stage, version]

    def ended(self, action: Action) -> None:
        """Let go of what no later action uses."""
        if self.lives is not None and (version := self.lives.frees.get(action)) is not None:
            del self.older[action.stage, version]
            self.memory.take(OLDER, (action.stage, version))

    def replaced_by(self, update: Action) -> None:
        """Before an update changes the newest version: set it aside if a later action uses it."""
        stage = update.stage
        if self.lives is not None and update in self.lives.keeps:
            kept = _set_aside(self.newest[stage])
            version = stage, self.updates[stage]
            self.memory.look(kept.parameters)
            self.memory.keep(OLDER, version, kept.parameters)
            self.older[version] = kept
        self.updates[stage] += 1


def _set_aside(partition: Partition) -> Partition:
    """The partition with weights of its own, as they are now."""
    kept = copy(partition)
    kept.layers = tuple(deepcopy(layer) if layer.parameters else layer for layer in partition.layers)
    return kept
