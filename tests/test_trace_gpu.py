"""Traces of GPUs. No public one of a pipelined run was found: these are made by hand, to its description.

A CPU label covers launches only. Backward kernels are launched by autograd's thread, NCCL's kernels are
messages, and each kernel has the correlation of its launch.
"""

import json

import pytest

import gpipe_sim as gp

MAIN, ENGINE, STREAM, NCCL = 10, 11, 7, 20
F, B, SEND = 4.0, 8.0, 0.5  #: milliseconds of kernels
LAUNCH = 0.05  #: milliseconds that a label takes on the CPU


class Rank:
    """The events of one rank, by hand."""

    def __init__(self):
        self.events, self.correlation, self.now = [], 0, 0.0

    def event(self, cat, name, start, took, thread, **args):
        times = {"ts": round(start * 1000, 3), "dur": round(took * 1000, 3)}
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": thread, "args": args, **times}
        )

    def label(self, name, kernels):
        """A label, and the launches in it: (thread, name of the kernel, its start, how long it takes)."""
        self.event("user_annotation", name, self.now, LAUNCH, MAIN)
        for at, (thread, kernel, start, took) in enumerate(kernels):
            self.correlation += 1
            launched = self.now + LAUNCH * (at + 1) / (len(kernels) + 1)
            self.event(
                "cuda_runtime", "cudaLaunchKernel", launched, 0.001, thread, correlation=self.correlation
            )
            stream = NCCL if kernel.startswith("nccl") else STREAM
            self.event("kernel", kernel, start, took, stream, correlation=self.correlation, stream=stream)
        self.now += LAUNCH + 0.01

    def compute(self, action, start, took):
        thread = MAIN if "F" in action else ENGINE
        halves = [
            (thread, "sm90_gemm", start, took / 2),
            (thread, "vectorized_add", start + took / 2, took / 2),
        ]
        self.event(
            "gpu_user_annotation", f"PP:{action}", start, took / 10, STREAM
        )  # it sees the main thread's only
        self.label(f"PP:{action}", halves)

    def message(self, name, start, end):
        self.label(
            f"PP:{name}",
            [(MAIN, "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", start, end - start)],
        )

    def write(self, folder, rank, skew=0.0):
        about = {"backend": "nccl", "rank": rank, "world_size": 2}
        self.event("user_annotation", "ProfilerStep#5", -0.5, self.now + 1, MAIN)
        for event in self.events:
            event["ts"] += skew * 1000
        data = {"distributedInfo": about, "baseTimeNanoseconds": 10**18, "traceEvents": self.events}
        (folder / f"rank{rank}.json").write_text(json.dumps(data))


def by_hand(folder, skew=0.0):
    """Two ranks, two microbatches, 1F1B; all is launched in the first millisecond."""
    first, last = Rank(), Rank()
    last.now = 0.0
    first.compute("0F0", 0, F)
    first.message("0SEND_F0", F, F + SEND)
    first.compute("0F1", F, F)
    first.message("0SEND_F1", 2 * F, 2 * F + SEND)
    last.message("1RECV_F0", 0.02, F + SEND)
    last.compute("1F0", F + SEND, F)
    done = 2 * F + SEND + B
    last.compute("1B0", 2 * F + SEND, B)
    last.message("1SEND_B0", done, done + SEND)
    first.message("0RECV_B0", 0.5, done + SEND)
    first.compute("0B0", done + SEND, B)
    last.message("1RECV_F1", 2 * F, 2 * F + SEND)
    last.compute("1F1", done, F)
    last.compute("1B1", done + F, B)
    last.message("1SEND_B1", done + F + B, done + F + B + SEND)
    first.message("0RECV_B1", done + SEND, done + F + B + SEND)
    first.compute("0B1", done + F + B + SEND, B)
    first.write(folder, 0)
    last.write(folder, 1, skew)
    return folder


@pytest.mark.parametrize("skew", [0, 6.5, -20])
def test_actions_have_the_kernels_that_were_launched_in_their_labels_on_whatever_thread(tmp_path, skew):
    [step] = gp.read_trace(by_hand(tmp_path, skew))
    assert step.schedule == gp.OneFOneB(2, 2)
    apart = 0.5 if skew else 1e-6
    for span in step.spans:
        assert span.end - span.start == pytest.approx(F if span.action.kind == "F" else B, abs=1e-3)
    starts = {str(span.action): span.start for span in step.spans}
    expected = {"0F0": 0, "0F1": 4, "1F0": 4.5, "1B0": 8.5, "0B0": 17, "1F1": 16.5, "1B1": 20.5, "0B1": 29}
    assert {name: starts[name] for name in expected} == pytest.approx(expected, abs=apart)


def test_messages_arrive_when_nccls_kernel_ends_and_are_no_work(tmp_path):
    [step] = gp.read_trace(by_hand(tmp_path))
    arrived = {(str(each.action), each.target): each.end for each in step.messages}
    assert arrived["0F0", 1] == pytest.approx(F + SEND) and arrived["1B0", 0] == pytest.approx(17)
    busy = sum(span.end - span.start for span in step.spans)
    assert busy == pytest.approx(4 * (F + B), abs=1e-2)


def test_an_action_without_a_kernel_takes_no_time(tmp_path):
    """As the input gradient of stage 0."""
    folder = by_hand(tmp_path)
    data = json.loads((folder / "rank0.json").read_text())
    gone = {"0B1"}
    at = next(e for e in data["traceEvents"] if e["name"] == "PP:0B1" and e["cat"] == "user_annotation")
    inside = {e["args"]["correlation"] for e in data["traceEvents"]
              if e["cat"] == "cuda_runtime" and at["ts"] <= e["ts"] < at["ts"] + at["dur"]}  # fmt: skip
    data["traceEvents"] = [e for e in data["traceEvents"] if e["args"].get("correlation") not in inside]
    (folder / "rank0.json").write_text(json.dumps(data))
    [step] = gp.read_trace(folder)
    span = next(span for span in step.spans if str(span.action) in gone)
    assert span.start == span.end == pytest.approx(25)


def test_kernels_without_labels_are_refused(tmp_path):
    folder = by_hand(tmp_path)
    for rank in range(2):
        path = folder / f"rank{rank}.json"
        data = json.loads(path.read_text())
        data["traceEvents"] = [e for e in data["traceEvents"] if not e["name"].startswith("PP:")]
        data["traceEvents"].append(
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 1, "pid": 1, "tid": 1}
        )
        path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match="it has kernels and no labels"):
        gp.read_trace(folder)
