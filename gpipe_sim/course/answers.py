"""A pipeline by hand: the folded answers of the lessons, in one file.

This is what a student owns after lesson 13: a step over K stages, GPipe's, 1F1B's and interleaved rows, the
clock, recompute, the best cut, links, one device's program, and a split backward. Lesson 14 adds attention,
and what a Transformer block keeps; lesson 15 a ring, 16 a search for plans, 17 training on older weights and
the rows of a stream that nothing flushes. An action is a tuple:
``(2, "F", 0)`` is stage 2, forward, microbatch 0. A row is a list of actions, first to last; there is one for
each device. ``mine`` puts the student's own versions in place of these.
"""

import numpy as np


# lesson 02
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


# lesson 03
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


# lesson 04
def gpipe_rows(K, M):
    rows = []
    for k in range(K):
        forwards = [(k, "F", m) for m in range(M)]
        backwards = [(k, "B", m) for m in reversed(range(M))]
        rows.append(forwards + backwards)
    return rows


# lesson 05
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


# lesson 07
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


# lesson 08
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


# lesson 09
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


# lesson 11
def best_cut(costs, K):
    best = {(n, 1): (sum(costs[:n]), [n]) for n in range(1, len(costs) + 1)}
    for k in range(2, K + 1):
        for n in range(k, len(costs) + 1):
            options = []
            for i in range(k - 1, n):
                slowest, sizes = best[i, k - 1]
                options.append((max(slowest, sum(costs[i:n])), [*sizes, n - i]))
            best[n, k] = min(options)
    return best[len(costs), K][1]


# lesson 12
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


def program(k, K, M):
    ahead = min(K - k - 1, M)
    for n in range(ahead + M):
        m = n - ahead
        if n < M:
            if k > 0 and m <= 0:
                yield f"{k}RECV_F{n}"
            yield f"{k}F{n}"
            if k < K - 1:
                yield f"{k}SEND_F{n}"
        if m >= 0:
            if k < K - 1:
                yield f"{k}RECV_B{m}"
            yield f"{k}B{m}"
            if k > 0 and n + 1 < M:
                yield f"{k}RECV_F{n + 1}"
            if k > 0:
                yield f"{k}SEND_B{m}"


# lesson 13
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


# lesson 14
def one_head(q, k, v):
    scores = q @ k.T / np.sqrt(q.shape[1])
    shares = np.exp(scores)
    shares = shares / shares.sum(axis=1, keepdims=True)
    return shares @ v, shares


def attention(q, k, v, heads):
    b, s, h = v.shape
    y, shares = np.empty((b, s, h)), np.empty((b, heads, s, s))
    for i in range(b):
        for a in range(heads):
            own = slice(a * h // heads, (a + 1) * h // heads)
            y[i, :, own], shares[i, a] = one_head(q[i, :, own], k[i, :, own], v[i, :, own])
    return y, shares


def block_bytes(s, h, a):
    norm = 2 * s * h + 2 * s  # x normalised, and 1/std
    projections = 2 * s * h + 2 * s * h  # the inputs of the first linear layer and of the last
    heads = 6 * s * h + a * s * s * (2 + 1 + 2)  # q, k, v; shares, which of them stay, what is left
    network = 2 * s * h + 8 * s * h + 8 * s * h  # the inputs of Linear, GELU, Linear
    dropout = s * h
    return norm + projections + heads + dropout + norm + network + dropout


# lesson 15
def ring_sum(vectors, links):
    n = len(vectors)
    held = [np.array_split(vector, n) for vector in vectors]
    for turn in range(2 * (n - 1)):
        for k in range(n):
            links.send(k, held[k][(k - turn) % n])
        for k in range(n):
            arrived, i = links.receive((k - 1) % n), (k - 1 - turn) % n
            held[k][i] = held[k][i] + arrived if turn < n - 1 else arrived
    return [np.concatenate(pieces) for pieces in held]


# lesson 16
def plans_that_fit(job):
    found = []
    for K in range(1, job.devices + 1):
        R = job.devices // K
        if job.devices % K or job.layers % K or job.samples % R:
            continue
        layers, share = job.layers // K, job.samples // R
        for M in range(1, share + 1):
            if share % M:
                continue
            b = share // M
            pipeline = (M + K - 1) * (2 * job.startup + 3 * b * layers)
            ring = 2 * (R - 1) * (job.latency + layers * job.gradients / R / job.bandwidth)
            held = layers * (job.weights + min(K, M) * b * job.saved)
            if held <= job.room:
                found.append((pipeline + ring, held, K, R, M))
    return sorted(found)


# lesson 17
def delayed(stages, batches, delays, rate):
    history = [[(stage["W"], stage["b"])] for stage in stages]
    losses = []
    for x, target in batches:
        for stage, versions, delay in zip(stages, history, delays, strict=True):
            stage["W"], stage["b"] = versions[max(0, len(versions) - 1 - delay)]
            stage["dW"] = stage["db"] = 0
        losses.append(step(stages, x, target))
        for stage, versions in zip(stages, history, strict=True):
            W, b = versions[-1]
            versions.append((W - rate * stage["dW"], b - rate * stage["db"]))
    for stage, versions in zip(stages, history, strict=True):
        stage["W"], stage["b"] = versions[-1]
    return losses


def stream_rows(K, M):
    rows = []
    for k in range(K):
        ahead = min(K - k - 1, M)
        row = [(k, "F", m) for m in range(ahead)]
        for m in range(M):
            if ahead + m < M:
                row.append((k, "F", ahead + m))
            row += [(k, "B", m), (k, "U", m)]
        rows.append(row)
    return rows


def versions_seen(row):
    seen, updates = {}, 0
    for _, kind, m in row:
        if kind == "F":
            seen[m] = updates
        if kind == "U":
            updates += 1
    return seen


# lesson B
def cut_matrices(A, B, t):
    return list(zip(np.split(A, t, axis=1), np.split(B, t, axis=0), strict=True))


def partial_output(x, A_own, B_own):
    return np.maximum(x @ A_own, 0) @ B_own
