"""What how-to pages hand to other programs, read as those read it."""

import re
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from test_megatron import stages
from typed import blocks

import gpipe_sim as gp
from gpipe_sim.programs.queues import ProgramQueues

PAGES = Path(__file__).parents[2] / "docs" / "howto"
BY_HAND = "Et*2|(t*2|)*34,t*3|(t*2|)*3,tL"  #: Megatron-Bridge, pull request 5391


@cache
def names_of(page: str) -> dict:
    """What the names of a page stand for after its cells, which run without their charts."""
    names: dict = {}
    for _, code in blocks((PAGES / f"{page}.md").read_text(), r"\{code-cell\}"):
        exec("\n".join(line for line in code.splitlines() if not line.startswith((":", "gp.draw"))), names)
    return names


def test_the_layout_is_the_cut_that_was_found():
    page = names_of("uneven_layers")
    said, written = stages(page["layout"]), stages(BY_HAND)
    assert [stage.count("t") for stage in said] == list(page["plan"].balance)
    assert [stage.count("t") for stage in written] == page["by_hand"]
    for layout in (said, written):
        assert len(layout) == 40 and re.fullmatch("Et+L", "".join(layout))
    assert page["found"].makespan == page["plan"].makespan < page["cut"](page["by_hand"]).makespan


def test_the_numbers_of_first_and_last_are_the_best_that_megatron_takes():
    """The six others share the rest evenly. Stages are added up here without ``merged``."""
    page, makespans = names_of("uneven_layers"), {}
    for first, last in product(range(1, 20), repeat=2):
        each, left = divmod(80 - first - last, 6)
        if not left:
            ms = [page["embedding"] + first * page["block"], *[each * page["block"]] * 6]
            ms.append(last * page["block"] + page["head"])
            step = gp.simulate(gp.OneFOneB(8, 64), gp.Costs(forward=ms, input_grad=ms, weight_grad=ms))
            makespans[first, last] = step.makespan
    assert makespans == pytest.approx(page["pairs"])
    assert (page["first"], page["last"]) == min(makespans, key=makespans.get)


def test_the_loop_in_words_is_1f1b_and_hangs_in_sends_on_every_rank():
    page, plain = names_of("hang"), gp.OneFOneB(8, 32)
    hung = ProgramQueues("test", page["programs"], "blocking")
    assert [hung.rows[rank][hung.stuck[rank]][0][1:6] for rank in range(8)] == ["SEND_"] * 8
    before, after = page["programs"], page["together"]
    assert before != after and sorted(before.split()) == sorted(after.replace("IRECV", "RECV").split())
    for order in (gp.device_programs(before).schedule, gp.device_programs(after).schedule, page["mended"]):
        assert order.actions == plain.actions
