"""A family, breadth first: what the check says to right answers and to the usual wrong ones."""

from replies import changed_text, each_reply

import gpipe_sim as gp
from gpipe_sim.course.exercises import breadth
from gpipe_sim.course.rows import as_schedule, rows_of

RIGHT = """
def breadth_first(placement, M):
    rows = []
    for stages in placement:
        forwards = [(s, "F", m) for s in sorted(stages) for m in range(M)]
        rows.append(forwards + [(s, "B", m) for s, _, m in reversed(forwards)])
    return rows
"""


def by_sorting(placement, M):
    rows = []
    for held in placement:
        row = [(s, kind, m) for s in held for kind in "BF" for m in range(M)]
        row.sort(key=lambda a: (a[1] == "B", -a[0] if a[1] == "B" else a[0], -a[2] if a[1] == "B" else a[2]))
        rows.append(row)
    return rows


def but(*swaps):
    return changed_text(RIGHT, *swaps)


def depth_first(placement, M):
    return but(("for s in sorted(stages) for m in range(M)", "for m in range(M) for s in sorted(stages)"))(
        placement, M
    )


def stage_by_stage(placement, M):
    return [[(s, kind, m) for s in sorted(held) for kind in "FB" for m in range(M)] for held in placement]


def in_text(placement, M):
    return [" ".join(f"{s}{kind}{m}" for s, kind, m in row) for row in by_sorting(placement, M)]


test_replies = each_reply(
    breadth,
    check={
        "correct": [
            (but(), "breadth first at 11 sizes; yours, drawn here, takes"),
            (by_sorting, "What does a device hold at its turn?"),
        ],
        "almost": [(but(("sorted(stages)", "(stages.sort() or stages)")), "placement is not what it was")],
        "keep working": [
            (but(("sorted(stages)", "stages")), "At which of its stages is a microbatch first?"),
            (but(("sorted(stages)", "range(2)")), "0F0 is work of stage 0. Which stages are on this device?"),
            (depth_first, "How many of the 5 microbatches has it done at that stage before 3F0?"),
            (but(("in reversed(forwards)", "in forwards")), "is a microbatch back first?"),
            (but(("reversed(forwards)", "sorted(forwards, key=lambda a: -a[0])")), "on the way back?"),
            (but(("in range(M)]", "in reversed(range(M))]")), "on the way there?"),
            (stage_by_stage, "Which of these come first in a row that is breadth first?"),
            (but(("forwards + ", "")), "It lacks 2F0 2F1 2F2 2F3 ... When should the device do that?"),
            (but(("in placement", "in placement[:1]")), "it gives a list of 1. How many devices want a row?"),
            (but(("rows.append(", "rows.extend(")), "it gives a list of 90. How many devices"),
            (but(("range(M)", "range(M + 1)")), "2F5 is of microbatch 5, and 4 is the last."),
            (in_text, "What would a list of actions be?"),
        ],
    },
)


def test_dealt_out_like_cards_it_is_the_librarys_and_anywhere_it_gives_right_gradients():
    for K, M, V in ((2, 3, 2), (4, 8, 2), (3, 5, 3)):
        placement = [list(range(k, K * V, K)) for k in range(K)]
        assert by_sorting(placement, M) == rows_of(gp.families.LoopedBFS(K, M, V))
    data, layers = gp.digits(), gp.mlp([64, *5 * [16], 10])
    alone = gp.single_device_step(layers, (data.x[:12], data.y[:12]), gp.cross_entropy).gradients
    for seed in range(20):
        size = breadth.task(seed)
        S = sum(map(len, size.placement))
        gp.check(schedule := as_schedule(size.rows(), size.placement))
        if S == 6:
            batch = data.x[:12], data.y[:12]
            step = gp.train_step(gp.split(layers, stages=S), schedule, batch, gp.cross_entropy)
            assert all(abs(step.gradients[k] - alone[k]).max() < 1e-12 for k in alone)
