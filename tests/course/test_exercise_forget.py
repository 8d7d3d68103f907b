"""Where to recompute: what the check says to right answers and to the usual wrong ones."""

from itertools import product

from replies import changed_text, each_reply

from gpipe_sim.course.exercises import forget

RIGHT = """
from itertools import combinations

def forget(layers, flight, room):
    best = None
    for count in range(len(layers) + 1):
        for chosen in combinations(range(len(layers)), count):
            again = sum(layers[i][0] for i in chosen)
            kept = sum(size for size, _ in layers) - again
            time = sum(layers[i][1] for i in chosen)
            if flight * kept + again <= room and (best is None or time < best[0]):
                best = time, list(chosen)
    return best and best[1]
"""


def by_bits(layers, flight, room):
    found = []
    for bits in product((0, 1), repeat=len(layers)):
        held = sum(size * (1 if bit else flight) for bit, (size, _) in zip(bits, layers, strict=True))
        if held <= room:
            found.append((sum(bit * time for bit, (_, time) in zip(bits, layers, strict=True)), bits))
    return {i for i, bit in enumerate(min(found)[1]) if bit} if found else None


def but(*swaps):
    return changed_text(RIGHT, *swaps)


def until_it_fits(key):
    """Forget one layer after the other, those with the smallest key first."""

    def forget_(layers, flight, room):
        chosen = []
        for i in sorted(range(len(layers)), key=lambda i: key(*layers[i])):
            again = sum(layers[j][0] for j in chosen)
            if flight * (sum(size for size, _ in layers) - again) + again <= room:
                return chosen
            chosen.append(i)
        return chosen

    return forget_


test_replies = each_reply(
    forget,
    check={
        "correct": [(but(), "the least time for 12 stages"), (by_bits, "the least time")],
        "almost": [
            (
                but(("flight * kept + again", "flight * kept")),
                "What else is there while one of them goes back?",
            ),
            (until_it_fits(lambda size, time: time), "takes 23 for each microbatch; 18 is enough. Which"),
            (but(("again <= room and", "again < room and")), "takes 15 for each microbatch; 10 is enough"),
            (lambda layers, flight, room: layers.clear() or [], "layers is not what it was before"),
        ],
        "keep working": [
            (until_it_fits(lambda size, time: time / size), "Would it still fit if layer 5 stayed?"),
            (until_it_fits(lambda size, time: -size), "16 for each microbatch; 10 is enough. Which"),
            (but(("flight * kept + again", "kept")), "What else can be made again?"),
            (but(("list(chosen)", "[i + 1 for i in chosen]")), "Which of the layers 0 to"),
            (
                but(("list(chosen)", "[i for i in range(len(layers)) if i not in chosen]")),
                "you forget 0, 1, 3, 4, 6: it fits, and takes 33",
            ),
            (but(("return best and best[1]", "return best and best[0]")), "you give 10. Which of the layers"),
            (
                but(("best and best[1]", "best[1] if best else []")),
                "you forget nothing: 4 x 70 bytes are kept",
            ),
            (lambda layers, flight, room: range(len(layers)), "Which of the layers"),
            (lambda layers, flight, room: [*range(len(layers))], "Would it still fit if layer 0 stayed?"),
            (lambda layers, flight, room: [], "What else can be made again?"),
            (lambda layers, flight, room: None, "Is that too much?"),
            (lambda layers, flight, room: [0, 0], "How can a layer be forgotten twice?"),
        ],
    },
)


def test_the_lessons_example_by_hand():
    stage = forget.Stage(((40, 1), (30, 1)), 3, 0)
    assert (stage.held([0]), stage.held([])) == (130, 210)


def test_something_must_be_forgotten_and_something_may_stay():
    for seed in range(40):
        stage = forget.task(seed)
        assert len(stage.layers) <= 8
        assert 0 < forget.least(stage) < sum(time for _, time in stage.layers)
