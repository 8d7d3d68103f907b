"""Actions of Schedule1F1B, which labels nothing: operators within autograd's engine are a backward's.

    recv_  [ wait ]  operators        send, recv_  [ wait ]  operators of the engine    send, recv_ ...
                     \\--- forward --/                         \\------- backward -------/

All but the first stage receive before each forward, all but the last before each backward, so a receive
begins the next action. What nothing announces is no action, such as the operators that load data. A send may
be missing in the trace, if another thread makes it; then forwards of stage 0 that follow each other are told
apart by their number of operators.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.traces.gaps import after_wait
from gpipe_sim.traces.kineto import RankTrace, Timed, began_in, outermost
from gpipe_sim.traces.ran import Ran

POSTING = {"aten::detach", "detach"}  #: what a send does before it is posted, perhaps after a wait


@dataclass
class _Piece:
    """Operators of one action in turn, the receives before it and the send after it."""

    kind: Kind
    receives: list[Timed]
    operators: list[Timed] = field(default_factory=list)
    sent: float | None = None


def unlabelled(trace: RankTrace, stage: int, stages: int) -> list[Ran]:
    """The forwards and backwards of a rank in their order; microbatches are numbered later, and are 0."""
    found: list[Ran] = []
    for piece in _apart(list(_pieces(trace, stage, stages)), stage):
        counts = [at for at, each in enumerate(piece.operators) if each.name not in POSTING]
        start, end = piece.operators[0].start, piece.operators[max(counts, default=-1)].end
        ran = Ran(Action(stage, piece.kind, 0), start, end, start, None, piece.sent)
        ran = after_wait(trace, ran, piece.receives, found[-1] if found else None)
        found.append(ran if ran.received is None else ran._replace(start=ran.received))
    return found


def _pieces(trace: RankTrace, stage: int, stages: int) -> Iterator[_Piece]:
    receives: list[Timed] = []
    piece, closed = None, True
    for event, kind in _events(trace):
        if event.name == "c10d::recv_":
            receives.append(event)
            closed = True
        elif event.name == "c10d::send":
            if piece and piece.sent is None:
                piece.sent = event.start
            closed = True
        elif piece and kind is piece.kind and not closed:
            piece.operators.append(event)
        elif receives or stage == (0 if kind is Kind.F else stages - 1):
            if piece:
                yield piece
            piece, closed, receives = _Piece(kind, receives, [event]), False, []
    if piece:
        yield piece


def _events(trace: RankTrace) -> list[tuple[Timed, Kind]]:
    """Posts and outermost operators of the main thread, and the engine's on any, without an optimizer's."""
    main = [event for event in trace.operators if event.thread == trace.main]
    events = outermost(sorted([*main, *trace.engine], key=lambda each: (each.start, -each.end)))
    busy = [(each.start, each.end) for each in trace.optimizer]
    engine = {id(each) for each in trace.engine}
    found = [(each, Kind.B if id(each) in engine else Kind.F) for each in events if not _within(busy, each)]
    found += [(post, Kind.F) for post in trace.posts]
    return sorted(found, key=lambda each: each[0].start)


def _within(windows: list[tuple[float, float]], event: Timed) -> bool:
    return any(start <= event.start < end for start, end in began_in(windows, -inf, event.start + 1e-3))


def _apart(pieces: list[_Piece], stage: int) -> Iterator[_Piece]:
    """On stage 0, forwards that nothing separates; and without what is none, as of data or an optimizer.

    A send ends a forward, as many operators long as most. Without one, it has the same operators as most.
    """
    names = [tuple(each.name for each in piece.operators) for piece in pieces if piece.kind is Kind.F]
    usual = _usual(names, len(pieces) - len(names)) if stage == 0 and names else ()
    for piece in pieces:
        if stage > 0 or piece.kind is Kind.B:
            yield piece
        elif piece.sent is not None:
            yield _Piece(Kind.F, [], piece.operators[-len(usual) :], piece.sent)
        else:
            yield from (_Piece(Kind.F, [], run) for run in _runs(piece.operators, usual))


def _usual(names: list[tuple[str, ...]], backwards: int) -> tuple[str, ...]:
    """The names of a forward's operators: of most that stand alone, else by the number of backwards."""
    size, rest = divmod(sum(map(len, names)), max(1, backwards))
    if len(names) < backwards and not rest and all(len(each) % size == 0 for each in names):
        return names[0][:size]
    return Counter(names).most_common(1)[0][0]


def _runs(operators: list[Timed], usual: tuple[str, ...]) -> Iterator[list[Timed]]:
    at = 0
    while at <= len(operators) - len(usual):
        run = operators[at : at + len(usual)]
        if tuple(each.name for each in run) == usual:
            yield run
        at += len(usual) if tuple(each.name for each in run) == usual else 1
