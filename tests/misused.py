"""What nobody should call: right arguments to spoil one by one, and calls whose refusal has much to say.

``FUNCTIONS`` and ``arguments`` give right arguments for whatever is public, and ``WRONG`` is what may come
instead of one of them. ``CASES`` are single calls: what does not fit together, and what would work. See
``test_misuse``.
"""

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from inspect import Parameter, signature
from itertools import count, repeat
from pathlib import Path
from tempfile import gettempdir

import matplotlib.pyplot as plt
import numpy as np

import gpipe_sim as gp
from gpipe_sim.balance import colocate
from gpipe_sim.core import Action, F, Linear, Partition, ReLU
from gpipe_sim.core.step import StepResult
from gpipe_sim.core.training import History
from gpipe_sim.drawing import draw_parts
from gpipe_sim.export import from_torch_csv
from gpipe_sim.export.spans import from_spans
from gpipe_sim.families import Chimera, DualPipe
from gpipe_sim.memory import checkpointed, greedy
from gpipe_sim.planning.plans import Plans
from gpipe_sim.programs import Send
from gpipe_sim.replicas import TensorParallel, data_parallel_round, side_by_side
from gpipe_sim.streams import PipeDream2BW
from gpipe_sim.transformers import Attention

RNG = np.random.default_rng(0)
X, Y = np.random.default_rng(0).normal(size=(16, 64)), np.arange(16) % 10
LINEAR, MLP = Linear(64, 64, rng=RNG), gp.mlp([64, 10, 10])
SCHEDULE, ENDLESS = gp.GPipe(2, 2), gp.PipeDream(2, 4)
TIMELINE, STREAM = gp.simulate(SCHEDULE), gp.simulate(gp.PipeDream(3, 4))
COPIES = gp.simulate(gp.replicate(SCHEDULE, 2))
SPANS, STUCK = TIMELINE.spans, gp.Explicit(["0B0 0F0"])
SLOW = gp.Link(latency=1, bandwidth=1)
ACCELERATOR = gp.Accelerator(1e12)
CLUSTER = gp.Cluster(2, ACCELERATOR, 80e9)
NAN, INF = float("nan"), float("inf")
HUGE = 10**30  #: fits no machine number
UNPRINTABLE = 10**5000  #: Python refuses to write it out
LONG = "x" * 100_000
PAGE = str(Path(gettempdir()) / "misused.html")
MEASURED, ROWS = gp.pricing.measured_rows("many-nodes")[:2], "measured.csv"
TRACE = str(Path(gettempdir()) / "misused.json")


def parts() -> list[Partition]:
    return gp.split(gp.mlp([64, 10, 10]), stages=2)


def step(schedule=SCHEDULE, batch=(X, Y), loss=gp.cross_entropy, partitions=None, **options) -> StepResult:
    return gp.train_step(partitions or parts(), schedule, batch, loss, **options)


def train(data=(X, Y), schedule=SCHEDULE, **options) -> History:
    usual = {"loss": gp.cross_entropy, "optimizer": gp.SGD(0.1), "epochs": 1, "batch_size": 8, "report": None}
    return gp.train(parts(), schedule, data, **usual | options)


STEP = step()
PROFILE = gp.profile(parts(), (X, Y), gp.cross_entropy)
WIDE = gp.profile(gp.split(gp.mlp([8] * 3), stages=2), (np.ones((32, 8)),) * 2, gp.mse)
LIKE = gp.profile(gp.split(gp.mlp([64] * 3), stages=2), (X, X), gp.mse)  #: each layer like the others


# Right arguments, and what may come instead


class Unsayable:
    """What cannot even be printed."""

    def __repr__(self):
        raise RuntimeError("no words")


WRONG = (
    None, "no", LONG, b"0", 2.5, -1, 0, True, NAN, INF, HUGE, 1j, [], [None], {}, {1}, (2, 2), X, X * NAN,
    object(), Unsayable(), gp.GPipe, SCHEDULE, TIMELINE, lambda *given: None,
)  # fmt: skip


class Raises:
    """Where Python asks it anything, it raises: ``Raises("__len__")`` when it is asked for its length."""

    def __new__(cls, *methods, error=OverflowError):
        def raises(self, *given):
            raise error("no words")

        return object.__new__(type("Raises", (), dict.fromkeys(methods, raises)))


class Agrees:
    """Has whatever it is asked for, as a mock has."""

    def __getattr__(self, name):
        return self

    def __call__(self, *given, **named):
        return self


#: Values that are rarer, as a text each: a generator is made anew for every call.
HOSTILE = (
    "2**63", "-(2**63) - 1", "10**18", "1e18", "1e308", "5e-324", "-0.0", "-INF", "np.int64(3)",
    "np.int8(-1)", "np.float32(0.5)", "np.float64(NAN)", "np.True_", "Fraction(1, 2)",
    "Fraction(10**400, 3)", "Fraction(1, 10**400)", "Decimal('1.5')", "Decimal('sNaN')",
    "datetime(2020, 1, 1)", "2j", "...", "NotImplemented", "slice(None)", "ValueError('x')", "int",
    "np.float16", "np.dtype(object)", "gp", "F", "lambda x: x", "np.ones((2, 2))", "np.array(2)",
    "np.array(NAN)", "np.array([])", "np.array([1, 2], np.int8)", "np.array([None, 'x'])",
    "np.array(['a', 'b'])", "np.zeros(2, [('a', int)])", "np.ma.array([1], mask=[1])",
    "np.array(['2020-01-01'], 'M8[D]')", "''", "'\\n'", "'\\0'", "'0F0\\x000B0'", "'\\ud800'", "'\u0663'",
    "'device \u0660: \u0660F\u0660'", "'1' * 5000", "b'4'", "bytearray(b'12')", "memoryview(b'12')",
    "range(2)", "range(10**12)", "count()", "repeat(0)", "repeat('0F0')", "iter(())",
    "(i for i in range(2))", "()", "[0, 0]", "[-1, 2]", "[NAN, 1]", "[INF, 1]", "[1, 'a']", "[[1, 2], [3]]",
    "[range(10**12)]", "[count()]", "deep()", "{'a': 1}", "{0: 1, 1: 2}", "{1, 2}", "frozenset('ab')",
    "F(0, 0)", "SPANS[0]", "Path('/no/x.svg')", "Raises('__repr__')", "Raises('__len__')",
    "Raises('__iter__')", "Raises('__index__')", "Raises('__array__')", "Raises('__float__')",
    "Raises('__eq__')", "Raises('__bool__')", "Raises('__hash__')", "Raises('__getattr__')",
    "Raises('__iter__', '__len__', '__repr__', '__eq__', '__bool__', '__call__', '__str__', '__getitem__')",
    "Agrees()",
)  # fmt: skip


def hostile(text: str) -> object:
    """What one of them says, made anew."""
    return eval(
        text, globals() | {each.__name__: each for each in (Fraction, Decimal, datetime, Path, count, repeat)}
    )


def deep() -> list:
    """A list in a list, a hundred times, in which the last holds the first."""
    found = first = []
    for _ in range(100):
        found = [found]
    first.append(found)
    return found


#: Results, and records that take whatever they are given: nobody checks what only the library makes.
RECORDS = """Action Advice B BalancePlan Checkpoint Collective Context CostModel DeadlockError Deepest
    DivergedError Explanation F GELU History I Kind Layer Loss MemoryLimitError MemoryTrace Message Optimizer
    OverlapFB Plan Plans Problem Profile R ReLU RecomputePlan Residual Schedule ScheduleError SequenceMean
    Span Staleness MetaArray StepResult Svg Tanh Timeline U W roots"""
FORMULAS = {name: found for name, found in vars(gp.formulas).items() if hasattr(found, "__wrapped__")}
PLOTS = {name: found for name, found in vars(gp.plots).items() if name.startswith("plot_")}
METHODS = (
    *(TIMELINE.on, from_spans, SCHEDULE.device_of),
    *(gp.Costs().per_stage, gp.Costs().duration, gp.Costs.from_forward, gp.Explicit.parse),
    *(STEP.memory[0].at, STEP.memory[0].peak, STEP.memory[0].over_time, TensorParallel(MLP, 2).step),
)
#: Whatever is public: a name of the package, or of a chapter.
ROOMS = (
    *(gp, gp.core, gp.families, gp.why, gp.links, gp.programs, gp.memory, gp.transformers),
    *(gp.replicas, gp.balance, gp.planning, gp.streams, gp.drawing, gp.export, gp.traces),
)
PUBLIC = {name: getattr(room, name) for room in ROOMS for name in room.__all__}
#: Whatever is public and takes arguments, by its name.
FUNCTIONS: dict[str, Callable] = {
    **{name: found for name, found in PUBLIC.items() if name not in RECORDS.split()},
    **(FORMULAS | PLOTS | {method.__name__: method for method in METHODS}),
}
FUNCTIONS = {name: found for name, found in FUNCTIONS.items() if callable(found)}


def usual() -> dict:
    """Right arguments by the names of those parameters that have no default, or None."""
    return {
        **dict.fromkeys(("devices", "microbatches", "stages", "every", "features", "heads", "blocks"), 2),
        **dict.fromkeys(("tokens", "sequence", "batch_size", "longest", "devices_per_node", "workers"), 4),
        **dict.fromkeys(
            ("steps", "epochs", "device", "flops", "to", "block", "replicas", "pieces", "pair"), 1
        ),
        **dict.fromkeys(("bandwidth", "latency", "size", "copy", "compute", "working_set", "weights"), 1),
        **dict.fromkeys(
            ("forward", "microbatches_held", "boundary_input", "activations", "weight_grad", "inputs"), 1
        ),
        **dict.fromkeys(("parameters", "backward", "stages_per_device"), 2),
        **dict.fromkeys(("stage", "source", "time", "microbatch", "recompute"), 0),
        **dict.fromkeys(("learning_rate", "rate", "noise", "bubble"), 0.1),
        **dict.fromkeys(("x", "sample", "whole", "outputs", "targets"), X),
        **dict.fromkeys(("timeline", "simulated", "measured"), TIMELINE),
        **{"parts": [X, X], "arrays": [X, X], "dy": X[:, :10], "y": Y, "batch": (X, Y), "data": (X, Y)},
        **{"action": "0F0", "what": "0F0", "text": "0F0", "mode": "always", "into": "a", "report": None},
        **{
            "schedule": SCHEDULE,
            "thing": SCHEDULE,
            "schedules": [SCHEDULE, SCHEDULE],
            "timelines": (TIMELINE,),
            "spans": SPANS,
        },
        **{
            "layers": gp.mlp([64, 10, 10]),
            "partitions": parts(),
            "layer": gp.core.Tanh(),
            "optimizer": gp.SGD(0.1),
        },
        **{"loss": gp.cross_entropy, "costs": gp.Costs(), "profile": PROFILE, "cluster": CLUSTER, "rng": RNG},
        **{"links": SLOW, "inside": SLOW, "between": SLOW, "accelerator": ACCELERATOR, "memory": 80e9},
        **{"placement": [[0], [1]], "balance": [1, 2], "speeds": [1, 1], "samples": 16, "budget": 1e9},
        **{"programs": gp.device_programs(SCHEDULE), "start": TIMELINE.start, "end": TIMELINE.end},
    }


PLANNED = {
    "model": MLP,
    "tensor": [1],
    "replicas": [1],
    "microbatch": [2],
    "zero": [1],
    "optimizer": gp.Adam(),
}
#: Where a function means something else by a name.
OWN: dict[str, dict] = {
    "DualPipe": {"microbatches": 4}, "DualPipeV": {"microbatches": 4}, "Linear": {"inputs": 2, "outputs": 2},
    "Explicit": {"rows": ["0F0 0B0"], "placement": [[0]], "microbatches": 1}, "Partition": {"device": None},
    "TransformerBlock": {"features": 8}, "all_reduce": {"timeline": COPIES, "sizes": 4},
    "gpt": {"features": 8}, "llama": {"features": 8, "hidden": 4}, "known_model": {"name": "bert-large"},
    "Experts": {"hidden": 4, "experts": 2, "chosen": 1, "rng": None},
    "SwiGLU": {"hidden": 16}, "LlamaBlock": {"features": 8, "hidden": 16},
    "price": {
        "model": MLP, "pipeline": 2, "microbatch": 4, "schedule": gp.OneFOneB, "stages_per_device": 1,
        "replicas": 1, "cut": [1, 2],
    },
    "calibrate": {"rows": MEASURED}, "measured_rows": {"name": "many-nodes"}, "read_rows": {"path": ROWS},
    "balance_by_cost": {"costs": [1, 2, 3], "sizes": [1, 1, 1], "memory": 5}, "mlp": {"sizes": [4, 4]},
    "balance_by_makespan": {"costs": gp.Costs([1, 2, 3], 1, 1)},
    "checkpointed": {"layers": [LINEAR], "recompute": ["nothing"]}, "colocate": {"devices": ["a", "b"]},
    "cross_entropy": {"targets": Y}, "deepest_model": {"memory_limit": 1e6, "profile": LIKE},
    "device_programs": {"source": [list(row) for row in gp.device_programs(SCHEDULE)]},
    "draw": {"memory": None, "weights": None},
    "draw_deadlock": {"schedule": STUCK}, "greedy": {"memory_limit": [2, 2], "profile": None},
    "lower_bound": PLANNED,
    "costs_from_flops": {"device": gp.Accelerator(1e12)},
    "merged": {"costs": gp.Costs([1, 2, 3], 1, 1), "balance": [1, 2]}, "on": {"device": 0},
    "over_time": {"categories": ()}, "parse": {"text": "0F0 0B0", "placement": [[0]], "microbatches": 1},
    "peak": {"categories": ()},
    "plan": PLANNED | {
        "schedules": [gp.GPipe], "stages_per_device": [2], "recompute": ["none"],
        "sequence_parallel": [False], "gradient_bytes": 4, "cut": "best",
    },
    "plot_bare": {"ax": plt.figure().gca()}, "plot_bubble_curves": {"measured": {2: {2: 0.1}}},
    "plot_efficiency": {"measured": {2: {2: 0.1}}}, "plot_losses": {"losses": {"a": [1.0]}},
    "plot_timeline": {"memory": None, "weights": None}, "remat": {"stages": [0]},
    "predict_memory": {"schedule": ENDLESS, "weights": "stashed"},
    "read_trace": {"paths": str(Path(__file__).parent / "data" / "traces" / "dualpipev")},
    "split": {"balance": "size", "devices": None},
    "simulate": {"memory_limit": None, "message_bytes": None},
    "simulate_shared": {"profile": None, "message_bytes": 1}, "step": {"x": X},
    "to_chrome_trace": {"path": TRACE},
    "staleness": {"schedule": ENDLESS, "weights": "stashed"},
    "train": {"schedule": ENDLESS, "weights": "stashed"},
    "train_step": {"schedule": ENDLESS, "weights": "stashed"},
    "what_if": {
        "run": TIMELINE, "schedule": None, "layers": [4, 4], "profile": None, "limit": 9,
        "schedules": [gp.ZBH1]
    },
    "view": {"a": SCHEDULE, "b": TIMELINE, "message_bytes": None, "memory_limit": 1e6, "path": PAGE},
}  # fmt: skip


def meant_by(parameter: Parameter) -> object:
    """Its annotation, where ``help`` has words for it."""
    return getattr(parameter.annotation, "meant", parameter.annotation)


def arguments(name: str) -> dict:
    """Right ones for a function, made anew."""
    made, own = usual(), OWN.get(name, {})
    takes = [
        each for each in signature(FUNCTIONS[name]).parameters.values() if each.kind is not each.VAR_KEYWORD
    ]
    return {each.name: own[each.name] if each.name in own else _right(each, made) for each in takes}


def _right(parameter: Parameter, made: dict):
    if meant_by(parameter) is int and parameter.name == "batch":  # how many sequences, in a formula
        return 1
    if parameter.default is Parameter.empty or parameter.default is None or parameter.name == "report":
        return made[parameter.name] if parameter.default is Parameter.empty else made.get(parameter.name)
    return parameter.default


# Calls whose refusal has much to say


class Orders(gp.core.Schedule):
    """A schedule of one's own, on one device, with a wrong order or placement."""

    def __init__(self, row, held=((0,),)):
        super().__init__(1, 1)
        object.__setattr__(self, "row", row)
        object.__setattr__(self, "held", held)

    placement = property(lambda self: self.held)

    def order(self, device):
        return self.row


class Takes(gp.Costs):
    """Costs of one's own: what a backward and a message take, or a whole column."""

    def __init__(self, backward=1, message=0, column=None):
        super().__init__()
        for name, value in (("takes", backward), ("message", message), ("column", column)):
            object.__setattr__(self, name, value)

    def duration(self, action, device=0):
        return self.takes if action.kind == "B" else 1

    def transfer(self, action, source, target):
        return self.message

    def durations(self, program):
        return self.column or gp.core.CostModel.durations(self, program)


def measured(**changes) -> gp.core.Timeline:
    """The spans of a step, one of them changed."""
    return from_spans(SCHEDULE, [SPANS[0]._replace(**changes), *SPANS[1:]])


def update(parameter, gradient) -> None:
    gp.SGD(0.1).step({(0, "b"): parameter}, {(0, "b"): gradient})


def broken() -> list[Partition]:
    """A model that has learned NaN."""
    partitions = parts()
    for array in partitions[0].parameters.values():
        array *= np.nan
    return partitions


def cut(*layers, devices: int = 2) -> TensorParallel:
    return TensorParallel(layers or MLP, devices)


def programs(rows=(), partitions=None, **options) -> StepResult:
    return gp.run_programs(rows, partitions or parts(), (X, Y), gp.cross_entropy, **options)


def plan(cluster=CLUSTER, batch=(X, Y), **options) -> Plans:
    return gp.plan(MLP, cluster, batch, gp.cross_entropy, **options)


def streamed(*rows, schedule=None, **options) -> StepResult:
    """A step that updates on the way: of these rows, or of a schedule."""
    return step(schedule or gp.Explicit(list(rows)), **{"optimizer": gp.SGD(0.1)} | options)


def cost(costs=(1, 2), stages=2, **options) -> list[int]:
    return gp.balance_by_cost(list(costs), stages, **options)


ONCE = "0F0 0B0 0U0 0F1 0B1 0U1"  #: a row of device 0 that updates after each microbatch
ON_PAPER = Attention(64, 4, rng=None)

#: What is done and what is said, by the error.
REFUSED: dict[type[Exception], list[tuple[Callable, str]]] = {
    ValueError: [
        (lambda: Linear(2, 2, rng=RNG, dtype=None), "Linear needs a floating dtype (got None)"),
        (lambda: gp.digits(dtype=np.float64(NAN)), "digits needs a floating dtype (got np.float64(nan))"),
        (lambda: gp.mlp([2, 2], dtype=hostile("Raises('__repr__')")), "floating dtype (got Raises)"),
        (lambda: from_torch_csv("\u0660F0"), "line 1, cell 1: '\u0660F0' is not an action"),
        (lambda: from_torch_csv('0F0,0B0\n1F0,"1B0'), "cannot read the text: unexpected end of data"),
        (lambda: gp.Explicit.parse("device \u0660: 0F0"), "'device' is not an action"),
        (lambda: gp.Explicit.parse(f"device {'1' * 5000}: 0F0"), "'device' is not an action"),
        (lambda: gp.device_programs("0F0 0SEND_F\u0660"), "'0SEND_F\u0660' is not an action"),
        (
            lambda: gp.Explicit(repeat("0F0")),
            "one row per device, such as ['0F0 0B0'], and at most 1,000",
        ),
        (lambda: gp.Explicit([repeat("0F0")]), "row 0 of Explicit needs to list actions, such as"),
        (lambda: gp.check(Orders(repeat(F(0, 0)))), "Orders.order(0) needs at most 65,536 actions"),
        (lambda: gp.mlp(range(10**12)), "such as [64, 10], and at most 10,000,000 of them (got range("),
        (lambda: train(epochs=10**18), "train needs at most 10,000,000 epochs"),
        (lambda: gp.Costs.measured(parts(), (X, Y), runs=2**63), "measured needs at most 10,000,000 runs, "),
        (lambda: gp.deepest_model(gp.OneFOneB(4, 32), WIDE, 0, 10**18), "smaller memory_limit, 468 blocks"),
        (lambda: gp.GPipe(2, UNPRINTABLE), "GPipe needs at most 10,000,000 pairs of stage and"),
        (lambda: gp.repeat(SCHEDULE, 0), "repeat needs steps >= 1 (got 0)"),
        (lambda: DualPipe(4, 9), "DualPipe needs an even number of microbatches (got 9); 10 would work"),
        (lambda: gp.Explicit(["\n"]), "Explicit needs at least one action, such as 0F0"),
        (lambda: gp.Explicit(["0F0 0B0"], microbatches=0), "Explicit needs microbatches >= 1 (got 0)"),
        (lambda: gp.Explicit(["0F0 0B0"], microbatches=10**12), "are far beyond 2 actions"),
        (lambda: gp.Explicit(["0F0", "2F0"], placement=[[0], [2]]), "without a gap (got [0, 2])"),
        (lambda: gp.Explicit(["0F0 0B0"], placement=[[]]), "placement must hold "),
        (lambda: gp.predict_memory(gp.GPipe(3, 4), PROFILE), "has 3 stages, but the profile has 2"),
        (lambda: gp.predict_memory(gp.GPipe(2, 17), PROFILE), "cannot be cut into 17 microbatches"),
        (
            lambda: checkpointed([LINEAR], ["attention"]),
            "has no attention to recompute; use 'nothing' or 'all",
        ),
        (lambda: Attention(6, 4, rng=RNG), "Attention needs heads"),
        (lambda: gp.transformers.TransformerBlock(4, 2, norm="both", rng=RNG), "norm"),
        (lambda: gp.transformers.Dropout(1), "Dropout needs 0 <= rate < 1"),
        (lambda: gp.transformers.Embedding(10**9, 10**4, rng=RNG), "at most 100,000,000 weights"),
        (lambda: gp.transformers.LayerNorm(10**9), "LayerNorm needs at most 100,000,000 weights"),
        (lambda: gp.gpt(10**9, 8, 2, tokens=3, sequence=3), "gpt needs at most 10,000 blocks"),
        (lambda: gp.why.why_idle(TIMELINE, 2, 0), "needs device from 0 to 1 (got 2)"),
        (lambda: gp.Costs(speed=[1, 0.0]), "Costs needs speed > 0 (got (1, 0.0))"),
        (lambda: gp.Costs(speed=[1, 2]).duration(F(0, 0), 2), "lists 2 devices, from 0, and 2"),
        (lambda: gp.Costs.measured(parts(), (X, Y), runs=0), "measured needs runs >= 1"),
        (lambda: gp.Costs.measured(parts(), (X, Y), microbatches=99), "16 samples cannot be cut"),
        (lambda: gp.Accelerator(0), "Accelerator needs flops > 0, for each unit of time (got 0)"),
        (lambda: gp.Link(bandwidth=0), "Link needs bandwidth > 0"),
        (lambda: gp.simulate(SCHEDULE, links={}), "no link from device 0 to device 1"),
        (lambda: gp.simulate(SCHEDULE, links={(0, 1): SLOW}), "1 to device 0; there are links from 0 to 1"),
        (lambda: gp.GPipe(2, 2, drain=LONG), "needs drain to be one of ('reversed', 'in_order')"),
        (lambda: gp.Interleaved1F1B(4, 9), "(devices=4); microbatches=8 or 10 would work"),
        (lambda: DualPipe(3, 8), "DualPipe needs an even number of devices (got 3); 4 would work"),
        (lambda: DualPipe(4, 4), "DualPipe needs microbatches >= 8, twice its devices (got 4)"),
        (lambda: gp.families.DualPipeV(4, 7), "DualPipeV needs microbatches >= 8"),
        (lambda: Chimera(3, 3), "Chimera needs an even number of devices (got 3); 4 would work"),
        (lambda: gp.core.looped(2, HUGE), "looped needs at most 10,000,000 stages"),
        (lambda: gp.families.v_shaped(10**9), "v_shaped needs at most 10,000,000 devices (got 1000000000)"),
        (lambda: gp.core.Kind("X"), "there are the kinds F, B, I, W, R, U (got 'X')"),
        (lambda: gp.Explicit(["0F0 0B999999"]), "far beyond 2 actions: is a label wrong?"),
        (lambda: gp.Explicit(["0F" + "9" * 10**6]), "(1000002 characters) is not an action"),
        (lambda: gp.Explicit([[F(0, UNPRINTABLE)]]), "Explicit has a label of about 5001 digits"),
        (lambda: gp.Explicit([[Action(0, "Q", 0)]]), "'0Q0' is not an action: there are the kinds"),
        (lambda: gp.Explicit(["0F0 0B0"], placement=[[0, 0]]), "list a stage once on device 0"),
        (lambda: gp.Explicit(["0F0 0B0"], placement=[[-1]]), "without a gap (got [-1])"),
        (lambda: gp.Explicit(["0F0 0B0"], placement=[[0], [1]]), "needs placement to list 1 devices (got 2)"),
        (lambda: gp.check(Orders([], held=[[-1]])), "has a placement with stage -1; stages are numbered"),
        (lambda: gp.check(Orders([], held=[[]])), "has a placement with no stage"),
        (lambda: from_torch_csv("0F" + "1" * 200_000), "from_torch_csv cannot read the text"),
        (lambda: gp.with_updates(ENDLESS), "microbatches=4, every=1) has updates already"),
        (lambda: greedy(2, HUGE), "greedy needs at most 1,000,000 pairs of stage and microbatch"),
        (lambda: greedy(2, 2, memory_limit=[1, 1, 1]), "needs a number for each of 2 devices"),
        (lambda: greedy(2, 2, costs=Takes(NAN)), "Takes needs duration of 0B0 to be finite"),
        (lambda: gp.memory.freed(PROFILE, stage=2), "needs stage from 0 to 1 (got 2)"),
        (lambda: checkpointed([LINEAR], [LONG]), "every word to be one of ('nothing', 'att"),
        (lambda: checkpointed([LINEAR], []), "needs a word for each of 1 layers (got [])"),
        (lambda: gp.balance_by_time([LINEAR], 1, X[:0]), "needs a sample of one microbatch's inputs"),
        (lambda: gp.balance_by_time(gp.bert_large(), 4, X), "on paper and cannot run; give it a generator"),
        (lambda: gp.balance_by_size([LINEAR], 1, X[:, :3]), "layer 0, Linear(64, 64), takes an input of sha"),
        (lambda: gp.split([LINEAR], stages=1, balance="speed"), "of ('parameters', 'time', 'size') (got 's"),
        (lambda: gp.split([LINEAR], stages=2), "split cannot cut 1 layers into 2 stages; at most 1"),
        (lambda: cost(stages=3), "cannot cut 2 layers into 3 stages; at most 2 (sequence is shorter than"),
        (lambda: gp.split([LINEAR], balance=np.ones((1, 1), int)), "must be positive integers"),
        (lambda: cost(sizes=[1, UNPRINTABLE], memory=5), "finds no cut into 2 stages that keeps memory (go"),
        (lambda: gp.formulas.microbatches_for_bubble(4, "1e-9999999"), "needs a bubble between 0 and 1"),
        (lambda: cost([1] * 5000), "needs at most 4,000 layers (got 5000)"),
        (lambda: cost(speeds=[1, 2, 3]), "needs speeds for 2 stages, but lists 3 (got [1, 2, 3])"),
        (lambda: cost(speeds=[1, 0]), "needs speeds > 0, and less than a million times apart (got [1, 0])"),
        (lambda: gp.balance_by_makespan(SCHEDULE, gp.Costs(speed=[1, 2])), "needs what each layer costs, su"),
        (lambda: gp.balance_by_makespan(SCHEDULE, gp.Costs([1] * 2000, 1, 1)), "needs at most 1,000 layers"),
        (
            lambda: gp.balance_by_makespan(SCHEDULE, gp.Costs([1e308] * 3, 1, 1)),
            "longer than the largest float",
        ),
        (
            lambda: gp.balance.merged(gp.Costs([1, 2, 3], 1, 1), [2, 2]),
            "3 layers, but the balance has 4; give one number, or",
        ),
        (lambda: gp.Costs([1, 2], 1, 1).duration(F(-1, 0)), "lists 2 stages, from 0, and -1 is none of them"),
        (lambda: gp.simulate(SCHEDULE, gp.Costs(speed=[1, 2, 3])), "speed for 3 devices, but the schedule h"),
        (lambda: gp.simulate(gp.GPipe(4, 8), gp.Costs(1e308)), "lasts longer than the largest float"),
        (lambda: gp.simulate(SCHEDULE, Takes(1, INF)), "Takes needs transfer of 1B1 to be finite"),
        (lambda: gp.simulate_many(SCHEDULE, gp.Costs(10**400), noise=0), "lasts longer than the largest fl"),
        (lambda: gp.simulate_many(SCHEDULE, gp.Costs(2e307), noise=1), "lasts longer than the largest float"),
        (lambda: gp.simulate_many(SCHEDULE, noise=0, runs=HUGE), "needs at most 10,000,000 runs"),
        (lambda: gp.why.why_idle(TIMELINE, 0, 99), "why_idle needs a time from 0 to 9 (got 99)"),
        (lambda: gp.mlp([64, HUGE]), "Linear needs at most 1,000,000,000,000 outputs"),
        (lambda: gp.cross_entropy(np.ones((0, 2)), []), "needs at least one output (got shape (0, 2))"),
        (lambda: gp.Adam(1e-3, (0.9, 1)), "Adam needs 0 <= betas < 1 (got 1)"),
        (lambda: step(ENDLESS), "0U0 needs an optimizer: train_step(..., optimizer=...)"),
        (lambda: gp.evaluate(broken(), X, Y), "needs a model whose outputs are finite: its weights hold NaN"),
        (lambda: cut(devices=4), "needs devices that divide 10 features in the middle, 2 would work (got 4)"),
        (lambda: cut(Attention(64, 4, rng=RNG), devices=3), "4 heads, 1 would work"),
        (lambda: cut(Attention(10**9, 10**8, rng=None), devices=10**7), "needs at most 10,000 devices"),
        (lambda: cut(LINEAR, ReLU(), Linear(32, 4, rng=RNG)), "needs layers that fit each other"),
        (lambda: cut().step(X, X), "needs dy in the shape of the output, (16, 10) (got (16, 64))"),
        (lambda: cut(ON_PAPER).step(X, X), "layer 0, Attention(64, 2), is on paper and cannot run"),
        (
            lambda: cut(Attention(64, 4, dropout=0.1, rng=RNG)).step(X[None], X[None]),
            "step needs an attention without dropout",
        ),
        (lambda: Send("0W0", 1), "needs one F, B or I: what others make stays on its device (got '0W"),
        (lambda: Send("0B0", 1), "Send 0B0: there is no stage before stage 0 that needs its gradient"),
        (lambda: Send(F(-1, 0), 1), "Send needs a stage and a microbatch >= 0 (got '-1F0')"),
        (lambda: Send("0F0", UNPRINTABLE), "Send needs to= from 0 to 10000000 (got int)"),
        (
            lambda: gp.programs.Recv("0F0", 0, into="a b"),
            "Recv needs into to be a name, such as 'a' (got 'a b')",
        ),
        (lambda: gp.device_programs(""), "needs at least one action, such as 0F0"),
        (lambda: gp.device_programs(LONG), "a message is written as 0SEND_F0 or 1RECV_F0"),
        (lambda: gp.device_programs("0F0 0SEND_F0"), "no row has an action of stage 1 on microbatch 0"),
        (lambda: gp.device_programs("0F0 0RECV_F0"), "'0RECV_F0': there is no stage before stage 0"),
        (lambda: gp.device_programs("0F0 0SEND_F0>a\n1F0"), "'0SEND_F0>a': a send has no buffer"),
        (lambda: programs([["0F0"], ["1F0"]], placement=[[0], [0]]), "for 1 stages, but there are 2 part"),
        (lambda: gp.formulas.zero_memory(10**9, 64, 4), "zero_memory needs stage from 0 to 3 (got 4)"),
        (lambda: gp.Explicit([]), "Explicit needs at least one action, such as 0F0"),
        (lambda: gp.draw(), "draw needs at least one timeline"),
        (lambda: gp.draw(TIMELINE, titles=["a", "b"]), "draw needs a title for each of 1 timelines (got 2)"),
        (lambda: gp.draw(TIMELINE, in_flight=True, memory=STEP.memory), "in_flight or memory: a device has"),
        (lambda: gp.draw(TIMELINE, memory=STEP.memory[:1]), "draw needs memory of 2 devices (got 1)"),
        (lambda: gp.draw(TIMELINE, TIMELINE, memory=STEP.memory), "memory below one timeline (got 2)"),
        (lambda: gp.draw(TIMELINE, critical_path=True, highlight=["0F0"]), "critical_path or highlight: bot"),
        (lambda: gp.draw(TIMELINE, highlight=["0F0", "0W0"]), "cannot highlight 0W0: no timeline has it"),
        (lambda: gp.draw(TIMELINE, weights="stashed"), "so all its actions read the same and draw takes no"),
        (lambda: gp.draw(STREAM, weights="double"), "0F2 use version 1 of stage 0, but 0U0, which makes it"),
        (lambda: gp.plots.plot_bubble_curves({2: {}}), "plot_bubble_curves needs numbers by two sizes"),
        (lambda: draw_parts([X, X[:3]], X), "draw_parts needs 2-D arrays of one shape"),
        (lambda: draw_parts([X], X * NAN), "draw_parts needs every number to be finite"),
        (lambda: gp.drawing.draw_stages([]), "draw_stages needs partitions, such as split(layers, stages=4)"),
        (lambda: gp.Cluster(4, ACCELERATOR, 0), "Cluster needs memory > 0, in bytes for each device (got 0)"),
        (lambda: gp.what_if(TIMELINE, layers=[4]), "what_if needs layers= for 2 stages (got [4])"),
        (lambda: gp.what_if(TIMELINE, layers=[4, 0]), "each of layers= >= 1 (got 0)"),
        (lambda: gp.what_if(TIMELINE, layers=[4, 10**9]), "what_if needs at most 1,000 layers"),
        (lambda: gp.what_if(TIMELINE, layers=gp.Costs()), "costs of 2 layers or more"),
        (lambda: gp.what_if(TIMELINE, limit=-1), "limit, for each device, to be finite and >= 0 (got -1)"),
        (lambda: gp.what_if(gp.Costs([1, 2, 3], 1, 1), SCHEDULE), "Costs lists forward for 3 stages, but"),
        (lambda: plan(batch=(X[:0], Y[:0])), "plan needs a batch with at least one sample"),
        (lambda: plan(recompute=[]), "plan needs recompute to list at least one, such as"),
        (lambda: plan(cut="any"), "plan needs cut"),
        (lambda: plan(tensor=[3]), "plan needs tensor that divide the cluster's 2 devices (got 3)"),
        (lambda: plan(zero=[4]), "plan needs each of zero from 0 to 3 (got 4)"),
        (lambda: gp.plan(gp.Costs(), CLUSTER, 8), "plan needs costs that list one for each layer"),
        (lambda: plan(schedules=[gp.PipeDream]), "compute the same gradients, and PipeDream uses older weig"),
        (lambda: plan(replicas=[3]), "replicas that divide the cluster's 2 devices (got 3)"),
        (lambda: plan(replicas=[]), "plan needs replicas to list at least one (got [])"),
        (lambda: plan(replicas=[2], microbatch=[16]), "16 samples are not 2 x equal microbatches of 16"),
        (lambda: gp.all_reduce(COPIES, [4, 4, 4], links=SLOW), "size for each of 2 stages, or one number (g"),
        (lambda: gp.all_reduce(COPIES, 4, links={(0, 1): SLOW}), "there is no link from device 1 to"),
        (lambda: gp.all_reduce(COPIES, HUGE, links=gp.Link(1, 1e-300)), "longer than the largest float"),
        (lambda: gp.all_reduce(COPIES, 4, links=SLOW, buckets=0), "all_reduce needs buckets >= 1"),
        (lambda: gp.all_reduce(COPIES, 4, links=SLOW, buckets=10**12), "needs at most 10,000 buckets"),
        (
            lambda: gp.all_reduce(gp.all_reduce(COPIES, 4, links=SLOW), 4, links=SLOW),
            "all_reduce has been there already",
        ),
        (
            lambda: side_by_side([PipeDream2BW(2, 4), gp.streams.PipelinedBackprop(2, 4)]),
            "train with the same weights= (got weights='double'",
        ),
        (lambda: data_parallel_round(2, weights=1, links={}), "there are links from nowhere"),
        (lambda: train(schedule=PipeDream2BW(2, 4), weights="stashed"), "be another family; PipeDream c"),
    ],
    TypeError: [
        (
            lambda: gp.split(gp.mlp([4, 4]), stages=1, devices=F(0, 0)),
            "each of 1, such as 'a' (got Action(stage=0",
        ),
        (lambda: gp.split(gp.mlp([4, 4]), stages=1, devices=[NAN]), "devices lists a name for each of 1"),
        (
            lambda: gp.single_device_step([], (X, Y), gp.mse),
            "a model is a list of layers, such as mlp([64, 10",
        ),
        (lambda: Partition([LINEAR], device=X), "Partition needs device to be a name, such as 'a' (got nda"),
        (lambda: plan(schedules=np.ones((2, 2))), "plan needs schedules to list families, such as [GPipe"),
        (lambda: gp.simulate(SCHEDULE, profile=hostile("Agrees()")), "simulate needs a profile, as profile("),
        (lambda: gp.check(Orders(F(0, 0))), "Orders.order(0) needs to list actions"),
        (lambda: gp.check(Orders([gp.core.OverlapFB(F(0, 0), None)])), "takes actions or their spelling"),
        (lambda: gp.check(Orders([], held=3)), "Orders needs placement to list the stages of each device"),
        (lambda: checkpointed([LINEAR], "all"), "a word for each layer, such as plan.recompute"),
        (lambda: gp.Costs.measured(gp.mlp([4, 2]), (X, Y)), "measured needs a list of partitions"),
        (lambda: gp.all_reduce(COPIES, [4, "x"], links=SLOW), "each size to be a number"),
        (lambda: gp.all_reduce(COPIES, "44", links=SLOW), "sizes in bytes: a number, one for each"),
        (lambda: gp.simulate(SCHEDULE, links={(0, 1): 1, (1, 0): 1}), "a Link"),
        (lambda: gp.simulate(SCHEDULE, links={0: {}}), "; 0 is no pair of devices"),
        (lambda: gp.simulate(SCHEDULE, links={"01": SLOW}), "'01' is no pair of devices"),
        (lambda: gp.simulate(SCHEDULE, links={(1, 2, 3): SLOW}), "is no pair of devices"),
        (lambda: gp.OneFOneB(np.array([2, 4]), 8), "devices to be a whole number (got array([2, 4]))"),
        (lambda: Action.parse(b"0F0"), "Action.parse needs a text (got b'0F0')"),
        (lambda: gp.Explicit([["0F0", 3]]), "of Explicit takes actions or their spelling, such as '0F0' (go"),
        (lambda: gp.Explicit([np.array(3)]), "row 0 of Explicit needs to list actions"),
        (lambda: gp.Explicit([[F(0.0, 0)]]), "'0.0F0' is not an action: it needs its stage to be a whole"),
        (lambda: gp.Explicit([[F(0, True)]]), "it needs its microbatch to be a whole number (got True)"),
        (lambda: gp.Explicit(["0F0 0B0"], placement=[["0"]]), "stages of each device, such as [[0, 3], [1,"),
        (lambda: gp.check(Orders(None)), "Orders.order(0) needs to list actions"),
        (lambda: gp.check(Orders([], held=[0])), "Orders needs placement to list the stages of each device"),
        (lambda: gp.recompute_plan(parts(), 100), "a recompute plan needs a profile, such as profile"),
        (lambda: colocate(SCHEDULE, ["a", ["b"]]), "devices lists a name for each of 2"),
        (lambda: gp.balance_by_parameters([LINEAR], 1, speed=[2]), "unexpected keyword argument 'speed'"),
        (
            lambda: gp.balance_by_time([LINEAR], 1, gp.MetaArray((16, 64), float)),
            "needs a sample with content",
        ),
        (lambda: gp.split([LINEAR], balance="time"), "split needs stages=, how many, beside balance='time'"),
        (lambda: gp.split([LINEAR], stages=1, balance="time"), "split needs sample=, the inputs of one micr"),
        (lambda: gp.split([LINEAR], stages=1, balance="parameters", sample=X), "sample only for balance='t"),
        (lambda: gp.split([LINEAR], stages=1, sample=X), "split needs a sample only for balance='time'"),
        (lambda: cost(memory=5), "needs both sizes=, of the layers, and memory="),
        (
            lambda: gp.balance_by_makespan(SCHEDULE, Takes()),
            "so it needs Costs without a duration of its own",
        ),
        (lambda: gp.simulate(SCHEDULE, Takes(column=[1] * 8)), "needs to give a CostColumn of 8 prices"),
        (lambda: gp.course.reveal(1, None), "reveal needs measured to be a number (got None)"),
        (lambda: gp.course.reveal(1, 2, 0.1), "reveal needs unit to be a text, such as 'units' (got 0.1)"),
        (
            lambda: gp.draw(SCHEDULE),
            "draw needs a timeline, such as simulate(GPipe(4, 8)) (got GPipe(devices",
        ),
        (lambda: gp.simulate("1F1B"), "simulate needs a schedule, such as GPipe(4, 8) (got '1F1B')"),
        (lambda: gp.simulate(SCHEDULE, 0), "simulate needs costs, such as Costs(comm=1) (got 0)"),
        (lambda: train(optimizer=gp.SGD), "train needs an optimizer, such as Adam(1e-3) (got <class"),
        (lambda: gp.Explicit("0F0 0B0"), "Explicit needs one row per device, such as ['0F0 0B0'] (got '0F0"),
        (lambda: from_torch_csv(None), "from_torch_csv needs a text (got None)"),
        (lambda: from_spans(SCHEDULE, ["0F0"] * 8), "needs spans, such as Span(F(0, 0)"),
        (lambda: measured(device=0.0), "the span of 0F0 needs device to be a whole number"),
        (lambda: Linear(4, 4, rng=0), "Linear needs rng to be a generator, such as np.random"),
        (lambda: Partition([ReLU]), "a model needs layers, such as mlp([64, 10]) (got <class"),
        (lambda: gp.mse([[1], [2, 3]], [[1]]), "MSE needs outputs to hold real numbers"),
        (lambda: gp.SGD(0.1).step(parts(), {}), "step needs parameters to be arrays of numbers by layer"),
        (lambda: update(np.zeros(2), np.ones(2) * 1j), "as partition.parameters is (got complex128)"),
        (lambda: step(batch=(X, 3)), "a batch is (inputs, targets), with a row per sample: targets (got 3)"),
        (lambda: gp.single_device_step(parts()[0], (X, Y), gp.mse), "its layers are partition"),
        (lambda: train((X, Y, X, Y + 0.5)), "cross_entropy needs targets to be class numbers"),
        (lambda: cut(LINEAR), "TensorParallel cuts [Linear, GELU, Linear], such as"),
        (
            lambda: cut(LINEAR, gp.transformers.LayerNorm(64), Linear(64, 4, rng=RNG)),
            "cuts [Linear, GELU, Linear]",
        ),
        (lambda: programs("0F0 0B0"), "run_programs needs a program per device, such as device_programs("),
        (lambda: programs([None, []]), "the program of device 0 needs to be a list of steps, or a gen"),
        (lambda: programs(["0F0", "1F0"]), "the program of device 0 is a text; device_programs reads one"),
        (lambda: programs([[3], []]), "the program of device 0 takes actions, Send(F(0, 0), to=1) or Recv("),
        (lambda: gp.draw(TIMELINE, titles="My title"), "such as titles=['GPipe'] (got 'My title')"),
        (lambda: gp.draw(TIMELINE, memory=STEP.memory[0]), "needs memory of every device, such as memory=st"),
        (lambda: gp.draw(TIMELINE, highlight="0F0"), "such as highlight=['0F0', '1F0'] (got '0F0')"),
        (lambda: gp.draw(TIMELINE).save(1), "save needs a path, such as 'timeline.svg' (got 1)"),
        (lambda: gp.plots.plot_timeline(TIMELINE, ax=0), "a plot needs axes, such as ax=plt.subplots()"),
        (lambda: gp.plots.plot_timeline(TIMELINE, title=3), "plot_timeline needs a text as its title"),
        (lambda: gp.plots.plot_timeline(TIMELINE, pushed=True), "unexpected keyword argument 'pushed'"),
        (lambda: gp.plots.plot_bubble_curves({2: {"4": 0.2}}), "every size to be a whole number"),
        (lambda: gp.plots.plot_losses([1, 2]), "plot_losses needs losses by name, such as {'GPipe': ["),
        (lambda: gp.Cluster(4, 140e12, 80e9), "such as Accelerator(flops=140e12) (got 140000000000000.0)"),
        (lambda: plan(schedules=[SCHEDULE]), "plan needs schedules to list families, such as [GPipe"),
        (lambda: plan(replicas=2), "replicas to list whole numbers, such as [1, 2] (got 2)"),
    ],
    gp.errors.ScheduleError: [
        (lambda: programs([[], []]), "the programs have run no action, such as F(0, 0)"),
        (lambda: streamed(ONCE, "1F0 1B0 1F1 1B1 1U1"), "into update 0 of stage 1, but into update 1 of st"),
        (lambda: streamed(ONCE, "1F0 1B0 1F1 1B1"), "1 is never updated, but stage 0 is: all stages update"),
        (lambda: streamed(ONCE + " 0F2 0B2", "1F0 1B0 1U0 1F1 1B1 1U1 1F2 1B2"), "behind the last update of"),
        (
            lambda: step(side_by_side([ENDLESS, gp.PipeDream(2, 2)]), optimizer=gp.SGD(1)),
            "its copy on device 2 has only 2",
        ),
    ],
    gp.errors.DeadlockError: [
        (lambda: gp.balance_by_makespan(STUCK, gp.Costs([1, 2], 1, 1)), "cannot finish"),
        (lambda: streamed("0F0 0U0 0B0", "1F0 1B0 1U0"), "0 is stuck at 0U0: it needs 0B0 (queued on devic"),
    ],
    AttributeError: [
        (lambda: gp.course.lesson_99, "module 'gpipe_sim.course' has no attribute 'lesson_99'"),
    ],
}
CASES = [(do, error, says) for error, cases in REFUSED.items() for do, says in cases]

#: What a student may hand in by mistake: every check of a lesson replies to it in a sentence.
HANDED_IN = (
    "x", LONG, 3, -1, NAN, HUGE, [], {}, object(), X, gp.GPipe, SCHEDULE, TIMELINE,
    lambda: 1, lambda *a: UNPRINTABLE, lambda *a: None,
    lambda *a: "x", lambda *a: NAN, lambda *a: 1j, lambda *a: -1, lambda *a: HUGE,
    lambda *a: np.int8(100), lambda *a: X, lambda *a: [1, None], lambda *a: a, lambda *a: 1 / 0,
    lambda *a: True,
)  # fmt: skip
