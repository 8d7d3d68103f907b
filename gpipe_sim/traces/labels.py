"""Actions by their labels: ``PP:2F0`` of the classes that label, ``Forward 3`` of ScheduleGPipe.

On a CPU a label of ``PP:`` covers the wait for the message, the action, and the loss; one of ScheduleGPipe
also posts the send at its end:

    PP:2RECV_F0   PP:2F0                                      PP:2SEND_F0
    [ post ]      [ wait |==== the action, its loss ====]     [ post ]
         `- gloo:recv ---'                                       `- gloo:send ------- - -

The end of ``gloo:recv`` is when wait() returned, so the action's true start. What was received or sent
goes with the action that it is for, the next or the last one of this stage, direction and microbatch.
"""

import re
from collections.abc import Iterator
from math import inf

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.traces.gaps import after_wait
from gpipe_sim.traces.gpu import on_gpu
from gpipe_sim.traces.kineto import RankTrace, Timed, began_in, outermost
from gpipe_sim.traces.ran import Ran

_N = r"([0-9]{1,9})"
ACTION = re.compile(rf"PP:{_N}([FBIW]){_N}")
PAIR = re.compile(rf"PP:\({_N}F{_N};{_N}B{_N}\)OVERLAP_F_B")
POST = re.compile(rf"PP:{_N}(SEND|RECV)_([FB]){_N}")
BARE = re.compile(rf"(Forward|Backward) {_N}")

TAIL = 0.5  #: milliseconds; how long the label's own end takes, after the last operator
#: Of a message: the stage and microbatch of the action, and whether it is a backward's.
Key = tuple[int, int, bool]


def labelled(trace: RankTrace, stage: int) -> list[Ran]:
    """The actions that a file's labels name, in their order; bare labels are of this stage."""
    labels = [each for each in trace.labels if each.thread == trace.main]
    if named := [each for each in labels if each.name.startswith("PP:")]:
        labels = named  # bare ones may stand around those that a user adds
        if not any(POST.fullmatch(each.name) for each in named):
            windows = (window for label in named for window in _windows(trace, label, stage))
            return _posted_between(trace, [_ran(trace, *window) for window in windows])
    received: dict[Key, float | None] = {}
    last: dict[Key, int] = {}  # where in ``ran`` the action is that made what is sent next
    ran: list[Ran] = []
    for label in labels:
        if post := POST.fullmatch(label.name):
            key = int(post[1]), int(post[4]), post[3] == "B"
            if post[2] == "RECV":
                received[key] = _received(trace, label.start, label.end)
            elif (at := last.pop(key, None)) is not None:
                ran[at] = ran[at]._replace(sent=_sent(trace, label))
        for action, low, high in _windows(trace, label, stage):
            key = action.stage, action.microbatch, action.kind is not Kind.F
            if action.kind is not Kind.W:
                last[key] = len(ran)
            if BARE.fullmatch(label.name):
                ran.append(_bare(trace, action, low, high))
            else:
                ran.append(_ran(trace, action, low, high, key in received, received.pop(key, None)))
    return ran


def _posted_between(trace: RankTrace, ran: list[Ran]) -> list[Ran]:
    """Actions of a loop that labels these alone, so that its sends and receives stand between the labels."""
    found: list[Ran] = []
    for at, each in enumerate(ran):
        low, until = (found[-1].end if found else -inf), (ran[at + 1].start if at + 1 < len(ran) else inf)
        receives = [post for post in began_in(trace.posts, low, each.start) if post.name == "c10d::recv_"]
        if receives and not trace.kernels:
            each = after_wait(trace, each, receives, found[-1] if found else None)
        found.append(each._replace(sent=_first(trace, "c10d::send", each.end, until)))
    return found


def _windows(trace: RankTrace, label: Timed, stage: int) -> Iterator[tuple[Action, float, float]]:
    """The actions of a label, each with its window on the CPU."""
    if found := ACTION.fullmatch(label.name):
        yield Action(int(found[1]), Kind(found[2]), int(found[3])), label.start, label.end
    elif found := BARE.fullmatch(label.name):
        kind = Kind.F if found[1] == "Forward" else Kind.B
        yield Action(stage, kind, int(found[2])), label.start, label.end
    elif found := PAIR.fullmatch(label.name):
        turn = next(began_in(trace.engine, label.start, label.end), None)
        if turn is None:
            why = "records no operators, so nobody knows where its forward ends and its backward begins"
            raise trace.fail(f"{label.name} {why}: record ProfilerActivity.CPU too")
        before = [each.end for each in _operators(trace, label.start, turn.start)]
        until = min(max(before, default=turn.start), turn.start)
        yield Action(int(found[1]), Kind.F, int(found[2])), label.start, until
        yield Action(int(found[3]), Kind.B, int(found[4])), until, label.end


def _ran(
    trace: RankTrace, action: Action, low: float, high: float, posted: bool = False, done: float | None = None
) -> Ran:
    """The action in its window on the CPU, after the wait; on a GPU, from its first kernel to its last."""
    if trace.kernels:
        start, end = on_gpu(trace, low, high) or (inf, inf)  # without a kernel: ``steps`` finds it a place
        return Ran(action, start, end, low, done)
    unknown = posted and (done is None or done > high)  # when the wait ended; but operators come after it
    start = low if unknown or done is None else max(low, done)
    operators = list(_operators(trace, start, high))
    start = operators[0].start if unknown and operators else start
    last = max((each.end for each in operators), default=high)
    return Ran(action, start, last if high - TAIL < last < high else high, low, None if unknown else done)


def _bare(trace: RankTrace, action: Action, low: float, high: float) -> Ran:
    """An action of ScheduleGPipe, whose label also posts the receive, and last the send."""
    posted = _first(trace, "c10d::recv_", low, high) is not None
    found = _ran(trace, action, low, high, posted, _received(trace, low, high) if posted else None)
    sent = _first(trace, "c10d::send", low, high)
    return found if sent is None else found._replace(end=max(found.start, sent), sent=sent)


def _sent(trace: RankTrace, label: Timed) -> float | None:
    if trace.kernels:
        found = on_gpu(trace, label.start, label.end, messages=True)
        return found[0] if found else None
    sent = _first(trace, "c10d::send", label.start, label.end)
    return label.start if sent is None else sent


def _first(trace: RankTrace, name: str, low: float, high: float) -> float | None:
    return next((post.start for post in began_in(trace.posts, low, high) if post.name == name), None)


def _operators(trace: RankTrace, low: float, high: float) -> Iterator[Timed]:
    events = sorted([*began_in(trace.operators, low, high), *began_in(trace.engine, low, high)])
    return outermost(each for each in events if each.thread == trace.main)


def _received(trace: RankTrace, low: float, high: float) -> float | None:
    """When the receives that were posted in this window had come; None if nothing says so."""
    if trace.kernels:
        found = on_gpu(trace, low, high, messages=True)
        return found[1] if found else None
    return max((wait.end for wait in began_in(trace.waits, low, high)), default=None)
