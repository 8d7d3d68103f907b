"""The files of all ranks, put in the order of the pipeline: what each device ran in each step."""

import re
from collections.abc import Sequence

from gpipe_sim.errors import short
from gpipe_sim.traces.clocks import few
from gpipe_sim.traces.kineto import RankTrace
from gpipe_sim.traces.labels import labelled
from gpipe_sim.traces.ran import Ran, Run
from gpipe_sim.traces.steps import BY, Key, bounded_by, in_place, labelled_steps, numbered_steps
from gpipe_sim.traces.unlabelled import unlabelled

PIPELINE = "mesh_pp"  #: how a device mesh calls the group whose ranks are one pipeline
LABEL = "label the loop with gpipe_sim.torch_backend.labelled, or record a class that labels its actions"


def run_of_traces(files: Sequence[RankTrace]) -> Run:
    """What the files of one pipeline say; ValueError for files that do not belong together."""
    traces, notes = _in_order(list(files))
    steps, about = _steps(traces)
    later = [(each.base - traces[0].base) / 1e6 for each in traces]
    keys = list(dict.fromkeys(key for each in steps for key in each))
    missing = {
        key: [trace.rank for trace, each in zip(traces, steps, strict=True) if key not in each]
        for key in keys
    }
    whole = {
        _name(traces, key): [
            [ran.moved(by) for ran in in_place(each[key])] for each, by in zip(steps, later, strict=True)
        ]
        for key in sorted(keys)
        if not missing[key]
    }
    left = [
        f"{_name(traces, key)} is left out: rank {ranks[0]} has no such step, or no mark for it"
        for key, ranks in missing.items()
        if ranks
    ]
    names = tuple(f"rank {trace.rank}" for trace in traces)
    numbered = not left and all(trace.marks for trace in traces)
    source = f"{len(traces)} files of torch.profiler"
    labels = UNLABELLED not in about
    return Run(source, names, whole, traces[0].base / 1e6, numbered, (*notes, *about), tuple(left), labels)


def _name(traces: Sequence[RankTrace], key: Key) -> str:
    number = f"ProfilerStep#{key[0]}" if traces[0].marks else f"step {key[0]}"
    return f"{number}, schedule {key[1]} in it," if key[1] else number


def _in_order(traces: list[RankTrace]) -> tuple[list[RankTrace], list[str]]:
    """The files in the order of their pipeline's ranks; ValueError for one missing, or there twice."""
    notes = []
    if any(trace.rank is None for trace in traces):
        for trace in traces:
            trace.rank = _rank_in_name(trace)
        notes.append("ranks are those in the files' names, as a file does not say its rank (distributedInfo)")
    by_rank: dict[int | None, RankTrace] = {}
    for trace in traces:
        if other := by_rank.setdefault(trace.rank, trace) is not trace and by_rank[trace.rank]:
            both = f"{short(other.file)} and {short(trace.file)}"
            raise ValueError(
                f"read_trace got rank {trace.rank} twice, in {both}: give one file for each rank"
            )
    worlds = {trace.world for trace in traces} - {None}
    if len(worlds) > 1:
        sizes = " and ".join(map(str, sorted(filter(None, worlds))))
        raise ValueError(
            f"read_trace got files of different runs, of {sizes} ranks: give the files of one run"
        )
    order = _pipeline(traces)
    if missing := [rank for rank in order if rank not in by_rank]:
        named = few(list(map(str, missing)), 8)
        raise ValueError(
            f"read_trace needs a file for each rank of the pipeline, and has none for {named} of "
            f"{len(order)}: record every rank (torch.profiler on each, Megatron's --profile-ranks), "
            "and give all files"
        )
    return [by_rank[rank] for rank in order], notes


def _rank_in_name(trace: RankTrace) -> int:
    found = re.findall(r"rank[-_]?([0-9]{1,9})", trace.file.lower()) or re.findall(r"[0-9]{1,9}", trace.file)
    if not found:
        raise trace.fail(
            "it does not say its rank (distributedInfo), and neither does its name, as rank0.json"
        )
    return int(found[0])


def _pipeline(traces: Sequence[RankTrace]) -> Sequence[int]:
    """The ranks of the pipeline in order: its group in a device mesh, else all."""
    ranks = sorted(trace.rank for trace in traces if trace.rank is not None)
    groups = sorted({trace.groups[PIPELINE] for trace in traces if PIPELINE in trace.groups})
    if len(groups) > 1:
        named = " and ".join(" ".join(map(str, group)) for group in groups[:2])
        raise ValueError(
            f"read_trace got {len(groups)} pipelines, such as the ranks {named}: give the files of one"
        )
    if groups and set(ranks) <= set(groups[0]):
        return groups[0]
    same = [group for group in traces[0].groups.values() if sorted(group) == ranks]
    everyone = traces[0].world or max(ranks) + 1
    return same[0] if same else range(max(everyone, max(ranks) + 1))


def _steps(traces: Sequence[RankTrace]) -> tuple[list[dict[Key, list[Ran]]], list[str]]:
    """For each rank its steps, and what was assumed to find them."""
    if any("nccl" in trace.backends and not trace.kernels for trace in traces) and not any(
        trace.waits for trace in traces
    ):
        raise traces[0].fail("it has only the CPU's side of a run on GPUs: record ProfilerActivity.CUDA too")
    by = sorted({bounded_by(trace) for trace in traces})
    if len(by) > 1:
        raise ValueError(
            f"read_trace found that {' and '.join(by)} bound steps, each on some ranks: record all ranks "
            "with the same torch.profiler.schedule, and call prof.step() after each step"
        )
    ran = [labelled(trace, stage) for stage, trace in enumerate(traces)]
    if all(ran):
        steps = [labelled_steps(trace, each) for trace, each in zip(traces, ran, strict=True)]
        return steps, [BY[by[0]], *_about_waits(traces)]
    if any(ran):
        has, none = (
            next(t for t, each in zip(traces, ran, strict=True) if bool(each) == w) for w in (True, False)
        )
        raise none.fail(f"it has no label of an action, and {has.file} has some: record all ranks in one run")
    return _unlabelled(traces), [BY[by[0]], *_about_waits(traces), UNLABELLED]


UNLABELLED = (
    "no labels, as of Schedule1F1B: operators within autograd's engine are backwards, others forwards; "
    "stages and microbatches are numbered in order"
)


def _unlabelled(traces: Sequence[RankTrace]) -> list[dict[Key, list[Ran]]]:
    if kernels := next((trace for trace in traces if trace.kernels), None):
        raise kernels.fail(f"it has kernels and no labels, so nobody knows which action they are of: {LABEL}")
    ran = [unlabelled(trace, stage, len(traces)) for stage, trace in enumerate(traces)]
    for trace, each in zip(traces, ran, strict=True):
        if not each:
            raise trace.fail(
                f"it has no label of an action, and no operators between sends and receives: {LABEL}"
            )
    return numbered_steps(traces, ran)


def _about_waits(traces: Sequence[RankTrace]) -> list[str]:
    if any(trace.waits or trace.kernels for trace in traces) or len(traces) == 1:
        return []
    return ["waits for messages are not in the trace (gloo:recv): actions start at their first operator"]
