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

from gpipe_sim.core import hooks

hooks.HOMES |= {
    "chart_of_schedule": "drawing.svg:at_unit_costs",
    "chart_of_timeline": "drawing.svg:draw",
    "text_of_timeline": "drawing.text:text_grid",
    "on_links": "links.links:on_links",
    "hangs": "programs.blocking:blocked_cycles",
    "profile": "memory.shape_inference:profile",
    "meter": "memory.inside:InsideMeter",
    "stream": "streams.step:Stream",
    "wrong_updates": "streams.wrong_updates:wrong_updates",
    "needs_of_updates": "streams.updates:needs_of_updates",
    "sum_copies": "replicas.ring:sum_copies",
    "own_copies": "replicas.copies:own_copies",
    "balance_by_word": "balance.by_layers:balance_by_word",
    "stopwatch": "balance.stopwatch:measured",
}

_NAMES = {
    "transformers.padding": "PaddingMask PaddingMask",
    "transformers.optimizers": "RMSProp AdamW MixedPrecision",
    "families.derived": "repeat with_updates",
    "families.placements": "bidirectional v_shaped",
    "why.metrics": "in_flight bytes_through phases idle_spans utilization speedup",
    "links.collective": "Collective",
    "core.layers": "mlp",
    "planning.hardware": "Accelerator costs_from_flops",
    "errors": "DeadlockError DivergedError MemoryLimitError ScheduleError",
    "core.actions": "Action B F I Kind OverlapFB R U W",
    "core.schedule": "Schedule needs",
    "programs.device_programs": "device_programs",
    "core.explicit": "Explicit ",
    "core.placement": "looped ",
    "core.remat": "remat",
    "replicas.replicate": "replicate shares side_by_side",
    "programs.transfers": "Recv Send",
    "replicas.all_reduce": "all_reduce",
    "core.cost_model": "CostModel",
    "core.costs": "Costs",
    "why.critical_path": "Explanation critical_path why_idle",
    "replicas.data_parallel_round": "data_parallel_round",
    "planning.fit_costs": "fit_costs",
    "links.links": "Link Nodes",
    "core.bubbles": """bubble_fraction bubble_overhead busy_time idle_time
        peak_in_flight span_bubble useful_time """,
    "links.noise": "simulate_many",
    "core.problems": "Problem check problems",
    "core.simulate": "simulate",
    "streams.staleness": "Staleness staleness",
    "core.timeline": "Message Span Timeline",
    "links.shared_wire": "simulate_shared",
    "core.boundary": "",
    "dataset": "digits",
    "core.losses": "Loss cross_entropy mse",
    "transformers.models": "bert_large gpt gpt3_175b unpacked",
    "core.meta_array": "StandIn",
    "core.optimizers": "SGD Adam Optimizer",
    "balance.costs_of_stages": "merged",
    "balance.by_cost": "balance_by_cost",
    "balance.by_layers": "balance_by_parameters balance_by_size balance_by_time",
    "core.memory": "MemoryTrace roots",
    "core.partition": "Partition",
    "memory.prediction": "predict_memory",
    "memory.shape_inference": "profile",
    "memory.profile": "Profile",
    "programs.run_programs": "run_programs",
    "replicas.ring": "ring_all_reduce ring_moves",
    "core.split": "split",
    "core.step": "StepResult single_device_step train_step",
    "replicas.tensor_parallel": "TensorParallel",
    "core.training": "History evaluate outputs train train_single_device",
    "planning.advice": "Advice advise",
    "balance.by_makespan": "BalancePlan balance_by_makespan",
    "planning.cluster": "Cluster",
    "balance.colocate": "colocate",
    "memory.deepest": "Deepest deepest_model",
    "memory.greedy": "greedy",
    "planning.bounds": "lower_bound",
    "planning.plans": "Plan Plans plan",
    "families.recognize": "recognize",
    "memory.recompute": "RecomputePlan checkpointed freed recompute_plan",
    "drawing.deadlock": "draw_deadlock",
    "drawing.overlay": "Overlay overlay",
    "drawing.document": "Svg",
    "drawing.hinton_diagram": "draw_parts",
    "drawing.stages": "draw_stages",
    "drawing.svg": "draw to_svg",
    "export.recorded": "recorded_run recorded_where",
    "export.torch_csv": "from_torch_csv to_torch_csv",
}
#: Modules used by name: ``gp.formulas.gpipe_bubble(4, 8)``. They have many names or need more than NumPy.
_MODULES = {
    "course": "course",
    "formulas": "papers.formulas",
    "plots": "drawing.plots",
    "published": "papers.published",
    "torch_backend": "torch_backend",
}
#: Files that list their own names in ``__all__``: a new schedule or layer becomes public without a line here.
_LISTS = (
    "families",
    "core.layers",
    "transformers.transformer",
    "transformers.attention",
    "transformers.blocks",
)
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
