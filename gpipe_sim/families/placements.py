"""Where other families than the core's put the stages of a model."""

from gpipe_sim.core.placement import require_count
from gpipe_sim.core.schedule import Schedule


class VShaped(Schedule):
    """A family whose model goes down the devices and comes back, in two stages on each."""

    stages_per_device = 2

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        return v_shaped(self.devices)


class Bidirectional(Schedule):
    """A family of two copies of the model, whose microbatches go in opposite directions."""

    def __post_init__(self):
        super().__post_init__()
        require_even(type(self).__name__, "devices", self.devices)

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        return bidirectional(self.devices)


def v_shaped(devices: int) -> tuple[tuple[int, ...], ...]:
    """Two stages per device, down and back: device k holds k and 2K-1-k."""
    devices = require_count("v_shaped", "devices", devices)
    return tuple((device, 2 * devices - 1 - device) for device in range(devices))


def bidirectional(devices: int) -> tuple[tuple[int, ...], ...]:
    """Two copies of the model in opposite directions: device k holds k and K-1-k."""
    devices = require_count("bidirectional", "devices", devices)
    return tuple((device, devices - 1 - device) for device in range(devices))


def require_even(owner: str, name: str, value: int) -> None:
    """ValueError for an odd number, as of devices from which two pipelines go in opposite directions."""
    if value % 2:
        raise ValueError(f"{owner} needs an even number of {name} (got {value}); {value + 1} would work")
