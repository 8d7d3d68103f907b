import tracemalloc
from itertools import combinations, pairwise

import numpy as np
import pytest
from cases import every_order, over

from gpipe_sim import (
    SGD,
    Adam,
    Costs,
    Explicit,
    GPipe,
    MixedPrecision,
    cross_entropy,
    mlp,
    remat,
    split,
    train_step,
)
from gpipe_sim.core import B, Kind, Layer, Linear, ReLU, Tanh
from gpipe_sim.core.memory import (
    BOUNDARY,
    CATEGORIES,
    GRADIENTS,
    MESSAGES,
    PARAMETERS,
    PENDING,
    SAVED,
    STATE,
    MemoryTrace,
    MeteredMemory,
    roots,
)
from gpipe_sim.core.step import METER
from gpipe_sim.families import DualPipe
from gpipe_sim.memory.meter import InsideMeter
from gpipe_sim.transformers import AdamW, Checkpoint, LayerNorm, Residual, RMSProp

COLUMNS = PARAMETERS, GRADIENTS, BOUNDARY, SAVED, MESSAGES
BATCH = np.linspace(-1, 1, 12).reshape(4, 3), np.array([0, 3, 1, 2])

BATCH_OF_8 = np.linspace(-1, 1, 24).reshape(8, 3), np.array([0, 2, 1, 2] * 2)


def tiny(stages: int = 2):
    """Linear(3, 2) and ReLU on the first device, Linear(2, 4) on the second: 64 and 96 bytes of weights."""
    return split(mlp([3, 2, 4]), balance=[2, 1] if stages == 2 else [3])


def table(memory: MemoryTrace) -> str:
    """One line per time: parameters, gradients, boundary inputs, saved activations, messages; no others."""
    assert not any(memory.over_time(STATE, PENDING))
    return "\n".join(
        f"{time}: " + " ".join(str(memory.bytes[category][i]) for category in COLUMNS)
        for i, time in enumerate(memory.times)
    )


# A whole step, counted by hand. Of each microbatch of 2 samples: x is 2 x 3 x 8 = 48 bytes, ReLU's output and
# everything that crosses 2 x 2 x 8 = 32, the loss saves 2 x 4 x 8 = 64 of probabilities and 2 x 8 of targets.


def test_gpipe_holds_these_bytes_on_two_devices():
    first, second = train_step(tiny(), GPipe(2, 2), BATCH, cross_entropy).memory
    assert table(first) == "\n".join(
        [
            "0: 64 0 0 0 0",
            "1: 64 0 48 32 0",  # 0F0
            "2: 64 0 96 64 0",  # 0F1
            "5: 64 0 96 64 32",  # 1B1's gradient has arrived
            "7: 64 64 48 32 32",  # 0B1; 1B0's gradient has arrived
            "9: 64 64 0 0 0",  # 0B0
        ]
    )
    assert table(second) == "\n".join(
        [
            "0: 96 0 0 0 0",
            "1: 96 0 0 0 32",  # 0F0's output has arrived
            "2: 96 0 32 80 32",  # 1F0; 0F1's output has arrived
            "3: 96 0 64 160 0",  # 1F1
            "5: 96 96 32 80 0",  # 1B1
            "7: 96 96 0 0 0",  # 1B0
        ]
    )


def test_recomputing_keeps_boundary_inputs_and_one_working_set():
    first, second = train_step(tiny(), remat(GPipe(2, 2), "always"), BATCH, cross_entropy).memory
    assert table(first) == "\n".join(
        [
            "0: 64 0 0 0 0",
            "1: 64 0 48 0 0",  # 0F0
            "2: 64 0 96 0 0",  # 0F1
            "3: 64 0 96 32 0",  # 0R1
            "6: 64 0 96 32 32",  # 1B1's gradient has arrived
            "8: 64 64 48 0 0",  # 0B1
            "9: 64 64 48 32 32",  # 0R0; 1B0's gradient has arrived
            "11: 64 64 0 0 0",  # 0B0
        ]
    )
    assert table(second) == "\n".join(
        [
            "0: 96 0 0 0 0",
            "1: 96 0 0 0 32",
            "2: 96 0 32 0 32",  # 1F0; 0F1's output has arrived
            "3: 96 0 64 0 0",  # 1F1
            "4: 96 0 64 80 0",  # 1R1
            "6: 96 96 32 0 0",  # 1B1
            "7: 96 96 32 80 0",  # 1R0
            "9: 96 96 0 0 0",  # 1B0
        ]
    )


def test_a_message_in_flight_belongs_to_its_receiver():
    _, second = train_step(tiny(), GPipe(2, 1), BATCH, cross_entropy, costs=Costs(comm=10)).memory
    assert table(second) == "0: 96 0 0 0 0\n1: 96 0 0 0 64\n12: 96 0 64 160 0\n14: 96 96 0 0 0"


def test_a_boundary_within_one_device_is_no_copy_and_counted_once():
    """ReLU's 64 bytes are saved by stage 0, wait for stage 1, and are then its boundary input."""
    (memory,) = train_step(tiny(), Explicit(["0F0 1F0 1B0 0B0"]), BATCH, cross_entropy).memory
    assert table(memory) == "\n".join(
        [
            "0: 160 0 0 0 0",
            "1: 160 0 96 64 0",  # 0F0
            "2: 160 0 160 160 0",  # 1F0
            "4: 160 96 96 64 64",  # 1B0
            "6: 160 160 0 0 0",  # 0B0
        ]
    )


def test_a_split_backward_keeps_only_what_its_weight_half_needs():
    """After I, Linear's W needs its input and its output's gradient; ReLU and the loss need nothing more."""
    schedule = Explicit(["0F0 0I0 0W0", "1F0 1I0 1W0"])
    first, second = train_step(tiny(), schedule, BATCH, cross_entropy).memory
    assert first.over_time(BOUNDARY) == (0, 96, 96, 96, 0)  # W still needs it, and it is what it was
    assert first.over_time(SAVED) == (0, 64, 64, 0, 0)
    assert first.over_time(PENDING) == (0, 0, 0, 64, 0)
    assert first.times == (0, 1, 3, 4, 5)
    assert second.over_time(BOUNDARY) == (0, 0, 64, 64, 0)
    assert second.over_time(SAVED) == (0, 0, 160, 0, 0)
    assert second.over_time(PENDING) == (0, 0, 0, 128, 0)
    assert second.activation_peak == 64 + 160
    assert second.times == (0, 1, 2, 3, 4)
    assert first.over_time(GRADIENTS) == (0, 0, 0, 0, 64)


@pytest.mark.parametrize(
    ("optimizer", "arrays"),
    [(SGD(0.1), 0), (SGD(0.1, momentum=0.9), 1), (RMSProp(), 1), (Adam(), 2), (AdamW(), 2)],
)
def test_an_optimizer_keeps_so_many_arrays_beside_each_weight_from_the_start(optimizer, arrays):
    schedule = Explicit(["0F0 0B0 0U0", "1F0 1B0 1U0"])
    first, second = train_step(tiny(), schedule, BATCH, cross_entropy, optimizer=optimizer).memory
    assert set(first.over_time(STATE)) == {arrays * 64}
    assert set(second.over_time(STATE)) == {arrays * 96}


def test_mixed_precision_takes_16_bytes_for_a_weight_of_2():
    """The weight and its gradient, 2 bytes each; a float32 copy, m and v, 4 each."""
    layers = split(mlp([3, 2, 4], dtype=np.float16), balance=[2, 1])
    batch = BATCH[0].astype(np.float16), BATCH[1]
    how = {"optimizer": MixedPrecision(Adam())}
    step = train_step(layers, GPipe(2, 2), batch, cross_entropy, **how)
    for memory, weights in zip(step.memory, (8, 12), strict=True):
        held = [memory.peak(category) for category in (PARAMETERS, GRADIENTS, STATE)]
        assert held == [2 * weights, 2 * weights, 12 * weights]


# What the meter counts


def count(memory: MeteredMemory) -> dict[str, int]:
    memory.sample(len(memory.samples))
    return {category: n for category, n in zip(CATEGORIES, memory.samples[-1][1], strict=True) if n}


def test_views_of_one_array_are_counted_once_and_whole():
    memory, array = MeteredMemory(), np.zeros((4, 5))
    memory.keep(SAVED, "views", [array[1:], array.T, (array.reshape(-1)[3:4], {"again": array})])
    assert count(memory) == {SAVED: 160}
    memory.keep(SAVED, "one more", array[:1])
    assert count(memory) == {SAVED: 160}
    memory.take(SAVED, "views")
    assert count(memory) == {SAVED: 160}
    memory.take(SAVED, "one more")
    assert count(memory) == {}


@pytest.mark.parametrize(("higher", "lower"), combinations(CATEGORIES, 2))
def test_an_array_in_two_categories_counts_under_the_first(higher, lower):
    for first, then in ((higher, lower), (lower, higher)):
        memory, array = MeteredMemory(), np.zeros(3)
        memory.keep(first, "a", array)
        memory.keep(then, "b", array[:2])
        assert count(memory) == {higher: 24}
        memory.take(higher, "a" if first == higher else "b")
        assert count(memory) == {lower: 24}


def test_a_boundary_input_that_a_layer_also_saves_is_a_boundary_input():
    memory, x, hidden = MeteredMemory(), np.zeros(2), np.zeros(5)
    memory.came_in((0, 0), x)
    memory.keep(SAVED, (0, 0), [x, hidden, None])
    assert count(memory) == {BOUNDARY: 16, SAVED: 40}
    assert memory.take(SAVED, (0, 0))[1] is hidden
    assert count(memory) == {}


def test_what_holds_no_array_takes_no_bytes():
    memory = MeteredMemory()
    memory.keep(SAVED, "nothing", [None, 3.5, (), {}, np.float64(2)])
    assert count(memory) == {}
    assert [root.nbytes for root in roots([np.zeros(0)])] == [0]


def test_of_several_samples_at_one_time_the_last_counts():
    memory = MeteredMemory()
    memory.sample(0)
    memory.keep(SAVED, "a", np.zeros(1))
    memory.sample(0)
    memory.keep(SAVED, "b", np.zeros(1))
    memory.sample(2)
    assert memory.trace().times == (0, 2)
    assert memory.trace().over_time() == (8, 16)


# Reading a trace


TRACE = MemoryTrace((0, 2, 5), {category: (n, 10 * n, n) for n, category in enumerate(CATEGORIES, 1)})


def test_a_trace_adds_up_the_categories_that_are_asked_for():
    assert TRACE.over_time(GRADIENTS, MESSAGES) == (11, 110, 11)
    assert TRACE.over_time() == (36, 360, 36)
    assert TRACE.peak() == 360
    assert TRACE.peak(PARAMETERS) == 10
    assert TRACE.activation_peak == 50 + 60 + 70


def test_a_trace_shows_itself_in_a_line_however_long_it_is():
    assert repr(TRACE) == "<MemoryTrace: at most 360 bytes at 2>"
    first, second = train_step(tiny(), GPipe(2, 2), BATCH, cross_entropy).memory
    assert repr(first) == "<MemoryTrace: at most 256 bytes at 5, 368 while 0B1 runs>"  # a message came
    assert repr(second) == "<MemoryTrace: at most 320 bytes after 1F1 at 3, 448 while 1B1 runs>"


def test_a_trace_holds_its_bytes_until_the_next_time():
    for time, n in ((-1, 1), (0, 1), (1.9, 1), (2, 10), (4, 10), (5, 1), (99, 1)):
        assert TRACE.at(time)[PARAMETERS] == n


def test_an_unknown_category_is_refused_with_the_ones_there_are():
    with pytest.raises(ValueError, match=r"one of \('parameters', 'older weights', .*\) \(got 'weights'\)"):
        TRACE.peak("weights")


# The peak inside an action, between two of its layers: counted by hand on the bytes above. The gradient of x
# takes 48 as x does, the first device's gradients 64 as its weights do.


def inside(memory: MemoryTrace) -> str:
    return "  ".join(f"{each.action} {each.bytes}" for each in memory.inside)


def test_inside_a_backward_are_its_gradients_and_the_array_between_its_layers():
    first, _ = train_step(tiny(), GPipe(2, 2), BATCH, cross_entropy).memory
    before_b1, before_b0 = 64 + 96 + 64 + 32, 64 + 64 + 48 + 32 + 32
    assert inside(first) == "  ".join(
        [
            f"0F0 {64 + 48 + 32}",  # Linear's output passes on, then ReLU's is saved
            f"0F1 {64 + 2 * (48 + 32)}",
            f"0B1 {before_b1 + 64 + 48}",  # new gradients, and dx
            f"0B0 {before_b0 + 48}",  # added to those that are there
        ]
    )
    assert first.peak_inside == (B(0, 1), 368, 5, 7)
    assert first.peak() == before_b1, "where actions end, it is less"


def test_inside_a_split_backward_each_half_has_its_own():
    first, second = train_step(tiny(), Explicit(["0F0 0I0 0W0", "1F0 1I0 1W0"]), BATCH, cross_entropy).memory
    x, crosses, gradients = 96, 64, 64
    assert inside(first) == "  ".join(
        [
            f"0F0 {64 + x + crosses}",
            f"0I0 {64 + x + 3 * crosses + x}",  # b, the message, what ReLU leaves for W; dx passes on
            f"0W0 {64 + x + 64 + gradients}",
        ]
    )
    probabilities, targets = 128, 32
    assert inside(second) == "  ".join(
        [
            f"1F0 {96 + crosses + probabilities + targets}",
            f"1I0 {96 + 2 * crosses + 2 * probabilities + targets}",  # dy stays for W; dx passes on
            f"1W0 {96 + crosses + probabilities + 96}",
        ]
    )


def test_what_the_loss_has_read_is_still_there_inside_the_backward():
    """Once its bytes went when it was read, and an array made later could get its id and go uncounted."""
    (memory,) = train_step(tiny(stages=1), GPipe(1, 4), BATCH, cross_entropy).memory
    x, b, probabilities, target = 24, 16, 32, 8
    held, gradients, dx = 160 + 4 * (x + b + probabilities + target), 160, 24
    assert memory.inside[4] == (B(0, 3), held + gradients + dx, 4, 6)


def test_a_pair_is_looked_at_in_both_of_its_parts():
    schedule = DualPipe(2, 4)
    for memory in train_step(split(mlp([3] * 6), stages=2), schedule, BATCH_OF_8, cross_entropy).memory:
        row = [each.action for each in memory.inside]
        assert any(a == b and len(a.parts) == 2 for a, b in pairwise(row))


@over(every_order([(1, 3), (3, 2), (4, 8)]))
def test_inside_is_never_less_than_where_actions_end(schedule):
    layers = split(mlp([6] * (schedule.stages + 1)), stages=schedule.stages)
    batch = np.ones((2 * schedule.microbatches, 6)), np.zeros(2 * schedule.microbatches, int)
    step = train_step(layers, schedule, batch, cross_entropy, optimizer=SGD(0.1))
    for memory, row in zip(step.memory, schedule.actions, strict=True):
        assert memory.peak_inside.bytes >= memory.peak()
        assert list(dict.fromkeys(each.action for each in memory.inside)) == list(row)


def test_a_trace_of_some_categories_knows_nothing_of_the_inside():
    (memory,) = train_step(tiny(stages=1), GPipe(1, 1), BATCH, cross_entropy).memory
    assert memory.only(PARAMETERS).peak_inside == (None, 160, 0, 0)


def nested() -> list[Layer]:
    """A checkpoint of a residual in a residual, between plain layers: the sizes of ``mlp`` below."""
    rng = np.random.default_rng(0)

    def linear(a: int, b: int) -> Linear:
        return Linear(a, b, rng=rng)

    inner = Residual(linear(60, 70), ReLU(), linear(70, 60))
    again = Checkpoint(linear(50, 60), Tanh(), Residual(LayerNorm(60), inner, ReLU()), linear(60, 55))
    return [
        linear(40, 50),
        ReLU(),
        again,
        Residual(linear(55, 55), Tanh()),
        linear(55, 80),
        ReLU(),
        linear(80, 10),
    ]


def test_the_bytes_between_layers_are_those_that_numpy_has_allocated(monkeypatch):
    """All arrays of a step as Python traces them, whenever the first device looks between its layers."""
    partitions = split(nested(), balance=[5, 2])
    domain, seen = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain), []
    meters: list[InsideMeter] = []
    samples = np.random.default_rng(0).normal(size=(200, 40))
    batch, output = (samples, np.zeros(200, int)), 50 * 10 * 8

    class Traced(InsideMeter):
        def __init__(self):
            super().__init__()
            meters.append(self)

        def look(self, stays, passes=None):
            super().look(stays, passes)
            first, last = meters
            if self is first:
                self.most[-1] = 0  # so that this look alone is seen
                super().look(None, passes)
                others = sum(last._bytes) - last.samples[0][1][0] - first.samples[0][1][0]
                on_the_host = output * sum(span.action.kind is Kind.F for span in last.spans)
                traced = tracemalloc.take_snapshot().filter_traces([domain]).statistics("filename")
                seen.append((sum(s.size for s in traced), others + on_the_host + self.most[-1]))

    monkeypatch.setattr(METER, "filled", Traced)
    tracemalloc.start()
    try:
        train_step(partitions, GPipe(2, 4), batch, cross_entropy)
    finally:
        tracemalloc.stop()
    assert len(seen) == 4 * 53, "of each microbatch, on its way there and back"
    assert all(abs(traced - counted) < 4000 for traced, counted in seen), "less than any array here"
