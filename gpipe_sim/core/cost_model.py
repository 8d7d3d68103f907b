"""What a cost model is: something that gives each action and each message its time."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from gpipe_sim.core.actions import Action, OverlapFB
from gpipe_sim.core.clock import Clock, time_program
from gpipe_sim.core.numbers import CostColumn, InUnits, as_columns
from gpipe_sim.core.program import Program
from gpipe_sim.errors import Real, duration, got, require


class CostModel(ABC):
    """How long each action and each message takes. Use ``Costs``, or write a subclass of your own.

    Times are finite numbers of at least 0, all in one unit of your choice; anything else is a ValueError or
    TypeError.
    """

    @abstractmethod
    def duration(self, action: Action | OverlapFB, device: int) -> Real:
        """How long this device is busy with the action."""

    def transfer(self, action: Action, source: int, target: int) -> Real:
        """How long what the action made is on its way from device ``source`` to device ``target``."""
        return 0

    def clock(self, program: Program) -> tuple[Clock, InUnits]:
        """When everything happens, and what turns these columns into times in the unit of the costs.

        Here every message is on its way for as long as ``transfer`` says, whatever else crosses. A model
        whose messages wait for each other, as on links, times the program itself.
        """
        (durations, delays), in_units = as_columns(*price_program(self, program))
        return time_program(program, durations, delays), in_units

    def require_fit(self, stages: int, devices: int) -> None:  # noqa: B027
        """Raise ValueError if the costs are for other numbers of them. By default they are for any."""

    def durations(self, program: Program) -> CostColumn:
        """``duration`` for every entry of a program."""
        rows = ((action, device) for device, row in enumerate(program.actions) for action in row)
        return CostColumn([self.duration(*entry) for entry in rows], np.arange(program.size))

    def transfers(self, program: Program) -> CostColumn:
        """``transfer`` for every need that is a message, in the order of ``program.needs``."""
        takes = [self.transfer(*way) for way in program.ways]
        return CostColumn(takes, np.arange(len(takes)))


def require_costs(owner: str, costs, stages: int, devices: int) -> None:
    """TypeError unless it is a cost model, ValueError if it is for another number of stages or devices."""
    require(owner, costs, CostModel, "costs, such as Costs(comm=1)")
    costs.require_fit(stages, devices)


def price_program(costs: CostModel, program: Program) -> tuple[CostColumn, CostColumn]:
    """What entries and messages cost; TypeError or ValueError, by model and action, for what is no time."""
    needed, owner = program.needs[program.crosses], type(costs).__name__
    durations, transfers = costs.durations(program), costs.transfers(program)
    return (
        _read_prices(owner, "duration", durations, program.size, program.entry_of),
        _read_prices(owner, "transfer", transfers, len(needed), lambda i: program.action_of(needed[i])),
    )


def _read_prices(owner: str, name: str, column: CostColumn, count: int, action_of: Callable) -> CostColumn:
    """The column in Python's own numbers; what nothing pays may be of any kind."""
    if not isinstance(column, CostColumn) or len(column.index) != count:
        raise TypeError(f"{owner}.{name}s needs to give a CostColumn of {count} prices {got(column)}")
    values = list(column.values)
    for place, value in enumerate(values):
        try:
            values[place] = duration(owner, name, value)
        except (TypeError, ValueError):
            for payer in np.flatnonzero(column.index == place)[:1]:
                duration(owner, f"{name} of {action_of(int(payer))}", value)
    return CostColumn(values, column.index)
