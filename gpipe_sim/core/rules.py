"""The two tables that give a schedule its meaning: what an action needs, and what it holds.

Everything that times, checks, counts or runs an order reads these two tables. An order runs if every stage
and microbatch has its F, and its B or its I and W, once each and on one device (``problems``), and if no
device gets stuck waiting for what ``NEEDS`` says (``levels``). ``lowering`` looks ``NEEDS`` up once for every
action; everything else reads ``Program.needs``.

The life of a message, from the action that makes it to the action that needs it (``NEEDS``):

    device 0   [ 0F3 ]
                     `---- on its way ----.
    device 1                    [ 1F2 ]   | waits in a buffer of device 1   [ 1F3 ]
                                          arrives                         is used up when 1F3 ends

Its bytes count on device 1 from the moment it is sent.

What a stage holds for one microbatch, and for how long (``HOLDS``): with a full backward, with a split
backward, and with recompute:

    [ F ]======== saved ========[ B ]
    [ F ]======== saved ========[ I ]==== pending ====[ W ]
    [ F ]------- boundary -------[ R ]==== saved ====[ B ]
"""

from gpipe_sim.core.actions import Kind

#: A backward needs all of these that the schedule has: its forward; R, if that restores what the forward
#: saved; and the next stage's B or I, which sends the gradient.
_BACKWARD = ((Kind.F, 0), (Kind.R, 0), (Kind.B, 1), (Kind.I, 1))
#: What an action waits for: actions on the same microbatch, each as (kind, step): the action of that kind
#: ``step`` stages further on, so (F, -1) is the forward of the stage before. If the schedule does not contain
#: one of them, nobody waits for it. R reads only the boundary input, which is there once F has run, so it
#: does not wait for a gradient. An update of a stage with several copies also waits for the last gradient of
#: each (``lowering.NEEDS_OF_UPDATES``): it applies their sum.
NEEDS: dict[Kind, tuple[tuple[Kind, int], ...]] = {
    Kind.F: ((Kind.F, -1),),
    Kind.R: ((Kind.F, 0),),
    Kind.B: _BACKWARD,
    Kind.I: _BACKWARD,
    Kind.W: ((Kind.I, 0),),
    Kind.U: ((Kind.B, 0), (Kind.W, 0)),
}

BOUNDARY = "boundary inputs"  #: a stage's input, kept so that its forward can be run again
SAVED = "saved activations"  #: what a forward saved for its backward
PENDING = "kept for W"  #: what W still needs after I has run
MESSAGES = "messages"  #: what another stage sent: there until the action that needs it (``NEEDS``) ends
#: What an action makes (+1) and frees (-1) on its device, for its stage and microbatch, when it ends.
HOLDS: dict[Kind, dict[str, int]] = {
    Kind.F: {SAVED: +1},
    Kind.B: {SAVED: -1},
    Kind.I: {SAVED: -1, PENDING: +1},
    Kind.W: {PENDING: -1},
    Kind.R: {BOUNDARY: -1, SAVED: +1},
    Kind.U: {},
}
#: A forward that R will run again keeps only its boundary input.
HOLDS_RECOMPUTED: dict[str, int] = {BOUNDARY: +1}


def holds(kind: Kind, recomputed: bool) -> dict[str, int]:
    """What an action of this kind makes (+1) and frees (-1).

    ``recomputed`` says whether the schedule has an R for its stage and microbatch.
    """
    return HOLDS_RECOMPUTED if recomputed and kind is Kind.F else HOLDS[kind]


def in_flight(kind: Kind) -> int:
    """+1 if an action of this kind makes its device hold one microbatch more, -1 if one less, otherwise 0.

    Boundary inputs, saved activations and pending weight gradients all count as holding the microbatch.
    """
    return sum(HOLDS[kind].values())
