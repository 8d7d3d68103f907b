"""A memory profile by hand: what a device holds after each action, with recompute for some microbatches."""

from collections.abc import Callable
from typing import NamedTuple

from gpipe_sim.course.called import result_of
from gpipe_sim.course.exercises.seeded import drawn_by, hidden, seeded
from gpipe_sim.course.reply import Reply, almost, correct, is_number, keep_working, quoted
from gpipe_sim.course.rows import Step, parsed, rows_of, spelled
from gpipe_sim.families import GPipe, OneFOneB


class Device(NamedTuple):
    """A device's row as text, the samples of each microbatch, and the bytes of one sample."""

    row: str
    samples: list[int]
    boundary: int
    saved: int

    def __str__(self) -> str:
        return (
            f"row: {self.row}\nsamples of each microbatch: {self.samples}\n"
            f"bytes of a sample: {self.boundary} at the boundary, {self.saved} saved behind it"
        )

    def changes(self) -> list[tuple[Step, int, str]]:
        """(action, how many bytes more it leaves than there were before, a question) of each."""
        [row] = parsed(self.row)
        again, found = {m for _, kind, m in row if kind == "R"}, []
        for action in row:
            kind, m = action[1:]
            input_, rest = self.samples[m] * self.boundary, self.samples[m] * self.saved
            later = f"Its R comes later. What of microbatch {m} can be made then?"
            asks = {"F": later if m in again else f"What does the backward of microbatch {m} read?"}
            asks |= {"R": "What does it make, and what was there already?", "B": "What may go after it?"}
            change = {"F": input_ + (m not in again) * rest, "R": rest, "B": -input_ - rest}[kind]
            found.append((action, change, asks[kind]))
        return found


def task(seed: object = 0) -> Device:
    rng = drawn_by(seed, "staircase")
    M, K = rng.randint(3, 5), rng.randint(2, 4)
    batch = rng.randint(2 * M + 1, 3 * M - 1)
    row = [*rows_of(rng.choice((GPipe, OneFOneB))(K, M))[k := rng.randrange(K - 1)]]
    words = [*map(str, row)]
    for m in rng.sample(range(M), rng.randint(1, M - 1)):
        first, last = words.index(f"{k}F{m}") + 1, words.index(f"{k}B{m}")
        words.insert(rng.choice([last, max(first, last - 1)]), f"{k}R{m}")
    samples = [batch // M + (m < batch % M) for m in range(M)]
    return Device(" ".join(words), samples, rng.randint(1, 5) * 10, rng.randint(6, 12) * 10)


EDGES = (Device("0F0 0B0", [3], 8, 24), Device("2F0 2R0 2F1 2R1 2B1 2B0", [1, 4], 10, 70))


@seeded("write held in this cell, and run it again")
def check(answer: Callable, seed: object) -> Reply:
    """Check ``answer(row, samples, boundary, saved)``: the bytes of activations after each action."""
    devices = [*map(task, hidden(seed)), *EDGES]
    for device in devices:
        where = f"for {device.row}, samples {device.samples}, {device.boundary} and {device.saved} bytes"
        _what_is_wrong(result_of(answer, *device, where=where, whole=("row", "samples")), device, where)
    return correct(
        f"every step of {len(devices)} staircases. Where would you put an R so that the top is lower?"
    )


def _what_is_wrong(got: object, device: Device, where: str) -> None:
    changes = device.changes()
    if not isinstance(got, list | tuple) or not all(map(is_number, got)):
        raise keep_working(f"{where}, you give {quoted(got)}. Which list of numbers is that?")
    if len(got) != len(changes):
        says = f"you give {len(got)} numbers, and the row has {len(changes)} actions"
        raise keep_working(f"{where}, {says}. After which of them is each?")
    before = 0
    right = [before := before + change for _, change, _ in changes]
    if list(got) == [0, *right[:-1]]:
        raise almost(
            f"{where}, your numbers are those before each action. What is there after the first one?"
        )
    before = 0
    for (action, change, asks), found in zip(changes, got, strict=True):
        if found - before != change:
            more = f"{abs(found - before)} {'more' if found >= before else 'fewer'} than before it"
            raise keep_working(f"{where}, your list has {found} after {spelled(action)}, {more}. {asks}")
        before = found
