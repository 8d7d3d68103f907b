"""Families on equal work: as lesson A has them, whatever the layers, and said where work is not equal."""

from fractions import Fraction

import pytest
from cases import over
from drawn import charts_in

import gpipe_sim as gp
from gpipe_sim.balance import merged
from gpipe_sim.balance.by_makespan import even_cuts
from gpipe_sim.core import busy_time
from gpipe_sim.core.bubbles import useful_time

#: family: makespan, and microbatches in flight on the fullest device, 4 x 8 (lesson A's table)
LESSON_A = {
    "Naive": (96, 1),
    "GPipe": (33, 8),
    "1F1B": (33, 4),
    "Eager 1F1B": (33, 7),
    "Interleaved 1F1B": (28.5, 5.5),
    "Looped BFS": (28.5, 8),
    "ZB-H1": (27, 4),
    "ZB-H2": (27, 7),
    "ZB-V": (25.5, 4),
    "V-Half": (26.5, 3),
    "V-Min": (29.5, 2),
    "DualPipe": (26, 5),
    "DualPipeV": (27, 4.5),
    "Chimera": (30, 4),
}
WORK = 4 * 8 * 3  #: of all devices, at unit costs


def test_all_families_have_the_numbers_of_lesson_a():
    found = gp.compare(gp.SCHEDULES, 4, 8)
    assert {row.schedule.name: (row.makespan, max(row.in_flight)) for row in found} == LESSON_A
    assert all(busy_time(row.timeline) == WORK for row in found)
    assert [row.messages for row in found] == [len(row.timeline.messages) for row in found]
    assert {row.schedule.name for row in found if row.copies == 2} == {"DualPipe", "Chimera"}
    assert found[2].in_flight == (4, 3, 2, 1) == gp.peak_in_flight(found[2].schedule)


@pytest.mark.parametrize("layers", [1, 2, 3, 5])
def test_equal_layers_say_the_same_as_one_number(layers):
    """Where they can be cut evenly: a device's share is then as many layers."""
    families = [gp.OneFOneB, gp.Interleaved1F1B, gp.ZBV, gp.families.Chimera]
    alone = gp.compare(families, 4, 8, gp.Costs(comm=Fraction(1, 4)))
    cost = Fraction(1, 2 * layers)
    costs = gp.Costs(*([cost] * 8 * layers for _ in "FIW"), comm=Fraction(1, 4))
    for one, other in zip(alone, gp.compare(families, 4, 8, costs), strict=True):
        assert set(other.balance) == {8 * layers // one.schedule.stages} and one.balance is None
        assert (one.timeline.end == other.timeline.end).all()
        assert one.in_flight == other.in_flight and one.cells == other.cells


def test_unequal_layers_are_the_same_work_for_each_and_each_is_cut_well():
    forward = [1, 2, 1, 3, 1, 1, 2, 1, 4]
    costs = gp.Costs.from_forward(forward)
    for row in gp.compare(gp.SCHEDULES, 4, 8, costs):
        assert useful_time(row.timeline) == 8 * 3 * sum(forward) and sum(row.balance) == len(forward)
        stages = [sum(forward[sum(row.balance[:s]) :][:n]) for s, n in enumerate(row.balance)]
        best = gp.balance_by_cost(forward, row.schedule.stages)
        assert max(stages) == max(sum(forward[sum(best[:s]) :][:n]) for s, n in enumerate(best))
        assert row.makespan == gp.simulate(row.schedule, merged(costs, row.balance)).makespan
        if row.schedule.name == "GPipe":  # whose devices hold all microbatches of all their layers
            assert row.in_flight == tuple(8 * Fraction(4 * size, len(forward)) for size in row.balance)


def test_of_two_ways_to_deal_out_a_layer_too_many_it_is_the_shorter_one():
    costs, uneven = gp.Costs.from_forward([1] * 5), ([2, 1, 1, 1], [1, 1, 1, 2])
    for row in gp.compare([gp.GPipe, gp.OneFOneB, gp.ZBH1], 4, 8, costs):
        both = [gp.simulate(row.schedule, merged(costs, cut)).makespan for cut in uneven]
        assert (row.makespan, row.balance) == (min(both), tuple(uneven[both.index(min(both))]))


def test_copies_of_a_pipeline_and_other_numbers_of_stages_stand_in_one_table():
    several = [gp.replicate(gp.OneFOneB(2, 4), 2), gp.Interleaved1F1B(4, 8, stages_per_device=3), gp.OneFOneB]
    found = gp.compare(several)
    assert [row.makespan for row in found] == [30, 27, 33] and found[0].in_flight == (4, 2, 4, 2)
    assert all(busy_time(row.timeline) == WORK for row in found)


def test_overhead_and_messages_are_those_of_each_action_and_message():
    """Twice as many stages have twice as many actions; that is not more work."""
    one, two = gp.compare([gp.OneFOneB, gp.Interleaved1F1B], 4, 8, gp.Costs(overhead=1))
    assert busy_time(one.timeline) == WORK + 4 * 8 * 2 and busy_time(two.timeline) == WORK + 2 * 4 * 8 * 2
    one, two = gp.compare([gp.OneFOneB, gp.Interleaved1F1B], 4, 8, gp.Costs(comm=1))
    assert (one.makespan, two.makespan) == (49, 46)  # lesson 09


LINKS = gp.Link(0, Fraction(1, 2)), gp.Nodes(2, gp.Link(Fraction(1, 4), 3), gp.Link(2, Fraction(1, 3)))


@pytest.mark.parametrize("links", [gp.Link(latency=1), *LINKS], ids=["latency", "narrow", "nodes"])
def test_all_are_priced_on_the_same_links_and_the_same_layers(links):
    """Each time is that of ``simulate`` on these links, of the cut that is shorter there."""
    costs, size = (
        gp.Costs.from_forward([1, 2, 1, 3, 1, 1, 2, 1, 4], comm=1),
        None if links == gp.Link(1) else 2,
    )
    how = {"links": links, "message_bytes": size}
    for row in gp.compare(gp.SCHEDULES, 4, 8, costs, **how):
        cuts = {tuple(cut) for cut in even_cuts(row.schedule, costs, 9)}
        assert row.balance in cuts and useful_time(row.timeline) == 8 * 3 * 16
        times = [gp.simulate(row.schedule, merged(costs, cut), **how).makespan for cut in cuts]
        assert row.makespan == min(times)
    alike, half = gp.compare([gp.OneFOneB, gp.ZBV], 4, 8, **how), gp.Costs().per_stage(2)
    assert [row.makespan for row in alike] == [
        gp.simulate(gp.OneFOneB(4, 8), **how).makespan,
        gp.simulate(gp.ZBV(4, 8), half, **how).makespan,
    ]
    slower = zip(alike, gp.compare([gp.OneFOneB, gp.ZBV], 4, 8), strict=True)
    assert all(one.makespan > other.makespan for one, other in slower)


def test_the_table_and_the_chart_say_what_was_compared():
    found = gp.compare([gp.OneFOneB, gp.families.DualPipe, gp.Interleaved1F1B], 4, 7)
    *rows, note, refused = str(found).splitlines()
    assert [row.split() for row in rows] == [
        ["time", "bubble", "in", "flight", "copies", "messages"],
        ["1F1B", "30", "30.0%", "4", "1", "42"],
        ["Interleaved", "1F1B", "V=2", "25.5", "17.6%", "7", "1", "98"],
    ]
    assert len({len(row) for row in rows}) == 1 and "Fraction" not in repr(found)
    assert note.startswith("4 devices, 7 microbatches, the same layers for all")
    assert refused == "DualPipe needs an even number of microbatches (got 7); 8 would work"
    html = found._repr_html_()
    assert html.count("<tr>") == 3 and "<td>25.5</td>" in html and refused in html
    assert [chart.title for chart in charts_in(str(found.drawing))] == [
        "1F1B: 30 long, 30.0% waiting",
        "Interleaved 1F1B: 25.5 long, 17.6% waiting",
    ]
    assert "times the work" not in str(found.drawing)


def test_what_cannot_be_compared_is_refused():
    class Slow(gp.Costs):
        def duration(self, action, device=0):
            return 2

    families = [gp.OneFOneB, gp.ZBV]
    for error, call, words in (
        (TypeError, lambda: gp.compare(families), "compare needs devices= for families, such as compare"),
        (TypeError, lambda: gp.compare(families, 4), "compare needs microbatches= for families"),
        (TypeError, lambda: gp.compare(["1F1B"], 4, 8), r"needs families or schedules, .* \(got '1F1B'\)"),
        (TypeError, lambda: gp.compare(gp.OneFOneB, 4, 8), r"needs families or schedules, .* \(got <class"),
        (TypeError, lambda: gp.compare(families, 4, 8, [1, 1]), r"needs costs of single layers"),
        (TypeError, lambda: gp.compare(families, 4, 8, Slow()), "Costs without a duration of its own"),
        (TypeError, lambda: gp.compare(families, 4, 8, links=3), "needs links to be a Link, Nodes"),
        (TypeError, lambda: gp.compare(families, 4, 8, links=LINKS[0]), "or message_bytes=, such as"),
        (
            TypeError,
            lambda: gp.compare(families, 4, 8, links=LINKS[0], message_bytes=[1] * 3),
            r"compare needs message_bytes to be a number \(got \[1, 1, 1\]\)",
        ),
        (TypeError, lambda: gp.compare(families, 4, 8, message_bytes=1), "needs links, and so does"),
        (ValueError, lambda: gp.compare(families, 4, 8, links={(0, 1): gp.Link()}), "no link from device 1"),
        (ValueError, lambda: gp.compare([], 4, 8), "compare has nothing to compare: it needs families or"),
        (ValueError, lambda: gp.compare([gp.GPipe(4, 8), gp.GPipe(4, 9)]), "of one size, here 4 devices and"),
        (ValueError, lambda: gp.compare([gp.families.DualPipe], 4, 7), "8 would work"),
        (ValueError, lambda: gp.compare([gp.ZBV], 4, 8, gp.Costs(*[[1] * 7] * 3)), "7 layers cannot be cut"),
        (ValueError, lambda: gp.compare(families, 4, 8, gp.Costs(speed=[1, 2])), "speed for 2 devices, but"),
    ):
        with pytest.raises(error, match=words):
            call()


# Charts that stand beside each other without it


def said(*timelines) -> list[str]:
    """What each panel says of its work."""
    captions = (chart.caption for chart in charts_in(str(gp.draw(*timelines))))
    return [caption.partition(" times the work of ")[2] for caption in captions]


ONE = gp.simulate(gp.OneFOneB(4, 8))


@over([family(4, 8) for family in gp.SCHEDULES])
def test_a_chart_says_where_more_stages_are_more_work_and_only_there(schedule):
    several = schedule.stages // schedule.devices
    expected = "1F1B: see gp.compare" if several > 1 else ""
    assert said(ONE, gp.simulate(schedule)) == ["", expected]
    assert said(gp.simulate(schedule), ONE) == [expected, ""]
    for costs in (gp.Costs(), gp.Costs(comm=1, overhead=Fraction(1, 10)), gp.Costs.from_forward(0.1)):
        equal = gp.simulate(schedule, costs.per_stage(several))
        assert said(gp.simulate(gp.OneFOneB(4, 8), costs), equal) == ["", ""]
    assert said(gp.simulate(schedule)) == [""]


def test_how_much_more_work_it_is_and_of_which():
    three, two = (
        gp.simulate(gp.Interleaved1F1B(4, 8, stages_per_device=V), gp.Costs(*[cost] * 3))
        for V, cost in ((3, 1), (2, Fraction(1, 4)))
    )
    captions = [chart.caption for chart in charts_in(str(gp.draw(three, two, ONE)))]
    assert captions[0].endswith("B 2; 3 times the work of 1F1B: see gp.compare")
    assert captions[1].endswith("0.5 times the work of 1F1B: see gp.compare")
    assert said(ONE, gp.simulate(gp.Interleaved1F1B(4, 12))) == ["", ""], "another number of microbatches"
