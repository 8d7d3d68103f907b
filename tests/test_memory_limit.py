"""What does not fit is refused before anything has changed, with what would help, computed."""

from fractions import Fraction

import numpy as np
import pytest

import gpipe_sim as gp
from gpipe_sim.core import Schedule, Tanh
from gpipe_sim.errors import MemoryLimitError
from gpipe_sim.memory import greedy
from gpipe_sim.memory.limit import in_bytes

DATA = gp.digits()
BATCH = DATA.x[:64], DATA.y[:64]
X = np.zeros((2, 4))


def model() -> list[gp.core.Partition]:
    return gp.split(gp.mlp([64, 64, 64, 64, 10]), stages=4)


PROFILE = gp.profile(model(), BATCH, gp.cross_entropy)


def fullest(schedule: Schedule) -> int:
    return max(trace.peak_inside.bytes for trace in gp.predict_memory(schedule, PROFILE))


def test_a_step_that_just_fits_runs_and_one_byte_less_is_refused():
    schedule = gp.OneFOneB(4, 8)
    peak = fullest(schedule)
    step = gp.train_step(model(), schedule, BATCH, gp.cross_entropy, memory_limit=peak)
    assert max(trace.peak_inside.bytes for trace in step.memory) == peak
    assert gp.simulate(schedule, profile=PROFILE, memory_limit=peak).makespan == 33
    for refused in (
        lambda: gp.train_step(model(), schedule, BATCH, gp.cross_entropy, memory_limit=peak - 1),
        lambda: gp.simulate(schedule, profile=PROFILE, memory_limit=peak - 1),
    ):
        with pytest.raises(MemoryLimitError):
            refused()


def test_the_refusal_says_which_device_when_what_and_what_would_help():
    with pytest.raises(MemoryLimitError) as error:
        gp.simulate(gp.GPipe(4, 8), profile=PROFILE, memory_limit=110_000)
    assert str(error.value).splitlines() == [
        "GPipe(devices=4, microbatches=8) does not fit: device 0 would hold 140.3 kB while it runs 0B7, "
        "from 17 to 19, and may hold 110 kB.",
        "When 0B7 starts, it holds parameters 33.28 kB, boundary inputs 32.77 kB, saved activations "
        "32.77 kB, messages 4.096 kB; 37.38 kB more come while it runs.",
        "With",
        "  1F1B and recompute: at most 95.23 kB on a device, which fits",
        "  recompute and 16 microbatches: at most 105.5 kB on a device, which fits",
        "  1F1B: at most 107.5 kB on a device, which fits",
        '  recompute, remat(..., "always"): at most 111.6 kB on a device, which does not fit',
        "  16 microbatches: at most 136.2 kB on a device, which does not fit",
    ]


def test_a_limit_for_each_device():
    peaks = [trace.peak_inside.bytes for trace in gp.predict_memory(gp.GPipe(4, 8), PROFILE)]
    gp.simulate(gp.GPipe(4, 8), profile=PROFILE, memory_limit=peaks)
    peaks[2] -= 1
    with pytest.raises(MemoryLimitError, match="device 2 would hold"):
        gp.simulate(gp.GPipe(4, 8), profile=PROFILE, memory_limit=peaks)


def test_nothing_has_changed_when_a_step_is_refused():
    partitions = model()
    before = [array.copy() for partition in partitions for array in partition.parameters.values()]
    with pytest.raises(MemoryLimitError):
        how = {"memory_limit": 1, "optimizer": gp.SGD(1.0)}
        gp.train_step(partitions, gp.with_updates(gp.GPipe(4, 2)), BATCH, gp.cross_entropy, **how)
    after = [array for partition in partitions for array in partition.parameters.values()]
    assert all((a == b).all() for a, b in zip(before, after, strict=True))


def test_a_training_that_does_not_fit_is_refused_before_its_first_step():
    how = {"loss": gp.cross_entropy, "optimizer": gp.SGD(0.1), "epochs": 1, "batch_size": 64, "report": None}
    peak, partitions = fullest(gp.OneFOneB(4, 8)), model()
    before = [array.copy() for partition in partitions for array in partition.parameters.values()]
    with pytest.raises(MemoryLimitError, match="device 0 would hold"):
        gp.train(partitions, gp.OneFOneB(4, 8), BATCH, memory_limit=peak - 1, **how)
    after = [array for partition in partitions for array in partition.parameters.values()]
    assert all((a == b).all() for a, b in zip(before, after, strict=True))
    assert len(gp.train(partitions, gp.OneFOneB(4, 8), BATCH, memory_limit=peak, **how).losses) == 1


def test_a_limit_that_nothing_fits_says_so_of_every_change():
    with pytest.raises(MemoryLimitError) as error:
        gp.simulate(gp.remat(gp.OneFOneB(4, 8), "always"), profile=PROFILE, memory_limit=0)
    said = str(error.value).splitlines()
    assert said[-2:] == ["With", "  16 microbatches: at most 80.9 kB on a device, which does not fit"]


@pytest.mark.parametrize("kind", [np.uint8, np.uint32, np.uint64, np.int64, np.float32])
def test_a_limit_in_numbers_of_numpys_own_is_that_limit(kind):
    """Unsigned ones wrapped round below 0, so whatever had room to spare was refused."""
    profile, schedule = gp.profile(gp.split([Tanh()], stages=1), (X, X), gp.mse), gp.GPipe(1, 1)
    assert max(trace.peak_inside.bytes for trace in gp.predict_memory(schedule, profile)) == 192
    for limit in (kind(192), kind(255), [kind(255)]):
        gp.simulate(schedule, profile=profile, memory_limit=limit)
        greedy(1, 1, memory_limit=limit, profile=profile)
        gp.deepest_model(schedule, profile, 0, limit)
    for refused in (
        lambda: gp.simulate(schedule, profile=profile, memory_limit=kind(191)),
        lambda: greedy(1, 1, memory_limit=kind(191), profile=profile),
    ):
        with pytest.raises(ValueError, match="may hold 191 bytes"):
            refused()


def test_a_limit_needs_a_profile_to_be_looked_up_in():
    with pytest.raises(TypeError, match=r"simulate needs a profile.*profile=\.\.\."):
        gp.simulate(gp.GPipe(4, 8), memory_limit=100)


@pytest.mark.parametrize(
    ("size", "written"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (411_648, "411.6 kB"),
        (2.79e12, "2.79 TB"),
        (3e16, "3e+04 TB"),
        (Fraction(1_000_001, 2), "500 kB"),
    ],
)
def test_bytes_are_written_with_four_digits(size, written):
    assert in_bytes(size) == written


@pytest.mark.parametrize(
    "schedule", [gp.remat(gp.GPipe(4, 8), "always", stages=[0, 1]), gp.remat(gp.GPipe(4, 8), "except_last")]
)
def test_what_recomputes_already_is_changed_in_the_same_stages_and_mode(schedule):
    with pytest.raises(MemoryLimitError) as error:
        gp.simulate(schedule, profile=PROFILE, memory_limit=1)
    found = gp.remat(gp.OneFOneB(4, 8), schedule.mode, schedule.only)
    assert f"  1F1B: at most {in_bytes(fullest(found))} on a device" in str(error.value)


def test_where_no_change_can_be_made_a_smaller_batch_is_named():
    profile = gp.profile(gp.split([Tanh()], stages=1), (X, X), gp.mse)
    with pytest.raises(MemoryLimitError) as error:
        gp.simulate(gp.Explicit(["0F0 0R0 0B0"]), profile=profile, memory_limit=1)
    assert str(error.value).splitlines()[1:] == [
        "When 0R0 starts, it holds boundary inputs 64 bytes; 128 bytes more come while it runs.",
        "A smaller batch holds less.",
    ]


def test_what_takes_no_time_is_said_to_be_too_much_but_not_what_was_there_before():
    profile = gp.profile(gp.split([Tanh()], stages=1), (X, X), gp.mse)
    with pytest.raises(MemoryLimitError) as error:
        gp.simulate(gp.GPipe(1, 2), gp.Costs(0, 0, 0), profile=profile, memory_limit=1)
    assert "from 0 to 0" in str(error.value) and " starts, it holds" not in str(error.value)
    with pytest.raises(MemoryLimitError, match="When 0F0 starts, it holds nothing; "):
        gp.simulate(gp.GPipe(1, 1), gp.Costs(9, 1, 1), profile=profile, memory_limit=1)


def test_a_schedule_of_ones_own_that_cannot_be_made_in_another_size_is_refused_too():
    class Own(Schedule):
        def __init__(self):
            super().__init__(1, 1)

        def order(self, device):
            return [gp.core.F(0, 0), gp.core.B(0, 0)]

    profile = gp.profile(gp.split([Tanh()], stages=1), (X, X), gp.mse)
    with pytest.raises(MemoryLimitError, match="With\n  recompute"):
        gp.simulate(Own(), profile=profile, memory_limit=1)
