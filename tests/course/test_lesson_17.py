"""Lesson 17: what the checks say to right answers and to the usual wrong ones."""

from functools import partial

import numpy as np
import pytest
from replies import assert_each_is_told, changed, each_reply, natural

import gpipe_sim as gp
from gpipe_sim.course import answers, lesson_17
from gpipe_sim.course.lesson_17 import HIDDEN_RINGS, HIDDEN_UPDATES, CountedLinks

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


# Weights that are shared out


def plain_copies(gradients, links, weights, update):
    sums = answers.ring_sum(gradients, links)
    return [update(k, weights[k], total) for k, total in enumerate(sums)]


def by_one_device(gradients, links, weights, update):
    sums = answers.ring_sum(gradients, links)
    return [update(0, weights[0], sums[0]) for _ in gradients]


def sums_and_weights(gradients, links, weights, update):
    """Sums go all the way around, and then the new weights do."""
    answers.ring_sum(gradients, CountedLinks())
    n, whole = len(gradients), answers.ring_sum(gradients, links)
    pieces = [update(k, *(np.array_split(each, n)[k] for each in (weights[k], whole[k]))) for k in range(n)]
    parts = [[piece if i == k else 0 * piece for i, piece in enumerate(pieces)] for k in range(n)]
    return answers.ring_sum([np.concatenate(part) for part in parts], links)


def nothing_gathered(gradients, links, weights, update):
    n = len(gradients)
    sums = answers.ring_sum(gradients, links)
    held = [np.array_split(each, n) for each in weights]
    for k in range(n):
        held[k][k] = update(k, held[k][k], np.array_split(sums[k], n)[k])
    return [np.concatenate(pieces) for pieces in held]


def passed_by_hand(gradients, links, weights, update):
    n = len(gradients)
    cut = zip(np.array_split(sum(gradients), n), np.array_split(weights[0], n), strict=True)
    return [np.concatenate([update(k, own, total) for k, (total, own) in enumerate(cut)])] * n


def all_by_device_0(gradients, links, weights, update):
    sums = answers.ring_sum(gradients, links)
    new = update(0, weights[0], sums[0])
    return answers.ring_sum([new, *(0 * new for _ in gradients[1:])], links)


Z = partial(changed, answers.zero_1)


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
    options = {"all equal", *(f"{K} x {16 // K}" for K in SIZES)}
    assert {*natural("17", "Five ways, with sums"), "16 x 1"} == options
    assert_each_is_told(natural("17", "Five ways, with messages"), "4 x 4")
    assert {*natural("17", "Five ways, with messages"), "4 x 4"} == options
    assert_each_is_told(natural("17", "ZeRO 2 in bytes"), 4)
    assert_each_is_told(natural("17", "What ZeRO 1 sends"), 0.75)
    assert_each_is_told(natural("17", "What ZeRO 3 sends"), 512)
    assert_each_is_told(natural("17", "When a gather hides"), 7000, within=0.02)


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
    one = gp.simulate(gp.replicate(gp.OneFOneB(4, 8), 2))
    assert one.makespan == 33 and gp.all_reduce(one, 4, links=LINK).makespan == 39
    assert gp.simulate(gp.OneFOneB(4, 16)).makespan + 6 == 63 and 33 + 4 * 6 == 57


# A Llama on 64 devices


def priced(zero, texts=1, unshard="microbatch", pipeline=8, M=64, flops=400e12):
    cluster = gp.Cluster(8 * pipeline, gp.Accelerator(flops), 80e9, gp.Link(bandwidth=50e9))
    batch = gp.MetaArray((8 * M, 2048), int)
    how = {"pipeline": pipeline, "microbatch": texts, "zero": zero, "unshard": unshard}
    return gp.price(gp.known_model("llama2-7b"), cluster, (batch, batch), **how)


def test_eight_copies_keep_18_and_7_5_and_4_and_2_25_bytes_for_a_weight():
    for zero, each in enumerate((18, 2 + 4 + 12 / 8, 2 + 16 / 8, 18 / 8)):
        plan = priced(zero)
        kept = sum(plan.memory[3][kind] for kind in ("weights", "gradients", "optimizer"))
        assert kept / plan.layout.weights[3] == pytest.approx(each, rel=1e-8)


@pytest.mark.parametrize("M", [1, 8, 64])
def test_what_is_sent_if_computing_takes_no_time(M):
    """By hand: 8 bytes, 6, 4M + 2, 8M. What has nothing to hide behind is one layer more at most."""
    for zero, by_hand in enumerate((8, 6, 4 * M + 2, 8 * M)):
        plan = priced(zero, pipeline=1, M=M, flops=400e18)
        sent = plan.parts["gradients"] * 50e9 / (7 / 8 * sum(plan.layout.weights))
        assert by_hand - 1e-6 < sent < by_hand + 0.2


def test_whole_weights_are_more_than_a_copys_while_a_step_runs():
    held = [priced(3, 1, unshard).memory[3] for unshard in ("step", "microbatch")]
    whole = priced(0).memory[3]["weights"]
    assert [(each["weights"] + each["gathered"]) / whole for each in held] == pytest.approx([9 / 8, 5 / 8])


def test_the_traffic_hides_from_the_tokens_on_that_were_counted():
    """A forward from 7,000 tokens on, all but the ends from 10,500: attention adds a little to compute."""
    takes = {texts: [priced(zero, texts).time for zero in range(4)] for texts in (1, 2, 4, 8)}
    assert min(times[zero] for times in takes.values() for zero in range(4)) == takes[1][1]
    assert [times.index(min(times)) for times in takes.values()] == [1, 1, 2, 3]
    shown = [priced(3, texts).parts["gradients"] for texts in (1, 2, 4, 8)]
    assert shown[0] > 6 and 0.2 < shown[2] < 0.4 and shown[3] < 0.03
    few, many = (priced(3, texts).memory[3] for texts in (1, 8))
    saved = sum(priced(1).memory[3].values()) - sum(few.values())
    assert (round(saved / 1e9), round((many["activations"] - few["activations"]) / 1e9)) == (3, 38)


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
UPDATES = {
    "correct": [
        (answer, f"new weights on every device, at {len(HIDDEN_UPDATES)} sizes, each updated by one")
        for answer in (answers.zero_1, partial(answers.zero_1))
    ],
    "keep working": [
        (passed_by_hand, "the optimizer of device 1 updates weights of device 0"),
        (Z(("update(k,", "update(i,")), "of device 1 updates weights of device 0. On which device are they"),
        (Z(("weights[k], n)", "weights[0], n)")), "of device 1 updates weights of device 0. On which device"),
        (nothing_gathered, "number 3 of device 0 is the weight that it was. How does a device get"),
        (lambda gradients, links, weights, update: answers.ring_sum(gradients, links), "a sum of gradients."),
        (
            Z(("turn == n - 1", "turn == n - 2")),
            "device 0 updates weight 3 with its gradient on device 0, after 2 rounds. "
            "After which round has a piece met all devices?",
        ),
        (Z(("i = (k + 1) % n", "i = k")), "after 3 rounds. Which of its pieces has met all devices by then?"),
        (
            Z(("held[k][i] + arrived if turn < n - 1 else arrived", "arrived")),
            "on device 1, after 3 rounds. What becomes of its own when a piece arrives?",
        ),
        (Z(("held[k][i])", "held[k][i] / n)")), "the mean of its gradients. Which of the two is `total`"),
        (
            Z(("links.receive((k - 1) % n)", "links.receive(k)")),
            "which adds up gradients of several weights. What is added to what?",
        ),
        (
            Z(("turn == n - 1", "turn >= n - 1")),
            "device 0 updates weight 3 again. In which round does each weight get its update?",
        ),
        (Z(("weights[k], n)[i]", "weights[k], n)[k]")), "with the gradient of another one. Which piece has"),
        (
            Z(("np.array_split(weights[k], n)[i]", "weights[k]")),
            "updates an array of shape (12,) with an array of",
        ),
        (Z(("range(2 * (n - 1))", "range(n)")), "sent 4 times. In which round should it come?"),
        (Z(("range(2 * (n - 1))", "range(n - 1)")), "sent 3 times. In which round should it come?"),
        (Z(("turn < n - 1", "turn < n")), "In the second half, is what arrives added or kept?"),
        (
            Z(("k - 1 - turn", "k - 1 - turn % (n - 1)")),
            "is 452, the gradient of device 0 alone. "
            "Which piece does a device send first in the second half?",
        ),
        (
            Z(("np.concatenate(pieces)", "np.concatenate(pieces[::-1])")),
            "number 0 of device 0 is what number 9 should be. Where do the pieces of a vector belong?",
        ),
        (
            Z(("held[k][i] = update(k", "held[k][i] = 2 * update(k")),
            "What does `update` give back, and where does it go?",
        ),
        (lambda gradients, links, weights, update: weights, "is the weight that it was. How does"),
        (lambda gradients, links, weights, update: None, "What should come after return?"),
        (lambda gradients, links: gradients, "How many things is it given, and how many does it take?"),
        (7, "pass in a function, not 7"),
    ],
    "almost": [
        (all_by_device_0, "the weights are right, but device 1 updates none. Which piece could it take?"),
        (plain_copies, "device 0 updates 12 of them. Which of these does another device update too?"),
        (by_one_device, "device 0 updates 48 of them. Which of these does another device"),
        (sums_and_weights, "send 432 bytes, and two halves of a ring 216. In which half does what go"),
    ],
}
test_replies = each_reply(lesson_17, ring_sum=RINGS, zero_1=UPDATES)
