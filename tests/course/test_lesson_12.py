"""Lesson 12: what the checks say to right answers and to the usual wrong ones."""

from fractions import Fraction

import pytest
from replies import assert_each_is_told, each_reply, natural

import gpipe_sim as gp
from gpipe_sim.course import answers, lesson_12, mine
from gpipe_sim.course.answers import ON_LINKS, with_links
from gpipe_sim.course.lesson_12 import HIDDEN_ROWS, SETTINGS, on_equal_links

K, M = 4, 8


def of_rows(change):
    """What a student's function gives that does this to the right rows: devices first, then links."""
    return lambda rows: change(with_links(rows), len(rows))


def one_lane_each_way_together(rows):
    """Both directions of a boundary on one row, in turn."""
    devices, links = with_links(rows)[: len(rows)], with_links(rows)[len(rows) :]
    numbers = dict.fromkeys(s for link in links for s, _, _ in link)
    return devices + [[each for link in links for each in link if each[0] == s] for s in numbers]


def by_boundary(rows):
    """A row for each boundary and direction, although one link may carry those of several stages."""
    devices, links = with_links(rows)[: len(rows)], with_links(rows)[len(rows) :]
    ways = dict.fromkeys((s, kind) for link in links for s, kind, _ in link)
    return devices + [[each for link in links for each in link if each[:2] == way] for way in ways]


def in_order_of_microbatches(rows):
    devices, links = with_links(rows)[: len(rows)], with_links(rows)[len(rows) :]
    return devices + [sorted(link, key=lambda each: each[2]) for link in links]


def in_order_of_receivers(rows):
    devices, links = with_links(rows)[: len(rows)], with_links(rows)[len(rows) :]
    turn = {each: i for row in rows for i, each in enumerate(row)}

    def read(message):
        s, kind, m = message
        stage = (s + 1) // 2 if kind == "f" else (s - 1) // 2
        return turn[stage, kind.upper(), m]

    return devices + [sorted(link, key=read) for link in links]


def renamed(of):
    return of_rows(
        lambda rows, K: rows[:K] + [[(of(s, kind), kind, m) for s, kind, m in link] for link in rows[K:]]
    )


def upper(rows, K):
    return rows[:K] + [[(s, kind.upper(), m) for s, kind, m in link] for link in rows[K:]]


def after_its_action(rows, K):
    """Each message on the row of the device that sends it."""
    found = []
    for row in rows[:K]:
        found.append([])
        for s, kind, m in row:
            found[-1].append((s, kind, m))
            message = (s + 1 if kind == "F" else s - 1, kind.lower(), m)
            found[-1] += [message] if any(message in link for link in rows[K:]) else []
    return found


def for_four_devices(change):
    """Right until there are four of them."""
    return of_rows(lambda rows, K: change(rows) if K == 4 else rows)


def joined_at_the_end(rows):
    """Both directions of the last boundary on one row."""
    last = [link for link in rows if link[0][0] == 5]
    return [row for row in rows if row not in last] + [[each for link in last for each in link]]


def sends_past_the_ends(rows):
    links = {}
    for k, row in enumerate(rows):
        for s, kind, m in row:
            way = 1 if kind == "F" else -1
            links.setdefault((k, k + way), []).append((2 * s + way, kind.lower(), m))
    return [[(2 * s, kind, m) for s, kind, m in row] for row in rows] + list(links.values())


@pytest.mark.parametrize("busy", [0, 1, 3, Fraction(7, 2)])
@pytest.mark.parametrize("rows", HIDDEN_ROWS, ids=str)
def test_the_clock_of_lesson_05_on_these_rows_is_the_librarys_on_its_links(rows, busy):
    """So a link is one more row."""
    stages = 1 + max(s for row in rows for s, _, _ in row)
    order = gp.Explicit(
        [[gp.core.Action(*each) for each in row] for row in rows], placement=held_by(rows, stages)
    )
    link = gp.Link(bandwidth=1 / Fraction(busy)) if busy else gp.Link()
    ends = answers.clock(with_links(rows), ON_LINKS, {"F": 1, "B": 2, "f": busy, "b": busy})
    assert {a: ends[2 * a.stage, a.kind, a.microbatch] for a in order_of(order)} == gp.simulate(
        order, links=link, message_bytes=1
    ).ends


def held_by(rows, stages):
    return [[s for s in range(stages) if any(each[0] == s for each in row)] for row in rows]


def order_of(schedule):
    return [action for row in schedule.actions for action in row]


def test_a_row_for_each_message_is_a_late_link():
    """As the lesson says of links that are late."""
    rows = answers.gpipe_rows(K, M)
    lanes = with_links(rows)
    late = lanes[:K] + [[each] for link in lanes[K:] for each in link]
    cost = {"F": 1, "B": 2, "f": 2, "b": 2}
    assert max(answers.clock(late, ON_LINKS, cost).values()) == 45
    assert max(answers.clock(lanes, ON_LINKS, cost).values()) == 52


def length(K, M, F, B, busy, latency):
    queues = (M - 1) * (max(busy - F, 0) + max(busy - B, 0))
    return (M + K - 1) * (F + B) + (K > 1) * (2 * (K - 1) * (busy + latency) + queues)


def plain(K, M, F, B):
    return (M + K - 1) * (F + B)


def test_the_length_of_gpipe_on_links_is_the_formula():
    for devices in (1, 2, 3, 5):
        for pieces in (1, 2, 6):
            for setting in ((1, 2, 0, 0), (1, 2, 1, 3), (2, 3, 4, 1), (3, 1, 2, 0), (4, 5, 9, 2)):
                assert on_equal_links(devices, pieces, *setting) == length(devices, pieces, *setting)
    assert on_equal_links(*SETTINGS[0]) == 52


def takes(family, links, microbatches=M, **how):
    return gp.simulate(family(K, microbatches), links=links, message_bytes=1, **how).makespan


def test_what_the_lesson_says_of_late_and_narrow_links():
    late, narrow = gp.Link(latency=2), gp.Link(bandwidth=Fraction(1, 2))
    assert [takes(family, late) for family in (gp.GPipe, gp.OneFOneB)] == [45, 65]
    assert [takes(family, narrow) for family in (gp.GPipe, gp.OneFOneB)] == [52, 65]
    late_hop, narrow_hop = (
        gp.Nodes(2, gp.Link(), link) for link in (gp.Link(latency=4), gp.Link(bandwidth=Fraction(1, 4)))
    )
    assert [takes(family, late_hop) for family in (gp.GPipe, gp.OneFOneB)] == [41, 65]
    assert [takes(family, narrow_hop) for family in (gp.GPipe, gp.OneFOneB)] == [76, 67]
    busy = {
        family: takes(family, gp.Link(bandwidth=1), overlap=False)
        for family in (gp.GPipe, gp.OneFOneB, gp.ZBH1)
    }
    assert list(busy.values()) == [73, 71, 65]


def test_the_natural_wrong_predictions_are_what_they_are_said_to_be():
    late, narrow = gp.Link(latency=2), gp.Link(bandwidth=Fraction(1, 2))
    right, hop = takes(gp.GPipe, narrow), gp.Link(bandwidth=Fraction(1, 4))
    without, every, delayed = (
        takes(gp.GPipe, gp.Link()),
        takes(gp.GPipe, gp.Link(bandwidth=1)),
        takes(gp.GPipe, late),
    )
    both_ways, each_one = right + (M - 1), delayed + 2 * M
    queue = right - delayed
    assert list(natural("12", "How long it is over narrow links")) == [
        without,
        without + 2 * 2,
        every,
        without + queue,
        delayed,
        without + 2 * queue,
        right + queue // (M - 1),
        both_ways,
        each_one,
        delayed + 3 * queue,
    ]
    for measured, wrong in {
        right: natural("12", "How long it is over narrow links"),
        takes(gp.GPipe, gp.Nodes(2, gp.Link(), hop)): natural("12", "How long it is over a narrow hop"),
        plain(K, M, 1, 2) + 2 * trips(K, M): natural("12", "How long 1F1B is over late links"),
        "true": natural("12", "Twice the bandwidth"),
        "false": natural("12", "A faster stage 1"),
    }.items():
        assert_each_is_told(wrong, measured)


def test_the_natural_wrong_predictions_of_the_hop_are_what_they_are_said_to_be():
    """A message over it takes 4: F has 3 to spare for the next one to wait, B has 2; and M - 1 are behind."""
    slow, late = gp.Link(bandwidth=Fraction(1, 4)), gp.Link(latency=4)
    without, there, back, crossings = plain(K, M, 1, 2), 3 * (M - 1), 2 * (M - 1), 8
    assert list(natural("12", "How long it is over a narrow hop")) == [
        without,
        takes(gp.GPipe, gp.Nodes(2, gp.Link(), late)),
        without + crossings + back,
        without + crossings + there,
        takes(gp.OneFOneB, gp.Nodes(2, gp.Link(), late)),
        takes(gp.OneFOneB, gp.Nodes(2, gp.Link(), slow)),
        without + there + back,
        without + crossings + 4 * (M - 1),
        without + crossings + (3 + 2) * M,
        takes(gp.GPipe, slow),
        without + 4 * 2 * M,
    ]


def test_twice_the_bandwidth_halves_the_cost_where_nothing_queues():
    twice = [length(K, M, 2, 4, busy, 0) - plain(K, M, 2, 4) for busy in (4, 2, 1)]
    assert twice == [38, 12, 6]
    costs = gp.Costs(forward=2, input_grad=2, weight_grad=2)
    links = [gp.Link(bandwidth=Fraction(1, busy)) for busy in (4, 2, 1)]
    assert [takes(gp.GPipe, each, costs=costs) - plain(K, M, 2, 4) for each in links] == twice


def test_a_message_beside_a_layers_forward():
    """Of a published count of FLOPs, with recompute, a layer's forward is a quarter."""
    took = {}
    for h in (1024, 12288):
        one, two = (gp.formulas.transformer_flops(layers, h, 51_200, 2048, 1) for layers in (1, 2))
        took[h] = (14e-6 + 2048 * h * 2 / 50e9) / ((two - one) / 4 / 400e12)
    assert 1 / 2 < took[1024] < 0.6 and took[12288] == pytest.approx(1 / 20, abs=0.005)


def trips(devices, pieces):
    """The messages on which 1F1B waits, one after the other; GPipe's are 2 (devices - 1)."""
    return pieces // devices * 2 * (devices - 1) + 2 * (devices - 2)


def test_the_natural_wrong_predictions_of_1f1b_are_what_they_are_said_to_be():
    without, down_and_back = plain(K, M, 1, 2), 2 * 2 * (K - 1)
    assert takes(gp.OneFOneB, gp.Link(latency=2)) == without + 2 * trips(K, M)
    assert list(natural("12", "How long 1F1B is over late links")) == [
        without,
        without + down_and_back,
        without + down_and_back * M // K,
        without + down_and_back * M,
    ]


def test_the_round_trips_of_1f1b_are_one_chain_of_actions():
    """Down to the last device and back to device 0, M/K times; in the last round by device 1 once more."""
    for devices, rounds in ((2, 3), (3, 2), (4, 2), (5, 3)):
        pieces = devices * rounds
        chain = (rounds - 1) * devices * 3 + devices + 2 * (devices - 1) + devices - 1 + 2 * devices
        for c in (1, 3):
            measured = gp.simulate(
                gp.OneFOneB(devices, pieces), links=gp.Link(latency=c), message_bytes=1
            ).makespan
            assert measured == chain + c * trips(devices, pieces)


def changing(rows):
    """Doubles the stages in place."""
    found = with_links(rows)
    for row in rows:
        row[:] = [(2 * s, kind, m) for s, kind, m in row]
    return found


def clearing(rows):
    found = with_links(rows)
    rows.clear()
    return found


def dealt(rows):
    """Takes stage s to be on device s mod K."""
    links = {}
    for k, row in enumerate(rows):
        for s, kind, m in row:
            to = s + 1 if kind == "F" else s - 1
            if 0 <= to <= max(s for row in rows for s, _, _ in row):
                links.setdefault((k, to % len(rows)), []).append((s + to, kind.lower(), m))
    return [[(2 * s, kind, m) for s, kind, m in row] for row in rows] + list(links.values())


FUNCTIONS = [
    (
        one_lane_each_way_together,
        "one is from device 0 to device 1, the other from device 1 to device 0. Do they",
    ),
    (by_boundary, "are on different rows, and both are from device 0 to device 1. What keeps them from"),
    (in_order_of_microbatches, "1b0 comes before 1b1. Which of the two does the sender make first?"),
    (in_order_of_receivers, "1f1 comes before 1f0. Which of the two does the sender make first?"),
    (
        renamed(lambda s, kind: s - 1),
        "0f0 is on a row. Which numbers lie between those of the devices' stages?",
    ),
    (
        renamed(lambda s, kind: s + 2),
        "5f0 is on a row, and the numbers go from 0 to 4. Who would receive that?",
    ),
    (of_rows(upper), "1F0 is on a row. Is 1 a stage now, or a message?"),
    (of_rows(after_its_action), "0F0 and 1f0 are on one row. Must a device wait until its link has carried"),
    (of_rows(lambda rows, K: rows[:K]), "1f0 is on no row. Which action makes that message"),
    (of_rows(lambda rows, K: rows[K:]), "0F0 is on no row. How often does its device do it?"),
    (
        of_rows(lambda rows, K: [[each for each in row if each[1] != "b"] for row in rows]),
        "1b1 is on no row. Which action makes that message",
    ),
    (
        of_rows(lambda rows, K: rows[:K] + [[each] for link in rows[K:] for each in link]),
        "1f0 and 1f1 are on different rows, and both are from device 0 to device 1. What keeps them",
    ),
    (
        of_rows(lambda rows, K: [*rows[:K], [each for link in rows[K:] for each in link]]),
        "3f0 are on one row; one is from device 0 to device 1, the other from device 1 to device 2",
    ),
    (of_rows(lambda rows, K: rows + rows[K:]), "1f0 stands 2 times. Which action makes that message"),
    (
        of_rows(lambda rows, K: [[each for row in rows[:K] for each in row], *rows[K:]]),
        "0F0 and 2F0 are on one row. Which device does",
    ),
    (of_rows(lambda rows, K: [sorted(rows[0]), *rows[1:]]), "on one row, 0B0 comes before 0F0. Who changed"),
    (
        of_rows(lambda rows, K: [row[:1] for row in rows] + [row[1:] for row in rows]),
        "and both are on one device",
    ),
    (
        renamed(lambda s, kind: s + 2 * (kind == "b")),
        "Between which two stages does a gradient go, and which number lies there?",
    ),
    (sends_past_the_ends, "-1b1 is on a row, and the numbers go from 0 to 4. Who would receive that?"),
    (
        for_four_devices(lambda rows: [*rows, [(7, "f", 0)]]),
        "7f0 is on a row, and the numbers go from 0 to 6. Who would",
    ),
    (
        for_four_devices(joined_at_the_end),
        "one is from device 2 to device 3, the other from device 3 to device 2",
    ),
    (renamed(lambda s, kind: 4 if s == 3 else s), "4f0 is on a row. Which numbers lie between those of the"),
    (lambda rows: [], "0F0 is on no row"),
    (lambda rows: tuple(with_links(rows)), "it gives a tuple. Later lessons read it more than once"),
    (
        lambda rows: [[list(each) for each in row] for row in with_links(rows)],
        "How is 0F0 written as a tuple",
    ),
    (lambda rows: rows[len(rows)], "it stopped: IndexError"),
    (dealt, "3f0 and 1b1 are on different rows, and both are from device 1 to device 0. What keeps"),
]
TABLES = [
    (ON_LINKS | {"F": [("F", -1)]}, "2F5 needs 1F5. Who has its input last"),
    (ON_LINKS | {"F": [("F", -2)]}, "2F5 needs 0F5. Who has its input last"),
    (ON_LINKS | {"f": [("f", -1)]}, "3f5 needs 2f5. What must be there before the link"),
    (ON_LINKS | {"f": []}, "3f5 needs nothing. What must be there"),
    (ON_LINKS | {"f": [("F", +1)]}, "3f5 needs 4F5. What must be there"),
    (ON_LINKS | {"B": [("b", +1)]}, "2B5 needs 3b5. It reads what its own forward kept"),
    (ON_LINKS | {"B": [("F", 0), ("B", +1)]}, "2B5 needs 2F5 and 3B5. It reads"),
    (ON_LINKS | {"B": [("F", 0), ("B", +2)]}, "2B5 needs 2F5 and 4B5. It reads"),
    (ON_LINKS | {"B": [("F", 0), ("b", -1)]}, "2B5 needs 2F5 and 1b5. It reads"),
    (ON_LINKS | {"b": [("B", -1)]}, "3b5 needs 2B5. From which side does a gradient come"),
    ({kind: ON_LINKS[kind] for kind in "FfB"}, "ON_LINKS has the keys ['F', 'f', 'B']. What does b need?"),
    (ON_LINKS | {"F": ("F", 0)}, "How is it written as a list of pairs such as"),
    (ON_LINKS | {"B": [("W", 0)]}, "How is it written as a list of pairs such as"),
    ([*ON_LINKS.values()], "Which four kinds of action want an entry in a dict?"),
    (None, "ON_LINKS is None. Which four kinds"),
]
LINKS = {
    "correct": [
        ((ON_LINKS, with_links), ""),
        ((ON_LINKS, of_rows(lambda rows, K: rows[::-1])), ""),
        ((ON_LINKS, of_rows(lambda rows, K: [*rows, []])), ""),
        ((ON_LINKS, of_rows(lambda rows, K: rows[K:] + rows[:K])), ""),
        (({kind: entries[::-1] for kind, entries in reversed(ON_LINKS.items())}, with_links), ""),
    ],
    "keep working": [
        *(((ON_LINKS, function), words) for function, words in FUNCTIONS),
        *(((table, with_links), words) for table, words in TABLES),
        ((ON_LINKS, None), "the table is right. Which rows are there besides"),
    ],
    "almost": [
        ((ON_LINKS, changing), "rows is not what it was before. Who else may need it?"),
        ((ON_LINKS, clearing), "rows is not what it was before. Who else may need it?"),
    ],
}


def with_queues(queues):
    """GPipe without links, the first message each way, and ``queues(K, M, F, B, busy, latency)``."""
    return lambda K, M, F, B, busy, latency: (
        plain(K, M, F, B) + 2 * (K - 1) * (busy + latency) + queues(K, M, F, B, busy, latency)
    )


def with_a_clock(find):
    """GPipe on links by a clock: once "without simulating" was only said."""

    def found(K, M, F, B, busy, latency):
        rows, cost = with_links(answers.gpipe_rows(K, M)), {"F": F, "B": B, "f": busy, "b": busy}
        return max(find()(rows, ON_LINKS, cost).values()) + latency * 2 * (K - 1)

    return found


def over(busy, F, B):
    return max(busy - F, 0) + max(busy - B, 0)


LENGTHS = {
    "correct": [(length, "")],
    "almost": [
        (lambda *each: plain(*each[:4]), "That is without messages."),
        (with_queues(lambda *_: 0), "you say 45, measured 52. That is a plain delay."),
        (lambda *each: length(*each) - (each[0] - 1) * sum(each[4:]), "46, measured 52. That is one way."),
        (lambda *each: length(*each[:5], 0), "That leaves out the latency. Whom does it delay?"),
        (with_queues(lambda K, M, F, B, busy, _: (M - 1) * max(busy - F, 0)), "When do gradients?"),
        (with_queues(lambda K, M, F, B, busy, _: M * over(busy, F, B)), "messages are behind the first one?"),
        (
            with_queues(lambda K, M, F, B, busy, _: (K - 1) * (M - 1) * over(busy, F, B)),
            "you say 66, measured 52. That has each message queue on every link.",
        ),
        (
            with_queues(lambda K, M, F, B, busy, latency: (M - 1) * over(busy + latency, F, B)),
            "Is a link busy during its latency?",
        ),
        (
            with_queues(lambda K, M, F, B, busy, _: (M - 1) * (2 * busy - F - B)),
            "Can a link that is quicker than its sender shorten a step?",
        ),
    ],
    "keep working": [
        (on_equal_links, "it uses simulate. How do you do it without?"),
        (with_a_clock(lambda: answers.clock), "it uses clock. How do you do it without?"),
        (with_a_clock(lambda: mine.clock), "it uses clock. How do you do it without?"),
        (lambda *each: 65, "you say 65, measured 52. How far apart do"),
        (lambda K, M, F, B, *_: (M + K) * (F + B), "you say 36, measured 52. How far"),
        (lambda *each: 2 * length(*each), "How far apart do the messages leave a device"),
        (lambda *each: length(*each) + 1e-7, "you say 52.0000001, measured 52. How far"),
        (
            lambda *each: round(length(*each)),
            "K = 3, M = 5, F = 0.5, B = 1.25, busy 0.75, latency 0.25: you say 17,",
        ),
        (lambda *each: str(length(*each)), "you say '52'. How long is that, as a number?"),
        (lambda *each: plain(*each[:4]) + 2 * sum(each[4:]), "measured 52"),
    ],
}
test_replies = each_reply(lesson_12, on_links=LINKS, gpipe_on_links=LENGTHS)
