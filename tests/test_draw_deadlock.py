"""The picture of a deadlock, read back from its SVG."""

import re
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from drawn import SVG, words_in

import gpipe_sim as gp
from gpipe_sim.core.deadlock import cycle, in_words, waiting
from gpipe_sim.drawing import draw_deadlock
from gpipe_sim.drawing.deadlock import HEIGHT, IN_THE_WAY, LEFT, ROW, STEP, TOP, WAITS, WIDTH, _headline
from gpipe_sim.drawing.palette import KINDS, PAPER, ink

KNOT = "0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0"


def arrows(svg: str, colour: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """((device, place in its queue), the same where the arrow points), without the legend's."""
    paths = re.findall(rf'<path d="M([^h"]+)" fill="none" stroke="{colour}"', svg)
    points = [[tuple(map(int, point)) for point in re.findall(r"(\d+) (-?\d+)", path)] for path in paths]
    return [(place(*path[0]), place(*path[-1])) for path in points]


def place(x: int, y: int) -> tuple[int, int]:
    return round((y - TOP - 14) / ROW), (x - LEFT - WIDTH // 2) // STEP


def test_the_two_devices_wait_for_each_other():
    """0B0 needs 1B0, which stands behind 1F1, which needs 0F1, which stands behind 0B0."""
    svg = str(draw_deadlock(gp.Explicit.parse(KNOT)))
    assert arrows(svg, WAITS) == [((0, 1), (1, 3)), ((1, 0), (0, 2))]
    assert arrows(svg, IN_THE_WAY) == [((1, 3), (1, 0)), ((0, 2), (0, 1))]


def test_a_device_can_wait_for_itself():
    svg = str(draw_deadlock(gp.Explicit.parse("0F0 0B0\n1B0 1F0")))
    assert arrows(svg, WAITS) == [((0, 1), (1, 0)), ((1, 0), (1, 1))]
    assert arrows(svg, IN_THE_WAY) == [((1, 1), (1, 0))]


def test_arrows_join_facing_sides_arcs_bend_where_no_long_arrow_goes_and_the_latter_are_dashed():
    """Down from under row 0 to above row 1 and back; an arc is over row 0 if device 1 points at it. If a
    device waits for itself, it needs below its row and stands behind above."""
    knot = str(draw_deadlock(gp.Explicit.parse(KNOT)))
    under, above = TOP + HEIGHT + 3, TOP + ROW - 3
    assert heights(knot, WAITS) == [[under, above], [above, under]]
    assert [set(ys) for ys in heights(knot, IN_THE_WAY)] == [
        {under + ROW, under + ROW + 32},
        {above - ROW, above - ROW - 32},
    ]
    itself = str(draw_deadlock(gp.Explicit.parse("0F0 0B0\n1B0 1F0")))
    assert set(heights(itself, WAITS)[1]) == {under + ROW, under + ROW + 32}
    assert set(heights(itself, IN_THE_WAY)[0]) == {above, above - 32}
    paths = re.findall(rf'<path d="[^"]+" fill="none" stroke="({WAITS}|{IN_THE_WAY})" (.*?)/>', knot)
    assert len(paths) == 6, "two of each, and the legend"
    for colour, look in paths:
        assert ("stroke-dasharray" in look) == (colour == IN_THE_WAY)
        assert ("#deadlock-waits" in look) == (colour == WAITS)


def test_what_is_written_lies_on_the_sheet_apart_and_on_its_own_box():
    schedule = gp.Explicit.parse(KNOT)
    root = ElementTree.fromstring(text := str(draw_deadlock(schedule)))
    width, height = float(root.get("width")), float(root.get("height"))
    boxes = {(r.get("x"), r.get("y")) for r in root.iter(f"{SVG}rect")}
    said = {word.words: word for word in words_in(text)}
    for word in said.values():
        wide = 6.5 * len(word.words)
        left = word.x - {"start": 0, "middle": wide / 2, "end": wide}[word.anchor]
        assert left >= 0 and left + wide <= width and 0 < word.y < height, word
    for device, row in enumerate(schedule.actions):
        assert said[f"device {device}"].x < LEFT
        for at, action in enumerate(row):
            left, top, word = LEFT + at * STEP, TOP + device * ROW, said[str(action)]
            assert (str(left), str(top)) in boxes
            assert word.x == left + WIDTH / 2 and top < word.y < top + HEIGHT
    swatches = [float(r.get("x")) + 14 for r in root.iter(f"{SVG}rect") if r.get("width") == "14"]
    lines = [float(x) + 28 for x in re.findall(r'd="M(\S+) \S+h28"', text)]
    entries = [said[words] for words in ("done", "stuck", "not run", "needs", "stands behind")]
    for entry, sign, after in zip(entries, swatches + lines, [*swatches[1:], *lines, 540], strict=True):
        assert sign <= entry.x and entry.x + 6.5 * len(entry.words) < after


def heights(svg: str, colour: str) -> list[list[int]]:
    """The y of each point of the arrows, control points of curves too, without the legend's."""
    paths = re.findall(rf'<path d="M([^h"]+)" fill="none" stroke="{colour}"', svg)
    return [[int(y) for _, y in re.findall(r"(\d+) (-?\d+)", path)] for path in paths]


def test_what_has_run_is_filled_what_has_not_is_hollow_and_what_is_stuck_is_framed():
    """Device 0 has run 0F0 and device 1 nothing; 0B0 and 1F1 are stuck."""
    svg = str(draw_deadlock(gp.Explicit.parse(KNOT)))
    boxes = re.findall(r'<rect [^>]*rx="3" fill="(.*?)"(.*?)/>\n<text [^>]* fill="(.*?)">(\d[FB]\d)<', svg)
    assert [action for *_, action in boxes] == KNOT.split()
    edges = {action: re.findall(r'"(.*?)"', edge) for _, edge, _, action in boxes}
    framed = [action for action, edge in edges.items() if edge == [WAITS, "3"]]
    assert framed == ["0B0", "1F1"]
    filled = {action: fill for fill, _, _, action in boxes if fill != PAPER}
    assert filled == {"0F0": KINDS["F"].colour} and edges["0F0"] == []
    hollow = edges.keys() - {*framed, "0F0"}
    assert all(edges[action] == [KINDS[action[1]].colour, "1.5"] for action in hollow)
    number = {action: colour for _, _, colour, action in boxes}
    assert number.pop("0F0") == ink(KINDS["F"].colour)
    assert set(number.values()) == {WAITS}, "ink on paper"


def _ends(arrow: tuple[str, ...], boxes: list[tuple[str, ...]]) -> list[int]:
    """The boxes at which an arrow begins and ends."""

    def at(x: int, y: int) -> int:
        middles = [(int(left) + int(wide) / 2, int(top) + HEIGHT / 2) for left, top, wide in boxes]
        return min(range(len(boxes)), key=lambda i: abs(middles[i][0] - x) + abs(middles[i][1] - y))

    x, y, to_x, to_y = map(int, arrow)
    return [at(x, y), at(to_x, to_y)]


def test_programs_are_drawn_with_the_messages_in_which_they_wait():
    """Device 0 sends its second forward while device 1 sends its first gradient, where sends block."""
    for given in (gp.OneFOneB(2, 2), gp.device_programs(gp.OneFOneB(2, 2))):
        svg = str(draw_deadlock(given, sends="blocking"))
        framed = re.findall(r'stroke-width="3"/>\n<text [^>]*>(\w+)<', svg)
        assert framed == ["0SEND_F1", "1SEND_B0"]
        steps = re.findall(r"\d[A-Z]\S+", str(gp.device_programs(gp.OneFOneB(2, 2))))
        assert re.findall(r">(\d[A-Z][^<]+)</text>", svg) == steps
        boxes = re.findall(r'<rect x="(\d+)" y="(\d+)" width="(\d+)" height="28"', svg)
        for (x, y, wide), (after, below, _), step in zip(boxes, boxes[1:], steps, strict=False):
            assert 6.5 * len(step) < int(wide) and (y != below or int(x) + int(wide) < int(after))
        seen = re.findall(rf'<path d="M(\d+) (\d+)L(\d+) (\d+)" fill="none" stroke="{WAITS}"', svg)
        assert [(steps[i], steps[j]) for i, j in (_ends(each, boxes) for each in seen)] == [
            ("0SEND_F1", "1RECV_F1"),
            ("1SEND_B0", "0RECV_B0"),
        ]
        with pytest.raises(ValueError, match=r"can finish.*: nobody waits for ever"):
            draw_deadlock(given)
    with pytest.raises(gp.errors.ScheduleError, match="0B0, but has not received 1B0"):
        draw_deadlock("rank 0: 0F0 0SEND_F0 0B0\nrank 1: 1RECV_F0 1F0 1B0")


def test_an_order_that_can_finish_has_no_such_picture():
    assert waiting(gp.OneFOneB(3, 4)) == []
    with pytest.raises(ValueError, match=r"GPipe\(.*\) can finish: nobody waits for ever"):
        draw_deadlock(gp.GPipe(2, 2))
    with pytest.raises(gp.errors.ScheduleError, match="1B0 is missing"):
        draw_deadlock(gp.Explicit.parse("0F0 0B0\n1F0"))


def test_the_cycle_leaves_out_who_only_queues_up_behind_it():
    """Device 2 waits for device 1, but nobody waits for device 2."""
    schedule = gp.Explicit.parse("0F0 0B0 0F1 0B1\n1F1 1F0 1B1 1B0\n2F0 2B0 2F1 2B1")
    waits = waiting(schedule)
    assert [str(wait.action) for wait in waits] == ["0B0", "1F1", "2F0"]
    assert [(str(wait.action), str(wait.need)) for wait in cycle(waits)] == [("0B0", "1B0"), ("1F1", "0F1")]


def test_a_cycle_reads_as_a_sentence():
    said = in_words(cycle(waiting(gp.Explicit.parse(KNOT))))
    assert said == "0B0 needs 1B0, queued behind 1F1, which needs 0F1, queued behind 0B0"
    itself = gp.Explicit.parse("0B0 0F0\n1F0 1B0")
    assert in_words(cycle(waiting(itself))) == "0B0 needs 0F0, queued behind 0B0"
    heads = gp.Explicit.parse("0F0 0F1 0B1 0B0\n1F0 1B0 1F1 1B1\n2F1 2B1 2F0 2B0")
    assert in_words(cycle(waiting(heads))) == (
        "1B0 needs 2B0, queued behind 2F1, which needs 1F1, queued behind 1B0"
    )


def test_of_a_long_queue_it_draws_what_is_near_the_knot():
    """Device 1 of 1F1B on 4 x 100 runs 1F71 too early, so 0B49 never gets its gradient."""
    rows = [list(row) for row in gp.OneFOneB(4, 100).actions]
    rows[1][100], rows[1][140] = rows[1][140], rows[1][100]
    drawing = str(draw_deadlock(gp.Explicit(rows)))
    words = re.findall(r">([^<>]+)</text>", drawing)
    assert words[0] == "Deadlock: device 0 waits for 1, device 1 waits for 0"
    assert words[1:10] == ["device 0", *["0F52", "0B49", "0F53", "0B50", "0F54", "0B51", "0F55", "0B52"]]
    assert "0F71" in words and words[-1] == "of long queues, only the part with what is stuck or needed"
    assert words[words.index("device 1") - 1] == "0B68"


def test_of_very_many_devices_it_draws_the_shortest_cycle():
    rows = [[*(f"{k}F{m}" for m in range(40)), *(f"{k}B{m}" for m in range(40))] for k in range(300)]
    for row in rows[:-1]:
        row[39], row[40] = row[40], row[39]
    drawing = str(draw_deadlock(gp.Explicit(rows)))
    assert re.findall(r">(device \d+)<", drawing) == ["device 298", "device 299"]
    assert "2 of 300 devices: the shortest cycle" in drawing
    with pytest.raises(gp.errors.DeadlockError) as refused:
        gp.check(gp.Explicit(rows))
    assert str(refused.value).splitlines()[32:] == [
        "  device 31 is stuck at 31B0: it needs 32B0 (queued on device 32)",
        "  ... and 268 more",
    ]


def test_a_headline_names_up_to_four_waits_and_counts_more():
    def waits(n):
        return [SimpleNamespace(device=k, other=(k + 1) % n) for k in range(n)]

    assert _headline(waits(1)) == "Deadlock: device 0 waits for itself"
    assert _headline(waits(4)).endswith("device 2 waits for 3, device 3 waits for 0")
    assert _headline(waits(5)) == "Deadlock: 5 devices wait for each other in a circle"


def test_a_sheet_is_as_wide_as_its_headline():
    """Each of four devices begins with its later stage, and waits for the device before it."""
    rows = [f"{4 + k}F0 {k}F0 {4 + k}B0 {k}B0" for k in range(4)]
    sheet = draw_deadlock(gp.Explicit(rows, placement=[[k, 4 + k] for k in range(4)]))
    [headline] = (word for word in words_in(str(sheet)) if word.words.startswith("Deadlock"))
    assert headline.words.count("waits for") == 4
    assert headline.x + 7.5 * len(headline.words) <= sheet.size[0]
