"""gpipe_sim: pipeline-parallel training, simulated and understood.

A schedule is plain data. It can be timed, run on real arrays, checked, measured and drawn:

    schedule = OneFOneB(devices=4, microbatches=8)
    timeline = simulate(schedule)
    step = train_step(split(mlp([64, 32, 32, 10]), stages=4), schedule, (x, y), loss=cross_entropy)

Importing it needs NumPy alone.
"""

from importlib import import_module
from types import ModuleType

from gpipe_sim import formulas, published
from gpipe_sim.actions import Action, B, F, I, Kind, OverlapFB, R, U, W
from gpipe_sim.costs import Costs
from gpipe_sim.datasets import digits
from gpipe_sim.deadlock import draw_deadlock
from gpipe_sim.executor import StepResult, single_device_step, train_step
from gpipe_sim.explain import Explanation, critical_path, why_idle
from gpipe_sim.export import from_torch_csv, to_torch_csv
from gpipe_sim.fit import fit_costs
from gpipe_sim.layers import GELU, Context, Layer, Linear, ReLU, Tanh
from gpipe_sim.losses import Loss, cross_entropy, mse
from gpipe_sim.memory import MemoryTrace
from gpipe_sim.metrics import (
    activation_memory,
    bubble_fraction,
    bubble_overhead,
    busy_time,
    idle_spans,
    idle_time,
    in_flight,
    phases,
    span_bubble,
    speedup,
    useful_time,
    utilization,
)
from gpipe_sim.models import mlp
from gpipe_sim.optim import SGD, Adam, AdamW, Optimizer
from gpipe_sim.overlay import Overlay, overlay
from gpipe_sim.partition import Partition, split
from gpipe_sim.planner import greedy
from gpipe_sim.recognize import recognize
from gpipe_sim.recorded import recorded_run, recorded_where
from gpipe_sim.remat import remat
from gpipe_sim.schedule import (
    Explicit,
    Schedule,
    both_ways,
    looped,
    needs,
    peak_in_flight,
    repeat,
    v_shaped,
)
from gpipe_sim.schedules import *
from gpipe_sim.share import share
from gpipe_sim.sheet import Svg
from gpipe_sim.simulate import Message, Span, Timeline, simulate
from gpipe_sim.svg import draw, to_svg
from gpipe_sim.training import History, evaluate, outputs, train, train_single_device
from gpipe_sim.validate import DeadlockError, Problem, ScheduleError, check, problems

_LAZY = ("exercises", "plots", "torch_backend")  # loaded when used, so that importing needs NumPy alone


def __getattr__(name: str):
    if name in _LAZY:
        return import_module(f"gpipe_sim.{name}")
    raise AttributeError(f"module 'gpipe_sim' has no attribute {name!r}")


_MODULES = ("exercises", "formulas", "plots", "published")
__all__ = sorted(
    {*_MODULES, *(name for name, value in globals().items() if not isinstance(value, ModuleType))}
    - {name for name in globals() if name.startswith("_")}
    - {"ModuleType", "import_module"}
)
