"""PyTorch's own reader, validator, lowering and simulator take what ``to_torch_csv`` writes."""

import pytest

torch = pytest.importorskip("torch")

from cases import BOTH_WAYS, parts  # noqa: E402
from engine_cases import legal_orders, over_every_runnable, over_explicit  # noqa: E402
from hypothesis import given  # noqa: E402

from gpipe_sim import Explicit, GPipe, OneFOneB  # noqa: E402
from gpipe_sim.core import Schedule  # noqa: E402
from gpipe_sim.core.simulate import simulate  # noqa: E402
from gpipe_sim.export import from_torch_csv, to_torch_csv  # noqa: E402
from gpipe_sim.torch_backend import program  # noqa: E402


class Theirs:
    """The private names of torch that the tests read; no other test touches one."""

    def __init__(self):
        from torch.distributed.pipelining import schedules as module

        names = (
            "_Action",
            "_validate_schedule",
            "_add_send_recv",
            "_simulate_comms_compute",
            "get_schedule_class",
        )
        if missing := [name for name in names if not hasattr(module, name)]:
            pytest.skip(f"torch {torch.__version__} has no {', '.join(missing)}")
        self.action, self.validate, self.lower, self.simulate, self.family = (
            getattr(module, n) for n in names
        )

    def read(self, text: str) -> dict[int, list]:
        rows = enumerate(text.splitlines())
        return {rank: [self.action.from_str(cell) for cell in line.split(",")] for rank, line in rows}

    def lowered(self, text: str, schedule: Schedule) -> tuple[dict, dict[int, int]]:
        """The rows with their messages, and the rank of each stage."""
        rows = self.read(text)
        ranks = self.validate(rows, schedule.devices, schedule.stages, schedule.microbatches)
        return self.lower(rows, ranks.__getitem__, schedule.stages), ranks


@pytest.fixture(scope="module")
def theirs() -> Theirs:
    return Theirs()


def assert_taken(theirs: Theirs, schedule: Schedule) -> None:
    text = to_torch_csv(schedule)
    assert [[str(action) for action in row] for row in theirs.read(text).values()] == [
        [str(action) for action in row] for row in schedule.actions
    ]
    lowered, ranks = theirs.lowered(text, schedule)
    assert ranks == {stage: k for k, held in enumerate(schedule.placement) for stage in held}
    halves = {rank: [half for a in row for half in a.sub_actions or (a,)] for rank, row in lowered.items()}
    finished = theirs.simulate(halves, ranks.__getitem__, schedule.stages)  # it does not know of pairs
    done = [str(action) for row in finished.values() for action in row if action is not None]
    assert set(map(str, parts(schedule))) <= set(done)
    assert sum("SEND" in each for each in done) == len(simulate(schedule).messages)
    written = "\n".join(",".join(map(str, lowered[rank])) for rank in range(schedule.devices))
    assert from_torch_csv(written).actions == schedule.actions, "with the messages that torch put in"


@over_every_runnable()
def test_pytorch_takes_every_family(theirs, schedule):
    assert_taken(theirs, schedule)


@over_explicit
def test_pytorch_takes_orders_written_out(theirs, schedule):
    assert_taken(theirs, schedule)


@given(legal_orders(recompute=False))
def test_pytorch_takes_any_legal_order(theirs, schedule):
    assert_taken(theirs, schedule)


def test_a_program_is_the_order_with_a_send_and_a_receive_for_each_message():
    assert [" ".join(row) for row in program(OneFOneB(2, 2))] == [
        "0UNSHARD 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE_GRAD 0RESHARD",
        "1UNSHARD 1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1B1 1SEND_B1 1REDUCE_GRAD 1RESHARD",
    ]


@over_every_runnable()
def test_a_program_sends_what_the_schedule_sends(schedule):
    rows = program(schedule)
    assert from_torch_csv("\n".join(map(",".join, rows))).actions == schedule.actions
    for verb in ("SEND", "RECV"):
        assert sum(verb in entry for row in rows for entry in row) == len(simulate(schedule).messages)


def test_the_validator_is_one_that_can_refuse(theirs):
    """What our own checks refuse, theirs does as well: a missing backward, and a stage on two ranks."""
    for rows in (Explicit(["0F0 0B0", "1F0"]), BOTH_WAYS):
        text = "".join(",".join(map(str, row)) + "\n" for row in rows.actions)
        with pytest.raises((AssertionError, RuntimeError)):
            theirs.lowered(text, rows)


class Stage:
    """As much of a stage as PyTorch's classes look at to write their order."""

    is_first = has_backward = False
    group, device, submod = None, torch.device("cpu"), torch.nn.Identity()

    def __init__(self, index: int, stages: int, ranks: int):
        self.stage_index, self.num_stages = index, stages
        self.group_size, self.group_rank = ranks, 0
        self.stage_index_to_group_rank = {}


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("Interleaved1F1B", (0, 4)),
        ("LoopedBFS", (0, 4)),
        ("InterleavedZeroBubble", (0, 4)),
        ("ZBVZeroBubble", (0, 7)),
        ("DualPipeV", (0, 7)),
    ],
)
def test_pytorchs_own_orders_read_back(theirs, name, held):
    stages = [Stage(index, 8, 4) for index in held]
    order = theirs.family(name)(stages, 8, loss_fn=torch.nn.functional.mse_loss).pipeline_order
    text = "".join(
        ",".join("" if a is None else str(a) for a in order[rank]) + "\n" for rank in sorted(order)
    )
    found = from_torch_csv(text)
    assert [[str(action) for action in row] for row in found.actions] == [
        [str(action) for action in order[rank] if action is not None] for rank in sorted(order)
    ]
    assert_taken(theirs, found)


def test_a_single_stage_class_has_our_order(theirs):
    stage = Stage(0, 4, 4)
    order = theirs.family("GPipe")(stage, 8, loss_fn=torch.nn.functional.mse_loss)._get_pipeline_order()
    text = "\n".join(",".join("" if a is None else str(a) for a in order[rank]) for rank in range(4))
    assert from_torch_csv(text).actions == GPipe(4, 8, drain="in_order").actions


def test_what_is_written_is_read_by_the_engine_as_one_row_per_rank(theirs):
    assert list(theirs.read(to_torch_csv(OneFOneB(3, 2)))) == [0, 1, 2]
