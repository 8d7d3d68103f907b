"""Lesson 14: what the checks say to right answers and to the usual wrong ones."""

import re
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from closed_forms import zbh2_bubble_time
from replies import assert_each_is_told, each_reply, natural

import gpipe_sim as gp
from gpipe_sim.course import answers, lesson_14
from gpipe_sim.course.answers import NEEDS, SPLIT
from gpipe_sim.families import ZBH2

TURNS = ["2F0", "2I0", "2F1", "2I1", "2F2", "2I2", "2F3", "2I3"]
GOOD = "2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3"


def table(I, W):
    return NEEDS | {"I": I, "W": W}


RIGHT_I, RIGHT_W = [("F", 0), ("I", 1)], [("I", 0)]


def an_i(mask=True, sent="masked", to=-1, end=True, pop=True, keep=lambda x, dy, raw, y: (x, dy)):
    """An input gradient; each argument is a piece that one can get wrong."""

    def first(stage, s, m, links):
        raw = dy = links.receive(("dy", s, m))
        x, y = stage["kept"].pop(m) if pop else stage["kept"][m]
        if stage["relu"] and mask:
            dy = dy * (y > 0)
        stage.setdefault("pending", {})[m] = keep(x, dy, raw, y)
        if sent and (s > 0 or not end):
            links.send(("dy", s + to, m), (dy if sent == "masked" else raw) @ stage["W"].T)

    return first


def a_w(over=False, bias=lambda dy: dy.sum(axis=0), pop=True, sends=False):
    """A weight gradient; each argument is a piece that one can get wrong."""

    def second(stage, s, m, links):
        x, dy, *_ = stage["pending"].pop(m) if pop else stage["pending"][m]
        stage["dW"] = x.T @ dy if over else stage["dW"] + x.T @ dy
        stage["db"] = stage["db"] + bias(dy)
        if sends and s > 0:
            links.send(("dy", s - 1, m), dy @ stage["W"].T)

    return second


def in_place_of_kept(stage, s, m, links):
    dy, (x, y) = links.receive(("dy", s, m)), stage["kept"][m]
    dy = np.where(y > 0, dy, 0) if stage["relu"] else dy
    stage["kept"][m] = {"input": x, "gradient": dy}
    if s:
        links.send(("dy", s - 1, m), (stage["W"] @ dy.T).T)


def from_kept(stage, s, m, links):
    both = stage["kept"].pop(m)
    stage["dW"] = np.einsum("ni,no->io", both["input"], both["gradient"]) + stage["dW"]
    stage["db"] = np.ones(len(both["gradient"])) @ both["gradient"] + stage["db"]


def keeps_products(stage, s, m, links):
    an_i(keep=lambda x, dy, raw, y: (x.T @ dy, dy.sum(axis=0)))(stage, s, m, links)


def adds_products(stage, s, m, links):
    dW, db = stage["pending"].pop(m)
    stage["dW"], stage["db"] = stage["dW"] + dW, stage["db"] + db


def without_receiving(stage, s, m, links):
    links.arrays["again"] = links.arrays["dy", s, m]
    an_i()(stage, s, m, links)
    links.arrays["dy", s, m] = links.arrays.pop("again")


def updates(stage, s, m, links):
    x, dy = stage["pending"].pop(m)
    stage["W"] = stage["W"] - 0.1 * x.T @ dy


def one_for_all(stage, s, m, links):
    an_i()(stage, s, m, links)
    stage["pending"] = {m: stage["pending"][m]}


def the_last_alone(stage, s, m, links):
    an_i()(stage, s, m, links)
    stage["pending"] = {0: stage["pending"][m]}


def used_twice(stage, s, m, links):
    x, dy = stage["pending"][0]
    stage["dW"], stage["db"] = stage["dW"] + x.T @ dy, stage["db"] + dy.sum(axis=0)


def the_newest(stage, s, m, links):
    """The W of whichever microbatch had its I last; the sums at the end are right."""
    _, (x, dy) = stage["pending"].popitem()
    stage["dW"], stage["db"] = stage["dW"] + x.T @ dy, stage["db"] + dy.sum(axis=0)


def always_zero(stage, s, m, links):
    stage.update(pending={}, dW=0 * stage["W"], db=0 * stage["b"])


def delayed(ahead=lambda K, k: K - k - 1, late=lambda delay, k: delay, end=lambda ms: ms, i="I", keep=True):
    """Rows with W put off; each argument is a piece that one can get wrong."""

    def rows(delays, M):
        made = []
        for k, delay in enumerate(delays):
            first, due = min(max(ahead(len(delays), k), 0), M), []
            row = [(k, "F", m) for m in range(first)]
            for m in range(M):
                row += [(k, "F", first + m)] if first + m < M else []
                row += [(k, i, m)]
                due += [m]
                row += [(k, "W", due.pop(0))] if len(due) > max(late(delay, k), 0) else []
            made.append(row + [(k, "W", m) for m in end(due)] if keep else row)
        return made

    return rows


def without_its_delays(delays, M):
    rows = answers.putting_off(delays, M)
    delays.clear()
    return rows


def w_before_i(delays, M):
    return [swapped(row, "I", "W") for row in answers.putting_off(delays, M)]


def w_behind_f(delays, M):
    return [swapped(row, "W", "F") for row in answers.putting_off(delays, M)]


def swapped(row, one, other):
    """Wherever an action of the first kind stands right before one of the second, the two change places."""
    row = list(row)
    for n in range(len(row) - 1):
        if (row[n][1], row[n + 1][1]) == (one, other):
            row[n : n + 2] = row[n + 1], row[n]
    return row


def forwards_beyond_m(delays, M):
    """A warm-up of K-k-1 forwards, also where there are fewer microbatches."""
    rows = answers.putting_off(delays, M)
    return [
        [(k, "F", m) for m in range(len(delays) - k - 1)] + row[min(len(delays) - k - 1, M) :]
        for k, row in enumerate(rows)
    ]


def placements(row: tuple[str, ...] = ()) -> Iterator[str]:
    """Every row in which forwards and input gradients take turns and the W follow their I in order."""
    turns, weights = sum("W" not in cell for cell in row), sum("W" in cell for cell in row)
    if len(row) == 12:
        yield " ".join(row)
    if turns < len(TURNS):
        yield from placements((*row, TURNS[turns]))
    if weights < 4 and f"2I{weights}" in row:
        yield from placements((*row, f"2W{weights}"))


def step_with(row: str) -> gp.Explicit:
    return gp.Explicit.parse("\n".join([*str(lesson_14.GIVEN).splitlines()[:2], row]))


def test_of_all_places_for_w_those_that_take_14_are_correct_and_else_one_is_told_who_waits():
    """No row is shorter: device 2 starts at 2 and has 12 units to do."""
    lengths = {row: gp.simulate(step_with(row)).makespan for row in placements()}
    assert (min(lengths.values()), gp.simulate(lesson_14.GIVEN).makespan) == (14, 14)
    assert list(lengths.values()).count(14) == 3 < len(lengths) == 55
    for row, length in lengths.items():
        reply = lesson_14.put_off(row)
        assert (reply.verdict == "correct") == (length == 14)
        assert length == 14 or re.match(rf"it takes {length}\. Device . waits from .*\?$", reply.text), reply


def zb_h2(K, M, F, I, W):
    bubble = (K - 1) * (F + I - 2 * W)
    return Fraction(bubble, bubble + M * (F + I + W))


def test_the_settings_are_where_the_formula_holds():
    for K, M, F, I, W in lesson_14.SETTINGS:
        assert M >= 2 * K - 1 and min(F, I) >= W
        assert zbh2_bubble_time(K, F, I, W) == (K - 1) * (F + I - 2 * W)


def timed(K, M, F, I, W):
    return gp.simulate(ZBH2(K, M), gp.Costs(*map(Fraction, (F, I, W))))


STEPS = {setting: timed(*setting) for setting in lesson_14.SETTINGS}


def over_the_makespan(K, M, F, I, W):
    return Fraction((K - 1) * (F + I - 2 * W)) / STEPS[K, M, F, I, W].makespan


def the_bubble_fraction(*setting):
    """It equals the span bubble where W is short: then device 0 is the last to be done."""
    return gp.bubble_fraction(STEPS[setting])


def one_f_one_b_in_halves(delay: int = 0) -> gp.Explicit:
    """1F1B, 4 x 8, each B as I and W, every W put off by some microbatches."""
    rows = []
    for row in gp.OneFOneB(4, 8).actions:
        new, waiting = [], []
        for action in row:
            if action.kind == "F":
                new.append(action)
                continue
            new.append(gp.core.I(action.stage, action.microbatch))
            waiting.append(gp.core.W(action.stage, action.microbatch))
            if len(waiting) > delay:
                new.append(waiting.pop(0))
        rows.append(new + waiting)
    return gp.Explicit(rows)


def test_each_natural_wrong_guess_is_told_what_it_is():
    assert_each_is_told(
        natural("14", "How long it is in halves"), gp.simulate(one_f_one_b_in_halves()).makespan
    )
    assert_each_is_told(
        natural("14", "How long it is, all put off"), gp.simulate(one_f_one_b_in_halves(delay=3)).makespan
    )
    assert_each_is_told(natural("14", "How long ZB-H2 is"), gp.simulate(ZBH2(4, 8)).makespan)
    assert_each_is_told(
        natural("14", "How long ten steps are"), gp.simulate(gp.repeat(ZBH2(4, 8), 10)).makespan
    )
    assert list(natural("14", "How long ten steps are")) == [10 * 27, 10 * 24, 10 * 27 - 3]
    assert_each_is_told(natural("14", "All times and sizes tried"), "true")
    assert_each_is_told(natural("14", "Bytes on the fullest device"), "false")


def test_with_one_linear_layer_and_one_relu_to_a_stage_zb_h1_takes_no_more_than_1f1b():
    """As a student's stages of lesson 02; counted by the arrays: x and y before I, x and dy after it."""
    network = gp.split(gp.mlp(4 * [64] + [10]), stages=4)
    batch, array = (np.zeros((128, 64)), np.zeros(128, int)), 8 * 16 * 64
    for family in (gp.OneFOneB, gp.ZBH1):
        memory = gp.train_step(network, family(4, 8), batch, gp.cross_entropy).memory
        assert max(device.activation_peak for device in memory) == 4 * 2 * array


@pytest.mark.parametrize(("activation", "grows"), [("gelu", 0), ("relu", 1)])
def test_behind_a_relu_what_waits_for_w_is_more_than_what_waited_for_i(activation, grows):
    """Per microbatch, in arrays of one microbatch: two for each of two linear layers are kept for W."""
    network = gp.split(gp.mlp(8 * [64] + [10], activation=activation), stages=4)
    batch = np.zeros((16, 64)), np.zeros(16, int)
    step = gp.train_step(network, gp.ZBH1(4, 1), batch, gp.cross_entropy)
    array, held, ends = 8 * 16 * 64, step.memory[0], step.timeline.ends
    after_f, after_i = (held.at(ends[action]) for action in (gp.core.F(0, 0), gp.core.I(0, 0)))
    assert after_i["boundary inputs"] + after_i["kept for W"] == 4 * array
    assert after_f["boundary inputs"] + after_f["saved activations"] == (4 - grows) * array


NEEDS_OF_HALVES = {
    "correct": [
        (SPLIT, ""),
        (table(RIGHT_I[::-1], (("I", np.int64(0)),)), ""),
        (table(RIGHT_I, [("F", 0), ("I", 0)]), ""),
    ],
    "keep working": [
        (table([("F", 0), ("B", 1)], RIGHT_W), "1I0 would never run; all that it reads is there at 14"),
        (table([("F", 0)], RIGHT_W), "0I0 would start at 3. What does it read, and when is that there?"),
        (table([("I", 1)], RIGHT_W), "2I0 would start at 0. What does it read"),
        (table([("F", 0), ("I", -1)], RIGHT_W), "0I0 would start at 3. What does it read"),
        (table([("F", 0), ("I", 2)], RIGHT_W), "0I0 would start at 14; all that it reads is there at 11"),
        (table([("F", 0), ("W", 1)], RIGHT_W), "0I0 would start at 41; all that it reads is there at 30"),
        (
            table([("F", 0), ("I", 1), ("W", 0)], RIGHT_W),
            "2I0 would never run; all that it reads is there at 9",
        ),
        (table(RIGHT_I, [("F", 0)]), "2W0 would start at 9. What does it read"),
        (table(RIGHT_I, []), "2W0 would start at 9. What does it read"),
        (table(RIGHT_I, [("I", 1)]), "2W0 would start at 9. What does it read"),
        (table(RIGHT_I, [("I", 0), ("I", -1)]), "1W0 would start at 24; all that it reads is there at 19"),
        (table(RIGHT_I, [("I", 0), ("W", 1)]), "0W0 would start at 36; all that it reads is there at 24"),
        ({"I": RIGHT_I, "W": RIGHT_W}, "no line for F and B"),
        (NEEDS | {"I": RIGHT_I}, "no line for W"),
        (NEEDS, "no line for I and W"),
        (table(RIGHT_I, RIGHT_W) | {"B": RIGHT_I}, "the line for B is not that of NEEDS"),
        (table("F", RIGHT_W), "what I needs should be a list of pairs such as ('F', -1); it is 'F'"),
        (table(RIGHT_I, [(0, "I", 0)]), "(0, 'I', 0) is no need of W; a need is a pair"),
        (table(RIGHT_I, [None]), "None is no need of W"),
        (None, "both halves are right. Now SPLIT: which lines has it besides those of NEEDS?"),
        (RIGHT_I, "SPLIT should be a table as NEEDS is, with lists for I and W too (got list)"),
    ],
}
HALVES = {
    "correct": [((an_i(), a_w()), ""), ((in_place_of_kept, from_kept), "")],
    "keep working": [
        ((an_i(), lambda *_: None), "stage 0 ends without a gradient in 'dW'. Which action"),
        (
            (an_i(), the_newest),
            "0W0 adds one thing to dW if the first W come first, and another if they come",
        ),
        ((an_i(), always_zero), "stage 0 ends without a gradient in 'dW'. Which action"),
        ((answers.backward, lambda *_: None), "0I0 already adds to dW or db. Which device waits"),
        ((an_i(sent=""), a_w(sends=True)), "2I0 sends nothing, and stage 1 waits for"),
        ((an_i(), a_w(sends=True)), "1W2 sends a message. Who waits for it?"),
        ((an_i(mask=False), a_w()), "though stage 2 is right. Is it what that stage"),
        ((an_i(sent="raw"), a_w()), "though stage 1 is right. Is it what that stage"),
        ((an_i(keep=lambda x, dy, raw, y: (x, raw)), a_w()), "Is it what that stage sends, or"),
        ((an_i(to=0), a_w()), "after 2I0 the gradient for stage 2 is still on its way"),
        ((an_i(end=False), a_w()), "0I0 sends ('dy', -1, 0). Who is there to receive it?"),
        ((an_i(), a_w(over=True)), "made, and over how many microbatches?"),
        ((an_i(), a_w(bias=lambda dy: 0)), "stage 0 ends without a gradient in 'db'. Which"),
        ((an_i(), a_w(bias=lambda dy: dy.mean(axis=0))), "db of stage 0 is off by 56% of its largest entry"),
        ((an_i(), a_w(bias=lambda dy: dy.sum())), "db of stage 0 is one number. What does one entry"),
        ((an_i(), lambda stage, s, m, links: stage.update(pending={}, dW="x")), "dW of"),
        ((an_i(), lambda stage, s, m, links: stage.pop("dW")), "KeyError: 'dW'"),
        ((an_i(), updates), "W of stage 0 has changed. Who updates weights, and when?"),
        ((keeps_products, adds_products), "I keeps an array as large as W, (6, 5)"),
        ((one_for_all, a_w()), "stage 0 keeps 2 arrays for 2 microbatches. What does the W of each"),
        ((the_last_alone, used_twice), "What does the W of each of them read?"),
        ((an_i(pop=False), a_w(over=True)), "made, and over how many microbatches?"),
        ((an_i(), a_w(pop=False, over=True)), "made, and over how many microbatches?"),
        ((an_i(to=0, pop=False), a_w()), "is still on its way"),
        ((an_i(), lambda stage, s, m, links: stage["W"] @ stage["W"]), "What does that line expect"),
        ((without_receiving, a_w()), "is still on its way. Who receives it?"),
        ((lambda stage, s, m, links: links.receive(("dy", s, m)), a_w()), "KeyError: 'pending'"),
        ((an_i(keep=lambda *_: None), a_w()), "after all its I stage 0 keeps no array"),
        ((a_w(), an_i()), "KeyError: 'pending'"),
        ((lambda stage: 1, a_w()), "TypeError"),
        ((an_i(), None), "pass in two functions and a table; one of the functions is None"),
    ],
    "almost": [
        ((an_i(keep=lambda x, dy, raw, y: (x, dy, y)), a_w()), "stage 0 keeps 6 arrays for 2 microbatches"),
        ((an_i(pop=False), a_w()), "Which of them does W read?"),
        ((an_i(), a_w(pop=False)), "after every W stage 0 still keeps 4 arrays. When may they go?"),
    ],
}
ALL_OF_IT = {
    verdict: [((*halves, SPLIT), words) for halves, words in HALVES[verdict]]
    + [
        ((answers.input_gradient, answers.weight_gradient, each), words)
        for each, words in NEEDS_OF_HALVES.get(verdict, ())
    ]
    for verdict in HALVES
}
DELAYS = {
    "correct": [(delayed(), ""), (lambda *size: tuple(map(tuple, delayed()(*size))), "")],
    "almost": [
        (delayed(late=lambda delay, k: delay + 1), "0W0 comes right after 0I1. How many microbatches late"),
        (delayed(late=lambda delay, k: delay - 1), "1W0 comes right after 1I0. How many microbatches late"),
        (delayed(late=lambda delay, k: 0), "device 1: 1W0 comes right after 1I0"),
        (delayed(late=lambda delay, k: k), "device 0: 0W0 comes right after 0I0"),
        (delayed(late=lambda delay, k: 99), "device 0: 0W0 comes right after 0I4. How many microbatches"),
        (delayed(late=lambda delay, k: 2 - k), "device 0: 0W0 comes right after 0I2"),
        (lambda delays, M: answers.putting_off(range(len(delays)), M), "device 0: 0W0 comes right after"),
        (without_its_delays, "delays is not what it was before. Who else may need it?"),
    ],
    "keep working": [
        (delayed(ahead=lambda K, k: K - k), "does 4 forwards before its first I. How many would 1F1B"),
        (delayed(ahead=lambda K, k: 2 * (K - k - 1)), "does 5 forwards before its first I"),
        (delayed(ahead=lambda K, k: 0), "does 1 forwards before its first I"),
        (delayed(ahead=lambda K, k: 99), "does 5 forwards before its first I. How many would 1F1B do?"),
        (delayed(end=lambda ms: ms[::-1]), "does its W in the order [0, 1, 2, 4, 3]. Which of them"),
        (delayed(i="B"), "the row of device 0 has 0B0. Which of F, I, W is that?"),
        (w_before_i, "0W0 comes before 0I0. What does a W read?"),
        (w_behind_f, "after 0I0 comes 0F3. Right behind which action should a W come?"),
        (lambda delays, M: gp.ZBH1(len(delays), M), "What stands in a list with a row for each"),
        (forwards_beyond_m, "0F2 is of microbatch 2, and 1 is the last. Where does it come from?"),
    ],
}
ROWS = {
    "correct": [
        (GOOD, "14 long, and device 2 holds at most 3. Which of your W fills a hole, and which"),
        (f"device 2: {GOOD}\n", ""),
        (GOOD.replace(" ", ", "), ""),
    ],
    "almost": [
        (
            "2F0 2I0 2W0 2F1 2I1 2W1 2F2 2I2 2W2 2F3 2I3 2W3",
            "for 2I1, which stands behind 2W0 on your row. Who waits for 2W0?",
        ),
        (
            "2F0 2I0 2F1 2I1 2F2 2I2 2F3 2I3 2W0 2W1 2W2 2W3",
            "it takes 15. Device 2 waits from 8 to 9. What could it do then?",
        ),
        ("2F1 2F0 2I0 2I1 2W0 2W1 2F2 2F3 2I2 2I3 2W2 2W3", "it takes 18. Device 1 waits"),
    ],
    "keep working": [
        ("2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3", "2B0 is a backward in one piece. Which two halves has it?"),
        (
            "2F0 2F1 2F2 2F3 2I0 2I1 2I2 2I3 2W0 2W1 2W2 2W3",
            "1I0 needs 2I0, queued behind 2F2, which needs 1F2, queued behind 1I0. Which of these",
        ),
        ("2F0 2I0 2F1 2I1", "your row is 2F0 2I0 2F1 2I1. It lacks 2F2 2I2 2W0 2F3 ... When should"),
        ("2F0 nonsense", "'nonsense' is not an F, I or W; write stage, letter, microbatch, such as"),
        ("2F0 2R0", "'2R0' is not an F, I or W"),
        (GOOD + " 2W4", f"your row is {GOOD} 2W4. 2W4 is of microbatch 4, and 3 is the last."),
        (GOOD + " 2W3", f"your row is {GOOD} 2W3. 2W3 is in it 2 times. How often"),
        (
            GOOD.replace("2F0", "1F0"),
            "your row is 1F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3. 1F0 is work of stage 1.",
        ),
        (
            "2F0 2W0" + GOOD[7:].replace(" 2W0", ""),
            "your row is 2F0 2W0 2F1 2I1 2F2 2I2 2F3 2I3 2W1 2W2 2W3. It lacks 2I0.",
        ),
        ("2F0 2W0 2I0" + GOOD[7:].replace(" 2W0", ""), "2W0 stands before 2I0 on your row. What"),
        ("2I0 2F0" + GOOD[7:], "2I0 stands before 2F0 on your row. What does 2I0 read?"),
        (f"{GOOD}\n{GOOD}", "one row please, that of device 2 (got 2)"),
        ("device 2:", "your row is empty. It lacks 2F0 2I0 2F1 2I1 ... When should"),
        (GOOD + " 02W3", f"your row is {GOOD} 2W3. 2W3 is in it 2 times."),
        ("", "one row please, that of device 2 (got 0)"),
        (3, "write the row as text, such as '2F0 2I0 2W0' (got int)"),
    ],
}
BUBBLES = {
    "correct": [(zb_h2, "exact in 7 settings, down to W = 0. What can ZB-H2 fill its bubble with then?")],
    "almost": [
        (over_the_makespan, "W = 7: that is idle over the makespan. Is any device there from 0 to the end?"),
        (
            the_bubble_fraction,
            "that is the bubble fraction, corners and all. Which corners does a span leave out?",
        ),
        (lambda K, M, F, I, W: float(zb_h2(K, M, F, I, W)), "0.1802 is right but for rounding."),
        (lambda K, M, F, I, W: round(float(zb_h2(K, M, F, I, W)), 4), "0.1802 is right but for rounding."),
        (lambda K, M, F, I, W: 100 * zb_h2(K, M, F, I, W), "that is in percent. As a fraction of 1?"),
        (lambda K, M, F, I, W: (K - 1) * (F + I - 2 * W), "that is the bubble time. Over how long a span?"),
        (
            lambda K, M, F, I, W: Fraction((K - 1) * (F + I - 2 * W), M * (F + I + W)),
            "that is idle over useful time. Over what is a span bubble counted?",
        ),
        (
            lambda K, M, F, I, W: 1 - Fraction(M * (F + I + W), M * (F + I + W) + (K - 1) * (F + I - W)),
            "that is ZB-H1's. How many W does a device of ZB-H2 put off?",
        ),
        (lambda K, M, F, I, W: Fraction(K - 1, K - 1 + M), "that is 1F1B's. What has moved into its holes?"),
    ],
    "keep working": [
        (lambda *setting: gp.span_bubble(timed(*setting)), "it uses simulate. How do you do it without?"),
        (
            lambda K, M, F, I, W: 0 if W in (F, I) else zb_h2(K, M, F, I, W),
            "F = 4, I = 6, W = 4: you say 0, measured",
        ),
        *((lambda *_, said=said: said, "F = 5, I = 7, W = 1: you say ") for said in ("a", True, 1j, [1], 0)),
        *(
            (lambda *_, said=said: said, f"you say {said:.4g}, measured 0.1802. How long is the longest span")
            for said in (0, 0.5, float("nan"), float("inf"))
        ),
    ],
}
test_replies = each_reply(
    lesson_14,
    two_halves=ALL_OF_IT,
    putting_off=DELAYS,
    put_off=ROWS,
    small_weight_times=BUBBLES,
)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (GOOD, "Your rows (3 devices, 4 microbatches; F takes 1, I 1, W 1)"),
        ("2F0 2I0 2W0 2F1 2I1 2W1 2F2 2I2 2W2 2F3 2I3 2W3", "Your rows, here: 2I1"),
        (GOOD + " 2F1", "Your rows, here: 2F1"),
        ("2W0 " + GOOD.replace(" 2W0", ""), "Your rows, stuck at 0I0 and 1I0 and 2W0"),
    ],
)
def test_a_reply_draws_the_students_row_below_the_given_ones(row, says):
    assert says in lesson_14.put_off(row).picture.says


def test_a_reply_frames_the_w_that_is_not_where_it_should_be():
    late = lesson_14.putting_off(lambda delays, M: answers.putting_off([d + 1 for d in delays], M))
    assert late.picture.says == "Your rows, here: 0W0"
    assert lesson_14.putting_off(answers.putting_off).picture.says.startswith("Chart: Your rows (")
