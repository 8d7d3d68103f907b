"""Lesson 17: data parallelism, pipelines, and both; and what copies can share out."""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from gpipe_sim.core.timeline import number as written
from gpipe_sim.course.answers import Links
from gpipe_sim.course.build import build, exercise
from gpipe_sim.course.called import result_of
from gpipe_sim.course.reply import Reply, almost, correct, is_array, keep_working, listed, shown

#: Devices, and numbers in the vector of each: pieces that are equal, that are not, and some that are empty.
HIDDEN_RINGS = ((4, 12), (2, 5), (3, 10), (6, 25), (5, 3), (1, 4))
TAG = 8.0  #: to its power k is what device k has, in a run that tells who has been added, and how often
#: The same for weights that are shared out: a single device has nobody to share with.
HIDDEN_UPDATES = HIDDEN_RINGS[:4]


class CountedLinks(Links):
    """The links of lesson 02, which note how many bytes each device sends.

    They may add something to each number that they carry, which shows who uses it.
    """

    def __init__(self, adding: float = 0):
        super().__init__()
        self.adding = adding
        self.sent: dict[object, list[int]] = {}  # by device: the bytes of each of its messages
        self.pieces: dict[object, list[np.ndarray]] = {}
        self.overwritten: list[int] = []  # whose vectors are not what they were
        self.lost: object = None  # a device that sent again before its last message was received

    def send(self, name: object, array: np.ndarray) -> None:
        if name in self.arrays and self.lost is None:
            self.lost = name
        self.sent.setdefault(name, []).append(array.nbytes)
        self.pieces.setdefault(name, []).append(array.copy())
        super().send(name, array)

    def receive(self, name: object) -> np.ndarray:
        if isinstance(name, int) and name < 0:
            raise IndexError(f"there is no device {name}")
        if name not in self.arrays and isinstance(name, int):
            asks = "In a round, who must have sent before anybody receives?"
            raise keep_working(f"device {name} has sent nothing yet when its piece is received. {asks}")
        return super().receive(name) + self.adding

    def of(self, device: int) -> int:
        """The bytes that a device has sent."""
        return sum(self.sent.get(device, []))


@build("ring_sum")
def ring_sum(answer: Callable) -> Reply:
    """Check ``answer(vectors, links)``: the sum of the vectors on every device, by a ring."""
    unequal = ""
    for n, length in HIDDEN_RINGS:
        where = f"with {n} devices and vectors of {length} numbers" if n > 1 else "with a single device"
        tagged = [np.full(length, TAG**k) for k in range(n)]
        got, tagged_links = _run(answer, tagged, where)
        if question := _wrong_counts(got, tagged_links, n):
            return keep_working(f"{where}, {question}")
        vectors = list(np.random.default_rng(n).normal(size=(n, length)))
        got, links = _run(answer, vectors, where)
        if question := _wrong_places(got, vectors):
            return keep_working(f"{where}, {question}")
        _wrong_bytes(where, links, n, length)
        if question := _short_piece(tagged_links, n, 2 * (n - 1)) or _unused(answer, tagged, where):
            return keep_working(f"{where} the sums are right. But {question}")
        unequal = unequal or _unequal(got, where)
        if links.overwritten and not unequal:
            changed = f"{where} the sums are right, but vectors[{links.overwritten[0]}] is not what it was"
            unequal = f"{changed}. Which line changes an array in place?"
    if unequal:
        return almost(unequal)
    return correct(
        f"the same bits on every device, at {len(HIDDEN_RINGS)} sizes, from pieces that went around"
    )


def _run(
    answer: Callable,
    vectors: list[np.ndarray],
    where: str,
    *more: object,
    adding: float = 0,
    links: CountedLinks | None = None,
) -> tuple[list, CountedLinks]:
    """What each device has at the end, as vectors, and the links; or raise what is wrong with its form."""
    links, own = links or CountedLinks(adding), [vector.copy() for vector in vectors]
    got = result_of(answer, own, links, *more, where=where, copies=False, plain=False)
    links.overwritten = [k for k, vector in enumerate(vectors) if not np.array_equal(own[k], vector)]
    n, length = len(vectors), len(vectors[0])
    if isinstance(got, np.ndarray) and got.shape == (n, length):
        got = list(got)
    if isinstance(got, np.ndarray):
        raise keep_working(f"{where} it gives one vector. What does each of the devices have at the end?")
    if not isinstance(got, list | tuple) or len(got) != n:
        what = f"{len(got)} of them" if isinstance(got, list | tuple) else f"a {type(got).__name__}"
        raise keep_working(f"{where} it gives {what}. What is a list with a vector of each device?")
    if all(isinstance(each, list | tuple) for each in got):
        raise keep_working(f"{where} each device has a list of pieces. How do these become a vector?")
    for k, each in enumerate(got):
        if not isinstance(each, np.ndarray) or each.dtype.kind != "f" or each.shape != (length,):
            raise keep_working(f"{where} device {k} has {each!r}. Where are its {length} numbers?")
    strange = next((name for name in links.sent if name not in range(n)), None)
    if strange is not None:
        raise keep_working(f"{where}, device {strange!r} sends, and devices are 0 to {n - 1}. Which is it?")
    if links.lost is not None:
        says = f"device {links.lost} sends again before its last piece was received"
        raise keep_working(f"{where}, {says}. Where is that piece then?")
    return list(got), links


def _wrong_counts(got: list[np.ndarray], links: CountedLinks, n: int) -> str:
    """Who has been left out of a sum or counted twice, and a question; empty if nobody has."""
    total = sum(TAG**k for k in range(n))
    if all((each == total).all() for each in got):
        return ""
    if all(np.allclose(each, total / n) for each in got):
        return "each device has the mean. Which of the two is needed, if each part counts by its samples?"
    silent = next((k for k in range(n) if k not in links.sent), 0)
    if links.sent and silent not in links.sent:
        return f"device {silent} sends nothing. Who comes after it in the ring?"
    rounds = len(links.sent.get(0, []))
    if rounds >= n - 1 and (question := _short_piece(links, n, n - 1)):
        return question
    for k, each in enumerate(got):
        for at, value in enumerate(each.tolist()):
            if value == total:
                continue
            counts = _decoded(value, n)
            if counts is None:
                return f"number {at} of device {k} is no sum of the devices' numbers. What was done to it?"
            return f"number {at} of device {k} holds {_what_it_holds(counts, rounds)}"
    return ""


def _short_piece(links: CountedLinks, n: int, rounds: int) -> str:
    """A question about the first piece sent on that holds fewer devices than there have been rounds."""
    for turn in range(rounds):
        for k in range(n):
            piece = [*links.pieces.get(k, []), *[np.empty(0)] * 2 * n][turn]
            counts = (_decoded(float(piece.flat[0]), n) or [0]) if piece.size else [1] * n
            if max(counts) <= 1 and sum(counts) < min(turn + 1, n):
                there = listed(device for device, count in enumerate(counts) if count)
                had = f"only what device {there} had" if there else "no device's numbers"
                says = f"in round {turn + 1} device {k} sends a piece that holds {had}"
                return f"{says}. Which piece has it just {'added to' if turn < n else 'got'}?"
    return ""


def _unused(answer: Callable, vectors: list[np.ndarray], where: str) -> str:
    """A question if not all sums have come through links, each through one more than the one before."""
    n, total = len(vectors), np.sum(vectors, axis=0)
    got, _ = _run(answer, vectors, where, adding=1)
    for at in range(len(total)):
        grew = [float(each[at] - total[at]) for each in got]
        if sorted(grew) != [*range(n - 1, 2 * n - 1)]:
            says = f"with links that add 1 to each number they carry, number {at} of devices 0 to {n - 1}"
            asks = "Through how many links should each sum come?" if any(grew) else "Which line uses it?"
            return f"{says} grows by {listed(written(each) for each in grew)}. {asks}"
    return ""


def _what_it_holds(counts: list[int], rounds: int) -> str:
    """Whose numbers a sum holds, and a question about what went wrong."""
    n, there = len(counts), [k for k, count in enumerate(counts) if count]
    if max(counts) > 1:
        twice = counts.index(max(counts))
        says = f"that of device {twice} {max(counts)} times"
        if len(there) == 1:
            return f"{says}, and no other. From whom does it receive?"
        return f"{says}. In which rounds is what arrives added, and in which is it kept?"
    says = f"that of device {there[0]} only" if len(there) == 1 else f"those of devices {listed(there)} only"
    if not rounds:
        return f"{says}, and nothing has been sent. How do the others get there?"
    return f"{says}, after {rounds} rounds. {_which_round(rounds, n)}"


def _which_round(rounds: int, n: int) -> str:
    if rounds == n - 1:
        return "Some device has that sum by now. How does it get to all the others?"
    if rounds < 2 * (n - 1):
        return "How often must a piece move until all have been added, and how often until all have the sum?"
    return f"After round {n - 1}, who has the whole sum of that piece, and does it send that next?"


def _decoded(value: float, n: int) -> list[int] | None:
    """How often each device's number is in a sum of powers of ``TAG``; None if it is no such sum."""
    if not 0 < value < TAG**n or value != int(value):
        return None
    return [int(value) // int(TAG) ** k % int(TAG) for k in range(n)]


def _wrong_places(got: list[np.ndarray], vectors: list[np.ndarray]) -> str:
    whole = sum(vectors)
    for k, each in enumerate(got):
        off = abs(each - whole)
        wrong = np.flatnonzero(off > 1e-9)
        if len(wrong):
            at = int(wrong[0])
            others = np.flatnonzero(abs(whole - each[at]) < 1e-9)
            if len(others):
                says = f"number {at} of device {k} is what number {int(others[0])} should be"
                return f"{says}. Where do the pieces of a vector belong?"
            if off[at] < 1e-5:
                return f"number {at} of device {k} is off by {off[at]:.0e}. Which line drops digits?"
            says = f"number {at} of device {k} sums what stood at different places"
            return f"{says}. To which of its own pieces does a device add the one that arrives?"
    return ""


def _wrong_bytes(where: str, links: CountedLinks, n: int, length: int) -> None:
    """Raise what is wrong with how much was sent, while all the sums are right."""
    whole, sent = 8 * length, [links.of(k) for k in range(n)]
    due = 2 * (n - 1) * whole  # every piece goes to n - 1 devices twice
    most = 2 * (whole - 8 * (length // n))  # all pieces but one, twice
    if not sum(sent) and due:
        raise keep_working(
            f"{where} all have the sum, and nothing was sent. How does device 0 know the rest?"
        )
    if sum(sent) < due:
        says = f"{where} the sums are right, but all together send {sum(sent)} bytes"
        raise keep_working(f"{says}. Which numbers of another device did one use without receiving them?")
    if max(sent) > most:
        k = sent.index(max(sent))
        says = f"{where} the sums are right, but device {k} sends {sent[k]} bytes, and has {whole}"
        if len({*sent}) > 1 and n > 2:
            raise almost(f"{says}. Which devices send little meanwhile?")
        largest = max(links.sent[k])
        if largest > 8 * -(-length // n):
            raise almost(f"{says}. It sends {largest} in one round: how much need it be?")
        raise almost(f"{says}, in {len(links.sent[k])} rounds. Which of them does nobody need?")


def _unequal(got: list[np.ndarray], where: str) -> str:
    for k, each in enumerate(got):
        if not np.array_equal(each, got[0]):
            return (
                f"{where} the sums are right, but those of devices 0 and {k} differ in the last digits. "
                "Is each piece summed once, and then copied?"
            )
    return ""


class Owners:
    """The rule by which devices update weights; it notes who updates them.

    A weight is its own number, and the length of the vector more for each device before the one that has it.
    ``links`` tell after how many rounds.
    """

    def __init__(self, gradients: list[np.ndarray], links: CountedLinks):
        self.gradients, self.links = gradients, links
        self.whole = np.sum(gradients, axis=0)
        self.done: dict[object, int] = {}  # by device: how many weights it has updated

    def __call__(self, k: object, piece: object, total: object) -> np.ndarray:
        if not is_array(piece) or not is_array(total) or np.shape(piece) != np.shape(total):
            says = f"device {k} updates {shown(piece)} with {shown(total)}"
            raise keep_working(f"{says}. Which piece of the weights does that sum belong to?")
        own, places = np.divmod(piece.astype(int), len(self.whole))
        if other := [each for each in own.tolist() if each != k]:
            says = f"the optimizer of device {k} updates weights of device {other[0]}"
            raise keep_working(f"{says}. On which device are they, and their sums?")
        wrong = total != self.whole[places]
        if np.isin(total, self.whole)[wrong].any():
            says = f"device {k} updates weight {places[wrong][0]} with the gradient of another one"
            raise keep_working(f"{says}. Which piece has it the whole sum of?")
        if wrong.any():
            raise keep_working(self._not_the_sum(k, int(places[wrong][0]), total[wrong][0]))
        self.done[k] = self.done.get(k, 0) + piece.size
        return updated(places.astype(np.float16), total)

    def _not_the_sum(self, k: object, place: int, total: float) -> str:
        """What a device has in place of the sum of all gradients for a weight, and a question."""
        if k in self.done:
            return f"device {k} updates weight {place} again. In which round does each weight get its update?"
        n, says = len(self.gradients), f"device {k} updates weight {place} with"
        if np.isclose(total, self.whole[place] / n):
            return f"{says} the mean of its gradients. Which of the two is `total`, mean or sum?"
        whose, rounds = _whose(total, self.gradients, place), len(self.links.sent.get(k, []))
        if not whose:
            return f"{says} {total:g}, which adds up gradients of several weights. What is added to what?"
        says = f"{says} its gradient on device{'s' * (len(whose) > 1)} {listed(whose)}, after {rounds} rounds"
        if rounds < n - 1:
            return f"{says}. After which round has a piece met all devices?"
        if k not in whose:
            return f"{says}. What becomes of its own when a piece arrives?"
        return f"{says}. Which of its pieces has met all devices by then?"


def _whose(total: float, gradients: list[np.ndarray], place: int) -> list[int]:
    """The devices whose gradients for a weight add up to this; none if it is no such sum."""
    own = [float(gradient[place]) for gradient in gradients]
    for each in product((0, 1), repeat=len(own)):
        if any(each) and np.dot(each, own) == total:
            return [k for k, counts in enumerate(each) if counts]
    return []


def updated(weights: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Weights of 2 bytes after a step."""
    return (weights - gradient / 64).astype(np.float16)


@exercise("write zero_1 in this cell, and run it again")
def zero_1(answer: Callable) -> Reply:
    """Check ``answer(gradients, links, weights, update)``: each device updates a piece, and all get all."""
    for n, length in HIDDEN_UPDATES:
        where = f"with {n} devices and {length} weights"
        weights = np.arange(length, dtype=np.float16)
        gradients = list(np.random.default_rng(n).integers(-999, 999, (n, length)).astype(np.float32))
        owners = Owners(gradients, links := CountedLinks())
        shifted = [weights + k * length for k in range(n)]
        got, _ = _run(answer, gradients, where, shifted, owners, links=links)
        if question := _old_or_wrong(got, weights, owners):
            return keep_working(f"{where}, {question}")
        if sum(owners.done.values()) > length:
            k = max(owners.done, key=lambda k: owners.done[k])
            says = f"{where} the weights are right, but device {k} updates {owners.done[k]} of them"
            return almost(f"{says}. Which of these does another device update too?")
        if idle := [k for k in range(n) if k not in owners.done]:
            says = f"{where} the weights are right, but device {idle[0]} updates none"
            return almost(f"{says}. Which piece could it take?")
        due, sent = 6 * (n - 1) * length, sum(map(links.of, range(n)))
        if sent != due:
            says = f"{where} the weights are right, but all together send {sent} bytes"
            asks = "In which half does what go around, and how many bytes has a number of it?"
            return (almost if sent > due else keep_working)(f"{says}, and two halves of a ring {due}. {asks}")
    return correct(f"new weights on every device, at {len(HIDDEN_UPDATES)} sizes, each updated by one")


def _old_or_wrong(got: Sequence[np.ndarray], weights: np.ndarray, owners: Owners) -> str:
    """Whose weights are not the new ones, and a question."""
    total, gradients, rounds = owners.whole, owners.gradients, len(owners.links.sent.get(0, []))
    new = updated(weights, total)
    for k, each in enumerate(got):
        for at in np.flatnonzero(each != new).tolist():
            value, says = float(each[at]), f"number {at} of device {k} is "
            if value % len(weights) == weights[at] and value >= 0:
                return f"{says}the weight that it was. How does a device get what others have updated?"
            if value == total[at]:
                return f"{says}a sum of gradients. What goes around in the second half?"
            if value in new:
                other = np.flatnonzero(new == value)[0]
                return f"{says}what number {other} should be. Where do the pieces of a vector belong?"
            says = f"{says}{value:g}, and the new weight is {new[at]:g}"
            if rounds < 2 * (len(got) - 1):
                return f"{says}; device 0 has sent {rounds} times. In which round should it come?"
            if whose := _whose(value, gradients, at):
                holds = f"number {at} of device {k} is {value:g}, the gradient"
                holds += (
                    f" of device {whose[0]} alone" if len(whose) == 1 else f"s of devices {listed(whose)}"
                )
                return f"{holds}. Which piece does a device send first in the second half?"
            if _whose(value - float(new[at]), gradients, at):
                return f"{says}. In the second half, is what arrives added or kept?"
            return f"{says}. What does `update` give back, and where does it go?"
    return ""
