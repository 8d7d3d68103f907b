"""What lesson A's check says to right and to wrong answers."""

import operator
import re
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from replies import assert_each_is_told, each_reply, natural

import gpipe_sim as gp
from gpipe_sim import peak_in_flight, simulate
from gpipe_sim.course import lesson_A
from gpipe_sim.families import Chimera, DualPipe

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.fixture(scope="module", autouse=True)
def each_schedule_is_simulated_once():
    """The check compares all families under many mistakes, over and over again the same."""
    with pytest.MonkeyPatch.context() as patch:
        for function in (simulate, peak_in_flight):
            once = cache(function)
            patch.setattr(gp, function.__name__, once)
            patch.setattr(lesson_A, function.__name__, once)
        yield


def whole(schedule):
    return 1


def fastest(
    devices, microbatches, limit, comm, *, time=None, memory=None, sent=whole, held=max, within=operator.le
):
    """The right answer; with another option a wrong one."""
    best, shortest = None, float("inf")
    for family in gp.SCHEDULES:
        try:
            schedule = family(devices, microbatches)
        except ValueError:
            continue
        part = Fraction(devices, schedule.stages)
        t, m = (part if share is None else share(schedule) for share in (time, memory))
        length = gp.simulate(schedule, gp.Costs(t, t, t, comm=comm * sent(schedule))).makespan
        if within(held(gp.peak_in_flight(schedule)) * m, limit) and length < shortest:
            best, shortest = family, length
    return best


def of_those_held(schedule):
    return Fraction(1, len(schedule.placement[0]))


def without_catching(devices, microbatches, limit, comm):
    return min(gp.SCHEDULES, key=lambda family: gp.simulate(family(devices, microbatches)).makespan)


def up_to_a_refusal(devices, microbatches, limit, comm):
    """``break`` where ``continue`` was meant: nothing after the first family that refuses is tried."""
    before = []
    for family in gp.SCHEDULES:
        try:
            before.append(family(devices, microbatches))
        except ValueError:
            break
    best = {}
    for schedule in before:
        part = Fraction(devices, schedule.stages)
        if max(gp.peak_in_flight(schedule)) * part <= limit:
            best[type(schedule)] = gp.simulate(schedule, gp.Costs(part, part, part, comm=comm)).makespan
    return min(best, key=best.get)


def test_its_links_to_files_lead_somewhere():
    """The poster did not load once: JupyterLab served the notebooks' folder only, and the link leaves it."""
    (path,) = NOTEBOOKS.glob("A_*.ipynb")
    targets = re.findall(r"\]\((\.\./[^)]+)\)", path.read_text())
    files = [target.partition("#")[0] for target in targets]
    assert len(files) == 4 and all((path.parent / file).exists() for file in files)
    assert "jupyterlab --preferred-dir=notebooks" in (path.parents[1] / "Makefile").read_text()


def test_of_equally_fast_ones_any_will_do():
    """Without messages ZB-H1, ZB-H2 and DualPipeV all take 27 at 4 x 8; ZB-V, DualPipe and V-Half less."""
    assert lesson_A._fastest(4, 8, 4, 1) == {"ZBH1", "Chimera"}
    assert lesson_A._length(gp.ZBH1(4, 8), 1) == lesson_A._length(Chimera(4, 8), 1) == 41


def slowest(devices, microbatches, limit, comm):
    every = [f for f in gp.SCHEDULES if max(gp.peak_in_flight(f(4, 8))) <= limit]
    return max(every, key=lambda family: gp.simulate(family(4, 8)).makespan)


def at_one_size(comm=0):
    """Each schedule at 4 x 8, a device's share of the model taking 1 for each of F, I and W."""
    every = [family(4, 8) for family in gp.SCHEDULES]
    parts = [Fraction(4, schedule.stages) for schedule in every]
    return {
        schedule.name: gp.simulate(schedule, gp.Costs(part, part, part, comm=comm))
        for schedule, part in zip(every, parts, strict=True)
    }


def test_more_warm_up_does_not_bring_a_gradient_back_sooner():
    """Device 0 gets them 3 apart, in 1F1B and in Eager 1F1B; of waiting, Interleaved leaves half."""
    zoo = at_one_size()
    starts = {
        name: [span.start for span in zoo[name].rows[0] if span.action.kind == "B"]
        for name in ("1F1B", "Eager 1F1B")
    }
    assert starts["1F1B"] == starts["Eager 1F1B"] == [10 + 3 * m for m in range(8)]
    assert zoo["1F1B"].makespan == zoo["Eager 1F1B"].makespan == 24 + 9
    assert zoo["Interleaved 1F1B"].makespan == 24 + 4.5
    assert [len(zoo[name].messages) for name in ("1F1B", "Interleaved 1F1B")] == [8 * 2 * 3, 8 * 2 * 7]


def test_the_wrong_guesses_at_the_shortest_length_are_other_lengths():
    zoo = {name: timeline.makespan for name, timeline in at_one_size().items()}
    assert (zoo["ZB-H1"], zoo["ZB-H2"], zoo["DualPipe"], zoo["V-Half"]) == (27, 27, 26, 26.5)
    assert min(zoo, key=zoo.get) == "ZB-V"
    whole = [name for name in zoo if name not in ("ZB-H1", "ZB-H2", "ZB-V", "V-Half", "V-Min")]
    assert min(zoo[name] for name in whole) == 26, "the shortest of those that are drawn before it is asked"


def test_no_v_is_shorter_than_device_3s_work_after_three_half_stages():
    row = at_one_size()["ZB-V"].rows[3]
    assert (row[0].start, row[-1].end) == (3 * 0.5, 3 * 0.5 + 8 * 3)
    assert all(before.end == after.start for before, after in pairwise(row))


def test_a_wrong_guess_at_the_shortest_length_is_told_what_it_is():
    assert_each_is_told(
        natural("A", "The group of halves, and all fourteen at one size"),
        min(timeline.makespan for timeline in at_one_size().values()),
    )


def measured(name):
    """How long it takes at the times of the zero-bubble paper, a device's share of a microbatch taking 3."""
    schedule = next(family(4, 8) for family in gp.SCHEDULES if family(4, 8).name == name)
    run = gp.papers.published.ZERO_BUBBLE[0]
    times = run.forward, run.input_grad, run.weight_grad
    part = 3 / sum(times) * 4 / schedule.stages
    return gp.simulate(schedule, gp.Costs(*(time * part for time in times))).makespan


def test_what_changes_its_place_at_measured_times():
    assert round(measured("ZB-H1"), 1) == 29.3 > measured("Interleaved 1F1B")
    assert round(measured("V-Min"), 1) == 34.6 > measured("1F1B") > at_one_size()["V-Min"].makespan
    assert measured("Chimera") < at_one_size()["Chimera"].makespan


def test_which_three_fall_behind_one_that_was_longer():
    """The lesson once said two, and left out V-Half, which falls behind ZB-H2."""
    before = {name: timeline.makespan for name, timeline in at_one_size().items()}
    now = {name: measured(name) for name in before}
    fallen = {a for a in now for b in now if before[a] < before[b] and now[a] > now[b]}
    assert fallen == {"ZB-H1", "V-Half", "V-Min"}
    assert sorted(now, key=now.get)[:2] == ["ZB-V", "DualPipe"]


def test_each_wrong_guess_is_answered():
    asked = (
        (natural("A", "Which sends fewer, with each message as an arrow"), "V"),
        (natural("A", "DualPipe with its overlap"), 37),
        (natural("A", "The shortest, with messages that take c"), "GPipe"),
        (natural("A", "True or false: a smaller bubble"), "false"),
        (natural("A", "True or false: whole stages"), "true"),
        (natural("A", "True or false: more microbatches"), "false"),
        (natural("A", "Bytes on the fullest device"), 1.76),
    )
    for known, right in asked:
        assert right not in known
        assert_each_is_told(known, right)


def test_who_sends_fewer_messages():
    now = at_one_size()
    assert len(now["ZB-V"].messages) < len(now["Interleaved 1F1B"].messages)


def test_which_is_the_shortest_over_a_slow_link():
    """GPipe loses six messages, whatever they take. ZB-H2 is ahead of it at 1 and 2."""
    late = {c: {name: each.makespan for name, each in at_one_size(c).items()} for c in (1, 2, 3, 4)}
    assert all(late[c]["GPipe"] == 33 + 6 * c for c in late)
    assert [min(late[c], key=late[c].get) for c in late] == ["ZB-H2", "ZB-H2", "GPipe", "GPipe"]
    assert sorted(late[4].values())[:2] == [57, 65] and late[4]["DualPipe"] == 65
    assert late[4]["V-Min"] == 181.5 and len(at_one_size()["Looped BFS"].messages) == 14 * 8
    known = natural("A", "The shortest, with messages that take c")
    assert {*known, "GPipe"} == {*late[4]}


def test_a_smaller_bubble_of_less_work_is_not_a_shorter_step():
    """ZB-V waits for 3 of 43, DualPipe with pairs that overlap for 3 of 37."""
    paired = gp.Costs(2, 2, 1, overlap=3)
    for schedule, costs, work, length in (
        (gp.ZBV(4, 8), paired.per_stage(2), 40, 43),
        (DualPipe(4, 8), paired, 34, 37),
    ):
        timeline = gp.simulate(schedule, costs)
        assert [sum(span.end - span.start for span in row) for row in timeline.rows] == [work] * 4
        assert timeline.makespan == length == work + 3
    assert Fraction(3, 43) < Fraction(3, 37)


def test_with_whole_stages_device_3_begins_at_3_and_has_24_to_do():
    for name in ("GPipe", "1F1B", "Eager 1F1B", "ZB-H1", "ZB-H2"):
        row = at_one_size()[name].rows[3]
        assert row[0].start == 3 and sum(span.end - span.start for span in row) == 24
    assert at_one_size()["ZB-H1"].makespan == at_one_size()["ZB-H2"].makespan == 3 + 24
    assert [row[0].start for row in at_one_size()["DualPipe"].rows] == [0, 1, 1, 0]


def test_chimera_waits_longer_the_more_microbatches_unless_b_takes_as_long_as_f():
    for m in (4, 8, 32, 64):
        lengths = [gp.simulate(Chimera(4, m), gp.Costs(*times)).makespan for times in ((1, 1, 1), (2, 1, 1))]
        assert lengths == [3 * m + 2 + m / 2, 4 * m + 4]
    every = {family: [gp.simulate(family(4, m)) for m in (8, 64)] for family in gp.SCHEDULES}
    grows = {
        family.__name__
        for family, (few, many) in every.items()
        if many.makespan > few.makespan + 56 * 3 * many.schedule.stages / 4
    }
    assert grows == {"Naive", "Chimera"}


@pytest.mark.parametrize("devices", [4, 8, 16, 32])
def test_v_half_holds_one_more_than_half_and_v_min_a_third_and_some_more(devices):
    half, least = (
        max(gp.peak_in_flight(family(devices, 2 * devices))) / 2
        for family in (gp.families.VHalf, gp.families.VMin)
    )
    assert half == devices / 2 + 1 and devices / 3 < least <= devices / 3 + 4 / 3


def test_how_many_times_the_bytes_two_copies_take():
    """Of parameters, gradients and Adam's state twice as many, of activations as many."""
    digits, layers = gp.digits(), gp.mlp(16 * [64] + [10], activation="gelu")
    batch, peak = (digits.x[:80], digits.y[:80]), {}
    for family in (gp.OneFOneB, Chimera):
        schedule = family(4, 8)
        stages = gp.split(layers, stages=schedule.stages)
        step = gp.train_step(stages, schedule, batch, gp.cross_entropy, optimizer=gp.Adam())
        peak[family] = max(device.peak_inside.bytes for device in step.memory)
    assert round(peak[Chimera] / peak[gp.OneFOneB], 2) == 1.76
    copy, activations = 133 + 133 + 266, 164
    assert round((2 * copy + activations) / (copy + activations), 2) == 1.76
    assert round((copy + 266 + activations) / (copy + activations), 2) == 1.38
    assert round((copy + 133 + activations) / (copy + activations), 2) == 1.19


def test_what_dualpipe_takes_with_and_without_credit_for_its_overlap():
    """F and I are half waiting: 2, 2 and 1; in a pair the waiting is hidden."""
    paired, alone = gp.Costs(2, 2, 1, overlap=3), gp.Costs(2, 2, 1)
    order = DualPipe(4, 8)
    assert [sum(len(each.parts) == 2 for each in row) for row in order.actions] == [3] * 4
    assert (gp.simulate(order, alone).makespan, gp.simulate(order, paired).makespan) == (45, 37)
    assert gp.simulate(order, paired).makespan == 8 * 5 - 3 * 2 + (4 // 2 - 1) * (3 + 3 - 3)
    assert gp.simulate(gp.OneFOneB(4, 8), paired).makespan == 55
    assert gp.simulate(gp.ZBV(4, 8), paired.per_stage(2)).makespan == 43
    assert gp.simulate(gp.families.DualPipeV(4, 8), paired.per_stage(2)).makespan == 37.5


def sorted_by_length(devices, microbatches, limit, comm):
    """Right, by lists and sorting."""
    found = []
    for family in reversed(gp.SCHEDULES):
        if family in (Chimera, DualPipe) and devices % 2:
            continue
        try:
            schedule = family(devices, microbatches)
        except ValueError:
            continue
        stages = schedule.stages // devices
        if max(gp.peak_in_flight(schedule)) <= limit * stages:
            costs = gp.Costs(comm=comm).per_stage(stages)
            found.append((gp.simulate(schedule, costs).makespan, family.__name__, family))
    return sorted(found)[0][2]


def without(*names):
    """A right function that never looks at these."""

    def best(devices, microbatches, limit, comm):
        fits = {}
        for schedule in lesson_A._every(devices, microbatches):
            stages = schedule.stages // devices
            if type(schedule).__name__ not in names and max(gp.peak_in_flight(schedule)) <= limit * stages:
                fits[type(schedule)] = gp.simulate(schedule, gp.Costs(comm=comm).per_stage(stages)).makespan
        return min(fits, key=fits.get)

    return best


@pytest.mark.parametrize("left_out", ["GPipe", "ZBH1", "ZBH2", "ZBV", "VHalf", "VMin", "DualPipe", "Chimera"])
def test_who_leaves_one_out_that_is_the_shortest_somewhere_is_told(left_out):
    """GPipe, ZB-H1 and V-Min were never asked for: a function that ignored eight of fourteen passed."""
    reply = lesson_A.fastest_within(without(left_out))
    assert reply.verdict == "keep working" and "Did you try them all" in reply.text


CHOICES = {
    "correct": [(fastest, ""), (sorted_by_length, "")],
    "wrong": [
        lambda *case: DualPipe,
        lambda *case: gp.ZBV(4, 8),
        lambda K, M, limit, comm: gp.OneFOneB if limit >= K else gp.families.VHalf,
        lambda K, M, limit, comm: gp.GPipe if limit >= M else gp.OneFOneB,
        lambda K, M, limit, comm: fastest(4, 8, limit, comm),
        lambda K, M, limit, comm: fastest(K, M, M, comm),
        lambda K, M, limit, comm: fastest(K, M, limit, Fraction(comm) / 4),
        lambda *case: sorted(gp.SCHEDULES, key=lambda family: family.__name__)[0],
        slowest,
    ],
    "almost": [
        (lambda *case: fastest(*case, time=whole), "How long is one of two stages"),
        (lambda *case: fastest(*case, memory=whole), "How much of a microbatch"),
        (lambda *case: fastest(*case, time=whole, memory=whole), "the same share of the model"),
        (
            lambda *case: fastest(*case, time=of_those_held, memory=of_those_held),
            "copies of two devices' shares",
        ),
        (lambda *case: fastest(*case, time=of_those_held), "Does a second copy make a stage shorter?"),
        (
            lambda *case: fastest(*case, sent=lambda s: Fraction(s.devices, s.stages)),
            "How long is a message on its way",
        ),
        (lambda *case: fastest(*case, held=lambda peaks: peaks[0]), "Is device 0 always"),
        (lambda *case: fastest(*case, within=operator.lt), "exactly as much as the limit"),
        (lambda *case: fastest(*case, held=min), "Must every device stay"),
        (lambda K, M, limit, comm: fastest(K, M, limit, 0), "while a message travels"),
    ],
    "keep working": [
        (lambda *case: gp.ZBV, "you say ZBV, whose fullest device holds 4 microbatches"),
        (
            lambda *case: gp.Naive,
            "you say Naive, which takes 96; the shortest within the limit takes 26.5. Did you",
        ),
        (lambda K, *case: Chimera if K == 3 else fastest(K, *case), "4 would work"),
        (lambda *case: fastest(*case).__name__, "you say 'VHalf'. Which class of gp.SCHEDULES is that?"),
        (lambda *case: "1F1B", "you say '1F1B'. Which class of gp.SCHEDULES is that?"),
        (lambda *case: None, "you give nothing back. Does no schedule fit, or is there no return?"),
        (lambda *case: Fraction(53, 2), "you say 26.5. Which class of gp.SCHEDULES is that?"),
        (lambda *case: list(gp.SCHEDULES), "you say a list of 14. Which class"),
        (lambda *case: fastest(*case)(4, 8), "you say VHalf(devices=4, microbatches=8). Which"),
        (without_catching, "it stopped: ValueError"),
        (
            up_to_a_refusal,
            "for K=3, M=7, limit 4 and messages that take 0.5 you say OneFOneB, which takes 33",
        ),
    ],
}
#: A reply once said "limit 7/2" beside a table that says 3.5.
test_replies = each_reply(lesson_A, r"\d/\d|\.\d{4}", fastest_within=CHOICES)
