"""The clock of a GPU, on a machine without one: CUDA events are readings of a made-up clock."""

import time

import pytest

torch = pytest.importorskip("torch")

from gpipe_sim.core import F  # noqa: E402
from gpipe_sim.core.actions import Kind  # noqa: E402
from gpipe_sim.torch_backend.timeline import notes_on  # noqa: E402


class Gpu:
    """What ``torch.cuda`` is asked for. Its clock stands where a test puts it."""

    def __init__(self):
        self.synchronized, self.milliseconds = 0, 12345.0

    def synchronize(self, device) -> None:
        self.synchronized += 1

    def current_stream(self, device) -> "Gpu":
        return self

    def Event(self, enable_timing: bool) -> "Event":
        assert enable_timing
        return Event(self)


class Event:
    def __init__(self, gpu: Gpu):
        self.gpu, self.at = gpu, None

    def record(self, stream: Gpu) -> None:
        assert stream is self.gpu
        self.at = stream.milliseconds

    def elapsed_time(self, later: "Event") -> float:
        assert self.gpu.synchronized >= 2, "a GPU is asked for times before it is done"
        return later.at - self.at


@pytest.fixture
def gpu(monkeypatch) -> Gpu:
    gpu = Gpu()
    for name in ("synchronize", "current_stream", "Event"):
        monkeypatch.setattr(torch.cuda, name, getattr(gpu, name))
    return gpu


def test_an_action_on_a_gpu_is_timed_by_its_events_and_placed_on_the_machines_clock(gpu):
    notes, before = notes_on(torch.device("cuda", 0)), time.perf_counter()
    notes.begin()
    began = notes.began
    gpu.milliseconds += 5
    with notes.action(Kind.F, 0, 3):
        gpu.milliseconds += 40
    assert before <= began <= time.perf_counter()
    assert notes.spans() == [(F(0, 3), pytest.approx(began + 0.005), pytest.approx(began + 0.045))]


def test_the_loss_prolongs_the_forward_before_it(gpu):
    notes = notes_on(torch.device("cuda", 0))
    notes.begin()
    with notes.action(Kind.F, 3, 0):
        gpu.milliseconds += 1
    gpu.milliseconds += 2
    notes.extend()
    ((_, start, end),) = notes.spans()
    assert end - start == pytest.approx(0.003)
