"""Lesson 15: what the checks say to right answers and to the usual wrong ones."""

from fractions import Fraction
from functools import partial

import pytest
from replies import assert_each_is_told, changed, each_reply, natural

import gpipe_sim as gp
from gpipe_sim.course import answers, lesson_15
from gpipe_sim.course.answers import v_strand
from gpipe_sim.families import VMin


def stamps(at=lambda slot, m, period, M: slot + m * period, key=lambda stamp: stamp[0]):
    """A strand for each microbatch; each argument is a piece that one can get wrong."""

    def rows(strand, M, period):
        made = []
        for slots in strand:
            row = [
                (at(slot, m, period, M), s, kind, m) for (s, kind), slot in slots.items() for m in range(M)
            ]
            made.append([tuple(action) for _, *action in (sorted(row, key=key) if key else row)])
        return made

    return rows


def slot_by_slot(strand, M, period):
    """A right answer that walks through time."""
    rows = []
    for slots in strand:
        row = []
        for now in range(max(slots.values()) + M * period):
            row += [
                (s, kind, m)
                for (s, kind), slot in slots.items()
                for m in range(M)
                if slot + m * period == now
            ]
        rows.append(row)
    return rows


def collides(K, pause=0):
    return any(len({slot % 6 for slot in slots.values()}) < 6 for slots in v_strand(K, pause))


def test_two_actions_share_a_slot_where_the_devices_are_a_multiple_of_three():
    assert [K for K in range(2, 14) if collides(K)] == [3, 6, 9, 12]
    assert [K for K in range(2, 14) if collides(K, pause=2)] == [2, 5, 8, 11]


@pytest.mark.parametrize(
    ("K", "M", "pause"), [(4, 8, 0), (4, 11, 0), (5, 7, 0), (7, 9, 0), (3, 9, 2), (6, 8, 2)]
)
def test_a_stamped_v_is_legal_and_seldom_as_short_as_v_min(K, M, pause):
    rows = [[gp.core.Action(*action) for action in row] for row in answers.stamped(v_strand(K, pause), M, 6)]
    order = gp.Explicit(rows, placement=gp.families.v_shaped(K))
    longer = gp.simulate(order).makespan - gp.simulate(VMin(K, M)).makespan
    assert longer == (0 if K in (4, 7) else 4)


RUN = gp.papers.published.ZERO_BUBBLE[0]


def test_at_the_measured_times_v_min_takes_a_tenth_longer_than_1f1b():
    v_min = gp.simulate(VMin(RUN.devices, RUN.microbatches), RUN.costs(2)).makespan
    one_f_one_b = gp.simulate(gp.OneFOneB(RUN.devices, RUN.microbatches), RUN.costs(1)).makespan
    assert v_min / one_f_one_b == pytest.approx(1.1, abs=0.005)


@pytest.mark.parametrize("W", [1, Fraction(1, 2), 0])
def test_a_shorter_w_does_not_bring_the_next_strand_sooner(W):
    """On one device 1 + 1 + W would do for each microbatch; here F and I of all stages hold it back."""
    long = {
        M: max(
            answers.clock(
                answers.stamped(v_strand(8), M, 6), answers.SPLIT, {"F": 1, "I": 1, "W": W}
            ).values()
        )
        for M in (24, 48)
    }
    assert long[48] - long[24] == 24 * 6


def without_its_strand(strand, M, period):
    rows = answers.stamped(strand, M, period)
    strand.clear()
    return rows


STAMPS = {
    "correct": [(stamps(), ""), (slot_by_slot, "")],
    "almost": [(without_its_strand, "strand is not what it was before. Who else may need it?")],
    "keep working": [
        (stamps(at=lambda slot, *_: slot), "and on your row 0F7 comes before 7F0. In which slot is each of")
    ],
    "wrong": [
        stamps(at=lambda slot, m, period, M: slot + m),
        stamps(at=lambda slot, m, period, M: slot + 6 * m),
        stamps(at=lambda slot, m, period, M: slot * period + m),
        stamps(at=lambda slot, m, period, M: slot + (M - m) * period),
        stamps(at=lambda slot, m, period, M: (slot + m * period) % period),
        stamps(at=lambda slot, m, period, M: slot + m // period),
        stamps(at=lambda slot, m, period, M: slot + m * (period + 1)),
        stamps(at=lambda slot, m, period, M: f"{slot + m * period}"),
        stamps(key=lambda stamp: (stamp[3], stamp[0])),
        stamps(key=lambda stamp: (stamp[2], stamp[0])),
        stamps(key=lambda stamp: -stamp[0]),
        stamps(key=None),
        lambda strand, M, period: strand,
    ],
}


def strands(F=lambda s, K: s, I=lambda s, K: 4 * K - 1 - s, free=None, first=lambda held: held[::-1], late=0):
    """A strand; each argument is a piece that one can get wrong."""

    def strand(K, pause=0):
        made = []
        for k in range(K):
            held, slots = (k, 2 * K - 1 - k), {}
            for s in held:
                slots |= {(s, "F"): F(s, K), (s, "I"): I(s, K) + pause}
            for s in first(held):
                slot = slots[s, "I"] + 1
                while not (free or is_free)(slot, slots):
                    slot += 1
                slots[s, "W"] = slot + late
            made.append(slots)
        return made

    return strand


def is_free(slot, slots):
    return slot % 6 not in {taken % 6 for taken in slots.values()}


BY_HAND = {"0F": 0, "1F": 1, "2F": 2, "3F": 3, "3I": 4, "2I": 5, "1I": 6, "0I": 7} | {
    "3W": 5,
    "0W": 8,
    "2W": 9,
    "1W": 10,
}


def test_the_slots_by_hand_are_those_of_the_strand():
    found = {f"{s}{kind}": slot for slots in v_strand(2) for (s, kind), slot in slots.items()}
    assert found == BY_HAND


def test_the_wrong_predictions_are_told_what_they_are():
    rows = [[gp.core.Action(*action) for action in row] for row in answers.stamped(v_strand(4), 8, 6)]
    held = gp.peak_in_flight(gp.Explicit(rows, placement=gp.families.v_shaped(4)))
    assert held == (4, 4, 4, 4)
    assert_each_is_told(natural("15", "How much device 0 holds"), held[0])
    assert_each_is_told(natural("15", "Where two of them meet"), "3")
    assert_each_is_told(natural("15", "Eight devices of a V"), "true")
    assert_each_is_told(natural("15", "V-Min at measured times"), 110, within=0.03)


def by_hand(**other):
    return BY_HAND | {key[::-1]: slot for key, slot in other.items()}


HANDS = {
    "correct": [(BY_HAND, "Of six slots in a row, how many are left over?")],
    "almost": [
        (
            by_hand(W2=15),
            "on device 1, 2W is in slot 15, and its I is done after slot 5. Which slots between",
        ),
        (
            by_hand(W0=14),
            "on device 0, 0W is in slot 14, and its I is done after slot 7. Which slots between",
        ),
        (by_hand(W2=10, W1=9), "on device 1, 2W is in slot 10, and its I is done after slot 5."),
    ],
    "keep working": [
        (by_hand(W2=6), "on device 1, 2W is in slot 6. 1I is there already. Which slot is next?"),
        (by_hand(W2=7), "In slot 7 1F of microbatch 1 meets 2W of microbatch 0. Which slot is free"),
        (by_hand(W3=6), "In slot 6 0F of microbatch 1 meets 3W of microbatch 0. Which slot is free"),
        (by_hand(W0=11), "In slot 11 3W of microbatch 1 meets 0W of microbatch 0."),
        (by_hand(W1=9), "on device 1, 1W is in slot 9. 2W is there already."),
        (by_hand(W3=4), "3W is in slot 4, and 3I in slot 4. What does a W read?"),
        (by_hand(W2=3), "2W is in slot 3, and 2I in slot 5. What does a W read?"),
        (by_hand(I0=4, I1=5, I2=6, I3=7), "Which stage's gradient is made first, and how many"),
        (by_hand(F1=0), "1F is in slot 0. It waits for the F of the stage before. In which slot is that?"),
        (by_hand(I3=None), "the slot of 3I is None. Which whole number is that?"),
        (by_hand(I3="4"), "the slot of 3I is '4'. Which whole number is that?"),
        (by_hand(F4=8), "'4F' is no action here. Which stages are there, and which kinds?"),
        (by_hand(B0=8), "'0B' is no action here."),
        ({"0F": 0, "1F": 1}, "0I of device 0 has no slot. Which two stages has a device"),
        ({(0, "F"): 0}, "(0, 'F') is no action here."),
        ({}, "0F of device 0 has no slot."),
        ([0, 1, 2, 3], 'write a dict such as {"0F": 0, "1F": 1} (got list)'),
    ],
}


def pause_for_the_first(K, pause=0):
    """It puts off the I of the later stage of each device, and not those behind it."""
    return [
        late | {(k, "I"): soon[k, "I"]}
        for k, (late, soon) in enumerate(zip(v_strand(K, pause), v_strand(K), strict=True))
    ]


STRANDS = {
    "correct": [
        (strands(), ""),
        (partial(v_strand), "every action in its slot, for 8 Vs"),
        (changed(v_strand, ("return strand", "return tuple(strand)")), ""),
    ],
    "almost": [
        (strands(late=6), "and its I is done after slot 8. Which slots between are free"),
        (strands(first=lambda held: held), "on device 0, 7W is in slot 11, and its I is done after slot 8."),
        (
            changed(v_strand, (" + pause", "")),
            "5I is in slot 6, as without a pause. Which I does a pause put",
        ),
        (pause_for_the_first, "on device 0, 0I is in slot 11, as without a pause. Which I does a pause put"),
    ],
    "keep working": [
        (strands(F=lambda s, K: min(s, 2 * K - 1 - s)), "It waits for the F of the stage before."),
        (strands(I=lambda s, K: 2 * K + s), "Which stage's gradient is made first"),
        (strands(I=lambda s, K: 4 * K - s), "7I is in slot 9. Which stage's gradient is made first"),
        (
            strands(free=lambda slot, slots: slot not in slots.values()),
            "In slot 15 0I of microbatch 0 meets 7W of microbatch 1.",
        ),
        (strands(free=lambda slot, slots: True), "Which slot is free for every microbatch?"),
        (strands(late=-3), "What does a W read?"),
        (changed(v_strand, ("% 6", "% 7")), "meets"),
        (changed(v_strand, ("S - 1 - k", "K + k")), "has no slot. Which two stages has a device"),
        (changed(v_strand, ("return strand", "return strand[0]")), "What would a list with a dict for each"),
        (changed(v_strand, ("pause=0", "pause")), "with K = 4, and no pause given it stopped: TypeError"),
        (changed(v_strand, ('slots[s, "W"] = slot', "pass")), "7W of device 0 has no slot."),
        (lambda K: v_strand(K), "TypeError"),
    ],
}
test_replies = each_reply(lesson_15, slots_by_hand=HANDS, v_strand=STRANDS, stamped=STAMPS)


def w_right_behind_i(K, pause=0):
    """A strand in which no W looks for a free slot."""
    return [
        {(s, kind): slots[s, "I"] + 1 if kind == "W" else slot for (s, kind), slot in slots.items()}
        for slots in v_strand(K, pause)
    ]


def one_by_one(strand, M, period):
    return [[(s, kind, m) for m in range(M) for s, kind in sorted(slots, key=slots.get)] for slots in strand]


@pytest.mark.parametrize(
    ("check", "answer", "says"),
    [
        ("slots_by_hand", {f"{s}{kind}": 0 for s in range(4) for kind in "FIW"}, "Your rows, here: 3F0"),
        ("v_strand", w_right_behind_i, "Your rows, here: 7W0"),
        ("v_strand", v_strand, "Your rows (4 devices with 2 stages each, 8 microbatches"),
        ("stamped", one_by_one, "Your rows, here: 0W0"),
        ("stamped", answers.stamped, "Your rows (4 devices with 2 stages each, 8 microbatches"),
    ],
)
def test_a_reply_draws_the_students_slots_and_rows(check, answer, says):
    assert says in getattr(lesson_15, check)(answer).picture.says


def test_a_slot_that_is_far_out_has_no_picture():
    far = lambda K, pause: [slots | {(k, "W"): 10**9} for k, slots in enumerate(v_strand(K, pause))]  # noqa: E731
    assert not hasattr(lesson_15.v_strand(far), "picture")
