"""``weights=``: the version of the weights in each box; and charts of pipelines without a flush."""

import re
from itertools import pairwise

import numpy as np
import pytest
from drawn import chart_of, in_svg
from measured import metered
from test_painters import assert_both_same

import gpipe_sim as gp
from gpipe_sim import Costs, OneFOneB, PipeDream, draw, simulate
from gpipe_sim.core import Kind
from gpipe_sim.streams import PipeDream2BW, PipelinedBackprop

DATA = gp.digits()
FLUSHED = gp.repeat(gp.with_updates(OneFOneB(3, 3)), 2)
STREAMS = [
    (PipeDream(4, 7), "stashed"),
    (PipeDream(4, 7), "vertical"),
    (PipeDream(3, 7), "latest"),
    (PipeDream(2, 8, every=3), "stashed"),
    (PipeDream2BW(3, 9), "double"),
    (PipelinedBackprop(3, 5), "latest"),
    (gp.remat(PipeDream(2, 5), "always"), "stashed"),
    (gp.repeat(gp.with_updates(gp.ZBH1(2, 3)), 3), "stashed"),
    (gp.repeat(gp.with_updates(gp.Interleaved1F1B(2, 4)), 2), "stashed"),
    (FLUSHED, "vertical"),
]
EVERYTHING = {"in_flight": True, "messages": True, "critical_path": True}


def numbered(svg: str) -> dict[str, int]:
    """The number in the box of each action; none of those without a number."""
    boxes, chart, found = in_svg(svg), chart_of(svg), {}
    middles = [(top + bottom) / 2 for (_, top), (_, bottom) in (lane[1:3] for lane in chart.lanes)]
    for word in (word for word in chart.words if word.words.isdigit()):
        device = min(range(len(middles)), key=lambda k: abs(middles[k] - word.y))
        [title] = [box.title for box in boxes if box.device == device and box.start < word.x < box.end]
        found[title.split()[0]] = int(word.words)
    return found


def in_rows(schedule, numbers: dict[str, int]) -> list[str]:
    """The rows of a schedule, with these numbers for the microbatches."""
    return [" ".join(f"{a.kind}{numbers[str(a)]}" for a in row) for row in schedule.actions]


def test_the_versions_of_pipedream_are_those_of_its_paper():
    """Device 0 uses weights two updates old, device 2 the newest; an update makes what comes next."""
    schedule, costs = PipeDream(3, 5), Costs(update=1)
    assert in_rows(schedule, numbered(str(draw(simulate(schedule, costs), weights="stashed")))) == [
        "F0 F0 F0 B0 U1 F1 B0 U2 F2 B0 U3 B1 U4 B2 U5",
        "F0 F0 B0 U1 F1 B0 U2 F2 B1 U3 F3 B2 U4 B3 U5",
        "F0 B0 U1 F1 B1 U2 F2 B2 U3 F3 B3 U4 F4 B4 U5",
    ]
    assert in_rows(schedule, numbered(str(draw(simulate(schedule, costs), weights="latest")))) == [
        "F0 F0 F0 B0 U1 F1 B1 U2 F2 B2 U3 B3 U4 B4 U5",
        "F0 F0 B0 U1 F1 B1 U2 F2 B2 U3 F3 B3 U4 B4 U5",
        "F0 B0 U1 F1 B1 U2 F2 B2 U3 F3 B3 U4 F4 B4 U5",
    ]
    double = PipeDream2BW(2, 6)
    assert in_rows(double, numbered(str(draw(simulate(double, costs), weights="double")))) == [
        "F0 F0 B0 F0 B0 U1 F0 B0 F1 B0 U2 F1 B1 B1 U3",
        "F0 B0 F0 B0 U1 F0 B0 F0 B0 U2 F1 B1 F1 B1 U3",
    ]


@pytest.mark.parametrize(("schedule", "mode"), STREAMS, ids=repr)
def test_each_box_has_the_version_that_training_really_used(schedule, mode):
    timeline = simulate(schedule, Costs(2, 1, 1, update=2))
    found = numbered(str(draw(timeline, weights=mode)))
    sizes, rng = [64] + [10] * schedule.stages, np.random.default_rng(0)
    layers = [gp.core.Linear(*pair, rng=rng) for pair in pairwise(sizes)]
    size = 2 * schedule.microbatches
    batch, how = (DATA.x[:size], DATA.y[:size]), {"optimizer": gp.SGD(0.01), "weights": mode, "meter": False}
    step = gp.train_step(gp.split(layers, stages=schedule.stages), schedule, batch, gp.cross_entropy, **how)
    used = {str(action): version for action, version in step.versions.items() if action.kind is not Kind.U}
    made, row = {}, [action for row in schedule.actions for action in row if action.kind is Kind.U]
    for action in row:  # the stage's first update makes version 1
        made[str(action)] = 1 + sum(other.stage == action.stage for other in row[: row.index(action)])
    assert found == used | made
    assert max(made.values()) >= 2


@pytest.mark.parametrize(("schedule", "mode"), STREAMS[::2], ids=repr)
def test_both_painters_paint_the_same_versions(schedule, mode):
    timeline = simulate(schedule, Costs(update=1, comm=1))
    assert_both_same(timeline, weights=mode, memory=metered(timeline), highlight=["0F0"])


def test_the_legend_the_caption_and_the_titles_of_boxes_say_that_they_are_versions():
    text = str(draw(simulate(PipeDream(2, 3), Costs(update=1)), weights="vertical"))
    chart = chart_of(text)
    assert chart.caption.endswith(
        "3 microbatches, an update after each; F takes 1, B 2, U 1; weights: vertical"
    )
    assert (
        "number: the version of the weights" in chart.legend and "number: the microbatch" not in chart.legend
    )
    assert "in U: the one that it makes" in chart.legend
    assert (
        "in U: the one that it makes"
        not in chart_of(str(draw(simulate(PipeDream(2, 3)), weights="latest"))).legend
    )
    titles = re.findall("<title>([^<]*)</title>", text)
    assert "0F2 7\u20138, version 1" in titles and "0U2 14\u201315, makes version 3" in titles
    assert "version" not in str(draw(simulate(PipeDream(2, 3), Costs(update=1))))


def test_updates_that_take_no_time_have_no_number_and_no_line_in_the_legend():
    for options in ({}, {"weights": "stashed"}):
        text = str(draw(simulate(PipeDream(2, 4)), **options))
        assert len(in_svg(text)) == 3 * 4 * 2, "they are there, with a title each"
        assert sorted(numbered(text)) == sorted(
            f"{stage}{k}{m}" for stage in "01" for k in "FB" for m in range(4)
        )
        assert "U  weight update" not in chart_of(text).legend
        assert (
            "U  weight update"
            in chart_of(str(draw(simulate(PipeDream(2, 4), Costs(update=1)), **options))).legend
        )
    assert "U  weight update" not in chart_of(str(draw(simulate(PipeDream(2, 400))))).legend
    assert "U  weight update" in chart_of(str(draw(simulate(PipeDream(2, 400), Costs(update=1))))).legend


def test_too_many_boxes_have_no_versions_and_the_legend_says_so():
    timeline = simulate(PipeDream(4, 300))
    chart = assert_both_same(timeline, weights="stashed", messages=True)
    assert "too fine to draw: any message or version" in chart.legend
