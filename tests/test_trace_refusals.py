"""Bad traces are refused in words that say what to record instead, or read with a note."""

import gzip
import json
import tracemalloc

import pytest
from traced import TRACES, document, later, read, spoiled, without

import gpipe_sim as gp
from gpipe_sim.traces import files as trace_files


def files(name, ranks=range(4)):
    return [TRACES / name / f"rank{rank}.json.gz" for rank in ranks]


def refuses(paths, *said):
    with pytest.raises(ValueError) as error:
        gp.read_trace(paths)
    assert all(each in str(error.value) for each in said), str(error.value)


def test_a_missing_rank_is_named():
    refuses(files("gpipe", [0, 1, 3]), "has none for 2 of 4", "record every rank")
    refuses(files("gpipe", [1]), "has none for 0, 2, 3 of 4")


def test_a_file_that_is_given_twice_or_a_rank_that_is_in_two_files():
    refuses([*files("gpipe"), files("gpipe")[2]], "twice")
    refuses([*files("gpipe"), files("interleaved")[2]], "got rank 2 twice")


def test_ranks_of_different_runs_of_one_size():
    for name, other in (("interleaved", "zbv_skewed"), ("interleaved", "gpipe")):
        refuses([*files(name, [0, 1, 2]), *files(other, [3])], "of one run")
    refuses([*files("gpipe", [0, 1, 2]), *files("1f1b_link", [3])], "record all ranks in one run")


def test_ranks_of_the_same_program_run_again(tmp_path):
    """Half a minute later, as a job does that was started again."""
    refuses(spoiled(tmp_path, "gpipe", {2: lambda data: later(data, 30_000)}), "rank 2", "of one run")


def test_ranks_of_different_sizes(tmp_path):
    def larger(data):
        data["distributedInfo"]["world_size"] = 8

    refuses(spoiled(tmp_path, "gpipe", {3: larger}), "different runs, of 4 and 8 ranks")


def test_several_pipelines(tmp_path):
    def mesh(data):
        rank = data["distributedInfo"]["rank"]
        group = [0, 2] if rank % 2 == 0 else [1, 3]
        data["distributedInfo"]["pg_config"] += [{"pg_desc": "mesh_pp", "ranks": group}]

    refuses(
        spoiled(tmp_path, "gpipe", dict.fromkeys(range(4), mesh)),
        "2 pipelines",
        "0 2 and 1 3",
        "the files of one",
    )


def test_a_step_that_is_cut_off_in_one_rank_is_left_out_and_that_is_said(tmp_path):
    def cut(data):
        marks = [e for e in data["traceEvents"] if str(e.get("name")).startswith("ProfilerStep#")]
        middle = marks[-1]["ts"] + marks[-1]["dur"] / 2
        data["traceEvents"] = [e for e in data["traceEvents"] if e.get("ts", 0) < middle]

    steps = gp.read_trace(spoiled(tmp_path, "interleaved", {2: cut}))
    assert [step.spans for step in steps] == [read("interleaved")[0].spans]
    assert any(note.startswith("ProfilerStep#3 is left out: ") for note in steps[0].notes)


def test_a_step_that_is_cut_off_where_nothing_marks_steps(tmp_path):
    """One rank has a step and a half, the others have two."""

    def cut(data):
        times = sorted(e["ts"] for e in data["traceEvents"] if str(e.get("name")).startswith("autograd"))
        data["traceEvents"] = [e for e in data["traceEvents"] if e.get("ts", 0) < times[len(times) * 3 // 4]]

    steps = gp.read_trace(spoiled(tmp_path, "1f1b_bare", {0: cut}))
    assert len(steps) == 1 and steps[0].spans == read("1f1b_bare")[0].spans
    assert "left out" in "\n".join(steps[0].notes)


def test_a_trace_of_half_a_step(tmp_path):
    def cut(data):
        labels = sorted(e["ts"] for e in data["traceEvents"] if str(e.get("name")).startswith("Backward"))
        data["traceEvents"] = [e for e in data["traceEvents"] if e.get("ts", 0) < labels[2]]

    refuses(
        spoiled(tmp_path, "gpipe", dict.fromkeys(range(4), cut)),
        "no step that is whole",
        "Record some steps more",
    )


def test_a_step_mark_that_one_rank_lacks(tmp_path):
    """Counting marks instead would put a clock 780 ms off."""
    steps = gp.read_trace(spoiled(tmp_path, "gpipe", {1: lambda data: without(data, "ProfilerStep#3")}))
    assert [step.spans for step in steps] == [read("gpipe")[0].spans, read("gpipe")[2].spans]
    assert any("ProfilerStep#3 is left out: rank 1 has no such step" in note for note in steps[0].notes)
    refuses(
        spoiled(tmp_path, "gpipe", {1: lambda data: without(data, "ProfilerStep#")}), "each on some ranks"
    )


def test_a_first_step_that_one_rank_lacks_where_steps_are_counted(tmp_path):
    def second_only(data):
        without(data, "ProfilerStep#")
        first = min(e["ts"] for e in data["traceEvents"] if str(e.get("name")).startswith("Optimizer.zero"))
        data["traceEvents"] = [e for e in data["traceEvents"] if e.get("ts", first) >= first]

    unmarked = dict.fromkeys(range(4), lambda data: without(data, "ProfilerStep#"))
    refuses(spoiled(tmp_path, "gpipe", unmarked | {2: second_only}), "clocks", "of one run")


def test_microbatches_that_differ(tmp_path):
    fewer = {2: lambda data: without(data, "Forward 5", "Backward 5")}
    refuses(spoiled(tmp_path, "gpipe", fewer), "no step that is whole", "2F5", "of one run")


def test_an_action_that_is_missing_in_one_step(tmp_path):
    def one_less(data):
        at = next(i for i, e in enumerate(data["traceEvents"]) if e.get("name") == "PP:6F3")
        del data["traceEvents"][at]

    steps = gp.read_trace(spoiled(tmp_path, "interleaved", {2: one_less}))
    assert len(steps) == 1 and "6F3" in "\n".join(steps[0].notes)


def test_clocks_that_cannot_be_aligned(tmp_path):
    """One of them is set forward by 25 ms in the middle."""

    def jumps(data):
        without(data, "ProfilerStep#")
        times = [e["ts"] for e in data["traceEvents"] if "ts" in e and e["ph"] == "X"]
        middle = (min(times) + max(times)) / 2
        for event in data["traceEvents"]:
            if event.get("ts", 0) > middle:
                event["ts"] += 25_000

    unmarked = dict.fromkeys(range(4), lambda data: without(data, "ProfilerStep#"))
    refuses(
        spoiled(tmp_path, "interleaved", unmarked | {1: jumps}), "clocks", "cannot be aligned", "same run"
    )


def test_no_labels_and_no_operators(tmp_path):
    def nothing(data):
        data["traceEvents"] = [
            e for e in data["traceEvents"] if str(e.get("name")).startswith("ProfilerStep")
        ]

    refuses(
        spoiled(tmp_path, "gpipe", {1: nothing}),
        "'rank1.json'",
        "neither labels nor operators",
        "ProfilerActivity.CPU",
    )


def test_operators_without_messages_say_to_label_the_loop(tmp_path):
    alone = dict.fromkeys(range(4), lambda data: without(data, "c10d::", "gloo:", "Forward", "Backward"))
    refuses(spoiled(tmp_path, "gpipe", alone), "no label of an action", "labelled")


def test_labels_on_some_ranks_only(tmp_path):
    refuses(
        spoiled(tmp_path, "gpipe", {3: lambda data: without(data, "Forward", "Backward")}),
        "rank3.json",
        "no label",
    )


def test_the_cpu_side_of_a_run_on_gpus(tmp_path):
    def nccl(data):
        data["distributedInfo"]["backend"] = "nccl"
        without(data, "gloo:")

    refuses(
        spoiled(tmp_path, "gpipe", dict.fromkeys(range(4), nccl)),
        "only the CPU's side",
        "ProfilerActivity.CUDA",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "neither a trace of torch.profiler"),
        ('{"traceEvents": 3}', "no list of traceEvents"),
        ('{"traceEvents": []}', "neither labels nor operators"),
        ('{"schema": "1.0.2-chakra.0.0.4", "nodes": []}', "neither a trace of torch.profiler"),
        ("[]", "neither labels nor operators"),
        ("", "neither a trace of torch.profiler"),
        ("hello\n", "columns rank (or device), stage"),
        ('{"traceEvents": [', "broken or cut off"),
        ("[" * 200_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"traceEvents": [' + "9" * 5000 + "]}", "4300 digits"),
        (b"\x1f\x8b\x08\x00nonsense that is no gzip", "gzip is broken or cut off"),
        (b"\x1f\x8b", "gzip is broken or cut off"),
        (b"\xff\xfe\x00\x01" * 10, "no text and no gzip"),
        (b"SQLite format 3\x00\xff", "no text and no gzip"),
    ],
)
def test_what_is_no_trace(tmp_path, text, said):
    (tmp_path / "rank0.json.gz").write_bytes(text if isinstance(text, bytes) else text.encode())
    refuses(tmp_path / "rank0.json.gz", "read_trace cannot read 'rank0.json.gz'", said)


def test_a_gzip_that_is_cut_off(tmp_path):
    (tmp_path / "rank0.json.gz").write_bytes(files("gpipe")[0].read_bytes()[:9000])
    refuses(tmp_path / "rank0.json.gz", "gzip is broken or cut off", "copy or record it again")


def test_a_gigabyte_is_refused_before_it_is_read(tmp_path, monkeypatch):
    with (tmp_path / "rank0.json").open("wb") as file:
        file.truncate(1 << 30)  # which takes no room on the disk
    monkeypatch.setattr(trace_files.gzip, "GzipFile", None)
    monkeypatch.setattr(trace_files.Path, "open", None)
    refuses(tmp_path / "rank0.json", "1,024 MB", "at most 256 are read", "record fewer steps")


def test_a_small_gzip_of_much_is_refused_before_it_is_all_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_files, "MOST_BYTES", 2 << 20)
    packed = gzip.compress(bytes(64 << 20), 1)
    (tmp_path / "bomb.json.gz").write_bytes(packed)
    assert len(packed) < 1 << 20
    tracemalloc.start()
    try:
        refuses(tmp_path / "bomb.json.gz", "unpacked it has more than 2 MB", "record fewer steps")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("ts", "NaN", "no time"),
        ("ts", "Infinity", "no time"),
        ("ts", '"now"', "no time"),
        ("ts", "1e300", "no time"),
        ("ts", "null", "no time"),
        ("ts", "true", "no time"),
        ("dur", "-1", "negative duration"),
        ("dur", "NaN", "no time"),
        ("dur", "1e18", "no time"),
        ("dur", "[]", "no time"),
        ("name", '"PP:999999999F0"', "whole"),
        ("name", '"PP:2F999999999"', "whole"),
    ],
)
def test_hostile_values(tmp_path, field, value, said):
    def spoil(data):
        event = next(e for e in data["traceEvents"] if e.get("name") == "PP:2F3")
        event[field] = "@"
        return json.dumps(data).replace('"@"', value)

    folder = spoiled(tmp_path, "interleaved", {2: spoil})
    if said == "whole":  # the other step is read
        [step] = gp.read_trace(folder)
        assert "left out" in "\n".join(step.notes)
    else:
        refuses(folder, "'rank2.json'", said)


@pytest.mark.parametrize("base", ["-1", "1e30", '"x"', str(10**40), "null"])
def test_a_base_time_that_is_none(tmp_path, base):
    def spoil(data):
        return json.dumps(data | {"baseTimeNanoseconds": "@"}).replace('"@"', base)

    refuses(spoiled(tmp_path, "gpipe", {1: spoil}), "'rank1.json'", "baseTimeNanoseconds")


def test_nothing_that_is_read_is_run(tmp_path):
    text = document("gpipe", 0).replace("Optimizer.step#SGD.step", "__import__('os').abort()")
    refuses(spoiled(tmp_path, "gpipe", {0: lambda data: text[:-1]}), "broken or cut off")
    assert len(gp.read_trace(spoiled(tmp_path, "gpipe", {0: lambda data: text}))) == 3


@pytest.mark.parametrize("paths", [None, 3, [], [None], {"a": 1}, object()])
def test_what_is_no_path(paths):
    with pytest.raises((TypeError, ValueError), match="read_trace needs a folder, a file or a list of files"):
        gp.read_trace(paths)


def test_paths_without_a_file(tmp_path):
    refuses(tmp_path, "found no file in")
    refuses(tmp_path / "rank0.json", "there is no such file")
    refuses([tmp_path], "there is no such file")
    refuses("a\0b", "there is no such file")


MEGATRON = """
 [2026-01-05 10:00:00] iteration       10/     100 | consumed samples:          640 |
max time across ranks (ms):
    forward-backward ...............................: 1234.56
    forward-compute ................................: 402.11
    backward-compute ...............................: 800.20
"""


def test_the_log_of_megatrons_timers_is_a_log_of_sums(tmp_path):
    (tmp_path / "train.log").write_text(MEGATRON)
    refuses(tmp_path / "train.log", "sums over a step", "Recorder wraps forward_step and backward_step")
    refuses(tmp_path, "sums over a step")


def test_a_gzip_under_a_plain_name_and_json_under_gz_are_read(tmp_path):
    for rank, path in enumerate(files("gpipe")):
        (tmp_path / f"rank{rank}.json").write_bytes(path.read_bytes())
    assert [step.spans for step in gp.read_trace(tmp_path)] == [step.spans for step in read("gpipe")]
    for rank, path in enumerate(files("gpipe")):
        (tmp_path / f"rank{rank}.json").unlink()
        (tmp_path / f"rank{rank}.json.gz").write_bytes(gzip.decompress(path.read_bytes()))
    assert [step.spans for step in gp.read_trace(tmp_path)] == [step.spans for step in read("gpipe")]
