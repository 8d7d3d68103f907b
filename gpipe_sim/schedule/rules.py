"""What must come before what, said once."""

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
