"""gpipe_sim: pipeline-parallel training, simulated and understood.

A schedule is plain data. It can be timed, run on real arrays, checked, measured and drawn:

    import gpipe_sim as gp

    schedule = gp.OneFOneB(devices=4, microbatches=8)
    timeline = gp.simulate(schedule)
    partitions = gp.split(gp.mlp([64, 32, 32, 10]), stages=4)
    step = gp.train_step(partitions, schedule, (x, y), loss=gp.cross_entropy)

Every public name is listed below, after the file that defines it; ``families`` and, in ``nn``, ``layers``,
``transformer`` and ``blocks`` list their own. A file is loaded when one of its names is first used, so
importing the package takes hardly any time. Timing a schedule and training with it need NumPy alone.
"""

from importlib import import_module

_NAMES = {
    "errors": "DeadlockError DivergedError MemoryLimitError ScheduleError",
    "schedule.actions": "Action B F I Kind OverlapFB R U W",
    "schedule.base": "Schedule needs",
    "schedule.device_programs": "device_programs",
    "schedule.explicit": "Explicit repeat with_updates",
    "schedule.placement": "bidirectional looped v_shaped",
    "schedule.remat": "remat",
    "schedule.replicas": "replicate shares side_by_side",
    "schedule.ring": "ring_moves",
    "schedule.steps": "Recv Send",
    "simulation.all_reduce": "all_reduce",
    "simulation.cost_model": "CostModel",
    "simulation.costs": "Accelerator Costs",
    "simulation.critical_path": "Explanation critical_path why_idle",
    "simulation.first_device": "data_parallel_round",
    "simulation.fit": "fit_costs",
    "simulation.links": "Link Nodes",
    "simulation.metrics": """bubble_fraction bubble_overhead busy_time bytes_through idle_spans idle_time
        in_flight peak_in_flight phases span_bubble speedup useful_time utilization""",
    "simulation.noise": "simulate_many",
    "simulation.problems": "Problem check problems",
    "simulation.simulate": "simulate",
    "simulation.staleness": "Staleness staleness",
    "simulation.timeline": "Collective Message Span Timeline",
    "simulation.wires": "simulate_shared",
    "nn.along": "PaddingMask",
    "nn.laws": "check_layer",
    "nn.data": "digits",
    "nn.losses": "Loss cross_entropy mse",
    "nn.models": "bert_large gpt gpt3_175b mlp unpacked",
    "nn.standin": "StandIn",
    "nn.optimizers": "SGD RMSProp Adam AdamW MixedPrecision Optimizer",
    "runtime.balance": "balance_by_cost",
    "runtime.balance_layers": "balance_by_parameters balance_by_size balance_by_time",
    "runtime.memory": "MemoryTrace roots",
    "runtime.partition": "Partition",
    "runtime.prediction": "predict_memory",
    "runtime.outlined": "profile",
    "runtime.profile": "Profile",
    "runtime.programs": "run_programs",
    "runtime.ring": "ring_all_reduce",
    "runtime.split": "split",
    "runtime.step": "StepResult single_device_step train_step",
    "runtime.tensor_parallel": "TensorParallel",
    "runtime.training": "History evaluate outputs train train_single_device",
    "planning.advice": "Advice advise",
    "planning.balance_makespan": "BalancePlan balance_by_makespan",
    "planning.cluster": "Cluster",
    "planning.colocate": "colocate",
    "planning.deepest": "Deepest deepest_model",
    "planning.greedy": "greedy",
    "planning.lower_bound": "lower_bound",
    "planning.one_plan": "Plan",
    "planning.plans": "Plans plan",
    "planning.recognize": "recognize",
    "planning.recompute": "RecomputePlan checkpointed freed recompute_frontier recompute_plan",
    "drawing.deadlock": "draw_deadlock",
    "drawing.overlay": "Overlay overlay",
    "drawing.document": "Svg",
    "drawing.parts": "draw_parts",
    "drawing.stages": "draw_stages",
    "drawing.svg": "draw to_svg",
    "export.recorded": "recorded_run recorded_where",
    "export.torch_csv": "from_torch_csv to_torch_csv",
}
#: Modules used by name: ``gp.formulas.gpipe_bubble(4, 8)``. They have many names or need more than NumPy.
_MODULES = {
    "course": "course",
    "formulas": "theory.formulas",
    "plots": "drawing.plots",
    "published": "theory.published",
    "torch_backend": "torch_backend",
}
#: Files that list their own names in ``__all__``: a new schedule or layer becomes public without a line here.
_LISTS = ("families", "nn.layers", "nn.transformer", "nn.attention", "nn.blocks")
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}


def _listed() -> dict[str, str]:
    """name -> file, for the names in ``__all__`` of the files in ``_LISTS``."""
    return {name: module for module in _LISTS for name in import_module(f"gpipe_sim.{module}").__all__}


def __getattr__(name: str):
    if name == "__all__":
        return sorted({*_HOME, *_MODULES, *_listed()} - {"torch_backend"})
    if name in _MODULES:
        found = import_module(f"gpipe_sim.{_MODULES[name]}")
    elif home := _HOME.get(name) or (not name.startswith("_") and _listed().get(name)):
        found = getattr(import_module(f"gpipe_sim.{home}"), name)
    else:
        raise AttributeError(f"module 'gpipe_sim' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_MODULES, *_listed()})
