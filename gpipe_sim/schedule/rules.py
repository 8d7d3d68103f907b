"""The two tables that give a schedule its meaning: what an action needs, and what it holds.

Everything that times, checks, counts or runs an order reads them here, and nothing else knows them.

The life of a message, from the action that makes it to the one that needs it (``NEEDS``):

    device 0   [ 0F3 ]
                     `---- on its way ----.
    device 1                    [ 1F2 ]   | waits in a buffer of device 1   [ 1F3 ]
                                          arrives                         is used up when 1F3 ends

The life of what a stage holds for one microbatch (``HOLDS``), plain, with a split backward, and recomputed:

    [ F ]======== saved ========[ B ]
    [ F ]======== saved ========[ I ]==== pending ====[ W ]
    [ F ]------- boundary -------[ R ]==== saved ====[ B ]
"""

from gpipe_sim.schedule.actions import Kind

#: What an action waits for: (kind, how many stages further along the model), same microbatch.
#: Of these, it waits for the ones that its schedule contains. A backward reads what its forward saved
#: (or R restored) and the gradient from the stage after, which either B or I sends. R reads only a
#: boundary input, which was there when F ran: it does not wait for the gradient.
_BACKWARD = ((Kind.F, 0), (Kind.R, 0), (Kind.B, 1), (Kind.I, 1))
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
PENDING = "pending weight gradients"  #: what of that a weight gradient still needs
#: What an action makes (+1) and frees (-1) on its device, for its stage and microbatch, when it ends.
HOLDS: dict[Kind, dict[str, int]] = {
    Kind.F: {SAVED: +1},
    Kind.B: {SAVED: -1},
    Kind.I: {SAVED: -1, PENDING: +1},
    Kind.W: {PENDING: -1},
    Kind.R: {BOUNDARY: -1, SAVED: +1},
    Kind.U: {},
}
#: A forward that R will run again keeps only its input.
HOLDS_RECOMPUTED: dict[str, int] = {BOUNDARY: +1}


def holds(kind: Kind, recomputed: bool) -> dict[str, int]:
    """What an action of this kind makes and frees; ``recomputed``: whether the schedule has an R for it."""
    return HOLDS_RECOMPUTED if recomputed and kind is Kind.F else HOLDS[kind]


def in_flight(kind: Kind) -> int:
    """By how many microbatches an action changes what its device holds, in whatever form: +1, 0 or -1."""
    return sum(HOLDS[kind].values())
