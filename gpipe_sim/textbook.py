"""A pipeline trainer in one file: what a student of the lessons has written by the end of lesson 15.

These are the lessons' own answers, so read it after them. ``python -m gpipe_sim.textbook`` trains with it.

An action is a tuple: ``(2, "F", 0)`` is stage 2, forward, microbatch 0. A row is a list of actions, first to
last; there is one for each device. Begin with ``main``, at the end: rows, then a clock, then an order, then
training. Then read from the top, where each part is marked with its lesson:

- ``forward``, ``backward``: one stage. It knows its own arrays, and what comes and goes over ``Links``.
- ``step``, ``run``: a whole step, whatever the order of its actions.
- ``gpipe_rows``, ``capped_rows``, ``interleaved_rows``, ``putting_off``, ``stamped``: schedules, which are
  nothing but rows, and know no arrays.
- ``NEEDS``, ``clock``: when each action ends, from rows, a table of what needs what, and a cost of each kind.
- ``recompute``, ``input_gradient``, ``weight_gradient``: other kinds of work, for ``run`` as it is.
- ``with_links``: messages that take time, as rows for the same clock.
"""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np

from gpipe_sim.dataset import digits


# lesson 02: a stage, and a step that goes once through all stages and back
class Links:
    """What is on its way between devices: copies of arrays, each under a name."""

    def __init__(self):
        self.arrays = {}

    def send(self, name, array):
        self.arrays[name] = array.copy()

    def receive(self, name):
        return self.arrays.pop(name)


def stages_of(layers):
    """One stage for each linear layer. All but the last end with a ReLU."""
    linear = [layer.parameters for layer in layers if layer.parameters]
    stages = [{"W": each["W"], "b": each["b"], "relu": True, "dW": 0, "db": 0, "kept": {}} for each in linear]
    stages[-1]["relu"] = False
    return stages


def forward(stage, s, m, links):
    x = links.receive(("y", s - 1, m))
    y = x @ stage["W"] + stage["b"]
    if stage["relu"]:
        y = np.maximum(y, 0)
    stage["kept"][m] = x, y
    links.send(("y", s, m), y)


def backward(stage, s, m, links):
    dy = links.receive(("dy", s, m))
    x, y = stage["kept"].pop(m)
    if stage["relu"]:
        dy = dy * (y > 0)
    stage["dW"] = stage["dW"] + x.T @ dy
    stage["db"] = stage["db"] + dy.sum(axis=0)
    if s > 0:
        links.send(("dy", s - 1, m), dy @ stage["W"].T)


def step(stages, x, target):
    links, last = Links(), len(stages) - 1
    links.send(("y", -1, 0), x)
    for s in range(len(stages)):
        forward(stages[s], s, 0, links)
    wrong = links.receive(("y", last, 0)) - target
    links.send(("dy", last, 0), 2 * wrong / wrong.size)
    for s in reversed(range(len(stages))):
        backward(stages[s], s, 0, links)
    return np.mean(wrong**2)


# lesson 03: a step of M microbatches, in whatever order the actions come
def run(order, stages, x, target, M, work):
    links, last, loss = Links(), len(stages) - 1, 0
    targets = np.array_split(target, M)
    for m, piece in enumerate(np.array_split(x, M)):
        links.send(("y", -1, m), piece)
    for s, kind, m in order:
        work[kind](stages[s], s, m, links)
        if (s, kind) == (last, "F"):
            wrong = links.receive(("y", last, m)) - targets[m]
            links.send(("dy", last, m), 2 * wrong / target.size)
            loss += (wrong**2).sum() / target.size
    return loss


# lesson 04: who does what in which order: GPipe
def gpipe_rows(K, M):
    rows = []
    for k in range(K):
        forwards = [(k, "F", m) for m in range(M)]
        backwards = [(k, "B", m) for m in reversed(range(M))]
        rows.append(forwards + backwards)
    return rows


# lesson 05: what an action needs, and when it ends
NEEDS = {"F": [("F", -1)], "B": [("F", 0), ("B", +1)]}


def needs(action, S, table):
    s, kind, m = action
    return [(s + way, other, m) for other, way in table[kind] if 0 <= s + way < S]


def clock(rows, table, cost):
    S = 1 + max(s for row in rows for s, kind, m in row)
    ends, free, todo = {}, [0] * len(rows), [list(row) for row in rows]
    moved = True
    while moved:
        moved = False
        for k, row in enumerate(todo):
            while row and all(need in ends for need in needs(row[0], S, table)):
                action = row.pop(0)
                arrived = [ends[need] for need in needs(action, S, table)]
                free[k] = ends[action] = max([free[k], *arrived]) + cost[action[1]]
                moved = True
    return ends


# lesson 07: rows under a cap on what each device holds; with K-k on device k, these are 1F1B's
def capped_rows(K, M, caps, table, cost):
    rows, ends, free = [[] for _ in range(K)], {}, [0] * K
    while len(ends) < 2 * K * M:
        choices = []
        for k, row in enumerate(rows):
            forwards = sum(kind == "F" for s, kind, m in row)
            backwards = len(row) - forwards
            wanted = [(k, "B", backwards)]
            if forwards < M and forwards - backwards < caps[k]:
                wanted.append((k, "F", forwards))
            for action in wanted:
                arrived = [ends.get(need) for need in needs(action, K, table)]
                if None not in arrived:
                    choices.append((max([free[k], *arrived]), action[1], action))
        start, kind, action = min(choices)  # the earliest; of two on a device at once, "B" before "F"
        rows[action[0]].append(action)
        free[action[0]] = ends[action] = start + cost[kind]
    return rows


# lesson 08: keep the input alone, and compute the rest again
def light_forward(stage, s, m, links):
    forward(stage, s, m, links)
    x, _ = stage["kept"][m]
    stage["kept"][m] = (x,)


def recompute(stage, s, m, links):
    (x,) = stage["kept"][m]
    y = x @ stage["W"] + stage["b"]
    if stage["relu"]:
        y = np.maximum(y, 0)
    stage["kept"][m] = x, y


# lesson 09: several stages on each device
def interleaved_rows(K, M, V):
    rows = []
    for k in range(K):
        turns = [(v, m) for first in range(0, M, K) for v in range(V) for m in range(first, first + K)]
        forwards = [(v * K + k, "F", m) for v, m in turns]
        backwards = [((V - 1 - v) * K + k, "B", m) for v, m in turns]
        warmup = min(2 * (K - k - 1) + (V - 1) * K, M * V)
        row = forwards[:warmup]
        for pair in zip(forwards[warmup:], backwards, strict=False):
            row += pair
        rows.append(row + backwards[M * V - warmup :])
    return rows


# lesson 12: links: one more row for each, whose actions are messages
ON_LINKS = {"F": [("f", -1)], "f": [("F", -1)], "B": [("F", 0), ("b", +1)], "b": [("B", +1)]}


def with_links(rows):
    home = {s: k for k, row in enumerate(rows) for s, kind, m in row}
    links = {}
    for k, row in enumerate(rows):
        for s, kind, m in row:
            to = s + 1 if kind == "F" else s - 1
            if to in home:
                link = links.setdefault((k, home[to]), [])
                link.append((s + to, kind.lower(), m))
    devices = [[(2 * s, kind, m) for s, kind, m in row] for row in rows]
    return devices + list(links.values())


# lesson 14: a backward in two halves, of which the second can wait
SPLIT = NEEDS | {"I": [("F", 0), ("I", +1)], "W": [("I", 0)]}


def input_gradient(stage, s, m, links):
    dy = links.receive(("dy", s, m))
    x, y = stage["kept"].pop(m)
    if stage["relu"]:
        dy = dy * (y > 0)
    stage.setdefault("pending", {})[m] = x, dy
    if s > 0:
        links.send(("dy", s - 1, m), dy @ stage["W"].T)


def weight_gradient(stage, s, m, links):
    x, dy = stage["pending"].pop(m)
    stage["dW"] = stage["dW"] + x.T @ dy
    stage["db"] = stage["db"] + dy.sum(axis=0)


def putting_off(delays, M):
    rows = []
    for k, delay in enumerate(delays):
        ahead = min(len(delays) - k - 1, M)
        row = [(k, "F", m) for m in range(ahead)]
        for m in range(M):
            if ahead + m < M:
                row.append((k, "F", ahead + m))
            row.append((k, "I", m))
            if m >= delay:
                row.append((k, "W", m - delay))
        rows.append(row + [(k, "W", m) for m in range(max(M - delay, 0), M)])
    return rows


# lesson 15: a V: one microbatch in slots, and a stamp for each
def v_strand(K, pause=0):
    """Of each device the slots of microbatch 0: {(stage, kind): slot}. The first I may come after a pause."""
    strand, S = [], 2 * K
    for k in range(K):
        held, slots = (k, S - 1 - k), {}
        for s in held:
            slots[s, "F"] = s
            slots[s, "I"] = 2 * S - 1 - s + pause
        for s in reversed(held):
            slot = slots[s, "I"] + 1
            while slot % 6 in {taken % 6 for taken in slots.values()}:
                slot += 1
            slots[s, "W"] = slot
        strand.append(slots)
    return strand


def stamped(strand, M, period):
    rows = []
    for slots in strand:
        stamps = [(slot + m * period, s, kind, m) for (s, kind), slot in slots.items() for m in range(M)]
        rows.append([(s, kind, m) for slot, s, kind, m in sorted(stamps)])
    return rows


# all of it at work: the digits, on four devices
def drawn_layers(widths, rng):
    for n, m in pairwise(widths):
        W = rng.normal(0, np.sqrt(2 / n), (n, m))
        yield SimpleNamespace(parameters={"W": W, "b": np.zeros(m)})


def train(stages, order, x, target, M, rate, size, epochs):
    rng, work = np.random.default_rng(0), {"F": forward, "B": backward}
    for _ in range(epochs):
        for batch in rng.permutation(len(x))[: len(x) // size * size].reshape(-1, size):
            run(order, stages, x[batch], target[batch], M, work)
            for stage in stages:
                stage["W"], stage["b"] = stage["W"] - rate * stage["dW"], stage["b"] - rate * stage["db"]
                stage["dW"] = stage["db"] = 0


def outputs(stages, x):
    links = Links()
    links.send(("y", -1, 0), x)
    for s, stage in enumerate(stages):
        forward(stage, s, 0, links)
        stage["kept"].clear()
    return links.receive(("y", len(stages) - 1, 0))


def main(K=4, M=8, epochs=20):
    cost, data = {"F": 1, "B": 2}, digits()
    rows = capped_rows(K, M, [K - k for k in range(K)], NEEDS, cost)
    ends = clock(rows, NEEDS, cost)
    length, work = max(ends.values()), sum(cost[kind] for s, kind, m in ends)
    print(f"1F1B, {K} devices, {M} microbatches: a step takes {length}, bubble {1 - work / (K * length):.1%}")
    stages = stages_of(drawn_layers([64] * K + [10], np.random.default_rng(0)))
    order = sorted(ends, key=ends.get)
    train(stages, order, data.x, np.eye(10)[data.y], M, 0.5, 32, epochs)
    right = outputs(stages, data.x_held_out).argmax(axis=1) == data.y_held_out
    print(f"{epochs} epochs: {right.mean():.1%} of {len(right)} digits that it has not seen are read right")


if __name__ == "__main__":
    main()
