"""One action of a student's stage after the other, each beside the same action of ``answers``.

So the reply can name the action that is the first to go wrong, and what it left or sent. Between two
actions the stages move to other dicts, and the old ones are emptied, so that no stage can read another.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpipe_sim.core.memory import roots
from gpipe_sim.course import answers
from gpipe_sim.course.called import called
from gpipe_sim.course.one_device import biased, is_close, off, weights_changed
from gpipe_sim.course.reply import almost, is_array, is_number, keep_working, shown

#: The microbatches that are on their way at the same time, and the order in which they come back. Neither the
#: oldest nor the newest comes first.
THERE, BACK = (0, 2, 3), (2, 0, 3)
OTHERS = ("y", 0, 9)  #: a message that is on its way all the time, and that no action here may take
WORK = {"F": answers.forward, "B": answers.backward}
Work = Callable[..., object]


@dataclass
class World:
    """The stages of a model and what is on their links, as far as a step has got."""

    stages: list[dict]
    links: answers.Links

    @classmethod
    def of(cls, widths: Sequence[int]) -> "World":
        return cls(answers.stages_of(biased(widths)), answers.Links())

    def move(self) -> None:
        """Go on with copies of the stages; whoever remembers the old ones finds nothing in them."""
        old, self.stages = self.stages, deepcopy(self.stages)
        for stage in old:
            stage.clear()


def first_wrong(work: dict[str, Work | None], widths: Sequence[int], samples: int) -> None:
    """Do every action twice, as the student does and as it should be, and compare after each."""
    rng, last = np.random.default_rng(0), len(widths) - 2
    theirs, right = World.of(widths), World.of(widths)
    forwards = [(s, "F", m) for m in THERE for s in range(last + 1)]
    backwards = [(s, "B", m) for m in BACK for s in reversed(range(last + 1))]
    for s, kind, m in forwards + backwards:
        if work[kind] is None:
            raise keep_working("forward is right on the stages tried. Now write backward")
        if s == (0 if kind == "F" else last):
            name, width = (("y", -1, m), widths[0]) if kind == "F" else (("dy", last, m), widths[-1])
            array = rng.normal(size=(samples, width))
            for world in (theirs, right):
                world.links.send(name, array)
        before = _before(right, s, kind, m)
        where = f"at {s}{kind}{m}, with {samples} samples, {widths[s]} features in and {widths[s + 1]} out,"
        theirs.move()
        theirs.links.arrays = {OTHERS: np.ones(1), **theirs.links.arrays}
        called(work[kind], theirs.stages[s], s, m, theirs.links, copies=False, where=where)
        if theirs.links.arrays.pop(OTHERS, None) is None:
            raise almost(f"{where} {OTHERS} was on its way, and is gone. Who else waits for a message?")
        WORK[kind](right.stages[s], s, m, right.links)
        _differs(where, (s, kind, m), theirs, right, before)
        for world in (theirs, right):
            world.links.arrays.pop(("y", last, m), None)


def _before(world: World, s: int, kind: str, m: int) -> dict[str, Any]:
    """What the action will read, for a reply that says what went wrong with it."""
    stage = world.stages[s]
    if kind == "F":
        return {"x": world.links.arrays["y", s - 1, m].copy()}
    x, y = stage["kept"][m]
    return {"x": x, "y": y, "dy": world.links.arrays["dy", s, m].copy(), "dW": stage["dW"], "db": stage["db"]}


def _differs(where: str, action: tuple, theirs: World, right: World, before: dict) -> None:
    s, kind, m = action
    stage, wanted = theirs.stages[s], right.stages[s]
    weights_changed(where, stage, wanted)
    _wrong_names(where, action, set(theirs.links.arrays), set(right.links.arrays))
    for name, sent in theirs.links.arrays.items():
        if is_array(sent) and any(np.may_share_memory(sent, own) for own in roots([stage])):
            told = f"{where} what is on its way as {name} is the stage's own array, and no copy of it"
            raise almost(f"{told}. Which method of the links makes one?")
    if kind == "F":
        _wrong_y(where, action, theirs, right, before)
        _wrong_kept(where, m, stage, wanted)
    else:
        _took_another(where, m, stage, wanted)
        _wrong_gradient(where, stage, wanted, before)
        _wrong_dx(where, s, m, theirs, right, before)
        _not_freed(where, m, stage, wanted)


def _wrong_names(where: str, action: tuple, found: set, wanted: set) -> None:
    s, kind, m = action
    reads = ("y", s - 1, m) if kind == "F" else ("dy", s, m)
    missing, extra = wanted - found, found - wanted
    if reads in extra:
        raise almost(f"{where} {reads} is still on the link. Which method of the links takes it off?")
    if missing and extra:
        sent = f"{_one(extra)} is sent; the stage that comes next looks for {_one(missing)}"
        raise almost(f"{where} {sent}. Whose array is it?")
    if missing:
        raise keep_working(f"{where} nothing is sent under {_one(missing)}. Who waits for it?")
    if extra:
        raise almost(f"{where} {_one(extra)} is sent too. Which device would ever receive it?")


def _one(names: set) -> str:
    return repr(min(names, key=repr))


def _wrong_y(where: str, action: tuple, theirs: World, right: World, before: dict) -> None:
    s, _, m = action
    y, wanted, stage = theirs.links.arrays["y", s, m], right.links.arrays["y", s, m], right.stages[s]
    if is_close(y, wanted):
        return
    if not is_array(y) or y.shape != wanted.shape:
        raise keep_working(
            f"{where} {shown(y)} is sent; y has a row per sample and a column per feature. What shape has x?"
        )
    z = before["x"] @ stage["W"]
    if stage["relu"] and is_close(y, z + stage["b"]):
        raise almost(f"{where} numbers down to {y.min():.3g} are sent. What does this stage end with?")
    if not stage["relu"] and is_close(y, np.maximum(z + stage["b"], 0)):
        raise almost(f"{where} none of {y.size} numbers sent is below 0. What does `relu` say of this stage?")
    if is_close(y, z) or is_close(y, np.maximum(z, 0)):
        raise almost(f"{where} y is x @ W. Which array of the stage has no part in it?")
    raise keep_working(
        f"{where} the y that is sent is off by {off(y, wanted)} of its largest entry. How is y made from x?"
    )


def _wrong_kept(where: str, m: int, stage: dict, wanted: dict) -> None:
    kept = stage.get("kept")
    if not isinstance(kept, dict) or m not in kept:
        others = f", only {', '.join(map(repr, kept))}" if isinstance(kept, dict) and kept else ""
        raise keep_working(
            f"{where} nothing is kept under {m}{others}. What will the backward of this microbatch need?"
        )
    if not isinstance(kept[m], tuple | list) or len(kept[m]) != 2:
        raise almost(
            f"{where} {shown(kept[m])} is kept; later lessons look for two, x and y. Which is missing?"
        )
    for number, pair in wanted["kept"].items():
        if number not in kept:
            raise almost(f"{where} microbatch {number} is not kept any more. Has its backward been done?")
        for name, found, array in zip("xy", kept[number], pair, strict=False):
            if not is_close(found, array):
                what = "x, what came in" if name == "x" else "y, what was sent"
                raise almost(
                    f"{where} what is kept as {name} of microbatch {number} is not {what}. Which array is it?"
                )


def _took_another(where: str, m: int, stage: dict, wanted: dict) -> None:
    kept = stage.get("kept")
    if not isinstance(kept, dict) or m not in kept or not (lost := set(wanted["kept"]) - set(kept)):
        return
    taken = f"the pair of microbatch {min(lost)} is taken out, and that of {m} is still there"
    raise almost(f"{where} {taken}. Which of them is this the backward of?")


def _wrong_gradient(where: str, stage: dict, wanted: dict, before: dict) -> None:
    x, dy = before["x"], before["dy"]
    masked = dy * (before["y"] > 0) if wanted["relu"] else dy
    for name in ("dW", "db"):
        found, right, earlier = stage.get(name), wanted[name], before[name]
        if is_close(found, right):
            continue
        said = f"{where} {name}"
        if is_number(found) and found == 0:
            raise keep_working(f"{said} is still 0. What did this microbatch have to add to it?")
        if not is_array(found):
            raise keep_working(f"{said} is {shown(found)}. What does one entry of it say?")
        if found.shape != right.shape:
            of = name[1]
            raise keep_working(
                f"{said} has the shape {found.shape}, {of} has {right.shape}. What do they share?"
            )
        whole, raw = (x.T @ masked, x.T @ dy) if name == "dW" else (masked.sum(axis=0), dy.sum(axis=0))
        if np.any(earlier) and is_close(found, whole):
            raise almost(
                f"{said} is this microbatch's alone. Where is what the one before it had left there?"
            )
        if is_close(found, earlier + raw):
            raise almost(f"{said} would be right if every y were above 0. What does a ReLU do to the others?")
        positive = dy * (before["y"] > 0)
        if is_close(found, earlier + (x.T @ positive if name == "dW" else positive.sum(axis=0))):
            raise almost(f"{said} leaves out dy where y is not above 0. What does `relu` say of this stage?")
        if is_close(found - earlier, whole.T):
            raise almost(f"{said} is turned over: W has a row for each feature of x. And this, of what?")
        if is_close(found - earlier, whole / len(x)):
            raise almost(f"{said} is divided by {len(x)}, the samples. Has anybody done so before?")
        says = f"{said} is off by {off(found, right)} of its largest entry"
        entry = "one entry of W" if name == "dW" else "b[0]"
        raise keep_working(f"{says}. Which entries of y does {entry} change?")


def _wrong_dx(where: str, s: int, m: int, theirs: World, right: World, before: dict) -> None:
    if s == 0:
        return
    dx, wanted = (world.links.arrays["dy", s - 1, m] for world in (theirs, right))
    if is_close(dx, wanted):
        return
    said = f"{where} dW and db are right, but what is sent"
    if not is_array(dx) or dx.shape != wanted.shape:
        shape = f" of shape {dx.shape}" if is_array(dx) else ""
        raise keep_working(f"{said} is {shown(dx)}{shape}; x has {wanted.shape}. Whose gradient is it?")
    if is_close(dx, before["dy"] @ right.stages[s]["W"].T):
        raise almost(f"{said} takes every y to be above 0. Which dy has passed the ReLU?")
    raise keep_working(
        f"{said} is off by {off(dx, wanted)} of its largest entry. Which entries of y does x[0, 0] change?"
    )


def _not_freed(where: str, m: int, stage: dict, wanted: dict) -> None:
    kept = stage.get("kept")
    if not isinstance(kept, dict):
        raise keep_working(f"{where} the stage's 'kept' is {shown(kept)} afterwards; it should stay a dict")
    if m in kept:
        raise almost(f"{where} x and y of microbatch {m} are still kept afterwards. Who will read them?")
    if lost := set(wanted["kept"]) - set(kept):
        raise almost(f"{where} microbatch {min(lost)} is not kept any more. Has its backward been done?")
