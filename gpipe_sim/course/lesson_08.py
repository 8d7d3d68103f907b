"""Lesson 08: rematerialisation."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from gpipe_sim.core.costs import Costs
from gpipe_sim.core.remat import remat
from gpipe_sim.core.simulate import simulate
from gpipe_sim.course import answers
from gpipe_sim.course.build import build, exercise
from gpipe_sim.course.called import called
from gpipe_sim.course.one_device import OWN, biased, is_close, kept_arrays, weights_changed
from gpipe_sim.course.reply import Reply, almost, correct, is_array, is_number, keep_working, shown
from gpipe_sim.drawing.document import Svg
from gpipe_sim.drawing.svg import draw
from gpipe_sim.errors import Real
from gpipe_sim.families import GPipe
from gpipe_sim.papers.formulas import remat_activation_units

#: features around each stage, samples, microbatches: where light_forward and recompute are tried
HIDDEN_STAGES = (((7, 5, 6, 3), 8, 3), ((6, 4), 5, 2), ((4, 9, 2, 8, 5), 6, 4))
#: devices, microbatches, and how long a forward, a backward and a recompute take
HIDDEN_TIMES = (
    *((3, 5, 2, 4, 1), (5, 4, 3, 7, 2), (2, 9, 1, 2, 1), (6, 1, 1, 2, 1), (1, 6, 2, 3, 2)),
    *((4, 7, 2, 3, 5), (3, 4, 1, 2, 0.5)),
)
#: bytes for activations, of one boundary input, and of all that one microbatch leaves behind
HIDDEN_LIMITS = ((1000, 10, 100), (4096, 64, 1024), (999, 50, 50), (730, 20, 90), (50, 10, 100))


def three_ways() -> Svg:
    """GPipe without recompute, with it inside B, and with R: three R in the bubble are framed."""
    plain = GPipe(4, 8)
    ways = {
        "Nothing is recomputed": simulate(plain),
        "Recompute inside B": simulate(plain, Costs(input_grad=2, weight_grad=1)),
        "Recompute as an action of its own": simulate(remat(plain, "always")),
    }
    titles = [f"{words}: {timeline.makespan} long" for words, timeline in ways.items()]
    return draw(*ways.values(), highlight=["0R7", "1R7", "2R7"], titles=titles)


@build("light_forward", "recompute")
def light_forward_and_recompute(light_forward: Callable, recompute: Callable) -> Reply:
    """Check a forward that keeps x alone, and what makes y again, action by action."""
    for features, samples, microbatches in HIDDEN_STAGES:
        try:
            _step(light_forward, recompute, features, samples, microbatches)
        except Reply as wrong:
            shapes = ", ".join(f"{before} x {after}" for before, after in pairwise(features))
            return Reply(wrong.verdict, f"stages of {shapes}: {wrong.text}")
    return correct(
        "between F and R a stage keeps its inputs and nothing else, and each backward finds x and y. "
        "How much later may R run, and how much earlier?"
    )


class _Links(answers.Links):
    """Links that note what was sent and received since they were last asked."""

    def __init__(self):
        super().__init__()
        self.noted: list[tuple[str, object]] = []

    def send(self, name, array):
        self.noted.append(("sends", name))
        super().send(name, array)

    def receive(self, name):
        self.noted.append(("receives", name))
        return super().receive(name)

    def since(self) -> list[tuple[str, object]]:
        noted, self.noted = self.noted, []
        return noted


def _step(
    light_forward: Callable, recompute: Callable, features: Sequence[int], samples: int, microbatches: int
) -> None:
    """Raise what is wrong with a step in which each microbatch is recomputed everywhere, then goes back."""
    stages, usual = (answers.stages_of(biased(features)) for _ in range(2))
    rng = np.random.default_rng(len(features))
    links, own_links = _Links(), answers.Links()
    for m, x in enumerate(np.array_split(rng.normal(size=(samples, features[0])), microbatches)):
        for each in (links, own_links):
            each.send(("y", -1, m), x)
        links.since()
        for s, stage in enumerate(stages):
            answers.forward(usual[s], s, m, own_links)
            _after_forward(light_forward, stage, s, m, links, usual[s]["kept"])
            _changed(f"{s}F{m}", stage, usual[s])
    last = len(stages) - 1
    for stage, other in zip(stages, usual, strict=True):
        _another_bias(stage, other)
    for m in reversed(range(microbatches)):
        for s, stage in enumerate(stages):
            _after_recompute(recompute, stage, s, m, links, usual[s])
            _changed(f"{s}R{m}", stage, usual[s])
        dy = rng.normal(size=own_links.receive(("y", last, m)).shape)
        for each, owner in ((links, stages), (own_links, usual)):
            each.send(("dy", last, m), dy)
            for s in reversed(range(len(stages))):
                answers.backward(owner[s], s, m, each)
        links.since()
        _after_backward(stages, m, usual)


def _another_bias(stage: dict, usual: dict) -> None:
    """Change b: what R leaves follows if it is computed again, and does not if y was kept somewhere."""
    usual["before"] = {m: y for m, (_, y) in usual["kept"].items()}
    for each in (stage, usual):
        each["b"] = each["b"] + 0.5
    for m, (x, _) in usual["kept"].items():
        y = x @ usual["W"] + usual["b"]
        usual["kept"][m] = x, np.maximum(y, 0) if usual["relu"] else y


def _after_forward(work: Callable, stage: dict, s: int, m: int, links: _Links, kept: dict) -> None:
    called(work, stage, s, m, links, where=f"in {s}F{m}", copies=False)
    x, y = kept[m]
    wanted = [("receives", ("y", s - 1, m)), ("sends", ("y", s, m))]
    if (noted := links.since()) != wanted:
        raise keep_working(f"{s}F{m} {_in_words(noted)}. What does the next stage begin with?")
    if not is_close(links.arrays["y", s, m], y):
        raise keep_working(f"{s}F{m} sends another y than forward does. What may change, and what may not?")
    extra = _held(stage) - sum(x.nbytes for x, _ in kept.values())
    where = f"after {s}F{m} the stage keeps {_held(stage)} bytes"
    inputs = f"its input{'s' * (len(kept) > 1)} would be {_held(stage) - extra}"
    if extra == sum(each.nbytes for _, each in kept.values()):
        raise keep_working(f"{where}; {inputs}. Which of its arrays could be computed again?")
    if not any(np.array_equal(x, each) for each in kept_arrays(stage)):
        raise keep_working(f"{where}, but its input x is not among them. Where would it come from later?")
    if extra < 0:
        raise almost(f"{where}; {inputs}. Which of them is gone, and who still needs it?")
    if extra:
        raise almost(f"{where}; {inputs}. What else is there, and who needs it before R?")


def _after_recompute(work: Callable | None, stage: dict, s: int, m: int, links: _Links, usual: dict) -> None:
    kept = usual["kept"]
    if work is None:
        raise keep_working(
            "so far each stage keeps its inputs and nothing else. Now recompute: what does it find in "
            'stage["kept"][m], and what should it leave there?'
        )
    try:
        called(work, stage, s, m, links, where=f"in {s}R{m}", copies=False)
    finally:
        if noted := links.since():
            what = _in_words(noted)
            raise keep_working(f"{s}R{m} {what}. Was that not done in {s}F{m}, and is it still on the link?")
    found = stage["kept"].get(m) if isinstance(stage.get("kept"), dict) else None
    if not isinstance(found, tuple | list) or len(found) != 2:
        what = "nothing" if found is None else shown(found)
        raise keep_working(f'after {s}R{m} there is {what} in stage["kept"][{m}]. What does backward unpack?')
    if not is_close(found[0], kept[m][0]):
        raise keep_working(f"after {s}R{m} the first of the two arrays is not the x of {s}F{m}. Which is it?")
    if is_close(found[1], usual["before"][m]):
        its = f"{s}R{m} leaves the y of {s}F{m}, though b has changed since then (the check did that)"
        raise keep_working(f"{its}. Where was that y until now?")
    if not is_close(found[1], kept[m][1]):
        raise almost(f"after {s}R{m} y is not what {s}F{m} kept: {_apart(found[1], kept[m][1])}")
    extra = _held(stage) - sum(x.nbytes for x, _ in kept.values()) - kept[m][1].nbytes
    if extra:
        words = f"{abs(extra)} bytes {'more' if extra > 0 else 'less'} than all inputs and one y"
        raise almost(f"after {s}R{m} the stage holds {words}. Which microbatch is {s}R{m} about?")


def _after_backward(stages: list[dict], m: int, usual: list[dict]) -> None:
    for s, (stage, other) in enumerate(zip(stages, usual, strict=True)):
        if not (is_close(stage["dW"], other["dW"]) and is_close(stage["db"], other["db"])):
            raise keep_working(f"after {s}B{m} the gradient is another one. What did {s}R{m} do to it?")
        left = sum(x.nbytes for x, _ in other["kept"].values())
        if _held(stage) != left:
            raise almost(f"after {s}B{m} the stage keeps {_held(stage)} bytes, not {left}. Who frees them?")


def _changed(after: str, stage: dict, usual: dict) -> None:
    """Raise that a stage has lost something that it always holds, or that its parameters have changed."""
    for name in OWN:
        if name not in stage:
            raise keep_working(f"after {after} the stage has no {name!r} any more. Who still needs it?")
    weights_changed(f"after {after}", stage, usual)


def _held(stage: dict) -> int:
    return sum(array.nbytes for array in kept_arrays(stage))


def _apart(found: object, wanted: np.ndarray) -> str:
    """Where y differs from the forward's, and a question."""
    if not is_array(found):
        return f"it is {shown(found)}. What does backward compare with 0?"
    if found.shape != wanted.shape:
        return f"its shape is {found.shape}, not {wanted.shape}. Which array is it?"
    at = np.unravel_index(abs(found - wanted).argmax(), wanted.shape)
    there, was = (f"{y[at]:.3g}" for y in (found, wanted))
    if there == was:
        there, was = str(found[at]), str(wanted[at])  # every digit
    return f"{there} stands where {was} was. Which steps of forward are there?"


def _in_words(noted: Sequence[tuple[str, object]]) -> str:
    return " and ".join(f"{verb} {name!r}" for verb, name in noted) or "sends and receives nothing"


@exercise("write a function remat_time(K, M, F, B, R) and pass it in")
def remat_time(answer: Callable | None) -> Reply:
    """Check ``answer(K, M, F, B, R)``: how long a step of GPipe takes with these times.

    All microbatches but the last are recomputed.
    """
    for case in HIDDEN_TIMES:
        got = called(answer, *case)
        if not is_number(got) or got != _time(*case):
            return _what_is_wrong_with_time(case, got)
    return correct("as long as the simulated step on every size tried, also where R takes longer than F")


@exercise("write a function of (limit, boundary, saved) and pass it in")
def most_microbatches(answer: Callable | None) -> Reply:
    """Check ``answer(limit, boundary, saved)``: how many microbatches fit if GPipe recomputes all of them."""
    for case in HIDDEN_LIMITS:
        got = called(answer, *case)
        if not is_number(got) or got != _most(*case):
            return _what_is_wrong_with_most(*case, got)
    return correct("it fits on every size tried, and one microbatch more would not")


def _time(devices: int, microbatches: int, forward: Real, backward: Real, recompute: Real) -> Real:
    costs = Costs(forward=forward, input_grad=backward, weight_grad=0, recompute=recompute)
    return simulate(remat(GPipe(devices, microbatches), "except_last"), costs).makespan


def _what_is_wrong_with_time(case: tuple, got: object) -> Reply:
    K, M, forward, backward, recompute = case
    where = f"K={K}, M={M}, F={forward}, B={backward}, R={recompute}: you say {got!r}"
    if got is None:
        return keep_working(f"{where}. What should come after return?")
    if not is_number(got):
        return keep_working(f"{where}. How long is that, as a number?")
    slots, plain = K - 1 + M, (K - 1 + M) * (forward + backward)
    if got in (plain + slots * recompute, plain + (slots - 1) * recompute):
        question = "Which array does R read, and when did it arrive?"
        return almost(f"{where}, right if R waits for the gradient. {question}")
    if got == plain + M * recompute:
        return almost(f"{where}, right if every microbatch is recomputed. How many R does a device run here?")
    if got == plain + (M - 1) * forward:
        return almost(f"{where}, right if R took as long as F. Does it here?")
    if got == plain:
        return keep_working(f"{where}, which is the step without any R. What does each R add?")
    return keep_working(f"{where}. How long is the step without R, and which R must somebody wait for?")


def _most(limit: int, boundary: int, saved: int) -> int:
    """The most microbatches that fit, found by adding one while it still fits."""
    held = 0
    while remat_activation_units(held + 1, boundary, saved - boundary) <= limit:
        held += 1
    return held


def _what_is_wrong_with_most(limit: int, boundary: int, saved: int, got: object) -> Reply:
    where = f"limit {limit:,}, boundary {boundary}, saved {saved}: you say {got!r}"
    if got is None:
        return keep_working(f"{where}. What should come after return?")
    if not is_number(got) or got % 1 != 0:
        return keep_working(f"{where}. How many whole microbatches is that?")
    if got < 0:
        return almost(f"{where}. If not even one microbatch fits, how many can be held?")
    peak = remat_activation_units(int(got), boundary, saved - boundary)
    if got == limit // saved:
        return keep_working(
            f"{where}, right if nothing is recomputed. With R the peak would be {peak:,}. What more fits?"
        )
    if peak > limit:
        return almost(f"{where}, but then the peak is {peak:,}. What is held besides the boundary inputs?")
    if got + 1 < _most(limit, boundary, saved):
        return keep_working(f"{where}, and the peak is {peak:,}. What would one microbatch more add to it?")
    return almost(f"{where}, and the peak is {peak:,}: one more fits. Did you count an array twice?")
