"""Traces of real runs are read: when actions started, which schedule it was, and when messages came."""

import gzip
import shutil
from statistics import median

import pytest
from traced import SETS, TRACES, clock_error, late, later, read, spoiled, truths, without

import gpipe_sim as gp

STEPS = [(name, at) for name in SETS for at in range(len(truths(name)))]
every_step = pytest.mark.parametrize(("name", "at"), STEPS, ids=str)


@every_step
def test_half_of_all_starts_are_within_a_fifth_of_a_millisecond(name, at):
    apart = [abs(each) for found in late(read(name)[at], truths(name)[at]).values() for each in found]
    assert len(apart) == len(truths(name)[at].times) and median(apart) < 0.2


@every_step
def test_clocks_are_aligned_to_a_millisecond_and_a_half(name, at):
    assert clock_error(read(name)[at], truths(name)[at]) < 1.5


@every_step
def test_the_makespan_is_within_half_a_percent_and_the_bubble_within_two_points(name, at):
    timeline, truth = read(name)[at], truths(name)[at]
    assert timeline.makespan == pytest.approx(truth.makespan, rel=0.005)
    assert gp.bubble_fraction(timeline) == pytest.approx(truth.bubble_fraction, abs=0.02)


@pytest.mark.parametrize("name", SETS)
def test_every_step_is_there_from_0_on_and_its_schedule_is_named(name):
    steps = read(name)
    assert len(steps) == len(truths(name)) and {repr(step.schedule) for step in steps} == {SETS[name]}
    assert all(step.start.min() == 0 and step.measured for step in steps)


def test_it_began_when_the_clock_of_rank_0_says():
    began = [step.began for step in read("gpipe")]
    assert began == sorted(began) and 1.795e12 < began[0] < 1.796e12  # November 2026


def test_a_pair_is_split_where_the_engine_starts():
    [step], [truth] = read("dualpipev"), truths("dualpipev")
    pairs = [pair for row in gp.families.DualPipeV(2, 4).actions for pair in row if len(pair.parts) == 2]
    starts = {span.action: span.start for span in step.spans}
    apart = [abs(starts[part] - truth.times[part][0]) for pair in pairs for part in pair.parts]
    assert len(apart) == 12 and max(apart) < 0.5
    assert gp.export.recognize(step.schedule) == f"this is {SETS['dualpipev']}"
    assert gp.export.from_json(gp.export.to_json(step)).spans == step.spans


def test_an_order_that_no_family_has_says_which_is_nearest():
    [step] = read("interleaved_zero_bubble")
    said = "no family here has this order; nearest is Interleaved1F1B(devices=2, microbatches=4, "
    assert any(note.startswith(said) for note in step.notes)


def test_a_slow_link_is_seen_and_only_that_one():
    """12 ms from device 1 to 2; device 1 then also waits for its own send, which is no slow link back."""
    took = {}
    for message in (message for step in read("1f1b_link") for message in step.messages):
        took.setdefault((message.source, message.target), []).append(message.end - message.start)
    usual = {pair: median(each) for pair, each in took.items()}
    assert usual.pop((1, 2)) == pytest.approx(12, abs=1.5)
    assert len(usual) == 5 and max(usual.values()) < 2


@pytest.mark.parametrize("name", SETS)
def test_no_message_comes_before_it_was_sent_or_after_it_was_used(name):
    for step in read(name):
        messages = {(message.action, message.target): message for message in step.messages}
        for span in step.spans:
            for need in gp.core.needs(span.action, step.schedule):
                if message := messages.pop((need, span.device), None):
                    assert 0 <= message.start <= message.end <= span.start + 1e-6
        assert not messages


def test_labels_that_a_user_adds_have_their_waits_between_them(tmp_path):
    [step] = read("1f1b_labelled")
    assert len(step.messages) == 8 and not any("no labels" in note for note in step.notes)
    within = {"ts": 0, "dur": 0, "ph": "X", "cat": "user_annotation"}

    def bare_around(data):
        """As ScheduleGPipe writes its own."""
        labels = [each for each in data["traceEvents"] if str(each.get("name")).startswith("PP:")]
        for each in labels:
            kind = "Forward" if "F" in each["name"] else "Backward"
            times = {"ts": each["ts"] - 10, "dur": each["dur"] + 20}
            data["traceEvents"].append(each | within | times | {"name": f"{kind} {each['name'][-1]}"})

    [other] = gp.read_trace(spoiled(tmp_path, "1f1b_labelled", dict.fromkeys(range(2), bare_around)))
    assert other.spans == step.spans


def test_a_wait_that_the_machine_stalled_belongs_to_the_action():
    """6F0's message had come 26 ms before its first operator: the wait ended then, and the device stalled."""
    span = next(span for span in read("interleaved")[0].spans if str(span.action) == "6F0")
    assert span.end - span.start > 30


def test_notes_say_where_it_comes_from_what_bounds_steps_and_what_clocks_may_be():
    said = "\n".join(read("zbv_skewed")[0].notes)
    assert "ProfilerStep#2 of 4 files of torch.profiler" in said
    assert "added to clocks so that no message comes before it is sent, in ms: rank 1 -3.7" in said
    assert "left aside, as it is no trace: order.csv, truth.json" in said
    assert "clocks are taken as they are" in "\n".join(read("gpipe")[0].notes)
    assert "no labels, as of Schedule1F1B" in "\n".join(read("1f1b_link")[0].notes)
    assert "a step ends before an action comes again" in "\n".join(read("1f1b_bare")[0].notes)


def test_files_are_known_by_what_is_in_them_not_by_their_names(tmp_path):
    names = ["last.bin", "b", "rank7.json", "x.gz"]
    for rank, name in enumerate(names):
        packed = (TRACES / "gpipe" / f"rank{rank}.json.gz").read_bytes()
        (tmp_path / name).write_bytes(packed if rank % 2 else gzip.decompress(packed))
    files = [tmp_path / name for name in reversed(names)]
    assert [step.spans for step in gp.read_trace(files)] == [step.spans for step in read("gpipe")]


@pytest.mark.parametrize("name", ["interleaved", "gpipe", "1f1b_link"])
@pytest.mark.parametrize("gone", [["ProfilerStep#"], ["ProfilerStep#", "Optimizer."]])
def test_unmarked_steps_end_with_the_optimizer_or_before_an_action_comes_again(name, gone, tmp_path):
    unmarked = dict.fromkeys(range(4), lambda data: without(data, *gone))
    steps = gp.read_trace(spoiled(tmp_path, name, unmarked))
    assert [step.spans for step in steps] == [step.spans for step in read(name)]


def test_without_waits_actions_start_at_their_first_operator(tmp_path):
    [step, *_] = gp.read_trace(
        spoiled(tmp_path, "gpipe", dict.fromkeys(range(4), lambda d: without(d, "gloo:")))
    )
    apart = [abs(each) for found in late(step, truths("gpipe")[0]).values() for each in found]
    assert median(apart) < 0.5 and "waits for messages are not in the trace" in "\n".join(step.notes)
    assert not step.messages


def test_ranks_of_a_device_mesh_come_in_the_order_of_their_pipeline(tmp_path):
    """Ranks 6, 4, 2, 0 of 8 are the stages 0 to 3: an unlabelled trace says so nowhere else."""

    def mesh(data):
        about = data["distributedInfo"]
        about["rank"] = 6 - 2 * about["rank"]
        about["world_size"] = 8
        about["pg_config"] += [
            {"pg_desc": "mesh_dp", "ranks": [0, 1]},
            {"pg_desc": "mesh_pp", "ranks": [6, 4, 2, 0]},
        ]

    steps = gp.read_trace(spoiled(tmp_path, "1f1b_link", dict.fromkeys(range(4), mesh)))
    assert [step.spans for step in steps] == [step.spans for step in read("1f1b_link")]


def test_a_file_without_a_rank_is_known_by_its_name_and_that_is_said(tmp_path):
    folder = spoiled(
        tmp_path, "gpipe", dict.fromkeys(range(4), lambda data: data.pop("distributedInfo") and None)
    )
    [step, *_] = gp.read_trace(folder)
    assert step.spans == read("gpipe")[0].spans and "ranks are those in the files' names" in "\n".join(
        step.notes
    )


def test_clocks_that_are_moved_are_moved_back(tmp_path):
    edits = {1: lambda data: later(data, 40), 3: lambda data: later(data, -3)}
    for step, truth in zip(
        gp.read_trace(spoiled(tmp_path, "interleaved", edits)), truths("interleaved"), strict=True
    ):
        assert clock_error(step, truth) < 0.5


def test_one_path_may_be_a_text_and_other_files_in_a_folder_do_not_disturb(tmp_path):
    shutil.copytree(TRACES / "gpipe", tmp_path / "run")
    (tmp_path / "run" / "config.json").write_text("{}")
    (tmp_path / "run" / "loss.csv").write_text("step,loss\n1,2\n")
    assert len(gp.read_trace(str(tmp_path / "run"))) == 3
