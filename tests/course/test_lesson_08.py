"""What lesson 08's checks say to right and to wrong answers."""

import numpy as np
import pytest
from replies import assert_each_is_told, each_reply, natural

import gpipe_sim as gp
from gpipe_sim.course import answers, lesson_08
from gpipe_sim.course.answers import forward, light_forward, recompute

SCHEDULES = (gp.GPipe, gp.OneFOneB)


def except_last(K, M, forward, backward, recompute):
    return (M + K - 1) * (forward + backward) + (M - 1) * recompute


def kept(stage, s, m, links, keep):
    forward(stage, s, m, links)
    stage["kept"][m] = keep(*stage["kept"][m])


def keeping(keep):
    """A forward that keeps other things than x alone."""
    return lambda stage, s, m, links: kept(stage, s, m, links, keep)


def making(y_of, store=lambda x, y: (x, y)):
    """A recompute with another y, or one that stores it otherwise."""

    def again(stage, s, m, links):
        (x,) = stage["kept"][m]
        stage["kept"][m] = store(x, y_of(x, stage))

    return again


def right_y(x, stage):
    y = x @ stage["W"] + stage["b"]
    return np.maximum(y, 0) if stage["relu"] else y


def by_hand(stage, s, m, links):
    """A light forward that never calls forward, and keeps x where it likes."""
    x = links.receive(("y", s - 1, m))
    stage.setdefault("inputs", {})[m] = x
    links.send(("y", s, m), right_y(x, stage))


def by_hand_again(stage, s, m, links):
    x = stage["inputs"].pop(m)
    stage["kept"][m] = [x, right_y(x, stage)]


def never_freed(stage, s, m, links):
    x = stage["inputs"][m]
    stage["kept"][m] = x, right_y(x, stage)


def forward_again(stage, s, m, links):
    """With links of its own: right, if long."""
    (x,) = stage["kept"][m]
    own = answers.Links()
    own.send(("y", s - 1, m), x)
    forward(stage, s, m, own)


def sending_again(stage, s, m, links):
    recompute(stage, s, m, links)
    links.send(("y", s, m), stage["kept"][m][1])


def asking_the_stage_before(stage, s, m, links):
    x = links.receive(("y", s - 1, m))
    stage["kept"][m] = x, right_y(x, stage)


def every_microbatch(stage, s, m, links):
    for each, arrays in stage["kept"].items():
        stage["kept"][each] = arrays[0], right_y(arrays[0], stage)


def elsewhere(stage, s, m, links):
    stage["kept"]["again"] = stage["kept"][m][0], right_y(stage["kept"][m][0], stage)


def keeping_the_newest(stage, s, m, links):
    light_forward(stage, s, m, links)
    stage["kept"] = {m: stage["kept"][m]}


STASH: dict = {}


def stashing(stage, s, m, links):
    """It forgets nothing: y is kept out of sight."""
    forward(stage, s, m, links)
    x, STASH[s, m] = stage["kept"][m]
    stage["kept"][m] = (x,)


def from_the_stash(stage, s, m, links):
    stage["kept"][m] = stage["kept"][m][0], STASH.pop((s, m))


def without_sending(stage, s, m, links):
    x = links.receive(("y", s - 1, m))
    stage["kept"][m] = (x,)


def changing_weights(stage, s, m, links):
    recompute(stage, s, m, links)
    stage["W"] -= 0.1 * stage["W"]


def losing_the_bias(stage, s, m, links):
    stage["kept"][m] = stage["kept"][m][0], right_y(stage["kept"][m][0], stage)
    del stage["b"]


def adding_gradients(stage, s, m, links):
    recompute(stage, s, m, links)
    x, y = stage["kept"][m]
    stage["dW"] = stage["dW"] + x.T @ y


def nothing(stage, s, m, links):
    pass


def test_a_stage_keeps_half_and_one_more():
    """The lesson's count on the student's own stages: 8 inputs and one output, where there were 8 of each."""
    stages = answers.stages_of(gp.mlp([64, 64, 64]))
    links = answers.Links()
    for m in range(8):
        links.send(("y", -1, m), np.ones((32, 64)))
        light_forward(stages[0], 0, m, links)
    recompute(stages[0], 0, 7, links)
    assert sum(array.nbytes for arrays in stages[0]["kept"].values() for array in arrays) == 9 * 32 * 64 * 8


def test_the_three_ways_are_33_44_and_41_long():
    shown = repr(lesson_08.three_ways()._repr_html_())
    for words in ("recomputed: 33 long", "inside B: 44 long", "of its own: 41 long"):
        assert words in shown


def test_the_peak_that_the_check_counts_with_is_the_meters():
    layers = gp.mlp([125] * 13, activation="gelu")[:24]
    batch = np.zeros((50, 125)), np.zeros(50, int)
    schedule = gp.remat(gp.GPipe(devices=4, microbatches=5), "always")
    peak = (
        gp.train_step(gp.split(layers, stages=4), schedule, batch, gp.cross_entropy).memory[1].activation_peak
    )
    assert lesson_08._most(peak, 10_000, 60_000) == 5
    assert lesson_08._most(peak - 1, 10_000, 60_000) == 4


def metered(schedule):
    """The step of the lesson: (length, activations where actions end, all inside), bytes per device."""
    partitions = gp.split(gp.mlp([64] + 11 * [125] + [10], activation="gelu"), stages=4)
    batch = np.zeros((80, 64)), np.zeros(80, int)
    step = gp.train_step(partitions, schedule, batch, gp.cross_entropy, optimizer=gp.Adam())
    ends, inside = zip(*((held.activation_peak, held.peak_inside.bytes) for held in step.memory), strict=True)
    return step.timeline.makespan, np.array(ends), np.array(inside)


def test_inside_an_action_gpipe_saves_the_same_bytes_of_more():
    (_, ends, inside), (_, few, less) = (metered(gp.remat(gp.GPipe(4, 8), m)) for m in ("never", "always"))
    assert (ends - few).tolist() == (inside - less).tolist()
    assert (ends - few)[1] == 350_000 and round(inside[1] / (ends - few)[1]) == 6


def test_the_natural_wrong_predictions_are_what_they_are_said_to_be():
    gpipe = gp.GPipe(4, 8)
    took = {mode: gp.simulate(gp.remat(gpipe, mode)).makespan for mode in ("never", "except_last", "always")}
    inside = gp.simulate(gpipe, gp.Costs(input_grad=2, weight_grad=1)).makespan
    assert list(natural("08", "How long it takes with R")) == [
        took["never"],
        took["except_last"],
        inside,
        took["never"] + 4 * 8,
        took["always"] - 3,
        took["never"] + 3,
        took["never"] + 8 + 1,
        took["never"] + 3 * 8,
    ]
    assert set(natural("08", "The most on device 1")) == {
        *(6 * 10, 8 * 10, 8 * 10 + 6 * 10, 8 * 6 * 10),
        *(5 * 10, 8 * 10 + 10, 7 * 10 + 5 * 10, 3 * 6 * 10),
    }
    peak = gp.formulas.remat_activation_units(8, 10, 50)
    wrongs = {
        took["always"]: natural("08", "How long it takes with R"),
        peak: natural("08", "The most on device 1"),
        "equal": natural("08", "The gradients compared"),
        "loss": natural("08", "What is the same"),
    }
    assert set(wrongs) == {41, 130, "equal", "loss"}
    for right, wrong in wrongs.items():
        assert_each_is_told(wrong, right)
    assert_each_is_told(natural("08", "When one run is shorter"), first_sooner(late=0))
    assert_each_is_told(natural("08", "Segments"), "true")
    assert_each_is_told(natural("08", "1F1B with R"), "false")


def first_sooner(late, K=4, F=1, B=2, R=1, runs_of=4):
    """The smallest batch that one run with R does sooner than runs without, if so many R are waited for."""
    in_runs = lambda M: M // runs_of * (runs_of + K - 1) * (F + B)  # noqa: E731
    with_r = lambda M: (M + K - 1) * (F + B) + (M + late) * R  # noqa: E731
    return next(M for M in range(runs_of, 100, runs_of) if with_r(M) < in_runs(M))


def test_a_late_recompute_pays_only_for_a_larger_batch():
    assert (first_sooner(late=0), first_sooner(late=3)) == (8, 12)
    assert 12 in natural("08", "When one run is shorter")


@pytest.mark.parametrize(("K", "M"), [(1, 3), (2, 4), (4, 4), (4, 8), (8, 32)])
def test_an_R_before_each_B_costs_1f1b_what_it_costs_gpipe(K, M):
    """Of any R that takes no longer than its F: a last device that never waits sets both."""
    for F, B, R in ((1, 2, 1), (2, 2, 1), (3, 4, 3)):
        costs = gp.Costs(forward=F, input_grad=B, weight_grad=0, recompute=R)
        lengths = [gp.simulate(gp.remat(each(K, M), "always"), costs).makespan for each in SCHEDULES]
        assert lengths == 2 * [(K - 1) * (F + B) + M * (F + R + B)]


def simulated(K, M, forward, backward, recompute):
    costs = gp.Costs(forward=forward, input_grad=1, weight_grad=backward - 1, recompute=recompute)
    return gp.simulate(gp.remat(gp.GPipe(K, M), "except_last"), costs).makespan


def from_x_alone(stage, s, m, links):
    stage["kept"][m] = stage["kept"][m], right_y(stage["kept"][m], stage)


TIMES = {
    "correct": [(except_last, ""), (simulated, "")],
    "almost": [
        (lambda K, M, f, b, r: (M + K - 1) * (f + b + r), "right if R waits for the gradient"),
        (lambda K, M, f, b, r: (M + K - 1) * (f + b + r) - r, "Which array does R read"),
        (lambda K, M, f, b, r: (M + K - 1) * (f + b) + M * r, "every microbatch is recomputed"),
        (lambda K, M, f, b, r: (M + K - 1) * (f + b) + (M - 1) * f, "as long as F"),
        (
            lambda K, M, f, b, r: except_last(K, M, f, b, min(f, r)),
            "K=4, M=7, F=2, B=3, R=5: you say 62, right if",
        ),
        (lambda K, M, f, b, r: round(except_last(K, M, f, b, r)), "R=0.5: you say 20, right if"),
    ],
    "keep working": [
        (lambda K, M, f, b, r: (M + K - 1) * (f + b), "without any R"),
        (lambda K, M, f, b, r: int(except_last(K, M, f, b, r)), "K=3, M=4, F=1, B=2, R=0.5: you say 19. "),
        (lambda K, M, f, b, r: 41, "must somebody wait for"),
        (lambda K, M, f, b, r: "41", "you say '41'. How long is that, as a number?"),
        (lambda K, M, f, b, r: None, "What should come after return?"),
        (lambda K, M, f, b, r: np.ones(3), "as a number?"),
    ],
}
MOST = {
    "correct": [(lambda limit, boundary, saved: max(0, (limit - (saved - boundary)) // boundary), "")],
    "keep working": [
        (
            lambda limit, boundary, saved: limit // saved,
            "nothing is recomputed. With R the peak would be 190. What more fits?",
        ),
        (
            lambda limit, boundary, saved: (limit - saved + boundary) / boundary,
            "you say 19.98. How many whole microbatches is that?",
        ),
        (lambda limit, boundary, saved: None, "What should come after return?"),
        (lambda limit, boundary, saved: float("inf"), "How many whole"),
        (lambda limit, boundary, saved: np.ones(3), "How many whole"),
        (lambda limit, boundary, saved: limit.bytes, "AttributeError"),
        (lambda limit, boundary, saved: limit // (boundary + saved), "What would one"),
    ],
    "almost": [
        (lambda limit, boundary, saved: limit // boundary, "besides the boundary inputs"),
        (lambda limit, boundary, saved: (limit - saved) // boundary, "an array twice"),
        (lambda limit, boundary, saved: (limit - saved + boundary) // boundary, "not even one"),
        (lambda limit, boundary, saved: max(1, (limit - saved + boundary) // boundary), "peak is"),
        (lambda limit, boundary, saved: -((saved - boundary - limit) // boundary), "peak is"),
    ],
}
STEPS = {
    "correct": [
        ((light_forward, recompute), ""),
        ((light_forward, making(right_y)), ""),
        ((light_forward, forward_again), ""),
        ((by_hand, by_hand_again), ""),
        ((stashing, recompute), ""),
        ((keeping(lambda x, y: x), from_x_alone), ""),
    ],
    "keep working": [
        ((forward, nothing), "after 0F0 the stage keeps 288 bytes; its input would be 168."),
        ((forward, recompute), "Which of its arrays could be computed again?"),
        ((keeping(lambda x, y: (x, y[:])), recompute), "could be computed again?"),
        ((keeping(lambda x, y: (y,)), recompute), "its input x is not among them."),
        ((keeping(lambda x, y: (x.astype(np.float32),)), recompute), "x is not among them."),
        ((without_sending, recompute), "0F0 receives ('y', -1, 0). What does the next stage begin"),
        ((nothing, recompute), "0F0 sends and receives nothing."),
        (
            (stashing, from_the_stash),
            "stages of 7 x 5, 5 x 6, 6 x 3: 0R2 leaves the y of 0F2, though b has changed since then (the "
            "check did that). Where was that y until now?",
        ),
        ((light_forward, nothing), 'after 0R2 there is a tuple of 1 in stage["kept"]'),
        ((light_forward, forward), "R2 receives ('y', -1, 2). Was that not done in 0F2"),
        ((light_forward, asking_the_stage_before), "is it still on the link?"),
        ((light_forward, sending_again), "0R2 sends ('y', 0, 2). Was that not done in 0F2"),
        ((light_forward, making(lambda x, s: x @ s["W"].T)), "in 0R2 it stopped: ValueError"),
        ((light_forward, making(right_y, lambda x, y: (y, x))), "is not the x of 0F2"),
        ((light_forward, making(right_y, lambda x, y: y)), 'an array of shape (2, 5) in stage["kept"][2]'),
        ((light_forward, elsewhere), 'a tuple of 1 in stage["kept"][2]'),
        ((light_forward, changing_weights), "after 0R2 W of the stage has changed. Who updates"),
        ((light_forward, losing_the_bias), "after 0R2 the stage has no 'b' any more."),
        ((light_forward, adding_gradients), "after 0B2 the gradient is another one."),
        ((light_forward, lambda stage, s, m, links: stage["x"]), "it stopped: KeyError: 'x'"),
        ((light_forward, None), "Now recompute: what does it find in stage"),
        ((lambda x: x, recompute), "in 0F0 it stopped: TypeError"),
    ],
    "almost": [
        ((keeping(lambda x, y: (x, x.copy())), recompute), "who needs it before R?"),
        ((keeping(lambda x, y: (x, y > 0)), recompute), "who needs it before R?"),
        ((light_forward, making(lambda x, s: x @ s["W"] + s["b"])), "stands where 0 was. Which steps"),
        (
            (light_forward, making(lambda x, s: right_y(x, s).astype(np.float32))),
            "1.6970086 stands where 1.69700858",
        ),
        ((light_forward, making(lambda x, s: np.maximum(x @ s["W"], 0))), "Which steps of forward"),
        ((light_forward, making(lambda x, s: np.maximum(x @ s["W"] + s["b"], 0))), "Which steps of"),
        ((light_forward, making(right_y, lambda x, y: (x, y > 0))), "an array of bool"),
        ((light_forward, making(right_y, lambda x, y: (x, None))), "it is None."),
        ((light_forward, making(right_y, lambda x, y: (x, y[:1]))), "its shape is (1, 5), not (2, 5)."),
        ((light_forward, every_microbatch), "Which microbatch is 0R2 about?"),
        ((by_hand, never_freed), "after 0B2 the stage keeps"),
        ((keeping_the_newest, recompute), "inputs would be 336. Which of them is gone, and who still"),
    ],
}
test_replies = each_reply(
    lesson_08, remat_time=TIMES, most_microbatches=MOST, light_forward_and_recompute=STEPS
)
