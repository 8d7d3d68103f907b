"""Lesson 15: a V from one strand."""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from gpipe_sim.course import answers
from gpipe_sim.course.build import build, exercise
from gpipe_sim.course.called import result_of
from gpipe_sim.course.own_rows import drawn, drawn_in_slots
from gpipe_sim.course.reply import Reply, almost, correct, is_whole, keep_working
from gpipe_sim.course.rows import Rows, rows_from, spelled

PERIOD = 6  #: slots from one microbatch to the next: F, I and W of two stages
SHOWN = 8  #: microbatches of a V of four devices that a reply draws
Slots = dict[tuple[int, str], int]  #: {(stage, kind): slot} of microbatch 0 on one device
#: devices, pause: in the third two F and I of a device share a slot
HIDDEN_STRANDS = ((4, 0), (5, 0), (3, 0), (3, 2), (1, 1), (8, 0), (7, 4), (10, 2))
#: devices, microbatches, period; beside these a strand is tried in which two actions share a slot
HIDDEN_STAMPS = ((4, 3, 6), (5, 7, 6), (3, 5, 9), (2, 1, 6), (7, 12, 6))


@exercise('write the slots of microbatch 0, such as {"0F": 0, "1F": 1, ...}')
def slots_by_hand(answer: object) -> Reply:
    """Check the slots of a microbatch in a V of two devices, {"0F": 0, ...}, by F, I and W of four stages."""
    if not isinstance(answer, dict):
        return keep_working(f'write a dict such as {{"0F": 0, "1F": 1}} (got {type(answer).__name__})')
    given: dict[tuple[int, str], object] = {}
    for key, slot in answer.items():
        if not isinstance(key, str) or not re.fullmatch("[0-3][FIW]", key):
            return keep_working(f"{key!r} is no action here. Which stages are there, and which kinds?")
        given[int(key[0]), key[1]] = slot
    strand = [{key: slot for key, slot in given.items() if key[0] in (k, 3 - k)} for k in range(2)]
    _wrong_strand(strand, 2, 0, "")
    told = "no two share a slot, for any microbatch. Of six slots in a row, how many are left over?"
    return drawn_in_slots(correct(told), answers.v_strand(2), PERIOD)


@build("v_strand")
def v_strand(answer: Callable) -> Reply:
    """Check ``answer(K, pause)``: of each device of a V the slots of microbatch 0, {(stage, kind): slot}."""
    where = "with K = 4, and no pause given"
    four: Any = result_of(answer, 4, where=where, plain=False)
    _wrong_strand(four, 4, 0, f"{where}: ")
    for K, pause in HIDDEN_STRANDS:
        where = f"with K = {K}, pause = {pause}: "
        strand: Any = result_of(answer, K, pause, where=where.removesuffix(": "), plain=False)
        _wrong_strand(strand, K, pause, where)
    told = correct(f"every action in its slot, for {len(HIDDEN_STRANDS)} Vs of 1 to 10 devices")
    return drawn(told, answers.stamped(four, SHOWN, PERIOD))


def _wrong_strand(strand: object, K: int, pause: int, where: str) -> None:
    """Raise what is wrong with a student's strand: what it is, then F, then I, then W."""
    if (
        not isinstance(strand, list | tuple)
        or len(strand) != K
        or not all(isinstance(each, dict) for each in strand)
    ):
        raise keep_working(f"{where}it gives {strand!r}. What would a list with a dict for each device be?")
    wanted = answers.v_strand(K, pause)
    for k, (slots, right) in enumerate(zip(strand, wanted, strict=True)):
        if missing := [key for key in right if key not in slots]:
            raise keep_working(f"{where}{_named(missing[0])} of device {k} has no slot. {_WHICH}")
        if extra := [key for key in slots if key not in right]:
            raise keep_working(f"{where}device {k} has {extra[0]!r}. {_WHICH}")
        if wrong := [key for key, slot in slots.items() if not is_whole(slot)]:
            said = f"the slot of {_named(wrong[0])} is {slots[wrong[0]]!r}"
            raise keep_working(f"{where}{said}. Which whole number is that?")
    for kind in "FIW":
        for k, (slots, right) in enumerate(zip(strand, wanted, strict=True)):
            for key in sorted(right, key=lambda each: right[each]):
                if key[1] == kind and slots[key] != right[key]:
                    reply = _other_slot(
                        key, slots, right, pause, f"{where}on device {k}, {_named(key)} is in slot"
                    )
                    raise drawn_in_slots(reply, strand, PERIOD, key)


def _named(action: tuple[int, str]) -> str:
    """(2, "F") as ``2F``."""
    return f"{action[0]}{action[1]}"


_WHICH = "Which two stages has a device, and which three kinds of action has each?"


def _other_slot(key: tuple[int, str], slots: Slots, right: Slots, pause: int, its: str) -> Reply:
    """What is wrong with the slot of an action, if all before it are right."""
    (s, kind), slot, due = key, slots[key], right[key]
    if kind == "F":
        return keep_working(f"{its} {slot}. It waits for the F of the stage before. In which slot is that?")
    if kind == "I" and pause and slot == due - pause:
        return almost(f"{its} {slot}, as without a pause. Which I does a pause put later, and by how much?")
    if kind == "I":
        asks = "Which stage's gradient is made first, and how many stages are behind this one?"
        return keep_working(f"{its} {slot}. {asks}")
    if slot <= slots[s, "I"]:
        return keep_working(f"{its} {slot}, and {s}I in slot {slots[s, 'I']}. What does a W read?")
    for other in sorted(right, key=lambda each: right[each]):
        placed = other[1] != "W" or right[other] < due
        if placed and (slot - right[other]) % PERIOD == 0:
            return keep_working(f"{its} {slot}. {_meets(other, right[other], key, slot)}")
    if slot > due:
        first = f"its I is done after slot {slots[s, 'I']}"
        return almost(f"{its} {slot}, and {first}. Which slots between are free for every microbatch?")
    return keep_working(
        f"{its} {slot}. Which other W has its I before this one, and takes the first free slot?"
    )


def _meets(other: tuple[int, str], at: int, key: tuple[int, str], slot: int) -> str:
    """Which microbatches of two actions want the device in the same slot, and a question."""
    later = (slot - at) // PERIOD
    if later == 0:
        return f"{_named(other)} is there already. Which slot is next?"
    one, two = (
        f"{_named(other)} of microbatch {max(later, 0)}",
        f"{_named(key)} of microbatch {max(-later, 0)}",
    )
    return f"In slot {max(slot, at)} {one} meets {two}. Which slot is free for every microbatch?"


@build("stamped")
def stamped(answer: Callable) -> Reply:
    """Check ``answer(strand, M, period)``: a strand for each microbatch, ``period`` slots apart."""
    made_up = [(_a_strand(K, period), M, period) for K, M, period in HIDDEN_STAMPS]
    every = [(answers.v_strand(4), SHOWN, PERIOD), (answers.v_strand(3), 4, PERIOD), *made_up]
    given = []
    for n, (strand, M, period) in enumerate(every):
        wanted = answers.stamped(strand, M, period)
        which = "a made-up strand" if n > 1 else "the V"
        where = f"with {which} of {len(strand)} devices, M = {M}, period {period}"
        how: dict = {"tuples": True, "whole": ("strand",)}
        given.append(rows_from(answer, strand, M, period, wanted=wanted, where=where, **how))
        for k, slots in enumerate(strand):
            _wrong_order(given[-1], k, slots, period, where)
    told = correct(f"every slot in its place, at {len(every) - 1} sizes that are not on this page")
    return drawn(told, given[0])


def _a_strand(K: int, period: int) -> list[dict[tuple[int, str], int]]:
    """A V with its turn in the middle and W much later; no two actions of a device share a slot."""
    strand = []
    for k in range(K):
        slots: dict = {}
        for s in (2 * K - 1 - k, k):  # not in the order of their slots
            slots |= {(s, "W"): 9 * K - s, (s, "I"): 4 * K - 1 - s, (s, "F"): s}
        taken: set[int] = set()
        for action, slot in sorted(slots.items(), key=lambda item: item[1]):
            while slot % period in taken:
                slot += 1
            taken.add(slot % period)
            slots[action] = slot
        strand.append(slots)
    return strand


def _wrong_order(rows: Rows, k: int, slots: Slots, period: int, where: str) -> None:
    """Raise which two actions of a row stand the wrong way round. Two in one slot may stand either way."""
    row = rows[k]
    at = [slots[s, kind] + m * period for s, kind, m in row]
    for n, (first, then) in enumerate(pairwise(at)):
        if first > then:
            its = ", ".join(f"{s}{kind} at {slot}" for (s, kind), slot in slots.items())
            pair = f"{spelled(row[n])} comes before {spelled(row[n + 1])}"
            said = f"device {k} has microbatch 0 in the slots {its}, and on your row {pair}"
            raise drawn(keep_working(f"{where}: {said}. In which slot is each of the two?"), rows, (k, n))
