"""The messages of an order: what crosses from one device to another, each once however many need it."""

from typing import NamedTuple

import numpy as np

from gpipe_sim.core.program import Column, Program


class Traffic(NamedTuple):
    """The messages, sorted by the place of their sender in ``levels.order``, then as its entry sends them.

    ``of_need`` is the number of the message for each need that crosses, in the order of ``program.needs``;
    ``need`` is the first need of each message, among those. ``sender`` is a place in ``levels.order``.
    ``link`` numbers the pairs of devices in ``pairs``, (source, target). ``turn`` is 1 for the second message
    of an entry on one link, as a pair may have, otherwise 0. ``queue`` lists the messages link after link,
    and ``follows`` says of each of these whether the one before it in the list is on its link.
    """

    of_need: Column
    need: Column
    sender: Column
    link: Column
    pairs: tuple[tuple[int, int], ...]
    turn: Column
    queue: Column
    follows: Column


def traffic_of(program: Program) -> Traffic:
    """What crosses from one device to another, and on which link."""
    return program.once(_traffic)


def _traffic(program: Program) -> Traffic:
    needed = program.needs[program.crosses]
    sender, target = program.levels.rank[program.entry[needed]], program.target[program.crosses]
    source, devices = program.device[needed], program.devices
    keys = (sender.astype(np.int64) * (needed.max(initial=0) + 1) + needed) * devices + target
    _, first, of_need = np.unique(keys, return_index=True, return_inverse=True)
    pair, link = np.unique(source[first].astype(np.int64) * devices + target[first], return_inverse=True)
    pairs = tuple((int(each) // devices, int(each) % devices) for each in pair)
    queue = np.argsort(link, kind="stable")
    follows = np.zeros(len(queue), bool)
    follows[1:] = link[queue[1:]] == link[queue[:-1]]
    turn = np.zeros(len(queue), np.int8)
    turn[queue[1:]] = follows[1:] & (sender[first][queue[1:]] == sender[first][queue[:-1]])
    return Traffic(of_need.reshape(-1), first, sender[first], link.reshape(-1), pairs, turn, queue, follows)
