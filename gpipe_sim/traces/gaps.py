"""What stands between two actions: the wait for a message, and perhaps one for the own send before it."""

from collections.abc import Iterable

from gpipe_sim.traces.kineto import RankTrace, Timed, began_in
from gpipe_sim.traces.ran import Ran


def after_wait(trace: RankTrace, ran: Ran, receives: Iterable[Timed], before: Ran | None) -> Ran:
    """The action, with when its receives were posted and when the wait for them ended, if that is known.

    A receive that follows an action of the other direction is posted with that one's send, whose wait comes
    first: only from then on does the wait say anything of the message. If another thread made the send, its
    wait is not in the trace, and nothing is known.
    """
    posts = list(receives)
    waits = [next(began_in(trace.waits, post.start, post.end + 1), None) for post in posts]
    done = max((wait.end for wait in waits if wait), default=None)
    if done is None or done > ran.start:
        return ran._replace(called=min([ran.called, *(post.start for post in posts)]))
    called = posts[0].start
    if before and before.part.kind is not ran.part.kind:
        sends = [send.end for send in began_in(trace.sends, before.end, ran.start)]
        called = max(called, max(sends, default=done))
    return ran._replace(called=called, received=done)
