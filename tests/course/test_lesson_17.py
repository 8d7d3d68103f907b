"""Lesson 17: what the checks say to right answers and to the usual wrong ones."""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from replies import assert_each_is_told, changed, each_reply, natural

import gpipe_sim as gp
from gpipe_sim.course import answers, lesson_17
from gpipe_sim.course.lesson_17 import HIDDEN_RINGS, HIDDEN_SPEEDS, CountedLinks
from gpipe_sim.replicas import shares

LINK = gp.Link(latency=1, bandwidth=1)
FREE = gp.Link()  #: messages take no time


def nothing_sent(vectors, links):
    return [sum(vectors)] * len(vectors)


def whole_vectors(vectors, links):
    n, held, going = len(vectors), list(vectors), list(vectors)
    for _ in range(n - 1):
        for k in range(n):
            links.send(k, going[k])
        going = [links.receive((k - 1) % n) for k in range(n)]
        held = [held[k] + going[k] for k in range(n)]
    return held


def down_a_line_and_back(vectors, links):
    """The sum grows from device to device, and then goes around."""
    n, held = len(vectors), list(vectors)
    for k in range(n - 1):
        links.send(k, held[k])
        held[k + 1] = held[k + 1] + links.receive(k)
    for k in range(n - 1):
        sender = (k - 1) % n
        links.send(sender, held[sender])
        held[k] = links.receive(sender)
    return held


def through_device_0(vectors, links):
    n, total = len(vectors), vectors[0]
    for k in range(1, n):
        links.send(k, vectors[k])
        total = total + links.receive(k)
    found = [total]
    for _ in range(1, n):
        links.send(0, total)
        found.append(links.receive(0))
    return found


def half_of_it(vectors, links):
    """Only device 0's half of the rounds is real: the rest is read from other devices."""
    n = len(vectors)
    for k in range(n):
        links.send(k, np.array_split(vectors[k], n)[0])
    for k in range(n):
        links.receive(k)
    return [sum(vectors)] * n


def twice_as_many_rounds(vectors, links):
    found = answers.ring_sum(vectors, links)
    answers.ring_sum(vectors, links)
    return found


def one_device_differs(vectors, links):
    """Device 1 sums for itself, in another order."""
    found = answers.ring_sum(vectors, links)
    if len(found) > 1:
        found[1] = sum(vectors[::-1])
    return found


def sends_nothing_of_worth(vectors, links):
    """As many bytes as in a ring go around, all of them 0."""
    sham = changed(answers.ring_sum, ("links.send(k, held", "links.send(k, 0 * held"))
    sham(vectors, links)
    return [sum(vectors) for _ in vectors]


def its_own_pieces_only(vectors, links):
    """Each round sends a piece as it was at first."""
    changed(answers.ring_sum, ("held[k][i] = ", "unused = "))(vectors, links)
    return [np.sum(vectors, axis=0) for _ in vectors]


def received_in_vain(vectors, links):
    """A ring goes around, and then everybody adds up what it should not see."""
    answers.ring_sum(vectors, links)
    return [sum(vectors) for _ in vectors]


def half_in_vain(vectors, links):
    """What arrives in the second half is thrown away: all have what its owner has."""
    n = len(vectors)
    own = [np.array_split(vector, n) for vector in vectors]
    for turn in range(2 * (n - 1)):
        for k in range(n):
            i = (k - turn) % n
            links.send(k, own[k][i] if turn < n - 1 else own[(i - 1) % n][i])
        for k in range(n):
            arrived, i = links.receive((k - 1) % n), (k - 1 - turn) % n
            if turn < n - 1:
                own[k][i] = own[k][i] + arrived
    full = np.concatenate([own[(i - 1) % n][i] for i in range(n)])
    return [full for _ in vectors]


def in_half_the_digits(vectors, links):
    found = answers.ring_sum(vectors, links)
    return [each.astype(np.float32).astype(float) for each in found]


def begins_again(vectors, links):
    """The second half begins with each device's own piece, not with the one that it has just added to."""
    n = len(vectors)
    held = [np.array_split(vector, n) for vector in vectors]
    for half in range(2):
        for turn in range(n - 1):
            for k in range(n):
                links.send(k, held[k][(k - turn) % n])
            for k in range(n):
                i, arrived = (k - 1 - turn) % n, links.receive((k - 1) % n)
                held[k][i] = arrived if half else held[k][i] + arrived
    return [np.concatenate(pieces) for pieces in held]


def a_line(vectors, links):
    """The last device sends to nobody."""
    n = len(vectors)
    held = [np.array_split(vector, n) for vector in vectors]
    for turn in range(2 * (n - 1)):
        for k in range(n - 1):
            links.send(k, held[k][(k - turn) % n])
        for k in range(1, n):
            arrived, i = links.receive(k - 1), (k - 1 - turn) % n
            held[k][i] = held[k][i] + arrived if turn < n - 1 else arrived
    return [np.concatenate(pieces) for pieces in held]


def rotated(vectors, links):
    """Each device joins its pieces from its own on."""
    n = len(vectors)
    found = answers.ring_sum(vectors, links)
    return [np.concatenate(np.roll(np.array_split(each, n), k, 0)) for k, each in enumerate(found)]


def other_way_round(vectors, links):
    """Each device sends to the one before it."""
    n = len(vectors)
    held = [np.array_split(vector, n) for vector in vectors]
    for turn in range(2 * (n - 1)):
        for k in range(n):
            links.send(k, held[k][(k + turn) % n])
        for k in range(n):
            i = (k + 1 + turn) % n
            arrived = links.receive((k + 1) % n)
            held[k][i] = held[k][i] + arrived if turn < n - 1 else arrived
    return [np.concatenate(pieces) for pieces in held]


def in_place(vectors, links):
    n = len(vectors)
    held = [np.array_split(vector, n) for vector in vectors]
    for turn in range(2 * n - 2):
        for k in range(n):
            links.send(k, held[k][(k + 1 - turn) % n])
            arrived, i = links.receive(k), (k + 1 - turn) % n
            if turn < n - 1:
                held[(k + 1) % n][i] += arrived
            else:
                held[(k + 1) % n][i][:] = arrived
    return np.array(vectors)


def on_copies(vectors, links):
    return in_place([vector.copy() for vector in vectors], links)


def in_one_loop(vectors, links):
    """It sends and receives in the same turn of one loop: it was told of a KeyError: 3."""
    n = len(vectors)
    held = [np.array_split(vector, n) for vector in vectors]
    for k in range(n):
        links.send(k, held[k][k])
        held[k][k - 1] = held[k][k - 1] + links.receive((k - 1) % n)
    return [np.concatenate(pieces) for pieces in held]


@pytest.mark.parametrize(("n", "length"), [*HIDDEN_RINGS, (16, 1000), (7, 40)])
def test_the_folded_ring_is_the_librarys_bit_for_bit_and_byte_for_byte(n, length):
    vectors, links = list(np.random.default_rng(0).normal(size=(n, length))), CountedLinks()
    own, its = answers.ring_sum(vectors, links), gp.replicas.ring_all_reduce(vectors)
    assert all(np.array_equal(a, b) for a, b in zip(own, its.sums, strict=True))
    assert [links.of(k) for k in range(n)] == list(its.sent)


# Shares


def rounded(samples, speeds):
    return [round(samples * speed / sum(speeds)) for speed in speeds]


def rest_to(place):
    def answer(samples, speeds):
        counts = [int(samples * speed / sum(speeds)) for speed in speeds]
        counts[place] += samples - sum(counts)
        return counts

    return answer


def largest_remainders(samples, speeds):
    exact = [samples * Fraction(speed) / sum(map(Fraction, speeds)) for speed in speeds]
    counts = [int(each) for each in exact]
    order = sorted(range(len(speeds)), key=lambda k: counts[k] - exact[k])
    for k in order[: samples - sum(counts)]:
        counts[k] += 1
    return counts


def even(samples, speeds):
    return [samples // len(speeds) + (k < samples % len(speeds)) for k in range(len(speeds))]


def one_by_one(samples, speeds):
    counts = [0] * len(speeds)
    for _ in range(samples):
        done = [(count + 1) / speed for count, speed in zip(counts, speeds, strict=True)]
        counts[done.index(min(done))] += 1
    return counts


def to_the_one_that_is_free(samples, speeds):
    """The next sample goes to the device that would begin it first."""
    counts = [0] * len(speeds)
    for _ in range(samples):
        free = [count / speed for count, speed in zip(counts, speeds, strict=True)]
        counts[free.index(min(free))] += 1
    return counts


def sorting(samples, speeds):
    speeds.sort()
    return one_by_one(samples, speeds)


def at_least_one(samples, speeds):
    counts = one_by_one(max(samples - len(speeds), 0), speeds)
    return [count + 1 for count in counts]


# Predictions, and the figures in the sentences


def mesh(K, family=gp.GPipe, M=64, links=FREE):
    layers = 16 // K
    schedule = gp.replicate(family(K, M * K // 16), 16 // K)
    return gp.simulate(schedule, gp.Costs(layers, layers, layers), links=links, message_bytes=1)


def with_sums(K, family=gp.GPipe, M=64, messages=FREE, sums=LINK):
    return gp.all_reduce(mesh(K, family, M, messages), 4 * 16 // K, links=sums).makespan


SIZES = (16, 8, 4, 2, 1)


def test_each_natural_wrong_guess_is_told_its_own_sentence():
    assert_each_is_told(natural("17", "A ring of 64"), 126 / 64)
    assert_each_is_told(natural("17", "Four sums, one step"), 39)
    assert_each_is_told(natural("17", "Five ways, with sums"), "16 x 1")
    assert_each_is_told(natural("17", "Five ways, on better links"), "all equal")
    options = {"all equal", *(f"{K} x {16 // K}" for K in SIZES)}
    assert {*natural("17", "Five ways, with sums"), "16 x 1"} == options
    assert {*natural("17", "Five ways, on better links"), "all equal"} == options
    assert_each_is_told(natural("17", "Eight times the batch"), 1)
    assert_each_is_told(natural("17", "ZeRO in bytes"), "true")
    assert_each_is_told(natural("17", "Who should be neighbours"), "replicas")
    assert_each_is_told(natural("17", "Twice the devices"), 282)


def test_sixteen_devices_as_five_meshes():
    """Each copy more saves 3 of waiting, and costs 10 of sums, whatever M is."""
    assert [mesh(K).makespan for K in SIZES] == [237, 234, 228, 216, 192]
    assert [mesh(K, gp.OneFOneB).makespan for K in SIZES] == [237, 234, 228, 216, 192]
    assert [with_sums(K) for K in SIZES] == [237, 244, 258, 286, 342]
    for M in (64, 128):
        copies = [16 // K for K in SIZES]
        assert [mesh(K, M=M).makespan for K in SIZES] == [3 * M + 48 - 3 * R for R in copies]
        assert [with_sums(K, M=M) for K in SIZES] == [3 * M + 48 - 3 * R + 10 * (R - 1) for R in copies]


def test_the_order_turns_where_a_round_takes_1_and_a_half():
    assert {with_sums(K, sums=gp.Link(1, 8)) for K in SIZES} == {237}
    slower, faster = ([with_sums(K, sums=gp.Link(1, b)) for K in SIZES] for b in (7, 9))
    assert slower == sorted(slower) and faster == sorted(faster, reverse=True)


def test_with_messages_the_middle_is_the_shortest():
    gpipe, one_f_one_b = (
        [with_sums(K, each, messages=LINK) for K in SIZES] for each in (gp.GPipe, gp.OneFOneB)
    )
    assert gpipe == [297, 272, 270, 290, 342] and one_f_one_b == [533, 380, 314, 302, 342]


def test_where_the_figures_of_natural_guesses_come_from():
    def copies(n):
        whole = gp.simulate(gp.replicate(gp.GPipe(1, 64 // n), n), gp.Costs(16, 16, 16))
        return gp.all_reduce(whole, 64, links=LINK).makespan

    assert [copies(n) for n in (16, 32, 64)] == [342, 282, 300]
    computing = 3072 // 32
    assert 342 // 2 == 171 and computing + 150 == 246 and computing + 62 * 5 == 406
    assert computing == 96 and 62 * (1 + 64 // 32) == 282 - computing == 186 and 192 + 186 == 378
    one = gp.simulate(gp.replicate(gp.OneFOneB(4, 8), 2))
    assert one.makespan == 33 and gp.all_reduce(one, 4, links=LINK).makespan == 39
    assert gp.simulate(gp.OneFOneB(4, 16)).makespan + 6 == 63 and 33 + 4 * 6 == 57


def test_zero_is_120_31_and_16_6_and_1_9_gb():
    """Rajbhandari et al. 2020, figure 1."""
    parts = [2, 2, 12]
    kept = [7.5 * (sum(parts[: 3 - stage]) + sum(parts[3 - stage :]) / 64) for stage in range(4)]
    assert [round(each, 1) for each in kept] == [120, 31.4, 16.6, 1.9]


def before_it_was_received(vectors, links):
    for piece in vectors:
        links.send(0, piece)
    return vectors


def under_a_name(vectors, links):
    links.send("next", vectors[0])
    return vectors


def then(change):
    return lambda vectors, links: change(answers.ring_sum(vectors, links))


R = partial(changed, answers.ring_sum)
RINGS = {
    "correct": [
        (answer, f"the same bits on every device, at {len(HIDDEN_RINGS)} sizes")
        for answer in (answers.ring_sum, other_way_round, on_copies)
    ],
    "keep working": [
        (in_one_loop, "device 3 has sent nothing yet when its piece is received. In a round, who must"),
        (
            before_it_was_received,
            "device 0 sends again before its last piece was received. Where is that piece",
        ),
        (under_a_name, "device 'next' sends, and devices are 0 to 3. Which is it?"),
        (nothing_sent, "all have the sum, and nothing was sent. How does device 0 know"),
        (
            lambda vectors, links: list(vectors),
            "that of device 0 only, and nothing has been sent. How do the",
        ),
        (half_of_it, "send 96 bytes. Which numbers of another device did one use without"),
        (R(("range(2 * (n - 1))", "range(n - 1)")), "after 3 rounds. Some device has that sum"),
        (
            R((" if turn < n - 1 else arrived", "")),
            "times. In which rounds is what arrives added, and in which is it kept?",
        ),
        (
            R(("held[k][i] + arrived if turn < n - 1 else arrived", "arrived")),
            "in round 2 device 0 sends a piece that holds only what device",
        ),
        (R(("turn < n - 1", "turn < n")), "2 times. In which rounds is what arrives added"),
        (R(("turn < n - 1", "turn < n - 2")), "does it send that next?"),
        (
            R(("held[k][(k - turn) % n]", "held[k][(k + turn) % n]")),
            "in round 2 device 0 sends a piece that holds only what device",
        ),
        (R(("array_split", "split")), "it stopped: ValueError: array split does not result in"),
        (R(("[np.concatenate(pieces) for pieces in held]", "held")), "has a list of pieces. How do"),
        (R(("links.receive((k - 1) % n)", "links.receive(k)")), "4 times, and no other. From whom"),
        (
            R(("links.receive((k - 1) % n)", "links.receive(k - 1)")),
            "it stopped: IndexError: there is no device -1",
        ),
        (
            then(lambda found: [each / len(found) for each in found]),
            "each device has the mean. Which of the two",
        ),
        (then(lambda found: found[0]), "it gives one vector. What does each of the devices have"),
        (then(sum), "it gives one vector. What does each"),
        (then(lambda found: found[:1]), "it gives 1 of them. What is a list with a vector of each"),
        (then(lambda found: dict(enumerate(found))), "it gives a dict. What is a list"),
        (then(lambda found: [each[:2] for each in found]), "Where are its 12 numbers?"),
        (then(lambda found: [each.sum() for each in found]), "Where are its 12 numbers?"),
        (
            then(lambda found: [each[::-1] for each in found]),
            "number 0 of device 0 is what number 11 should be. Where do",
        ),
        (begins_again, "After round 3, who has the whole sum"),
        (a_line, "device 3 sends nothing. Who comes after it in the ring?"),
        (sends_nothing_of_worth, "in round 1 device 0 sends a piece that holds no device's numbers."),
        (its_own_pieces_only, "in round 2 device 0 sends a piece that holds only what device 0 had."),
        (received_in_vain, "number 0 of devices 0 to 3 grows by 0, 0, 0, 0. Which line uses it?"),
        (half_in_vain, "grows by 3, 3, 3, 3. Through how many links should each sum come?"),
        (one_device_differs, "Through how many links should each sum come?"),
        (in_half_the_digits, "Which line drops digits?"),
        (then(iter), "it gives a list_iterator. What is a list with a vector of each"),
        (rotated, "is what number 9 should be. Where do the pieces"),
    ],
    "almost": [
        (in_place, "the sums are right, but vectors[0] is not what it was. Which line changes"),
        (whole_vectors, "device 0 sends 288 bytes, and has 96. It sends 96 in one round: how much need"),
        (down_a_line_and_back, "Which devices send little meanwhile?"),
        (through_device_0, "device 0 sends 288 bytes, and has 96. Which devices send little meanwhile?"),
        (twice_as_many_rounds, "in 12 rounds. Which of them does nobody need?"),
        (
            then(lambda found: [each + 1e-16 * k for k, each in enumerate(found)]),
            "those of devices 0 and 1 differ in the last digits. Is each piece summed",
        ),
        (R(("range(2 * (n - 1))", "range(2 * n)")), "in 8 rounds. Which of them does nobody need?"),
    ],
}
SHARES = {
    "correct": [
        (answer, f"nobody could be done sooner, in {len(HIDDEN_SPEEDS)} cases")
        for answer in (one_by_one, shares, lambda n, s: np.array(shares(n, s)))
    ],
    "keep working": [
        (rounded, "These are"),
        (even, "Where do you look at the speeds?"),
        (lambda n, speeds: one_by_one(n, [1 / speed for speed in speeds]), "Who should get the most?"),
        (lambda n, speeds: [n * speed / sum(speeds) for speed in speeds], "a part of a sample?"),
        (lambda n, speeds: [n] + [0] * (len(speeds) - 1), "How long does each device take"),
        (lambda n, speeds: sorted(one_by_one(n, speeds)), "Who should get the most?"),
        (lambda n, speeds: [int(n * speed / sum(speeds)) for speed in speeds], "becomes of the rest?"),
        (lambda n, speeds: [n] * len(speeds), "These are 40 samples. What becomes of that?"),
        (lambda n, speeds: [n + 1, -1] + [0] * (len(speeds) - 2), "What is a share below 0?"),
        (lambda n, speeds: max(one_by_one(n, speeds)), "How many samples does each device get"),
        (lambda n, speeds: one_by_one(n, speeds)[:-1], "How many samples does each device get"),
        (lambda n, speeds: dict(enumerate(one_by_one(n, speeds))), "How many samples does each"),
    ],
    "wrong": [rest_to(-1), rest_to(0)],
    "almost": [
        (largest_remainders, "After rounding, who should get one more, and who one less?"),
        (sorting, "for 12 samples and speeds 2, 1, 1 speeds is not what it was before. Who else may need"),
        (to_the_one_that_is_free, "with other shares all are done after"),
        (at_least_one, "for 5 samples and speeds 10, 1 it gives 4, 1. Device 1 takes 1 for its 1"),
    ],
}
test_replies = each_reply(lesson_17, ring_sum=RINGS, shares=SHARES)
