"""The folded answers of all lessons: the textbook's, and these.

Lessons 02 to 15 end in a trainer that stands in one file, ``gpipe_sim/textbook.py``. Here is what they build
beside it, the best cut of a model and one device's program, and what comes after it: attention and what a
Transformer block keeps, a ring, a step in four terms, training on older weights, the rows of a stream that
nothing flushes, and matrices cut for tensor parallelism. ``mine`` puts the student's own versions in place.
"""

import numpy as np

from gpipe_sim.textbook import (  # noqa: F401
    NEEDS,
    ON_LINKS,
    SPLIT,
    Links,
    backward,
    capped_rows,
    clock,
    forward,
    gpipe_rows,
    input_gradient,
    interleaved_rows,
    light_forward,
    needs,
    putting_off,
    recompute,
    run,
    stages_of,
    stamped,
    step,
    v_strand,
    weight_gradient,
    with_links,
)


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


# lesson 13
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


# lesson 16
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


def llama_bytes(s, h, f, a, g):
    norm = 2 * s * h + 2 * s  # its input, and 1/rms
    qkv = 2 * s * h + 2 * (2 * s * g * h // a)  # queries; keys and values of g heads
    attention = 2 * s * h + qkv + 2 * a * s + 2 * s * h  # the first Linear's input, the sums, the last one's
    swiglu = 2 * s * h + 2 * (2 * s * f) + 2 * s * f  # its input, two arrays, their product
    return norm + attention + norm + swiglu


# lesson 17
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


def zero_1(gradients, links, weights, update):
    n = len(gradients)
    held = [np.array_split(gradient, n) for gradient in gradients]
    for turn in range(2 * (n - 1)):
        if turn == n - 1:
            for k in range(n):
                i = (k + 1) % n
                held[k][i] = update(k, np.array_split(weights[k], n)[i], held[k][i])
        for k in range(n):
            links.send(k, held[k][(k - turn) % n])
        for k in range(n):
            arrived, i = links.receive((k - 1) % n), (k - 1 - turn) % n
            held[k][i] = held[k][i] + arrived if turn < n - 1 else arrived
    return [np.concatenate(pieces) for pieces in held]


# lesson 18
def four_terms(plan):
    blocks = plan.M * plan.L / plan.K
    once = (24 * plan.h + 4 * plan.s) * plan.b * plan.s * plan.h / plan.t
    work = blocks * 4 * once / plan.flops
    array = 2 * plan.b * plan.s * plan.h
    tensor = blocks * 6 * 2 * (plan.t - 1) / plan.t * array / plan.bandwidth
    bubble = (plan.K - 1) / plan.M * (work + tensor)
    gradients = 2 * (plan.R - 1) / plan.R * 4 * plan.L / plan.K * plan.weights / plan.bandwidth
    return work, tensor, bubble, gradients


# lesson 19
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
