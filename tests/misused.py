"""Calls that nobody should make, each with the error that it gets and what that says; see ``test_misuse``."""

from collections.abc import Callable

import numpy as np

import gpipe_sim as gp
from gpipe_sim.export.spans import from_spans

X, Y = np.random.default_rng(0).normal(size=(16, 64)), np.arange(16) % 10
STAGES = 2
RNG = np.random.default_rng(0)
LINEAR = gp.Linear(64, 64, rng=np.random.default_rng(0))
SCHEDULE = gp.GPipe(2, 2)
TIMELINE = gp.simulate(SCHEDULE)
STREAM = gp.simulate(gp.PipeDream(3, 4))
SPANS = TIMELINE.spans
NAN, INF = float("nan"), float("inf")
HUGE = 10**30  #: fits no machine number
UNPRINTABLE = 10**5000  #: Python refuses to write it out
LONG = "x" * 100_000

Case = tuple[Callable, type, str]  #: what is done, the error, what it says


def parts() -> list[gp.Partition]:
    return gp.split(gp.mlp([64, 10, 10]), stages=STAGES)


def step(schedule=None, batch=(X, Y), loss=gp.cross_entropy, partitions=None, **options) -> gp.StepResult:
    return gp.train_step(partitions or parts(), schedule or SCHEDULE, batch, loss, **options)


STEP = step()
PROFILE = gp.profile(parts(), (X, Y), gp.cross_entropy)


def alone(layers=None, batch=(X, Y), loss=gp.cross_entropy, **options) -> gp.StepResult:
    return gp.single_device_step(gp.mlp([64, 10]) if layers is None else layers, batch, loss, **options)


def train(data=(X, Y), **options) -> gp.History:
    usual = {"loss": gp.cross_entropy, "optimizer": gp.SGD(0.1), "epochs": 1, "batch_size": 4, "report": None}
    return gp.train(parts(), SCHEDULE, data, **usual | options)


def many(schedule=None, costs=None, noise=0.1, **options) -> np.ndarray:
    return gp.simulate_many(schedule or SCHEDULE, costs, noise=noise, **{"runs": 3} | options)


def cut(devices: int = 2) -> gp.TensorParallel:
    return gp.TensorParallel(gp.mlp([64, 10, 10]), devices)


MLP = gp.mlp([64, 10, 10])


def cluster(devices=4, memory=80e9, links=None) -> gp.Cluster:
    return gp.Cluster(devices, gp.Accelerator(1e12), memory, gp.Link() if links is None else links)


def plan(where=None, layers=MLP, batch=(X, Y), loss=gp.cross_entropy, optimizer=None, **options) -> gp.Plans:
    usual = {"report": None}
    return gp.plan(layers, where or cluster(), batch, loss, optimizer, **usual | options)


def update(parameter, gradient) -> None:
    gp.SGD(0.1).step({(0, "b"): parameter}, {(0, "b"): gradient})


def measured(**changes) -> gp.Timeline:
    """The spans of a step, one of them changed."""
    return from_spans(SCHEDULE, [SPANS[0]._replace(**changes), *SPANS[1:]])


def broken() -> list[gp.Partition]:
    """A model that has learned NaN."""
    partitions = parts()
    for array in partitions[0].parameters.values():
        array *= np.nan
    return partitions


class Orders(gp.Schedule):
    """A schedule of one's own, on one device; it is one class with the wrong order."""

    def __init__(self, row):
        super().__init__(1, 1)
        object.__setattr__(self, "row", row)

    def order(self, device):
        return self.row


class Holds(gp.GPipe):
    """A schedule of one's own whose placement is wrong."""

    def __init__(self, held):
        super().__init__(2, 2)
        object.__setattr__(self, "held", held)

    @property
    def placement(self):
        return self.held


class Takes(gp.CostModel):
    """A cost model of one's own: what actions and messages take."""

    def __init__(self, actions, messages=0):
        self.actions, self.messages = actions, messages

    def duration(self, action, device):
        return self.actions if action.kind == "B" else 1

    def transfer(self, action, source, target):
        return self.messages


class Earns(gp.Costs):
    """Costs whose backwards are paid for."""

    def duration(self, action, device=0):
        return -1 if action.kind == "B" else 1


class Columns(gp.Costs):
    """Costs that are asked for all entries at once, and give something else."""

    def durations(self, program):
        column = super().durations(program)
        return column._replace(values=[-value for value in column.values])


class Rows(gp.Costs):
    def durations(self, program):
        return [1] * program.size


SIZES: list[Case] = [
    (lambda: gp.GPipe(2.0, 2), TypeError, "GPipe needs devices to be a whole number (got 2.0)"),
    (lambda: gp.GPipe(2, "2"), TypeError, "GPipe needs microbatches to be a whole number (got '2')"),
    (lambda: gp.GPipe(True, 2), TypeError, "GPipe needs devices to be a whole number (got True)"),
    (lambda: gp.GPipe(0, 2), ValueError, "GPipe needs devices >= 1 (got 0)"),
    (lambda: gp.GPipe(2, UNPRINTABLE), ValueError, "GPipe needs at most 10,000,000 pairs of stage and"),
    (lambda: gp.GPipe(10**5, 10**5), ValueError, "pairs of stage and microbatch (got 10000000000)"),
    (
        lambda: gp.GPipe(2, 2, drain="sideways"),
        ValueError,
        "needs drain to be one of ('reversed', 'in_order')",
    ),
    (lambda: gp.GPipe(2, 2, drain=["reversed"]), ValueError, "needs drain to be one of"),
    (lambda: gp.GPipe(2, 2, drain=LONG), ValueError, "GPipe needs drain to be one of"),
    (lambda: gp.GPipe(2, chunks=4), TypeError, "torchgpipe's chunks are microbatches="),
    (lambda: gp.Naive([2]), TypeError, "Naive needs devices to be a whole number (got [2])"),
    (lambda: gp.OneFOneB(np.array([2, 4]), 8), TypeError, "devices to be a whole number (got array([2, 4]))"),
    (lambda: gp.Eager1F1B(4, NAN), TypeError, "Eager1F1B needs microbatches to be a whole number (got nan)"),
    (lambda: gp.Interleaved1F1B(2, 2, 0), ValueError, "Interleaved1F1B needs stages_per_device >= 1 (got 0)"),
    (lambda: gp.Interleaved1F1B(4, 9), ValueError, "9 do not cut into 2 (devices=4); microbatches="),
    (lambda: gp.LoopedBFS(2, 2, HUGE), ValueError, "LoopedBFS needs at most 10,000,000 pairs of stage"),
    (lambda: gp.ZBH1(gp.ZBH1, 4), TypeError, "ZBH1 needs devices to be a whole number (got <class"),
    (lambda: gp.ZBV(-4, 8), ValueError, "ZBV needs devices >= 1 (got -4)"),
    (lambda: gp.VMin(4, 1e400), TypeError, "VMin needs microbatches to be a whole number (got inf)"),
    (lambda: gp.DualPipe(3, 8), ValueError, "DualPipe needs an even number of devices (got 3); 4 would work"),
    (lambda: gp.DualPipe(4, 4), ValueError, "DualPipe needs microbatches >= 8, twice its devices (got 4)"),
    (lambda: gp.DualPipeV(4, 7), ValueError, "DualPipeV needs microbatches >= 8"),
    (lambda: gp.Chimera(3, 3), ValueError, "Chimera needs an even number of devices (got 3)"),
    (lambda: gp.looped(2, None), TypeError, "looped needs stages to be a whole number (got None)"),
    (lambda: gp.looped(2, HUGE), ValueError, "looped needs at most 10,000,000 stages"),
    (lambda: gp.v_shaped("4"), TypeError, "v_shaped needs devices to be a whole number (got '4')"),
    (lambda: gp.v_shaped(10**9), ValueError, "v_shaped needs at most 10,000,000 devices (got 1000000000)"),
    (lambda: gp.bidirectional(0), ValueError, "bidirectional needs devices >= 1 (got 0)"),
    (lambda: gp.repeat(SCHEDULE, 0), ValueError, "repeat needs steps >= 1 (got 0)"),
    (lambda: gp.repeat(SCHEDULE, 10**9), ValueError, "repeat needs at most 10,000,000 pairs of stage"),
    (lambda: gp.repeat(2, SCHEDULE), TypeError, "repeat needs a schedule, such as GPipe(4, 8) (got 2)"),
]

ORDERS: list[Case] = [
    (lambda: gp.Kind("X"), ValueError, "there are the kinds F, B, I, W, R, U (got 'X')"),
    (lambda: gp.Kind(LONG), ValueError, "there are the kinds F, B, I, W, R, U (got str)"),
    (lambda: gp.Action.parse("F0"), ValueError, "'F0' is not an action; write stage, kind, microbatch"),
    (lambda: gp.Action.parse(b"0F0"), TypeError, "Action.parse needs a text (got b'0F0')"),
    (lambda: gp.Explicit(["999F999"]), ValueError, "far beyond 1 actions: is a label wrong?"),
    (lambda: gp.Explicit(["0F0 0B999999"]), ValueError, "far beyond 2 actions: is a label wrong?"),
    (lambda: gp.Explicit(["x" * 10**6]), ValueError, "(1000000 characters) is not an action"),
    (lambda: gp.Explicit(["0F" + "9" * 10**6]), ValueError, "(1000002 characters) is not an action"),
    (lambda: gp.Explicit([[gp.F(0, UNPRINTABLE)]]), ValueError, "Explicit has a label of about 5001 digits"),
    (lambda: gp.Explicit("0F0"), TypeError, "Explicit needs one row per device, such as ['0F0 0B0']"),
    (lambda: gp.Explicit({"0F0", "1F0"}), TypeError, "Explicit needs one row per device"),
    (lambda: gp.Explicit(np.array(3)), TypeError, "Explicit needs one row per device"),
    (lambda: gp.Explicit([]), ValueError, "Explicit needs at least one action, such as 0F0"),
    (lambda: gp.Explicit([["0F0", 3]]), TypeError, "takes actions or their spelling, such as '0F0' (got 3)"),
    (lambda: gp.Explicit([np.array(3)]), TypeError, "row 0 of Explicit needs to list actions"),
    (
        lambda: gp.Explicit([[gp.F(0.0, 0)]]),
        TypeError,
        "'0.0F0' is not an action: it needs its stage to",
    ),
    (lambda: gp.Explicit([[gp.F(0, True)]]), TypeError, "to be a whole number (got True)"),
    (
        lambda: gp.Explicit([[gp.Action(0, "Q", 0)]]),
        ValueError,
        "'0Q0' is not an action: there are the kinds",
    ),
    (lambda: gp.Explicit([[gp.Action(LONG, "F", 0)]]), TypeError, "(100002 characters) is not an action"),
    (lambda: gp.Explicit(["0F0 0B0"], placement=[[0, 0]]), ValueError, "list a stage once on device 0"),
    (lambda: gp.Explicit(["0F0 0B0"], placement=[[-1]]), ValueError, "without a gap (got [-1])"),
    (lambda: gp.Explicit(["0F0 0B0"], placement=3), TypeError, "to list the stages of each device"),
    (lambda: gp.Explicit(["0F0 0B0"], placement=[["0"]]), TypeError, "to list the stages of each device"),
    (lambda: gp.Explicit(["0F0 0B0"], placement=[[0], [1]]), ValueError, "to list 1 devices (got 2)"),
    (
        lambda: gp.Explicit(["0F0 0B0"], microbatches=1.5),
        TypeError,
        "Explicit needs microbatches to be a whole",
    ),
    (lambda: gp.Explicit.parse(["0F0 0B0"]), TypeError, "Explicit.parse needs a text (got ['0F0 0B0'])"),
    (lambda: gp.Explicit.parse("device 1: 0F0"), ValueError, "row 0 is called device 1"),
    (lambda: gp.check(Orders(None)), TypeError, "Orders.order(0) needs to list actions"),
    (lambda: gp.check(Orders([gp.F(0, 0), 1])), TypeError, "Orders.order(0) takes actions or their spelling"),
    (lambda: gp.check(Orders([gp.F(0, HUGE)])), ValueError, "has a label of about 31 digits"),
    (lambda: gp.check(Holds([0, 1])), TypeError, "Holds needs placement to list the stages of each device"),
    (lambda: gp.check(Holds([[0], [-1]])), ValueError, "has a placement with stage -1; stages are numbered"),
    (lambda: gp.check(Holds([[], []])), ValueError, "has a placement with no stage"),
    (
        lambda: gp.check(SCHEDULE, "eager"),
        ValueError,
        "check needs sends to be one of ('buffered', 'blocking')",
    ),
    (lambda: gp.problems(SCHEDULE, sends=None), ValueError, "problems needs sends to be one of"),
    (lambda: gp.check(TIMELINE), TypeError, "check needs a schedule, such as GPipe(4, 8)"),
    (lambda: gp.problems("0F0 0B0"), TypeError, "problems needs a schedule, such as GPipe(4, 8)"),
    (lambda: SCHEDULE.contains(None), TypeError, "contains takes actions or their spelling, such as '0F0'"),
    (lambda: SCHEDULE.contains(gp.F(0.0, 0)), TypeError, "'0.0F0' is not an action"),
    (lambda: SCHEDULE.contains((0, "F", 0)), TypeError, "contains takes actions or their spelling"),
    (lambda: SCHEDULE.contains("forward"), ValueError, "'forward' is not an action; write stage, kind"),
    (lambda: SCHEDULE.device_of(None), TypeError, "device_of takes actions or their spelling, such as '0F0'"),
    (lambda: SCHEDULE.device_of(gp.F(7, 0)), ValueError, "7F0 is not in GPipe(devices=2, microbatches=2)"),
    (
        lambda: SCHEDULE.device_of(gp.OverlapFB(gp.F(0, 0), gp.B(0, 1))),
        ValueError,
        "(0F0;0B1)OVERLAP_F_B is not in GPipe",
    ),
    (lambda: gp.needs("0", SCHEDULE), ValueError, "'0' is not an action; write stage, kind, microbatch"),
    (lambda: gp.needs(SCHEDULE, gp.F(1, 0)), TypeError, "needs needs a schedule, such as GPipe(4, 8)"),
    (lambda: gp.needs(gp.OverlapFB(None, gp.B(0, 0)), SCHEDULE), TypeError, "needs takes actions or their"),
    (lambda: gp.remat(SCHEDULE, "often"), ValueError, "remat needs mode to be one of"),
    (lambda: gp.remat(SCHEDULE, {"always"}), ValueError, "remat needs mode to be one of"),
    (lambda: gp.remat(gp.remat(SCHEDULE, "always"), "always"), ValueError, "recomputes already"),
    (lambda: gp.recognize("1F1B"), TypeError, "recognize needs a schedule, such as GPipe(4, 8) (got '1F1B')"),
    (lambda: gp.from_torch_csv("0F" + "1" * 200_000), ValueError, "from_torch_csv cannot read the text"),
    (lambda: gp.from_torch_csv("0F0,zz"), ValueError, "line 1, cell 2: 'zz' is not an action"),
    (lambda: gp.from_torch_csv(["0F0,0B0"]), TypeError, "from_torch_csv needs a text (got ['0F0,0B0'])"),
    (lambda: gp.from_torch_csv(""), ValueError, "Explicit needs at least one action"),
    (lambda: gp.to_torch_csv(gp.Explicit(["0F0"])), gp.ScheduleError, "is not a training step"),
    (lambda: gp.to_torch_csv(gp.Chimera(2, 2)), gp.ScheduleError, "gives a stage one rank"),
]

PLANS: list[Case] = [
    (lambda: gp.greedy(0, 2), ValueError, "greedy needs devices >= 1 (got 0)"),
    (lambda: gp.greedy(2, HUGE), ValueError, "greedy needs at most 1,000,000 pairs of stage and microbatch"),
    (lambda: gp.greedy(2, 2, priority={"B", "F"}), ValueError, "greedy needs priority to list F and B"),
    (lambda: gp.greedy(2, 2, priority="B then F"), ValueError, "greedy needs priority to list F and B"),
    (lambda: gp.greedy(2, 2, placement=[[0], [0, 1]]), ValueError, "stage 0 is on devices 0 and 1"),
    (lambda: gp.greedy(2, 2, memory_limit="4"), TypeError, "one, or one per device (got '4')"),
    (lambda: gp.greedy(2, 2, memory_limit={4, 2}), TypeError, "one, or one per device (got {2, 4})"),
    (lambda: gp.greedy(2, 2, memory_limit=[4, 1j]), TypeError, "memory_limit to be a number (got 1j)"),
    (lambda: gp.greedy(2, 2, memory_limit=NAN), ValueError, "greedy needs memory_limit >= 0 (got nan)"),
    (lambda: gp.greedy(2, 2, memory_limit=[1, 1, 1]), ValueError, "or 2, one per device (got 3)"),
    (lambda: gp.greedy(2, 2, memory_limit=0), gp.ScheduleError, "memory_limit=1 would do"),
    (lambda: gp.greedy(2, 2, memory_limit=0, profile=PROFILE), gp.ScheduleError, "not even one microbatch"),
    (lambda: gp.greedy(2, 2, memory_limit=NAN, profile=PROFILE), ValueError, "memory_limit >= 0 (got nan)"),
    (lambda: gp.greedy(2, 2, memory_limit=X, profile=PROFILE), ValueError, "or 2, one per device (got 16)"),
    (lambda: gp.greedy(3, 2, profile=PROFILE), ValueError, "greedy plans 3 stages, but the profile has 2"),
    (lambda: gp.greedy(2, 17, profile=PROFILE), ValueError, "16 samples cannot be cut into 17 microbatches"),
    (lambda: gp.greedy(2, 2, profile=parts()), TypeError, "greedy needs a profile, such as profile("),
    (lambda: gp.greedy(2, 2, costs={}), TypeError, "greedy needs costs, such as Costs(comm=1) (got {})"),
    (lambda: gp.greedy(2, 2, costs=0), TypeError, "greedy needs costs, such as Costs(comm=1) (got 0)"),
    (lambda: gp.greedy(2, 2, costs=Takes(NAN)), ValueError, "Takes needs duration of 0B0 to be finite"),
    (
        lambda: gp.recompute_plan(PROFILE, 100),
        ValueError,
        "recompute_plan cannot keep 100 bytes or fewer: the least is",
    ),
    (lambda: gp.recompute_plan(PROFILE, None), TypeError, "needs budget to be a number (got None)"),
    (lambda: gp.recompute_plan(PROFILE, -UNPRINTABLE), ValueError, "recompute_plan needs 0 <= budget < inf"),
    (
        lambda: gp.recompute_plan(parts(), 100),
        TypeError,
        "a recompute plan needs a profile, such as profile",
    ),
    (lambda: gp.recompute_frontier(PROFILE, stage=STAGES), ValueError, "needs stage from 0 to 1 (got 2)"),
    (lambda: gp.freed(PROFILE, stage=-1), ValueError, "needs stage from 0 to 1 (got -1)"),
    (lambda: gp.freed(PROFILE, microbatches=UNPRINTABLE), ValueError, "needs microbatches from 1 to 16"),
    (lambda: PROFILE.costs(17), ValueError, "a profile needs microbatches from 1 to 16 (got 17)"),
    (lambda: gp.checkpointed(gp.mlp([3, 3]), [LONG]), ValueError, "every word to be one of ('nothing', 'att"),
    (lambda: gp.checkpointed(gp.mlp([3, 3]), []), ValueError, "needs a word for each of 1 layers (got [])"),
    (lambda: gp.unpacked(parts()), TypeError, "unpacked needs a list of layers, such as mlp([64, 10])"),
    (lambda: gp.colocate(SCHEDULE, 2), TypeError, "devices lists a name for each of 2, such as 'a' (got 2)"),
    (lambda: gp.colocate(SCHEDULE, "ab"), TypeError, "devices lists a name for each of 2"),
    (lambda: gp.colocate(SCHEDULE, ["a", ["b"]]), TypeError, "devices lists a name for each of 2"),
    (lambda: gp.colocate(SCHEDULE, {"a", "b"}), TypeError, "devices lists a name for each of 2"),
    (lambda: gp.colocate(SCHEDULE, ["a"]), IndexError, "too few devices to hold given partitions"),
]

BALANCES: list[Case] = [
    (
        lambda: gp.balance_by_parameters(gp.mlp([3, 3]), 2),
        ValueError,
        "balance_by_parameters cannot cut 1 layers into 2 stages; at most 1",
    ),
    (lambda: gp.balance_by_parameters([3], 1), TypeError, "a model needs layers, such as mlp([64, 10])"),
    (lambda: gp.balance_by_parameters(parts(), 1), TypeError, "a model needs layers, such as mlp([64, 10])"),
    (
        lambda: gp.balance_by_parameters([LINEAR], 1, speed=[2]),
        TypeError,
        "balance_by_cost() got an unexpected keyword argument 'speed'",
    ),
    (lambda: gp.balance_by_time([LINEAR], 0, X), ValueError, "balance_by_time needs stages >= 1 (got 0)"),
    (lambda: gp.balance_by_time([LINEAR], 1, None), TypeError, "balance_by_time needs sample to hold real"),
    (lambda: gp.balance_by_time([LINEAR], 1, 3.0), ValueError, "needs a sample of one microbatch's inputs"),
    (lambda: gp.balance_by_time([LINEAR], 1, X[:0]), ValueError, "needs a sample of one microbatch's inputs"),
    (lambda: gp.balance_by_time([LINEAR], 1, X[:, :3]), ValueError, "takes an input of shape"),
    (lambda: gp.balance_by_time([LINEAR], 1, X, runs=0), ValueError, "needs runs >= 1 (got 0)"),
    (
        lambda: gp.balance_by_time([LINEAR], 1, gp.StandIn((16, 64), float)),
        TypeError,
        "balance_by_time needs a sample with contents (got StandIn((16, 64), float64))",
    ),
    (lambda: gp.balance_by_time(gp.bert_large(), 4, X), ValueError, "is on paper and cannot run"),
    (lambda: gp.balance_by_size([LINEAR], 1, "x"), TypeError, "balance_by_size needs sample to hold real"),
    (lambda: gp.balance_by_size([LINEAR], 1, X[:0]), ValueError, "needs a sample of one microbatch's inputs"),
    (lambda: gp.balance_by_size([LINEAR], 1, X[:, :3]), ValueError, "takes an input of shape"),
    (
        lambda: gp.balance_by_size([LINEAR], 1, X, microbatches=17),
        ValueError,
        "a batch of 16 samples cannot be cut into 17 microbatches",
    ),
    (
        lambda: gp.balance_by_size([LINEAR], 1, X, param_scale=-1),
        ValueError,
        "balance_by_size needs param_scale to be finite and >= 0 (got -1)",
    ),
    (
        lambda: gp.split([LINEAR], stages=1, balance="speed"),
        ValueError,
        "split needs balance to list layers, or to be one of ('parameters', 'time', 'size') (got 'speed')",
    ),
    (lambda: gp.split([LINEAR], balance="time"), TypeError, "split needs stages=, how many, beside balance="),
    (
        lambda: gp.split([LINEAR], stages=1, balance="time"),
        TypeError,
        "split needs sample=, the inputs of one microbatch, for balance='time'",
    ),
    (lambda: gp.split([LINEAR], stages=1, balance="size"), TypeError, "split needs sample=, the inputs of"),
    (
        lambda: gp.split([LINEAR], stages=1, balance="parameters", sample=X),
        TypeError,
        "split needs a sample only for balance='time' or balance='size'",
    ),
    (
        lambda: gp.split([LINEAR], stages=1, sample=X),
        TypeError,
        "split needs a sample only for balance='time'",
    ),
    (
        lambda: gp.split([LINEAR], stages=2, balance="time", sample=X),
        ValueError,
        "cannot cut 1 layers into 2",
    ),
    (
        lambda: gp.balance_by_cost([1, 2], 3),
        ValueError,
        "balance_by_cost cannot cut 2 layers into 3 stages; at most 2 (sequence is shorter than intended",
    ),
    (lambda: gp.balance_by_cost([1, 2], 0), ValueError, "balance_by_cost needs stages >= 1 (got 0)"),
    (lambda: gp.balance_by_cost([1, 2], 2.0), TypeError, "needs stages to be a whole number (got 2.0)"),
    (lambda: gp.balance_by_cost([], 1), ValueError, "balance_by_cost cannot cut 0 layers into 1 stages"),
    (lambda: gp.balance_by_cost(3, 1), TypeError, "balance_by_cost needs costs to list numbers (got 3)"),
    (lambda: gp.balance_by_cost("123", 1), TypeError, "needs costs to list numbers (got '123')"),
    (lambda: gp.balance_by_cost([1, -2], 1), ValueError, "needs costs to be finite and >= 0 (got -2)"),
    (lambda: gp.balance_by_cost([1, NAN], 2), ValueError, "needs costs to be finite and >= 0 (got nan)"),
    (lambda: gp.balance_by_cost([1, 1j], 2), TypeError, "needs costs to be a number (got 1j)"),
    (lambda: gp.balance_by_cost([1] * 5000, 2), ValueError, "needs at most 4,000 layers (got 5000)"),
    (lambda: gp.balance_by_cost(X, 2), TypeError, "balance_by_cost needs costs to be a number"),
    (lambda: gp.balance_by_cost([1, 2], 2, first=INF), ValueError, "needs first to be finite and >= 0"),
    (lambda: gp.balance_by_cost([1, 2], 2, last="1"), TypeError, "needs last to be a number (got '1')"),
    (
        lambda: gp.balance_by_cost([1, 2], 2, speeds=[1, 2, 3]),
        ValueError,
        "needs speeds for 2 stages, but lists 3 (got [1, 2, 3])",
    ),
    (
        lambda: gp.balance_by_cost([1, 2], 2, speeds=[1, 0]),
        ValueError,
        "needs speeds > 0, and less than a million times apart (got [1, 0])",
    ),
    (lambda: gp.balance_by_cost([1, 2], 2, speeds=2), TypeError, "needs speeds to list numbers (got 2)"),
    (
        lambda: gp.balance_by_cost([1, 2], 2, communication=[1, 1]),
        ValueError,
        "needs communication for 1 cuts, but lists 2",
    ),
    (
        lambda: gp.balance_by_cost([1, 2], 2, memory=5),
        TypeError,
        "needs both sizes=, of the layers, and memory=",
    ),
    (lambda: gp.balance_by_cost([1, 2], 2, sizes=[1, 1]), TypeError, "needs both sizes=, of the layers, and"),
    (
        lambda: gp.balance_by_cost([1, 2], 2, sizes=[1], memory=5),
        ValueError,
        "needs sizes for 2 layers, but lists 1",
    ),
    (
        lambda: gp.balance_by_cost([1, 2], 2, sizes=[1, 7], memory=5),
        ValueError,
        "finds no cut into 2 stages that keeps memory (got 5); layer 1 alone has 7, and if all",
    ),
    (
        lambda: gp.balance_by_cost([1, 2], 2, sizes=[1, UNPRINTABLE], memory=5),
        ValueError,
        "finds no cut into 2 stages that keeps memory (got 5)",
    ),
    (
        lambda: gp.balance_by_makespan(SCHEDULE, [1, 2]),
        TypeError,
        "balance_by_makespan needs costs of single layers, such as Costs([1, 1, 2]) (got [1, 2])",
    ),
    (
        lambda: gp.balance_by_makespan(SCHEDULE, Earns([1, 2])),
        TypeError,
        "adds up the costs of layers, so it needs Costs and no subclass",
    ),
    (
        lambda: gp.balance_by_makespan(SCHEDULE, gp.Costs(speed=[1, 2])),
        ValueError,
        "balance_by_makespan needs what each layer costs, such as Costs([1, 1, 2]) (got Costs(",
    ),
    (
        lambda: gp.balance_by_makespan(SCHEDULE, gp.Costs([1])),
        ValueError,
        "balance_by_makespan cannot cut 1 layers into 2 stages; at most 1",
    ),
    (
        lambda: gp.balance_by_makespan(SCHEDULE, gp.Costs([1, 2, 3], speed=[1, 2, 3])),
        ValueError,
        "Costs lists speed for 3 devices, but the schedule has 2; give one number, or 2",
    ),
    (
        lambda: gp.balance_by_makespan(SCHEDULE, gp.Costs([1] * 2000)),
        ValueError,
        "needs at most 1,000 layers",
    ),
    (lambda: gp.balance_by_makespan(4, gp.Costs([1, 2])), TypeError, "balance_by_makespan needs a schedule"),
    (
        lambda: gp.balance_by_makespan(gp.Explicit(["0F0 1B0 1F0 0B0"]), gp.Costs([1, 2])),
        gp.DeadlockError,
        "cannot finish",
    ),
    (
        lambda: gp.balance_by_makespan(SCHEDULE, gp.Costs([1e308] * 3)),
        ValueError,
        "longer than the largest float",
    ),
]

COSTS: list[Case] = [
    (
        lambda: gp.merged(gp.Costs([1, 2, 3]), [2, 2]),
        ValueError,
        "Costs lists forward for 3 layers, but the balance has 4; give one number, or 4",
    ),
    (
        lambda: gp.merged(gp.Costs([1, 2, 3]), [3, 0]),
        ValueError,
        "merged needs each stage's layers >= 1 (got 0)",
    ),
    (
        lambda: gp.merged(gp.Costs(), [1.0]),
        TypeError,
        "needs each stage's layers to be a whole number (got 1.0)",
    ),
    (
        lambda: gp.merged(gp.Costs(), 3),
        TypeError,
        "merged needs how many layers each stage gets, such as [2, 2, 1]",
    ),
    (lambda: gp.Costs(comm=(1, 1)), TypeError, "Costs needs comm to be a number (got (1, 1))"),
    (lambda: gp.Costs(-1), ValueError, "Costs needs forward to be finite and >= 0 (got -1)"),
    (lambda: gp.Costs(NAN), ValueError, "Costs needs forward to be finite and >= 0 (got nan)"),
    (lambda: gp.Costs(1j), TypeError, "Costs needs forward to be a number (got 1j)"),
    (lambda: gp.Costs("1"), TypeError, "Costs needs forward to be a number (got '1')"),
    (lambda: gp.Costs(np.array([1, 2])), TypeError, "Costs needs forward to be a number (got array([1, 2]))"),
    (lambda: gp.Costs([1, None]), TypeError, "Costs needs forward to be a number (got None)"),
    (lambda: gp.Costs(recompute=[1, -2]), ValueError, "needs recompute to be finite and >= 0 (got -2)"),
    (
        lambda: gp.Costs([1, 2, 3], [1, 2]),
        ValueError,
        "Costs lists forward for 3 and input_grad for 2 stages",
    ),
    (
        lambda: gp.Costs([1, 2]).duration(gp.F(2, 0)),
        ValueError,
        "Costs lists 2 stages, from 0, and 2 is none",
    ),
    (lambda: gp.Costs([1, 2]).duration(gp.F(-1, 0)), ValueError, "and -1 is none of them"),
    (lambda: gp.Costs().duration("F"), ValueError, "'F' is not an action; write stage, kind"),
    (lambda: gp.Costs().duration(SPANS[0]), TypeError, "duration takes actions or their spelling"),
    (lambda: gp.Costs().per_stage(0), ValueError, "per_stage needs stages_per_device >= 1 (got 0)"),
    (lambda: gp.Costs().per_stage(0.5), TypeError, "per_stage needs stages_per_device to be a whole number"),
    (lambda: gp.simulate("GPipe"), TypeError, "simulate needs a schedule, such as GPipe(4, 8) (got 'GPipe')"),
    (lambda: gp.simulate(gp.GPipe), TypeError, "simulate needs a schedule, such as GPipe(4, 8)"),
    (lambda: gp.simulate(SCHEDULE, 1), TypeError, "simulate needs costs, such as Costs(comm=1) (got 1)"),
    (lambda: gp.simulate(SCHEDULE, gp.Costs), TypeError, "simulate needs costs, such as Costs(comm=1) (got"),
    (lambda: SCHEDULE.timeline(costs=[1, 2]), TypeError, "simulate needs costs, such as Costs(comm=1)"),
    (lambda: gp.simulate(SCHEDULE, gp.Costs([1, 2, 3])), ValueError, "lists forward for 3 stages"),
    (lambda: gp.simulate(SCHEDULE, gp.Costs([])), ValueError, "lists forward for 0 stages"),
    (lambda: gp.simulate(gp.GPipe(4, 8), gp.Costs(1e308)), ValueError, "lasts longer than the largest float"),
    (
        lambda: gp.simulate(SCHEDULE, Takes(-1)),
        ValueError,
        "Takes needs duration of 0B1 to be finite and >= 0",
    ),
    (lambda: gp.simulate(SCHEDULE, Takes("1")), TypeError, "duration of 0B1 to be a number (got '1')"),
    (lambda: gp.simulate(SCHEDULE, Takes(1, INF)), ValueError, "Takes needs transfer of 1B1 to be finite"),
    (lambda: gp.simulate(SCHEDULE, Takes(1, None)), TypeError, "transfer of 1B1 to be a number (got None)"),
    (lambda: gp.simulate(SCHEDULE, Earns()), ValueError, "Earns needs duration of 0B1 to be finite and >= 0"),
    (lambda: gp.simulate(SCHEDULE, Columns()), ValueError, "duration of 0F0 to be finite and >= 0 (got -1)"),
    (
        lambda: gp.simulate(SCHEDULE, Rows()),
        TypeError,
        "Rows.durations needs to give a CostColumn of 8 prices",
    ),
    (lambda: gp.simulate(gp.Explicit(["0B0 0F0"])), gp.DeadlockError, "device 0 is stuck at 0B0"),
    (lambda: many("GPipe"), TypeError, "simulate_many needs a schedule, such as GPipe(4, 8) (got 'GPipe')"),
    (lambda: many(costs=1), TypeError, "simulate_many needs costs, such as Costs(comm=1) (got 1)"),
    (lambda: many(costs=gp.Costs([1, 2, 3])), ValueError, "lists forward for 3 stages"),
    (lambda: many(costs=gp.Costs(10**400)), ValueError, "lasts longer than the largest float"),
    (lambda: many(costs=gp.Costs(1e308)), ValueError, "lasts longer than the largest float"),
    (lambda: many(noise=lambda rng, n: np.full(n, 1e308)), ValueError, "lasts longer than the largest"),
    (lambda: many(gp.Explicit(["0B0 0F0"])), gp.DeadlockError, "device 0 is stuck at 0B0"),
    (lambda: many(noise=-0.1), ValueError, "simulate_many needs 0 <= noise < 100 (got -0.1)"),
    (lambda: many(noise=100), ValueError, "simulate_many needs 0 <= noise < 100 (got 100)"),
    (lambda: many(noise=NAN), ValueError, "simulate_many needs 0 <= noise < 100 (got nan)"),
    (
        lambda: many(noise="much"),
        TypeError,
        "needs noise to be a number, or a function of (rng, actions) (got 'much')",
    ),
    (lambda: many(noise=None), TypeError, "noise to be a number, or a function of (rng, actions) (got None)"),
    (lambda: many(runs=0), ValueError, "simulate_many needs runs >= 1 (got 0)"),
    (lambda: many(runs=2.0), TypeError, "simulate_many needs runs to be a whole number (got 2.0)"),
    (lambda: many(runs=HUGE), ValueError, "simulate_many needs at most 10,000,000 runs"),
    (lambda: many(seed=-1), ValueError, "simulate_many needs seed >= 0 (got -1)"),
    (lambda: many(seed=None), TypeError, "simulate_many needs seed to be a whole number (got None)"),
    (lambda: many(links=3), TypeError, "links to be a Link, Nodes(...)"),
    (lambda: many(links=gp.Link(), profile=3), TypeError, "needs a profile"),
    (lambda: many(noise=lambda rng, n: [1] * n), TypeError, "noise to give an array of factors (got [1, "),
    (lambda: many(noise=lambda rng, n: 1 + 0j * rng.random(n)), TypeError, "an array of factors"),
    (
        lambda: many(noise=lambda rng, n: rng.random((n, 2))),
        ValueError,
        "noise to give a factor for each of 8 actions (got (8, 2))",
    ),
    (lambda: many(noise=lambda rng, n: rng.random(n) - 2), ValueError, "that are finite and >= 0 (got"),
    (lambda: many(noise=lambda rng, n: rng.random(n) + INF), ValueError, "that are finite and >= 0 (got"),
    (lambda: gp.fit_costs(STEP), TypeError, "fit_costs needs a timeline, such as its .timeline"),
    (lambda: gp.published.ZERO_BUBBLE[0].costs("3"), TypeError, "stages_per_device to be a whole number"),
]

TIMELINES: list[Case] = [
    (lambda: gp.bubble_fraction(SCHEDULE), TypeError, "bubble_fraction needs a timeline, such as simulate"),
    (lambda: gp.critical_path(SPANS), TypeError, "critical_path needs a timeline"),
    (lambda: gp.speedup(STEP), TypeError, "speedup needs a timeline, such as its .timeline"),
    (lambda: gp.utilization(gp.Timeline), TypeError, "utilization needs a timeline"),
    (lambda: gp.peak_in_flight(TIMELINE), TypeError, "peak_in_flight needs a schedule"),
    (lambda: gp.why_idle(TIMELINE, 5, 0), ValueError, "needs device from 0 to 1 (got 5)"),
    (lambda: gp.why_idle(TIMELINE, "0", 0), TypeError, "needs device to be a whole number (got '0')"),
    (lambda: gp.why_idle(TIMELINE, True, 0), TypeError, "needs device to be a whole number (got True)"),
    (lambda: gp.why_idle(TIMELINE, 0, "x"), TypeError, "why_idle needs time to be a number (got 'x')"),
    (lambda: gp.why_idle(TIMELINE, 0, None), TypeError, "why_idle needs time to be a number (got None)"),
    (lambda: gp.why_idle(TIMELINE, 0, 99), ValueError, "why_idle needs a time from 0 to 9 (got 99)"),
    (lambda: gp.why_idle(TIMELINE, 0, NAN), ValueError, "why_idle needs a time from 0 to 9 (got nan)"),
    (lambda: TIMELINE.on(2), ValueError, "GPipe(devices=2, microbatches=2) needs device from 0 to 1 (got 2)"),
    (lambda: TIMELINE.on(LONG), TypeError, "needs device to be a whole number (got str)"),
    (lambda: gp.in_flight(TIMELINE, np.array([0, 1])), TypeError, "needs device to be a whole number"),
    (lambda: gp.idle_spans(TIMELINE, -1), ValueError, "needs device from 0 to 1 (got -1)"),
    (lambda: gp.phases(TIMELINE, None), TypeError, "needs device to be a whole number (got None)"),
    (lambda: gp.Timeline("GPipe", TIMELINE.start, TIMELINE.end), TypeError, "Timeline needs a schedule"),
    (lambda: gp.Timeline(SCHEDULE, [0], [1]), TypeError, "Timeline needs start to be a column of 8 times"),
    (lambda: gp.Timeline(SCHEDULE, TIMELINE.start, np.ones(3)), TypeError, "end to be a column of 8 times"),
    (lambda: from_spans("GPipe", SPANS), TypeError, "from_spans needs a schedule, such as GPipe"),
    (
        lambda: from_spans(SCHEDULE, None),
        TypeError,
        "from_spans needs spans, such as Span(F(0, 0)",
    ),
    (lambda: from_spans(SCHEDULE, ["0F0"] * 8), TypeError, "from_spans needs spans, such as"),
    (lambda: from_spans(SCHEDULE, [None] * 8), TypeError, "from_spans needs spans, such as"),
    (lambda: from_spans(SCHEDULE, SPANS[1:]), ValueError, "was not measured"),
    (lambda: from_spans(SCHEDULE, SPANS, "no"), TypeError, "took_turns to be True or False"),
    (lambda: measured(action=None), TypeError, "from_spans takes actions or their spelling"),
    (lambda: measured(action=gp.F(9, 9)), ValueError, "9F9 is not in GPipe(devices=2, microbatches=2)"),
    (lambda: measured(device=1), ValueError, "0F0 is measured on device 1, but GPipe"),
    (lambda: measured(device=0.0), TypeError, "the span of 0F0 is none: it needs device to be a whole"),
    (
        lambda: measured(start="0"),
        TypeError,
        "the span of 0F0 is none: it needs start to be a number (got '0')",
    ),
    (lambda: measured(start=-1), ValueError, "the span of 0F0 is none: it needs start to be finite"),
    (lambda: measured(end=NAN), ValueError, "the span of 0F0 is none: it needs end to be finite"),
    (lambda: measured(start=3, end=2), ValueError, "0F0 is measured from 3 to 2"),
    (lambda: gp.recorded_run("gpt"), ValueError, "recorded_run needs name to be one of ('1f1b', 'zbh1',"),
    (lambda: gp.recorded_run(["1f1b"]), ValueError, "recorded_run needs name to be one of"),
]

MODELS: list[Case] = [
    (lambda: gp.mlp([64, 0]), ValueError, "mlp needs every size >= 1 (got 0)"),
    (lambda: gp.mlp(64), TypeError, "mlp needs a list of sizes, such as [64, 10] (got 64)"),
    (lambda: gp.mlp("64"), TypeError, "mlp needs a list of sizes, such as [64, 10] (got '64')"),
    (lambda: gp.mlp({64, 10}), TypeError, "mlp needs a list of sizes, such as [64, 10]"),
    (lambda: gp.mlp([64]), ValueError, "mlp needs at least two sizes"),
    (lambda: gp.mlp([64, HUGE]), ValueError, "Linear needs at most 1,000,000,000,000 outputs"),
    (lambda: gp.mlp([64, 10], activation=gp.ReLU), ValueError, "mlp needs activation to be one of ('relu',"),
    (lambda: gp.mlp([64, 10], activation=["relu"]), ValueError, "mlp needs activation to be one of"),
    (lambda: gp.mlp([64, 10], dtype="float23"), ValueError, "mlp needs a floating dtype (got 'float23')"),
    (lambda: gp.mlp([64, 10], dtype=int), ValueError, "mlp needs a floating dtype (got int64)"),
    (lambda: gp.mlp([64, 10], seed=None), TypeError, "mlp needs seed to be a whole number (got None)"),
    (lambda: gp.Linear(4, 4, rng=0), TypeError, "Linear needs rng to be a generator, such as np.random"),
    (
        lambda: gp.Linear(4, 4, rng=RNG, dtype=object),
        ValueError,
        "Linear needs a floating dtype (got object)",
    ),
    (lambda: gp.Linear(4, "4", rng=RNG), TypeError, "Linear needs outputs to be a whole number (got '4')"),
    (lambda: gp.digits(seed=-1), ValueError, "digits needs seed >= 0 (got -1)"),
    (lambda: gp.digits(seed=0.5), TypeError, "digits needs seed to be a whole number (got 0.5)"),
    (lambda: gp.digits(held_out="20%"), TypeError, "digits needs held_out to be a number (got '20%')"),
    (lambda: gp.digits(held_out=20), ValueError, "digits needs 0 <= held_out < 1 (got 20)"),
    (lambda: gp.digits(dtype=[1]), ValueError, "digits needs a floating dtype (got [1])"),
    (lambda: gp.Partition(64), TypeError, "a model is a list of layers, such as mlp([64, 10]) (got 64)"),
    (lambda: gp.Partition("ReLU"), TypeError, "a model is a list of layers, such as mlp([64, 10])"),
    (lambda: gp.Partition([gp.ReLU]), TypeError, "a model needs layers, such as mlp([64, 10]) (got <class"),
    (lambda: gp.Partition([LINEAR], "1"), TypeError, "Partition needs first_layer to be a whole number"),
    (lambda: gp.Partition([LINEAR], -1), ValueError, "Partition needs first_layer >= 0 (got -1)"),
    (lambda: gp.split(gp.mlp([4, 4]), stages=2), ValueError, "cannot cut 1 layers into 2 stages; at most 1"),
    (lambda: gp.split(gp.mlp([4, 4])), TypeError, "split needs either stages=, how many, or balance="),
    (
        lambda: gp.split(gp.mlp([4, 4]), balance="1"),
        ValueError,
        "split needs balance to list layers, or to be",
    ),
    (lambda: gp.split(gp.mlp([4, 4]), balance=1), TypeError, "split needs balance to list how many layers"),
    (lambda: gp.split(gp.mlp([4, 4]), balance=np.ones((1, 1), int)), ValueError, "must be positive integers"),
    (lambda: gp.split(gp.mlp([4, 4]), balance=[1] * 999), ValueError, "has 1 layers but the balance adds up"),
    (lambda: gp.split(gp.mlp([4, 4]), stages=1, devices="cpu"), TypeError, "lists a name for each of 1"),
    (lambda: gp.split(gp.mlp([4, 4]), stages=1, devices=[[0]]), TypeError, "lists a name for each of 1"),
    (lambda: gp.mse(np.array([[1j]]), np.array([[1.0]])), TypeError, "needs outputs to hold real numbers"),
    (lambda: gp.mse(np.ones((1, 1)), np.array([["a"]])), TypeError, "MSE needs targets to hold real numbers"),
    (lambda: gp.mse([[1], [2, 3]], [[1]]), TypeError, "MSE needs outputs to hold real numbers"),
    (lambda: gp.mse(None, None), TypeError, "MSE needs outputs to hold real numbers (got None)"),
    (lambda: gp.mse([], []), ValueError, "MSE needs at least one output (got shape (0,))"),
    (lambda: gp.mse([1, 2], [1]), ValueError, "mse needs targets of shape (2,), got (1,)"),
    (lambda: gp.cross_entropy(np.ones((1, 2)), np.array([2])), ValueError, "needs targets from 0 to 1"),
    (lambda: gp.cross_entropy(np.ones((1, 2)), np.array([0.5])), TypeError, "targets to be class numbers"),
    (lambda: gp.cross_entropy(np.ones((0, 2)), []), ValueError, "CrossEntropy needs at least one output"),
    (lambda: gp.cross_entropy("cat", [0]), TypeError, "CrossEntropy needs outputs to hold real numbers"),
    (lambda: gp.Adam(1e-3, 0.9), TypeError, "Adam needs two betas, such as (0.9, 0.999) (got 0.9)"),
    (lambda: gp.Adam(1e-3, (0.9, 1)), ValueError, "Adam needs 0 <= betas < 1 (got 1)"),
    (lambda: gp.Adam(1e-3, list(range(999))), ValueError, "Adam needs two betas (got tuple)"),
    (lambda: gp.Adam(eps=0), ValueError, "Adam needs eps > 0"),
    (lambda: gp.AdamW(weight_decay=None), TypeError, "AdamW needs weight_decay to be a number (got None)"),
    (lambda: gp.SGD(-1), ValueError, "SGD needs 0 <= learning_rate < inf (got -1)"),
    (lambda: gp.SGD("fast"), TypeError, "SGD needs learning_rate to be a number (got 'fast')"),
    (lambda: gp.SGD(0.1, momentum=NAN), ValueError, "SGD needs 0 <= momentum < 1 (got nan)"),
    (
        lambda: gp.SGD(0.1).step(parts(), {}),
        TypeError,
        "step needs parameters to be arrays of numbers by layer",
    ),
    (lambda: gp.SGD(0.1).step({}, STEP), TypeError, "step needs gradients to be arrays of numbers by layer"),
    (
        lambda: update(np.zeros(2, int), np.ones(2)),
        TypeError,
        "step needs parameters to be arrays of numbers by",
    ),
    (
        lambda: update(np.zeros(2), np.ones(3)),
        ValueError,
        "parameter (0, 'b') has shape (2,), its gradient (3,)",
    ),
    (lambda: update(np.zeros(2), np.ones(2) * 1j), TypeError, "as partition.parameters is (got complex128)"),
    (lambda: update(np.zeros(2), None), TypeError, "as partition.parameters is (got None)"),
]

STEPS: list[Case] = [
    (lambda: step(gp.GPipe(2, 10**6)), ValueError, "16 samples cannot be cut into 1000000 microbatches"),
    (lambda: step(batch=(np.array(["a"] * 16), Y)), TypeError, "a batch needs inputs to hold real numbers"),
    (lambda: step(batch=(X * 1j, Y)), TypeError, "inputs to hold real numbers (got complex128)"),
    (lambda: step(batch=([[1], [2, 3]], Y[:2])), TypeError, "a batch needs inputs to hold real numbers"),
    (lambda: step(batch=(X, Y[:3])), ValueError, "of equal length (got lengths 16 and 3)"),
    (lambda: step(batch=(X, 3)), TypeError, "with a row per sample: targets (got 3)"),
    (lambda: step(batch=X), TypeError, "a batch is (inputs, targets) (got ndarray)"),
    (lambda: step(batch=(X,)), ValueError, "a batch is (inputs, targets) (got 1 parts)"),
    (lambda: step(batch=(X[:, :5], Y)), ValueError, "or (batch, sequence, 64), got ("),
    (lambda: step(loss="mse"), TypeError, "a step needs a loss, such as cross_entropy or mse (got 'mse')"),
    (lambda: step(loss=LONG), TypeError, "a step needs a loss, such as cross_entropy or mse (got str)"),
    (lambda: step(seed=-1), ValueError, "train_step needs seed >= 0 (got -1)"),
    (lambda: step(step="a"), TypeError, "train_step needs step to be a whole number (got 'a')"),
    (lambda: step(meter="no"), TypeError, "train_step needs meter to be True or False (got 'no')"),
    (
        lambda: step(optimizer=gp.SGD),
        TypeError,
        "train_step needs an optimizer, such as Adam(1e-3) (got <class",
    ),
    (lambda: step(partitions=parts()[:1]), ValueError, "has 2 stages, but there are 1 partitions"),
    (lambda: step(partitions=gp.mlp([64, 10])), TypeError, "as split(layers, stages=2) makes it (got Linear"),
    (
        lambda: step(partitions=[gp.Partition([LINEAR]), gp.Partition([LINEAR], 1)]),
        ValueError,
        "layers 0 and 1 are the same Linear(64, 64)",
    ),
    (lambda: alone(parts()[0]), TypeError, "a model is a list of layers, its layers are partition.layers"),
    (lambda: alone("model"), TypeError, "a model is a list of layers"),
    (lambda: alone(step="x"), TypeError, "single_device_step needs step to be a whole number (got 'x')"),
    (lambda: alone(microbatches=17), ValueError, "16 samples cannot be cut into 17 microbatches"),
    (lambda: alone(loss=gp.cross_entropy(X, Y)), TypeError, "a step needs a loss, such as cross_entropy"),
    (lambda: train(epochs=0), ValueError, "train needs epochs >= 1 (got 0)"),
    (lambda: train(batch_size=2.5), TypeError, "train needs batch_size to be a whole number (got 2.5)"),
    (lambda: train(batch_size=17), ValueError, "train needs batch_size <= 16"),
    (lambda: train(report="x"), TypeError, "train needs report to be a function of a line of text, or None"),
    (lambda: train(optimizer="adam"), TypeError, "train needs an optimizer"),
    (lambda: train(data=X), TypeError, "train needs (x, y) or (x, y, x_held_out, y_held_out) (got ndarray)"),
    (lambda: train(data=(X, Y, X)), ValueError, "(got 3 arrays)"),
    (lambda: train(data=(X * NAN, Y)), ValueError, "train needs finite inputs (sample 0"),
    (lambda: train(data=(X, Y, X, Y + 0.5)), TypeError, "cross_entropy needs targets to be class numbers"),
    (lambda: gp.evaluate(parts(), X * NAN, Y), ValueError, "evaluate needs finite inputs (sample 0"),
    (lambda: gp.evaluate(broken(), X, Y), ValueError, "evaluate needs a model whose outputs are finite"),
    (lambda: gp.evaluate([], X, Y), TypeError, "outputs needs a list of partitions, as split("),
    (lambda: gp.evaluate(parts(), None, Y), TypeError, "evaluate needs x to hold real numbers (got None)"),
    (lambda: gp.evaluate(parts(), X, "y"), TypeError, "evaluate needs y to hold real numbers"),
    (lambda: gp.outputs(gp.mlp([64, 10]), X), TypeError, "outputs needs a list of partitions"),
    (lambda: gp.outputs(parts()[0], X), TypeError, "outputs needs a list of partitions"),
    (lambda: gp.outputs(parts(), "digits"), TypeError, "outputs needs x to hold real numbers"),
    (
        lambda: STEP.memory[0].peak("weights"),
        ValueError,
        "needs category to be one of ('parameters', 'older weights'",
    ),
    (lambda: STEP.memory[0].over_time(["messages"]), ValueError, "needs category to be one of"),
    (lambda: STEP.memory[0].at("3"), TypeError, "MemoryTrace.at needs time to be a number (got '3')"),
    (lambda: STEP.memory[0].at(NAN), ValueError, "MemoryTrace.at needs -inf <= time < inf (got nan)"),
]

GOOD = [
    ["0F0", gp.Send("0F0", 1), gp.Recv("1B0", 1), "0B0"],
    [gp.Recv("0F0", 0), "1F0", "1B0", gp.Send("1B0", 0)],
]


def programs(rows=GOOD, partitions=None, batch=(X, Y), loss=gp.cross_entropy, **options) -> gp.StepResult:
    return gp.run_programs(rows, partitions or parts(), batch, loss, **options)


def ended():
    """A generator that has been read to its end."""
    program = (step for step in ())
    return list(program) or program


CUT: list[Case] = [
    (
        lambda: gp.TensorParallel(gp.mlp([64, 10, 10]), 0),
        ValueError,
        "needs devices >= 1 (got 0)",
    ),
    (lambda: gp.TensorParallel(gp.mlp([64, 10, 10]), "2"), TypeError, "needs devices to be a whole number"),
    (
        lambda: gp.TensorParallel(gp.mlp([64, 10, 10]), 4),
        ValueError,
        "needs devices that divide 10 features in the middle, 2 would work (got 4)",
    ),
    (lambda: gp.TensorParallel(gp.mlp([64, 10, 10]), HUGE), ValueError, "divide 10 features in the middle"),
    (
        lambda: gp.TensorParallel([gp.Attention(64, 4, rng=RNG)], 3),
        ValueError,
        "4 heads, 1 would work",
    ),
    (
        lambda: gp.TensorParallel([gp.Attention(10**9, 10**8, rng=None)], 10**7),
        ValueError,
        "TensorParallel needs at most 10,000 devices (got 10000000)",
    ),
    (lambda: gp.TensorParallel(gp.mlp([64, 10]), 2), TypeError, "TensorParallel cuts [Linear, GELU, Linear]"),
    (
        lambda: gp.TensorParallel(gp.mlp([64, 10, 10, 10]), 2),
        TypeError,
        "TensorParallel cuts [Linear, GELU, Linear]",
    ),
    (
        lambda: gp.TensorParallel([LINEAR, gp.LayerNorm(64), gp.Linear(64, 4, rng=RNG)], 2),
        TypeError,
        "TensorParallel cuts [Linear, GELU, Linear]",
    ),
    (
        lambda: gp.TensorParallel([LINEAR, gp.ReLU(), gp.Linear(32, 4, rng=RNG)], 2),
        ValueError,
        "TensorParallel needs layers that fit each other (got [Linear(64, 64), ReLU(",
    ),
    (lambda: gp.TensorParallel([LINEAR, gp.ReLU(), LINEAR], 2), ValueError, "are the same Linear(64, 64)"),
    (lambda: gp.TensorParallel(LINEAR, 2), TypeError, "a model is a list of layers"),
    (lambda: gp.TensorParallel(None, 2), TypeError, "a model is a list of layers"),
    (lambda: cut().step(X[:, :5], X), ValueError, "takes an input of shape (batch, 64)"),
    (
        lambda: cut().step(X, X),
        ValueError,
        "needs dy in the shape of the output, (16, 10) (got (16, 64))",
    ),
    (lambda: cut().step("x", X), TypeError, "step needs x to hold real numbers"),
    (lambda: cut().step(X, None), TypeError, "step needs dy to hold real numbers"),
    (
        lambda: gp.TensorParallel([gp.Attention(64, 4, rng=None)], 2).step(X, X),
        ValueError,
        "layer 0, Attention(64, 2), is on paper and cannot run",
    ),
    (
        lambda: gp.TensorParallel([gp.Attention(64, 4, dropout=0.1, rng=RNG)], 2).step(X[None], X[None]),
        ValueError,
        "step needs an attention without dropout (got Dropout(0.1))",
    ),
]

PROGRAMS: list[Case] = [
    (lambda: gp.Send("0F0", -1), ValueError, "Send needs to= from 0 to 10000000 (got -1)"),
    (lambda: gp.Send("0F0", "1"), TypeError, "Send needs to= to be a whole number (got '1')"),
    (lambda: gp.Send("0F0", UNPRINTABLE), ValueError, "Send needs to= from 0 to 10000000 (got int)"),
    (
        lambda: gp.Send("0W0", 1),
        ValueError,
        "Send needs one F, B or I: what others make stays on its device (got '0W0'",
    ),
    (
        lambda: gp.Send("0B0", 1),
        ValueError,
        "Send 0B0: there is no stage before stage 0 that needs its gradient",
    ),
    (
        lambda: gp.Send(None, 1),
        TypeError,
        "Send needs the action that made the message, such as F(0, 0) (got None)",
    ),
    (
        lambda: gp.Send(X, 1),
        TypeError,
        "Send needs the action that made the message, such as F(0, 0) (got ndarray)",
    ),
    (lambda: gp.Send("0F", 1), ValueError, "'0F' is not an action"),
    (lambda: gp.Send("(0F1;0B0)OVERLAP_F_B", 1), ValueError, "Send needs one F, B or I"),
    (lambda: gp.Send(gp.F(-1, 0), 1), ValueError, "Send needs a stage and a microbatch >= 0 (got '-1F0')"),
    (lambda: gp.Send(gp.F(0, UNPRINTABLE), 1), ValueError, "Send has a label of about 5001 digits"),
    (lambda: gp.Recv("0F0", -1), ValueError, "Recv needs source from 0 to 10000000 (got -1)"),
    (lambda: gp.Recv("0F0", None), TypeError, "Recv needs source to be a whole number (got None)"),
    (lambda: gp.Recv(LONG, 0), ValueError, "(100000 characters) is not an action"),
    (lambda: gp.Recv("0F0", 0, wait="no"), TypeError, "Recv needs wait to be True or False (got 'no')"),
    (
        lambda: gp.Recv("0F0", 0, into=3),
        TypeError,
        "Recv needs into to be a buffer's name, such as 'a' (got 3)",
    ),
    (
        lambda: gp.Recv("0F0", 0, into="a b"),
        ValueError,
        "Recv needs into to be a name, such as 'a' (got 'a b')",
    ),
    (
        lambda: gp.device_programs(None),
        TypeError,
        "device_programs needs a schedule, or a text with a row per device",
    ),
    (
        lambda: gp.device_programs(GOOD),
        TypeError,
        "device_programs needs a schedule, or a text with a row per device",
    ),
    (lambda: gp.device_programs(""), ValueError, "needs at least one action, such as 0F0"),
    (lambda: gp.device_programs(LONG), ValueError, "a message is written as 0SEND_F0 or 1RECV_F0"),
    (
        lambda: gp.device_programs("0F0 SEND"),
        ValueError,
        "'SEND' is not an action; write stage, kind, microbatch",
    ),
    (
        lambda: gp.device_programs("0F0 0SEND_F0"),
        ValueError,
        "'0SEND_F0': no row has an action of stage 1 on",
    ),
    (lambda: gp.device_programs("0F0 0RECV_F0"), ValueError, "'0RECV_F0': there is no stage before stage 0"),
    (lambda: gp.device_programs("0F0 0SEND_F0>a\n1F0"), ValueError, "'0SEND_F0>a': a send has no buffer"),
    (lambda: gp.device_programs("device 1: 0F0"), ValueError, "row 0 is called device 1"),
    (lambda: programs(None), TypeError, "run_programs needs a program per device, such as device_programs("),
    (
        lambda: programs("0F0 0B0"),
        TypeError,
        "run_programs needs a program per device, such as device_programs(",
    ),
    (lambda: programs([]), TypeError, "run_programs needs a program per device, such as device_programs("),
    (
        lambda: programs(SCHEDULE),
        TypeError,
        "run_programs needs a program per device, such as device_programs(",
    ),
    (
        lambda: programs([None, []]),
        TypeError,
        "the program of device 0 needs to be a list of steps, or a generator",
    ),
    (
        lambda: programs([[], ended]),
        TypeError,
        "the program of device 1 needs to be a list of steps, or a generator",
    ),
    (
        lambda: programs(["0F0", "1F0"]),
        TypeError,
        "the program of device 0 is a text; device_programs reads one",
    ),
    (
        lambda: programs([[3], []]),
        TypeError,
        "the program of device 0 takes actions, Send(F(0, 0), to=1) or Recv(",
    ),
    (lambda: programs([["0X0"], []]), ValueError, "'0X0' is not an action"),
    (
        lambda: programs([iter([None]), []], microbatches=1),
        TypeError,
        "device 0 takes actions, Send(F(0, 0), to=1)",
    ),
    (
        lambda: programs([{gp.F(0, 0)}, []], microbatches=1),
        TypeError,
        "the program of device 0 needs to be a list of steps, or a generator",
    ),
    (
        lambda: programs([iter([]), []]),
        TypeError,
        "run_programs needs microbatches=, how many: it does not look",
    ),
    (
        lambda: programs([ended(), []], microbatches=1),
        ValueError,
        "device 0 is a generator that has ended; make a new",
    ),
    (lambda: programs([[], []]), gp.ScheduleError, "the programs have run no action, such as F(0, 0)"),
    (
        lambda: programs([[gp.F(0, HUGE)], []]),
        ValueError,
        "the program of device 0 has a label of about 31 digits",
    ),
    (lambda: programs([[gp.F(0, 10**15)], []]), ValueError, "16 samples cannot be cut into 1000000000000001"),
    (lambda: programs(microbatches=0), ValueError, "run_programs needs microbatches >= 1 (got 0)"),
    (
        lambda: programs(microbatches=HUGE),
        ValueError,
        "16 samples cannot be cut into 1000000000000000000000000000000 ",
    ),
    (lambda: programs(microbatches=2), gp.ScheduleError, "0F1 is missing"),
    (
        lambda: programs(placement=[[0, 1]]),
        ValueError,
        "run_programs needs placement to list 2 devices (got 1)",
    ),
    (
        lambda: programs(placement=[[0], [2]]),
        ValueError,
        "placement must hold the stages 0, 1, 2, ... without a gap",
    ),
    (
        lambda: programs(placement=[[0], [0]]),
        ValueError,
        "the programs are for 1 stages, but there are 2 partitions",
    ),
    (
        lambda: programs(sends="eager"),
        ValueError,
        "run_programs needs sends to be one of ('buffered', 'blocking')",
    ),
    (
        lambda: programs(check_buffers=0),
        TypeError,
        "run_programs needs check_buffers to be True or False (got 0)",
    ),
    (lambda: programs(costs=1), TypeError, "run_programs needs costs, such as Costs(comm=1) (got 1)"),
    (lambda: programs(costs=gp.Costs((1, 2, 3))), ValueError, "Costs lists forward for 3 stages"),
    (lambda: programs(costs=gp.Costs(speed=[1, 2, 3])), ValueError, "Costs lists speed for 3 devices"),
    (
        lambda: programs(costs=Takes(-1)),
        ValueError,
        "Takes needs duration of 1B0 to be finite and >= 0 (got -1)",
    ),
    (
        lambda: programs(costs=Takes(1, NAN)),
        ValueError,
        "Takes needs transfer of 0F0 to be finite and >= 0 (got nan)",
    ),
    (
        lambda: programs(loss="mse"),
        TypeError,
        "a step needs a loss, such as cross_entropy or mse (got 'mse')",
    ),
    (lambda: programs(batch=X), TypeError, "a batch is (inputs, targets) (got ndarray)"),
    (lambda: programs(seed=-1), ValueError, "run_programs needs seed >= 0 (got -1)"),
    (lambda: programs(step="a"), TypeError, "run_programs needs step to be a whole number (got 'a')"),
    (lambda: programs(partitions=parts()[::-1]), ValueError, "but those before it end at 0"),
    (
        lambda: programs(partitions=gp.mlp([64, 10])),
        TypeError,
        "run_programs needs a list of partitions, as split(",
    ),
]

FORMULAS: list[Case] = [
    (
        lambda: gp.formulas.stashing_delay(4, 4),
        ValueError,
        "stashing_delay needs device from 0 to 3 (got 4)",
    ),
    (
        lambda: gp.formulas.stashing_versions(4, 0, every=0),
        ValueError,
        "stashing_versions needs every >= 1 (got 0)",
    ),
    (
        lambda: gp.formulas.vertical_sync_delay(4, 1.5),
        TypeError,
        "vertical_sync_delay needs every to be a whole number (got 1.5)",
    ),
    (lambda: gp.formulas.vertical_sync_versions("4"), TypeError, "needs devices to be a whole number (got"),
    (
        lambda: gp.formulas.double_buffering_version(4, 3, 0),
        ValueError,
        "double_buffering_version is for every >= devices (got every = 3, devices = 4)",
    ),
    (
        lambda: gp.formulas.double_buffering_version(4, 4, -1),
        ValueError,
        "double_buffering_version needs microbatch >= 0 (got -1)",
    ),
    (lambda: gp.formulas.noam(0), ValueError, "noam needs workers >= 1 (got 0)"),
    (
        lambda: gp.formulas.noam(4, 5),
        ValueError,
        "noam needs input_workers <= workers, here 4 (got 5)",
    ),
    (lambda: gp.formulas.pipedream_makespan(4, 8, NAN), ValueError, "pipedream_makespan needs forward to be"),
    (
        lambda: gp.formulas.flushed_makespan(4, 8, 0),
        ValueError,
        "flushed_makespan needs every >= 1 (got 0)",
    ),
    (
        lambda: gp.formulas.double_buffering_memory(4, -1, 1, 1),
        ValueError,
        "double_buffering_memory needs weights to be finite and >= 0 (got -1)",
    ),
    (
        lambda: gp.formulas.gpipe_recompute_memory(4, 8, 1, "1", 1),
        TypeError,
        "gpipe_recompute_memory needs activations to be a number (got '1')",
    ),
    (lambda: gp.formulas.gpipe_bubble(4, 0), ValueError, "gpipe_bubble needs microbatches >= 1 (got 0)"),
    (
        lambda: gp.formulas.naive_idle([4]),
        TypeError,
        "naive_idle needs devices to be a whole number (got [4])",
    ),
    (lambda: gp.formulas.gpipe_makespan(4, 8, -1), ValueError, "gpipe_makespan needs forward to be finite"),
    (lambda: gp.formulas.gpipe_makespan(4, 8, NAN), ValueError, "forward to be finite and >= 0"),
    (lambda: gp.formulas.gpipe_makespan(4, 8, "1"), TypeError, "gpipe_makespan needs forward to be a number"),
    (lambda: gp.formulas.one_f_one_b_in_flight(4, 8, 1.5), TypeError, "needs device to be a whole number"),
    (lambda: gp.formulas.one_f_one_b_in_flight(4, 8, 4), ValueError, "needs device from 0 to 3 (got 4)"),
    (lambda: gp.formulas.interleaved_in_flight(4, 6, 2, 0), ValueError, "is for K dividing M"),
    (lambda: gp.formulas.chimera_bubble(4, 6), ValueError, "is for K dividing M (got K = 4, M = 6)"),
    (lambda: gp.formulas.chimera_bubble(3, 6), ValueError, "needs an even number of devices (got 3)"),
    (lambda: gp.formulas.zbh1_memory(4, 0, -1), ValueError, "needs before_input_grad to be finite and >= 0"),
    (lambda: gp.formulas.zbh1_memory(4, 0, 34, 40), ValueError, "is for M_W at most M_B (got M_W = 40"),
    (lambda: gp.formulas.zbh2_memory(4, 0, 1, 2), ValueError, "zbh2_memory is for M_W at most M_B"),
    (lambda: gp.formulas.zbh2_bubble_time(4, 1, 1, 2), ValueError, "is for T_W at most T_F and T_B"),
    (
        lambda: gp.formulas.zbh1_bubble_time(4, 3, 3, 3, comm=2),
        ValueError,
        "zbh1_bubble_time is for c at most T_W/2, which is 1.5 (got c = 2)",
    ),
    (
        lambda: gp.formulas.zbh2_bubble_time(4, 3, 3, 3, comm=4),
        ValueError,
        "c at most (T_F + T_B)/2, which is 3 (",
    ),
    (
        lambda: gp.formulas.interleaved_bubble_time(4, 2, 3, 1, 1, 1.5),
        ValueError,
        "interleaved_bubble_time is for c at most min(T_F, T_B+T_W)/V, which is 1 (got c = 1.5)",
    ),
    (lambda: gp.formulas.gpipe_bubble_time(4, comm=-1), ValueError, "needs comm to be finite and >= 0"),
    (lambda: gp.formulas.gpipe_bubble_time(0), ValueError, "gpipe_bubble_time needs devices >= 1 (got 0)"),
    (lambda: gp.formulas.message_bytes(8, 1, 0), ValueError, "message_bytes needs features >= 1 (got 0)"),
    (lambda: gp.formulas.interleaved_memory_factor(4, 0), ValueError, "needs stages_per_device >= 1 (got 0)"),
    (
        lambda: gp.formulas.block_memory(512, 1, 10, 3),
        ValueError,
        "heads that divide its features (got a = 3",
    ),
    (lambda: gp.formulas.selective_recompute_freed(8, 10, 4), ValueError, "heads that divide its features"),
    (lambda: gp.formulas.mlp_memory(512, 0, 8), ValueError, "mlp_memory needs batch >= 1 (got 0)"),
    (
        lambda: gp.formulas.attention_core_flops_share(512, "8"),
        TypeError,
        "features to be a whole number (got '8')",
    ),
    (
        lambda: gp.formulas.transformer_flops(2, 8, 9, 4, 1.5),
        TypeError,
        "transformer_flops needs batch to be",
    ),
    (lambda: gp.formulas.dualpipe_bubble_time(4, 3, 2, 2), ValueError, "at most half a full backward"),
    (
        lambda: gp.formulas.zero_memory(10**9, 64, 4),
        ValueError,
        "needs stage from 0 to 3 (got 4)",
    ),
    (lambda: gp.formulas.zero_memory(7.5e9, 64, 1), TypeError, "zero_memory needs parameters to be a whole"),
    (lambda: gp.formulas.zero_bytes(10**9, 0, 1), ValueError, "zero_bytes needs devices >= 1 (got 0)"),
    (
        lambda: gp.formulas.zero_bytes(10**9, 64, "3"),
        TypeError,
        "needs stage to be a whole number",
    ),
    (lambda: gp.formulas.tensor_parallel_bytes(8, 1, 0, 2), ValueError, "needs features >= 1 (got 0)"),
    (
        lambda: gp.formulas.tensor_parallel_block_memory(8, 1, 8, 2, 4),
        ValueError,
        "is for devices that divide the heads (got t = 4, a = 2)",
    ),
    (
        lambda: gp.formulas.microbatches_for_bubble(4, "1e9999999"),
        ValueError,
        "needs a bubble between 0 and 1",
    ),
    (
        lambda: gp.formulas.microbatches_for_bubble(4, "1e-9999999"),
        ValueError,
        "needs a bubble between 0 and 1",
    ),
    (
        lambda: gp.formulas.microbatches_for_bubble(4, None),
        ValueError,
        "needs a bubble between 0 and 1 (got None)",
    ),
    (lambda: gp.formulas.microbatches_for_bubble(4, LONG), ValueError, "needs a bubble between 0 and 1"),
]

CHARTS: list[Case] = [
    (lambda: gp.draw(), ValueError, "draw needs at least one timeline"),
    (lambda: gp.draw(SCHEDULE), TypeError, "draw needs a timeline, such as simulate(GPipe(4, 8))"),
    (lambda: gp.draw([TIMELINE, TIMELINE]), TypeError, "draw needs a timeline"),
    (lambda: gp.draw(TIMELINE, titles="My title"), TypeError, "such as titles=['GPipe'] (got 'My title')"),
    (lambda: gp.draw(TIMELINE, titles=3), TypeError, "such as titles=['GPipe'] (got 3)"),
    (lambda: gp.draw(TIMELINE, titles=[None]), TypeError, "such as titles=['GPipe'] (got None)"),
    (lambda: gp.draw(TIMELINE, titles=["a", "b"]), ValueError, "a title for each of 1 timelines (got 2)"),
    (
        lambda: gp.draw(TIMELINE, messages="no"),
        TypeError,
        "draw needs messages to be True or False (got 'no')",
    ),
    (lambda: gp.draw(TIMELINE, in_flight=np.ones(2)), TypeError, "draw needs in_flight to be True or False"),
    (lambda: gp.draw(TIMELINE, pushed="no"), TypeError, "draw needs pushed to be True or False (got 'no')"),
    (lambda: gp.draw(TIMELINE, pushed=1), TypeError, "draw needs pushed to be True or False (got 1)"),
    (
        lambda: gp.draw(TIMELINE, critical_path=None),
        TypeError,
        "critical_path to be True or False (got None)",
    ),
    (
        lambda: gp.draw(TIMELINE, in_flight=True, memory=STEP.memory),
        ValueError,
        "draw needs in_flight or memory: a device has one strip",
    ),
    (
        lambda: gp.draw(TIMELINE, memory=STEP),
        TypeError,
        "draw needs memory of every device, such as memory=step",
    ),
    (lambda: gp.draw(TIMELINE, memory=STEP.memory[0]), TypeError, "draw needs memory of every device"),
    (lambda: gp.draw(TIMELINE, memory=STEP.memory[:1]), ValueError, "draw needs memory of 2 devices (got 1)"),
    (lambda: gp.draw(TIMELINE, memory=[STEP.memory]), TypeError, "draw needs memory of every device"),
    (lambda: gp.draw(TIMELINE, memory=[1, 2]), TypeError, "such as memory=step.memory (got 1)"),
    (lambda: gp.draw(TIMELINE, memory="bytes"), TypeError, "such as memory=step.memory (got 'bytes')"),
    (
        lambda: gp.draw(TIMELINE, TIMELINE, memory=STEP.memory),
        TypeError,
        "draw needs memory of every device, such as memory=step.memory (got <MemoryTrace: at most",
    ),
    (
        lambda: gp.draw(TIMELINE, TIMELINE, memory=[STEP.memory]),
        ValueError,
        "draw needs the memory of 2 timelines (got 1)",
    ),
    (
        lambda: gp.draw(TIMELINE, TIMELINE, memory=[STEP.memory, STEP.memory[1:]]),
        ValueError,
        "draw needs memory of 2 devices (got 1)",
    ),
    (
        lambda: gp.draw(TIMELINE, critical_path=True, highlight=["0F0"]),
        ValueError,
        "draw needs critical_path or highlight: both frame actions",
    ),
    (
        lambda: gp.draw(TIMELINE, highlight="0F0"),
        TypeError,
        "draw needs actions to highlight, such as highlight=['0F0', '1F0'] (got '0F0')",
    ),
    (lambda: gp.draw(TIMELINE, highlight=True), TypeError, "draw needs actions to highlight"),
    (lambda: gp.draw(TIMELINE, highlight=gp.F(0, 0)), TypeError, "draw's highlight takes actions or their"),
    (lambda: gp.draw(TIMELINE, highlight=[3]), TypeError, "draw's highlight takes actions or their spelling"),
    (
        lambda: gp.draw(TIMELINE, highlight=["first"]),
        ValueError,
        "'first' is not an action; write stage, kind",
    ),
    (
        lambda: gp.draw(TIMELINE, highlight=["9F9"]),
        ValueError,
        "draw cannot highlight 9F9: no timeline has it",
    ),
    (
        lambda: gp.draw(TIMELINE, highlight=["0F0", "0W0"]),
        ValueError,
        "draw cannot highlight 0W0: no timeline",
    ),
    (
        lambda: gp.draw(TIMELINE, highlight=gp.simulate(gp.GPipe(3, 3)).spans),
        ValueError,
        "draw cannot highlight",
    ),
    (lambda: gp.draw(TIMELINE).save(1), TypeError, "save needs a path, such as 'timeline.svg' (got 1)"),
    (lambda: gp.to_svg(SCHEDULE), TypeError, "to_svg needs a timeline"),
    (lambda: gp.draw_deadlock(TIMELINE), TypeError, "check needs a schedule"),
    (lambda: gp.draw_deadlock(SCHEDULE), ValueError, "can finish: nobody waits for ever"),
    (lambda: gp.overlay(TIMELINE, SCHEDULE), TypeError, "overlay needs a timeline"),
    (lambda: gp.overlay(TIMELINE, STEP), TypeError, "overlay needs a timeline, such as its .timeline"),
    (
        lambda: gp.overlay(TIMELINE, gp.simulate(gp.GPipe(2, 3))),
        ValueError,
        "two timelines of the same actions",
    ),
    (lambda: gp.overlay(TIMELINE, TIMELINE).save(None), TypeError, "save needs a path"),
    (lambda: gp.plots.plot_timeline(SCHEDULE), TypeError, "plot_timeline needs a timeline"),
    (
        lambda: gp.plots.plot_timeline(TIMELINE, ax=0),
        TypeError,
        "a plot needs axes, such as ax=plt.subplots()",
    ),
    (lambda: gp.plots.plot_timeline(TIMELINE, title=3), TypeError, "plot_timeline needs a text as its title"),
    (
        lambda: gp.plots.plot_timeline(TIMELINE, in_flight="x"),
        TypeError,
        "plot_timeline needs in_flight to be",
    ),
    (
        lambda: gp.plots.plot_timeline(TIMELINE, in_flight=True, memory=STEP.memory),
        ValueError,
        "plot_timeline needs in_flight or memory",
    ),
    (
        lambda: gp.plots.plot_timeline(TIMELINE, memory=STEP.memory * 2),
        ValueError,
        "plot_timeline needs memory of 2 devices (got 4)",
    ),
    (
        lambda: gp.plots.plot_timeline(TIMELINE, critical_path=True, highlight=[]),
        ValueError,
        "plot_timeline needs critical_path or highlight",
    ),
    (
        lambda: gp.plots.plot_timeline(TIMELINE, highlight=["0R0"]),
        ValueError,
        "plot_timeline cannot highlight 0R0: no timeline has it",
    ),
    (
        lambda: gp.draw(STREAM, weights="newest"),
        ValueError,
        "draw needs weights to be one of ('stashed', 'vertical', 'double', 'latest') (got 'newest')",
    ),
    (lambda: gp.draw(STREAM, weights=["stashed"]), ValueError, "draw needs weights to be one of"),
    (lambda: gp.draw(STREAM, weights=True), ValueError, "draw needs weights to be one of"),
    (
        lambda: gp.draw(TIMELINE, weights="stashed"),
        ValueError,
        "updates no weights on the way, so all its actions read the same and draw takes no weights=",
    ),
    (
        lambda: gp.draw(gp.simulate(gp.PipeDream2BW(2, 4)), weights="stashed"),
        ValueError,
        "is trained with weights='double'",
    ),
    (
        lambda: gp.draw(STREAM, weights="double"),
        ValueError,
        "weights='double' has 0F2 use version 1 of stage 0",
    ),
    (
        lambda: gp.draw(STREAM, STREAM, weights="stashed"),
        TypeError,
        "draw needs a mode for each timeline, such as weights=['stashed', None] (got 'stashed')",
    ),
    (
        lambda: gp.draw(STREAM, STREAM, weights=["stashed"]),
        ValueError,
        "draw needs a mode for each timeline, such as weights=['stashed', None] (got ['stashed'])",
    ),
    (
        lambda: gp.plots.plot_timeline(TIMELINE, weights="latest"),
        ValueError,
        "and plot_timeline takes no weights=; PipeDream does",
    ),
    (
        lambda: gp.plots.plot_timeline(TIMELINE, pushed=True),
        TypeError,
        "unexpected keyword argument 'pushed'",
    ),
    (lambda: gp.plots.plot_pushed(STEP), TypeError, "plot_pushed needs a timeline, such as its .timeline"),
    (lambda: gp.plots.plot_pushed(TIMELINE, 0), TypeError, "a plot needs axes, such as ax=plt.subplots()"),
    (lambda: gp.plots.plot_pushed(TIMELINE, title=None), TypeError, "plot_pushed needs a text as its title"),
    (lambda: gp.draw_parts(X, X[0]), ValueError, "draw_parts needs 2-D arrays of one shape"),
    (lambda: gp.draw_parts([X, X[:3]], X), ValueError, "draw_parts needs 2-D arrays of one shape"),
    (lambda: gp.draw_parts(None, X), TypeError, "draw_parts needs 2-D arrays of one shape"),
    (lambda: gp.draw_parts([X, "X"], X), TypeError, "draw_parts needs parts to hold real numbers"),
    (lambda: gp.draw_parts([X], X * NAN), ValueError, "draw_parts needs every number to be finite"),
    (lambda: gp.draw_parts([], X), ValueError, "draw_parts needs 2-D arrays of one shape"),
    (lambda: gp.draw_parts([X], X[:, 0]), ValueError, "draw_parts needs 2-D arrays of one shape"),
    (lambda: gp.draw_stages(gp.mlp([64, 10])), TypeError, "draw_stages needs partitions, such as split("),
    (
        lambda: gp.draw_stages(None),
        TypeError,
        "draw_stages needs partitions, such as split(layers, stages=4)",
    ),
    (lambda: gp.draw_stages([]), ValueError, "draw_stages needs partitions, such as split(layers, stages=4)"),
    (lambda: STEP.memory[0].only("weights"), ValueError, "needs category to be one of"),
    (lambda: gp.plots.plot_bare(SCHEDULE, None), TypeError, "plot_bare needs a timeline"),
    (lambda: gp.plots.plot_bare(TIMELINE, None), TypeError, "a plot needs axes, such as ax=plt.subplots()"),
    (lambda: gp.plots.plot_bare(TIMELINE, 3), TypeError, "a plot needs axes, such as ax=plt.subplots()"),
    (lambda: gp.plots.plot_bubble_curves([0.2]), TypeError, "such as {2: {4: 0.2, 8: 0.1}} (got [0.2])"),
    (lambda: gp.plots.plot_bubble_curves({}), ValueError, "plot_bubble_curves needs numbers by two sizes"),
    (
        lambda: gp.plots.plot_bubble_curves({2: 0.2}),
        TypeError,
        "plot_bubble_curves needs numbers by two sizes",
    ),
    (
        lambda: gp.plots.plot_bubble_curves({2: {}}),
        ValueError,
        "plot_bubble_curves needs numbers by two sizes",
    ),
    (lambda: gp.plots.plot_bubble_curves({2: {"4": 0.2}}), TypeError, "every size to be a whole number"),
    (lambda: gp.plots.plot_bubble_curves({2: {0: 0.2}}), ValueError, "needs every size >= 1 (got 0)"),
    (
        lambda: gp.plots.plot_efficiency({2: {4: TIMELINE}}),
        TypeError,
        "plot_efficiency needs every value to be",
    ),
    (lambda: gp.plots.plot_efficiency({2: {4: NAN}}), ValueError, "every value < inf (got nan)"),
    (
        lambda: gp.plots.plot_losses([1, 2]),
        TypeError,
        "plot_losses needs losses by name, such as {'GPipe': [",
    ),
    (lambda: gp.plots.plot_losses({"GPipe": gp.History()}), TypeError, "plot_losses needs losses by name"),
    (
        lambda: gp.plots.plot_losses({"GPipe": [None]}),
        TypeError,
        "plot_losses needs every loss to be a number",
    ),
]

CLUSTERS: list[Case] = [
    (lambda: cluster(0), ValueError, "Cluster needs devices from 1 to 65536 (got 0)"),
    (lambda: cluster(HUGE), ValueError, "Cluster needs devices from 1 to 65536"),
    (lambda: cluster(2.5), TypeError, "Cluster needs devices to be a whole number (got 2.5)"),
    (lambda: cluster(4, 0), ValueError, "Cluster needs memory > 0, in bytes for each device (got 0)"),
    (lambda: cluster(4, NAN), ValueError, "Cluster needs memory > 0, in bytes for each device (got nan)"),
    (lambda: cluster(4, "80 GB"), TypeError, "Cluster needs memory to be a number (got '80 GB')"),
    (lambda: cluster(4, links=3), TypeError, "Cluster needs links to be a Link or Nodes (got 3)"),
    (
        lambda: gp.Cluster(4, 140e12, 80e9),
        TypeError,
        "Cluster needs an accelerator, such as Accelerator(flops=140e12) (got 140000000000000.0)",
    ),
    (lambda: plan(4), TypeError, "plan needs a cluster, such as Cluster(8, "),
    (lambda: plan(layers=[]), ValueError, "plan needs at least one layer (got [])"),
    (lambda: plan(layers=3), TypeError, "plan needs a list of layers, such as mlp([64, 10]) (got 3)"),
    (lambda: plan(layers=[3]), TypeError, "a model needs layers, such as mlp([64, 10]) (got 3)"),
    (lambda: plan(loss=None), TypeError, "profile needs a loss, such as cross_entropy or mse (got None)"),
    (lambda: plan(optimizer=3), TypeError, "profile needs an optimizer, such as Adam(1e-3) (got 3)"),
    (lambda: plan(batch=X), TypeError, "a batch is (inputs, targets)"),
    (lambda: plan(batch=(X[:0], Y[:0])), ValueError, "at least one sample"),
    (lambda: plan(rows=0), ValueError, "plan needs rows >= 1 (got 0)"),
    (lambda: plan(rows="all"), TypeError, "plan needs rows to be a whole number (got 'all')"),
    (lambda: plan(schedules="GPipe"), TypeError, "plan needs schedules to list families, such as [GPipe"),
    (lambda: plan(schedules=[SCHEDULE]), TypeError, "plan needs schedules to list families, such as [GPipe"),
    (lambda: plan(schedules=[]), ValueError, "plan needs at least one schedule, and recompute to list"),
    (lambda: plan(recompute=[]), ValueError, "plan needs at least one schedule, and recompute to list"),
    (lambda: plan(recompute=True), TypeError, "plan needs recompute to list what to try, such as [False,"),
    (lambda: plan(recompute=["no"]), TypeError, "plan needs recompute to be True or False (got 'no')"),
    (
        lambda: plan(replicas=[3]),
        ValueError,
        "replicas that divide the cluster's 4 devices (got 3)",
    ),
    (
        lambda: plan(replicas=2),
        TypeError,
        "replicas to list whole numbers, such as [1, 2] (got 2)",
    ),
    (lambda: plan(replicas=[]), ValueError, "plan needs replicas to list at least one (got [])"),
    (lambda: plan(microbatches=[0]), ValueError, "plan needs each of microbatches >= 1 (got 0)"),
    (
        lambda: plan(schedules=[gp.LoopedBFS, gp.Interleaved1F1B], stages_per_device=[1]),
        ValueError,
        "plan needs stages_per_device to list at least one above 1 (got [1])",
    ),
    (lambda: plan(stages_per_device=[1.5]), TypeError, "plan needs each of stages_per_device to be a whole"),
    (
        lambda: plan(replicas=[4], microbatches=[16]),
        ValueError,
        "16 do not cut the batch into equal microbatches: 16 samples are not 4 x 16 equal microbatches",
    ),
    (
        lambda: plan(where=cluster(64), microbatches=[1]),
        ValueError,
        "plan finds no plan at all for this model, batch and cluster.",
    ),
    (lambda: plan(cluster(4, 1_000)), gp.MemoryLimitError, "finds no plan that fits 4 devices of 1 kB each."),
    (lambda: plan(report="x"), TypeError, "report to be a function of a text, or None (got 'x')"),
    (
        lambda: gp.lower_bound(MLP, 4, (X, Y), gp.cross_entropy),
        TypeError,
        "lower_bound needs a cluster",
    ),
    (
        lambda: gp.lower_bound(MLP, cluster(), (X, Y), gp.cross_entropy, replicas=[3]),
        ValueError,
        "lower_bound needs replicas that divide the cluster's 4 devices (got 3)",
    ),
    (
        lambda: gp.lower_bound(MLP, cluster(), (X, Y), gp.cross_entropy, microbatches=[5]),
        ValueError,
        "lower_bound finds no way to cut 16 samples and 3 layers for 4 devices",
    ),
    (lambda: gp.advise(MLP, None, (X, Y), gp.cross_entropy), TypeError, "advise needs a cluster, such as"),
    (lambda: gp.advise([], cluster(), (X, Y), gp.mse), ValueError, "advise needs at least one layer"),
]

LESSONS: list[Case] = [
    (lambda: gp.course.reveal(1, None), TypeError, "reveal needs measured to be a number (got None)"),
    (
        lambda: gp.course.reveal(1, 2, within=None),
        TypeError,
        "reveal needs within to be a number (got None)",
    ),
    (
        lambda: gp.course.reveal(1, 2, 0.1),
        TypeError,
        "reveal needs unit to be a text, such as 'units' (got 0.1)",
    ),
    (lambda: gp.course.lesson_99, AttributeError, "module 'gpipe_sim.course' has no attribute 'lesson_99'"),
]

SLOW = gp.Link(latency=1, bandwidth=1)
COPIES = gp.simulate(gp.replicate(SCHEDULE, 2))
REPLICAS: list[Case] = [
    (lambda: gp.all_reduce(SCHEDULE, 4, links=SLOW), TypeError, "all_reduce needs a timeline, such as"),
    (lambda: gp.all_reduce(COPIES, NAN, links=SLOW), ValueError, "sizes to be finite and >= 0 (got nan)"),
    (lambda: gp.all_reduce(COPIES, [4, 4, 4], links=SLOW), ValueError, "a size for each of 2 stages"),
    (lambda: gp.all_reduce(COPIES, {0: 4}, links=SLOW), TypeError, "sizes in bytes: a number, one for each"),
    (lambda: gp.all_reduce(COPIES, None, links=SLOW), TypeError, "sizes in bytes: a number, one for each"),
    (
        lambda: gp.all_reduce(COPIES, gp.GPipe, links=SLOW),
        TypeError,
        "sizes in bytes: a number, one for each",
    ),
    (lambda: gp.all_reduce(COPIES, 4, links=gp.Link), TypeError, "all_reduce needs links to be"),
    (lambda: gp.all_reduce(COPIES, 4, links={(1, 3): 3}), TypeError, "all_reduce needs links to be a Link"),
    (lambda: gp.all_reduce(COPIES, 4, links={(0, 1): SLOW}), ValueError, "there is no link from device 1 to"),
    (lambda: gp.all_reduce(COPIES, 4, links=SLOW, buckets=-1), ValueError, "all_reduce needs buckets >= 1"),
    (lambda: gp.all_reduce(COPIES, 4, links=SLOW, buckets="2"), TypeError, "buckets to be a whole number"),
    (lambda: gp.all_reduce(COPIES, 4, links=SLOW, clip=1.0), TypeError, "clip to be True or False (got 1.0)"),
    (lambda: gp.all_reduce(COPIES, HUGE, links=gp.Link(1, 1e-300)), ValueError, "than the largest float"),
    (lambda: gp.all_reduce(COPIES, UNPRINTABLE, links=gp.Link(1, 0.5)), ValueError, "the largest float"),
    (
        lambda: gp.Timeline(SCHEDULE, TIMELINE.start, TIMELINE.end, collectives=3),
        TypeError,
        "needs collectives",
    ),
    (
        lambda: gp.Timeline(SCHEDULE, TIMELINE.start, TIMELINE.end, collectives=[1]),
        TypeError,
        "collectives as",
    ),
    (lambda: gp.ring_all_reduce(np.float64(3)), TypeError, "ring_all_reduce needs an array of each device"),
    (lambda: gp.ring_all_reduce([]), ValueError, "ring_all_reduce needs an array of each device, such as"),
    (
        lambda: gp.ring_all_reduce([X, X.T]),
        ValueError,
        "device 1 has float64 of shape (64, 16), and device 0",
    ),
    (lambda: gp.ring_all_reduce([X, "x"]), TypeError, "each array to hold real numbers"),
    (lambda: gp.ring_all_reduce([X, X * 1j]), TypeError, "each array to hold real numbers (got complex128)"),
    (lambda: gp.ring_moves(0), ValueError, "ring_moves needs devices >= 1 (got 0)"),
    (lambda: gp.ring_moves("4"), TypeError, "ring_moves needs devices to be a whole number (got '4')"),
    (lambda: gp.ring_moves(HUGE), ValueError, "ring_moves needs at most 10,000,000 moves"),
    (lambda: gp.replicate(SCHEDULE, HUGE), ValueError, "replicate needs at most 10,000,000 pairs of stage"),
    (lambda: gp.side_by_side([SCHEDULE, gp.GPipe]), TypeError, "side_by_side needs a schedule, such as"),
    (lambda: gp.side_by_side({SCHEDULE}), TypeError, "side_by_side needs schedules, such as [GPipe(2, 4)"),
    (lambda: gp.side_by_side([SCHEDULE, gp.GPipe(4, 2)]), ValueError, "the same stages in all (got [2, 4])"),
    (lambda: gp.shares(16, [1, -2]), ValueError, "every speed to be finite and > 0 (got -2)"),
    (lambda: gp.shares(16, [1, NAN]), ValueError, "every speed to be finite and > 0 (got nan)"),
    (lambda: gp.shares(16, "21"), TypeError, "shares needs speeds, such as [2, 1] (got '21')"),
    (lambda: gp.shares(16.0, [1]), TypeError, "shares needs samples to be a whole number (got 16.0)"),
    (lambda: gp.shares(16, [True]), TypeError, "each speed to be a number (got True)"),
    (
        lambda: gp.data_parallel_round(0, weights=1, links=SLOW),
        ValueError,
        "data_parallel_round needs devices",
    ),
    (lambda: gp.data_parallel_round(HUGE, weights=1, links=SLOW), ValueError, "needs at most 1,000 devices"),
    (lambda: gp.data_parallel_round(2, weights=NAN, links=SLOW), ValueError, "weights to be finite and >= 0"),
    (lambda: gp.data_parallel_round(2, weights=X, links=SLOW), TypeError, "weights to be a number"),
    (lambda: gp.data_parallel_round(2, weights=1, links={}), ValueError, "there are links from nowhere"),
    (lambda: gp.bytes_through(SCHEDULE), TypeError, "bytes_through needs a timeline, such as"),
    (
        lambda: gp.data_parallel_round(2, weights=HUGE, links=gp.Link(1, 1e-300)),
        ValueError,
        "lasts longer than the largest float",
    ),
    (
        lambda: gp.data_parallel_round(2, gp.Costs(speed=[1, 2, 3]), weights=1, links=SLOW),
        ValueError,
        "Costs lists speed for 3 devices, but the schedule has 2",
    ),
]

ENDLESS = gp.PipeDream(2, 4)
ONCE = "0F0 0B0 0U0 0F1 0B1 0U1"  #: a row of device 0 that updates after each microbatch


def streamed(schedule=ENDLESS, **options) -> gp.StepResult:
    return step(schedule, **{"optimizer": gp.SGD(0.1)} | options)


def trained(schedule=ENDLESS, **options) -> gp.History:
    usual = {"loss": gp.cross_entropy, "optimizer": gp.SGD(0.1), "epochs": 1, "batch_size": 8, "report": None}
    return gp.train(parts(), schedule, (X, Y), **usual | options)


def late(weights: str) -> gp.Staleness:
    """Device 1 updates later than it could."""
    return gp.staleness(gp.Explicit([ONCE, "1F0 1B0 1F1 1U0 1B1 1U1"]), weights)


STREAMS: list[Case] = [
    (lambda: gp.PipeDream(2, 4, 0), ValueError, "PipeDream needs every >= 1 (got 0)"),
    (lambda: gp.PipeDream(2, 4, 1.5), TypeError, "PipeDream needs every to be a whole number (got 1.5)"),
    (lambda: gp.PipeDream(2, 4, every=True), TypeError, "PipeDream needs every to be a whole number (got"),
    (lambda: gp.PipeDream(0, 4), ValueError, "PipeDream needs devices >= 1 (got 0)"),
    (
        lambda: gp.PipeDream2BW(4, 8, 3),
        ValueError,
        "PipeDream2BW needs every >= devices, here 4, as in its paper (got 3); PipeDream takes any",
    ),
    (
        lambda: gp.PipeDream2BW(4, 8, "4"),
        TypeError,
        "PipeDream2BW needs every to be a whole number (got",
    ),
    (lambda: gp.PipelinedBackprop(2, 0), ValueError, "PipelinedBackprop needs microbatches >= 1 (got 0)"),
    (lambda: gp.PipeDream(2, chunks=4), TypeError, "PipeDream takes no chunks=: torchgpipe's chunks are"),
    (
        lambda: streamed(gp.Explicit(["0F0 0U0 0B0", "1F0 1B0 1U0"])),
        gp.DeadlockError,
        "device 0 is stuck at 0U0: it needs 0B0 (queued on device 0)",
    ),
    (
        lambda: streamed(gp.Explicit(["0F0 0B0 0U0 0U1 0F1 0B1", "1F0 1B0 1U0 1F1 1B1 1U1"])),
        gp.DeadlockError,
        "device 0 is stuck at 0U1: it needs 0B1 (queued on device 0)",
    ),
    (
        lambda: streamed(gp.Explicit([ONCE, "1F0 1B0 1F1 1B1 1U1"])),
        gp.ScheduleError,
        "the gradient of microbatch 1 goes into update 0 of stage 1, but into update 1 of stage 0",
    ),
    (
        lambda: streamed(gp.Explicit([ONCE, "1F0 1B0 1F1 1B1"])),
        gp.ScheduleError,
        "stage 1 is never updated, but stage 0 is: all stages update after the same microbatches",
    ),
    (
        lambda: streamed(gp.Explicit([ONCE + " 0F2 0B2", "1F0 1B0 1U0 1F1 1B1 1U1 1F2 1B2"])),
        gp.ScheduleError,
        "0B2 is behind the last update of stage 0 on device 0, which would never apply the gradient of",
    ),
    (
        lambda: streamed(gp.side_by_side([gp.PipeDream(2, 4), gp.PipeDream(2, 2)])),
        gp.ScheduleError,
        "0U2 is update 2 of stage 0 on device 0, but its copy on device 2 has only 2, counted from 0",
    ),
    (
        lambda: gp.side_by_side([gp.PipeDream2BW(2, 4), gp.PipelinedBackprop(2, 4)]),
        ValueError,
        "side_by_side needs replicas that can train with the same weights= (got weights='double' and",
    ),
    (lambda: streamed(weights="newest"), ValueError, "weights to be one of ('stashed', 'vertical', 'double'"),
    (lambda: streamed(weights=3), ValueError, "'double', 'latest') (got 3)"),
    (lambda: streamed(weights=["stashed"]), ValueError, "'double', 'latest') (got ['stashed'])"),
    (lambda: trained(weights=LONG), ValueError, "train needs weights to be one of ('stashed', 'vertical',"),
    (lambda: gp.staleness(ENDLESS, True), ValueError, "staleness needs weights to be one of ('stashed',"),
    (
        lambda: gp.predict_memory(ENDLESS, PROFILE, weights="x"),
        ValueError,
        "predict_memory needs weights to be one of ('stashed',",
    ),
    (
        lambda: trained(gp.PipeDream2BW(2, 4), weights="stashed"),
        ValueError,
        "is trained with weights='double', or it would be another family; PipeDream can have",
    ),
    (
        lambda: streamed(gp.colocate(gp.PipelinedBackprop(2, 4), ["a", "b"]), weights="stashed"),
        ValueError,
        "is trained with weights='latest', or it would be another family",
    ),
    (
        lambda: trained(SCHEDULE, weights="stashed"),
        ValueError,
        "updates no weights on the way, so all its actions read the same and train takes no weights=",
    ),
    (
        lambda: late("vertical"),
        ValueError,
        "weights='vertical' has 1F1 use version 1 of stage 1, but 1U0, which makes it, stands behind 1F1 on",
    ),
    (
        lambda: gp.staleness(gp.PipeDream(4, 8), "double"),
        ValueError,
        "0U0, which makes it, stands behind 0F2 on device 0: put it before, or let each update have more",
    ),
    (lambda: gp.staleness(gp.PipeDream), TypeError, "staleness needs a schedule, such as GPipe(4, 8) (got"),
    (lambda: gp.staleness(gp.Explicit(["0B0 0F0"])), gp.DeadlockError, "device 0 is stuck at 0B0"),
    (lambda: streamed(optimizer=None), ValueError, "0U0 needs an optimizer: train_step(..., optimizer=...)"),
    (
        lambda: streamed(gp.PipeDream(2, 17)),
        ValueError,
        "a batch of 16 samples cannot be cut into 17 microbatches",
    ),
    (
        lambda: trained(gp.PipeDream(2, 9)),
        ValueError,
        "a batch of 8 samples cannot be cut into 9 microbatches",
    ),
    (
        lambda: streamed(batch=(X * NAN, Y)),
        gp.DivergedError,
        "the very first loss is not finite: do inputs or weights hold NaN, or huge numbers?",
    ),
    (
        lambda: streamed(loss=gp.mse, batch=(X * 1e200, np.ones((16, 10)))),
        gp.DivergedError,
        "the very first loss is not finite",
    ),
    (
        lambda: streamed(gp.PipeDream(2, 16), optimizer=gp.SGD(1e200)),
        gp.DivergedError,
        "the loss is no longer finite. A smaller learning rate would do",
    ),
    (
        lambda: gp.all_reduce(gp.simulate(gp.replicate(ENDLESS, 2)), 4, links=gp.Link()),
        ValueError,
        "is another of its stage, and what stands behind it would have to wait too: let updates take",
    ),
    (
        lambda: plan(schedules=[gp.PipeDream]),
        ValueError,
        "plan compares ways to compute the same gradients, and PipeDream uses older weights: give families",
    ),
    (
        lambda: programs(gp.device_programs(ENDLESS)),
        gp.ScheduleError,
        "device 1 comes to 1U0, but run_programs updates no weights: leave it out",
    ),
    (
        lambda: gp.to_torch_csv(ENDLESS),
        gp.ScheduleError,
        "updates weights on the way, 0U0 being the first: later microbatches then meet other weights.",
    ),
    (
        lambda: gp.with_updates(ENDLESS),
        ValueError,
        "microbatches=4, every=1) has updates already",
    ),
]

SECTIONS = (
    REPLICAS,
    STREAMS,
    SIZES,
    ORDERS,
    PLANS,
    BALANCES,
    COSTS,
    TIMELINES,
    MODELS,
    STEPS,
    CUT,
    PROGRAMS,
    FORMULAS,
    CHARTS,
    CLUSTERS,
    LESSONS,
)
CASES = [case for section in SECTIONS for case in section]

#: What a student may hand in by mistake: every check of a lesson replies to it in a sentence.
HANDED_IN = (
    "x", LONG, 3, -1, NAN, HUGE, [], {}, object(), X, gp.GPipe, SCHEDULE, TIMELINE,
    lambda: 1, lambda *a: UNPRINTABLE, lambda *a: None,
    lambda *a: "x", lambda *a: NAN, lambda *a: 1j, lambda *a: -1, lambda *a: HUGE,
    lambda *a: np.int8(100), lambda *a: X, lambda *a: [1, None], lambda *a: a, lambda *a: 1 / 0,
    lambda *a: True,
)  # fmt: skip
