"""gpipe_sim: pipeline-parallel training, simulated and understood.

A schedule is plain data. It can be timed, run on real arrays, checked, measured and drawn:

    >>> import gpipe_sim as gp
    >>> schedule = gp.OneFOneB(devices=4, microbatches=8)
    >>> timeline = gp.simulate(schedule)  # gp.draw(timeline) draws it
    >>> timeline.makespan, gp.peak_in_flight(schedule)
    (33, (4, 3, 2, 1))
    >>> partitions, data = gp.split(gp.mlp([64, 32, 32, 10]), stages=4), gp.digits()
    >>> step = gp.train_step(partitions, schedule, data[:2], loss=gp.cross_entropy)
    >>> f"{step.loss:.4f}"
    '2.4057'

Such examples stand in the help of what is used most, ``help(gp.simulate)``; ``np`` there is NumPy. In
signatures a ``Real`` is a whole number, a float or a ``Fraction``.

What most people use is a name of the package itself. The rest is one step down, in the chapter that it
belongs to, such as ``gp.why.critical_path``. Chapter by chapter:

core: schedules, their times, and a training step
    gp. bubble_fraction, bubble_overhead, check, Costs, cross_entropy, evaluate, Explicit, GPipe,
        Interleaved1F1B, MetaArray, mlp, mse, Naive, OneFOneB, peak_in_flight, problems, remat, SGD,
        simulate, single_device_step, span_bubble, split, train, train_step
    gp.core. Action, B, busy_time, Context, CostModel, F, GELU, I, idle_time, Kind, Layer, LAYERS, Linear,
        looped, Loss, needs, Optimizer, outputs, OverlapFB, Partition, R, ReLU, roots, Schedule, Span,
        Tanh, Timeline, train_single_device, U, useful_time, W
families: later schedules, a small class each
    gp. repeat, SCHEDULES, with_updates, ZBH1, ZBV
    gp.families. bidirectional, Chimera, DualPipe, DualPipeV, Eager1F1B, LoopedBFS, v_shaped,
        VHalf, VMin, WITHOUT_FLUSH, ZBH2
why: why a device waits, and where the time goes
    gp. fit_costs, where_time_goes
    gp.why. bytes_through, critical_path, idle_spans, in_flight, phases, speedup, utilization, why_idle
machine: one action at a time, for code that chooses what to run next
links: what messages cost
    gp. Link, Nodes, simulate_many
    gp.links. simulate_shared
programs: one device's program, with its sends and receives
    gp. device_programs, run_programs
    gp.programs. Recv, Send
memory: bytes, before anything runs
    gp. deepest_model, predict_memory, profile, recompute_plan
    gp.memory. checkpointed, freed, greedy
transformers: transformers, on arrays and as sizes alone
    gp. Adam, bert_large, gpt, gpt3_175b, known_model, llama, MixedPrecision
    gp.transformers. AdamW, Attention, BatchNorm, Checkpoint, Dropout, Embedding, Experts, Head, KNOWN,
        LayerNorm, LlamaBlock, PaddingMask, Positions, Residual, RMSNorm, RMSProp, SequenceMean, SwiGLU,
        TransformerBlock, unpacked
replicas: copies of a pipeline, and layers cut in parts
    gp. all_reduce, replicate
    gp.replicas. data_parallel_round, ring_all_reduce, ring_moves, shares, side_by_side, TensorParallel
balance: where to cut a model
    gp. balance_by_cost, balance_by_makespan, balance_by_parameters, balance_by_size, balance_by_time
    gp.balance. colocate, merged
pricing: what one configuration takes, on a stated cluster
    gp. Accelerator, calibrate, Cluster, price
    gp.pricing. A100, H100, measured_rows, Mixed, OneRail, read_rows
planning: which plan, on a stated cluster
    gp. plan, what_if
    gp.planning. costs_from_flops, lower_bound
streams: schedules without a flush
    gp. PipeDream, staleness
    gp.streams. PipeDream2BW, PipelinedBackprop
papers: closed forms and printed tables
    gp. formulas
    gp.papers. published
drawing: charts
    gp. compare, draw, overlay, plots
    gp.drawing. draw_deadlock, draw_parts, draw_stages, to_svg
export: schedules and timelines in and out
    gp.export. from_json, from_torch_csv, recognize, recorded_run, recorded_where, to_csv,
        to_deepspeed_parts, to_json, to_megatron_layout, to_torch_csv, to_torch_split,
        to_torchgpipe_balance
traces: real runs in, timelines for trace viewers out
    gp. read_trace, to_chrome_trace
    gp.traces. Recorder
viewer: a page to see, ask and play
    gp. view
data: a small set of images to train on
    gp. digits
errors: what is raised
    gp.errors. DeadlockError, DivergedError, MemoryLimitError, ScheduleError

NumPy is all that these need, but for ``gp.plots``, which draws with matplotlib (``pip install
'gpipe_sim[plot]'``). The same schedules run on PyTorch in ``gp.torch_backend`` (``pip install
'gpipe_sim[torch]'``). The lessons are notebooks for Jupyter (``pip install 'gpipe_sim[lessons]'``, then
``python -m gpipe_sim lessons DIR``), and ``gp.course`` checks what is answered in them. What a student has
written by lesson 15 stands in one file, to be read after the lessons: ``gpipe_sim.textbook``.

A name is loaded when it is first used, so importing the package takes hardly any time. ``__init__.pyi`` says
where each comes from; editors and type checkers read it too.
"""

from gpipe_sim import lazy

__version__ = "0.2.0"

#: What fills each hook of the core (``core/hooks.py``): the chapter's file, and what stands there.
HOOKS = {
    "chart_of_schedule": "drawing.svg:at_unit_costs",
    "chart_of_timeline": "drawing.svg:draw",
    "chart_of_causes": "drawing.causes:draw_causes",
    "text_of_timeline": "drawing.text:text_grid",
    "on_links": "links.links:OnLinks",
    "queues": "programs.queues:ProgramQueues",
    "profile": "memory.shape_inference:profile",
    "meter": "memory.meter:InsideMeter",
    "stream": "streams.step:Stream",
    "wrong_updates": "streams.wrong_updates:wrong_updates",
    "needs_of_updates": "streams.updates:needs_of_updates",
    "sum_copies": "replicas.ring:sum_copies",
    "own_copies": "replicas.copies:own_copies",
    "tied": "replicas.tied:sum_tied",
    "balance_by_word": "balance.by_layers:balance_by_word",
    "stopwatch": "balance.stopwatch:measured",
}

#: What needs more than NumPy: (the package, the extra of gpipe_sim that installs it).
_EXTRAS = {"plots": ("matplotlib", "plot"), "torch_backend": ("torch", "torch")}

__getattr__, __dir__ = lazy.from_stub(__name__, _EXTRAS)
